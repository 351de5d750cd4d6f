package record

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/siftdb/sift/internal/base"
)

// flushBytes bounds the framed bytes that are buffered, so that a huge record is not held in memory
// twice.
const flushBytes = 1 << 20

// Writer frames records and writes them to a new log. After a failed or short write, which
// leaves the end of the log in an unknown state, every call returns the same error (I5). A
// Writer does not sync, and must not be used concurrently.
type Writer struct {
	w   io.Writer
	buf []byte // framed but not yet written
	off int64  // offset of the next chunk
	err error
}

// NewWriter returns a writer for a new log. w must be empty.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Append writes a record, and the records added before it, in one Write, or several if they
// exceed a megabyte.
func (w *Writer) Append(payload []byte) error { return w.AppendParts(payload) }

// AppendParts is Append for a record whose payload is the concatenation of the parts.
func (w *Writer) AppendParts(parts ...[]byte) error {
	if err := w.AddParts(parts...); err != nil {
		return err
	}
	return w.Flush()
}

// AddParts frames a record whose payload is the concatenation of the parts. The next Flush or
// Append writes it, so that several records take one Write.
func (w *Writer) AddParts(parts ...[]byte) error {
	if w.err != nil {
		return w.err
	}
	left := 0
	for _, p := range parts {
		left += len(p)
	}
	// Each new block costs at most a header and a trailer.
	room := left + (left/(BlockSize-HeaderLen)+2)*2*HeaderLen
	w.buf = slices.Grow(w.buf, min(room, flushBytes+BlockSize))

	part, at := 0, 0 // the next byte to frame is parts[part][at]
	for first := true; ; first = false {
		room := BlockSize - int(w.off%BlockSize)
		if room < HeaderLen {
			var zeros [HeaderLen]byte
			w.buf = append(w.buf, zeros[:room]...)
			w.off += int64(room)
			room = BlockSize
		}
		n := min(left, room-HeaderLen)
		left -= n

		start := len(w.buf)
		w.buf = append(w.buf, 0, 0, 0, 0, byte(n), byte(n>>8), chunkType(first, left == 0))
		for n > 0 {
			k := min(n, len(parts[part])-at)
			w.buf = append(w.buf, parts[part][at:at+k]...)
			n -= k
			if at += k; at == len(parts[part]) {
				part, at = part+1, 0
			}
		}
		chunk := w.buf[start:]
		binary.LittleEndian.PutUint32(chunk, base.Checksum(chunk[HeaderLen-1:]))
		w.off += int64(len(chunk))

		if len(w.buf) >= flushBytes {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		if left == 0 {
			return nil
		}
	}
}

func chunkType(first, last bool) byte {
	switch {
	case first && last:
		return typeFull
	case first:
		return typeFirst
	case last:
		return typeLast
	}
	return typeMiddle
}

// Flush writes the records that were added.
func (w *Writer) Flush() error {
	if w.err != nil || len(w.buf) == 0 {
		return w.err
	}
	n, err := w.w.Write(w.buf)
	if err == nil && n < len(w.buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.err = fmt.Errorf("log write ending at offset %d: %w", w.off, err)
		w.buf = nil
		return w.err
	}
	w.buf = w.buf[:0]
	return nil
}

// Offset returns the length of the log, including records that were added and not yet written.
func (w *Writer) Offset() int64 { return w.off }
