package live

import (
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"
)

// ioChunk is the size of the buffer for reading and writing words.
const ioChunk = 64 << 10

// writeWords writes words, each read atomically.
func writeWords(w io.Writer, order binary.AppendByteOrder, words []uint64) (int64, error) {
	buf := make([]byte, 0, min(ioChunk, len(words)*8))
	var written int64
	for len(words) > 0 {
		n := min(len(words), cap(buf)/8)
		buf = buf[:0]
		for i := range n {
			buf = order.AppendUint64(buf, atomic.LoadUint64(&words[i]))
		}
		words = words[n:]
		m, err := w.Write(buf)
		written += int64(m)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// readWords reads n words. It takes no more memory than a small multiple of the size
// of r, whatever n is.
func readWords(r io.Reader, order binary.ByteOrder, n uint64) ([]uint64, error) {
	buf := make([]byte, min(ioChunk, n*8))
	var words []uint64
	for got := uint64(0); got < n; {
		b := buf[:min(uint64(len(buf)), (n-got)*8)]
		if err := readFull(r, b); err != nil {
			return nil, err
		}
		if need := got + uint64(len(b))/8; need > uint64(len(words)) {
			grown := alignedWords(min(n, max(need, 4*uint64(len(words)))))
			copy(grown, words[:got])
			words = grown
		}
		for ; len(b) > 0; b = b[8:] {
			words[got] = order.Uint64(b)
			got++
		}
	}
	return words, nil
}

// readFull fills b. If the input ends earlier, the error is ErrFormat.
func readFull(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return formatError("ends too early")
	}
	return err
}

// copyWords returns a copy of words, each read atomically.
func copyWords(words []uint64) []uint64 {
	c := alignedWords(uint64(len(words)))
	for i := range words {
		c[i] = atomic.LoadUint64(&words[i])
	}
	return c
}

// equalWords reports whether a and b are equal.
func equalWords(a, b []uint64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if atomic.LoadUint64(&a[i]) != atomic.LoadUint64(&b[i]) {
			return false
		}
	}
	return true
}
