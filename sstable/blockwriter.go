package sstable

import (
	"encoding/binary"

	"github.com/siftdb/sift/internal/base"
)

// blockWriter builds a block. The caller adds keys in ascending order.
type blockWriter struct {
	interval int // number of entries per restart, at least 1

	buf      []byte
	restarts []uint32
	count    int    // number of entries
	key      []byte // the last key
}

// empty reports whether no entry has been added since the last reset.
func (w *blockWriter) empty() bool { return w.count == 0 }

// size returns the length that the block would have if it were finished now.
func (w *blockWriter) size() int { return len(w.buf) + 4*max(len(w.restarts), 1) + 4 }

// shared returns how many bytes of its key an entry would share with the previous one: none at a
// restart.
func (w *blockWriter) shared(key []byte) int {
	if w.count%w.interval == 0 {
		return 0
	}
	return base.CommonPrefix(w.key, key)
}

// growth returns by how many bytes an entry would increase size. REQUIRES: the block is not empty.
func (w *blockWriter) growth(shared, keyLen, valueLen int) int {
	n := uvarintLen(shared) + uvarintLen(keyLen-shared) + uvarintLen(valueLen) + keyLen - shared + valueLen
	if w.count%w.interval == 0 {
		n += 4
	}
	return n
}

func uvarintLen(n int) int {
	l := 1
	for ; n >= 0x80; n >>= 7 {
		l++
	}
	return l
}

// add adds an entry. REQUIRES: shared is w.shared(key).
func (w *blockWriter) add(key []byte, shared int, value []byte) {
	if w.count%w.interval == 0 {
		w.restarts = append(w.restarts, uint32(len(w.buf)))
	}
	w.buf = binary.AppendUvarint(w.buf, uint64(shared))
	w.buf = binary.AppendUvarint(w.buf, uint64(len(key)-shared))
	w.buf = binary.AppendUvarint(w.buf, uint64(len(value)))
	w.buf = append(w.buf, key[shared:]...)
	w.buf = append(w.buf, value...)
	w.key = append(w.key[:shared], key[shared:]...)
	w.count++
}

// finish returns the block, which is valid until the next reset.
func (w *blockWriter) finish() []byte {
	if len(w.restarts) == 0 {
		w.restarts = append(w.restarts, 0)
	}
	for _, r := range w.restarts {
		w.buf = binary.LittleEndian.AppendUint32(w.buf, r)
	}
	w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(len(w.restarts)))
	return w.buf
}

func (w *blockWriter) reset() {
	w.buf, w.restarts, w.key, w.count = w.buf[:0], w.restarts[:0], w.key[:0], 0
}
