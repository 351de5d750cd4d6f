// Package table reads and writes LevelDB's tables, files of sorted keys with values. The tables of
// a database hold internal keys: the user key, followed by 8 bytes with the sequence number and
// kind of the entry.
package table

import (
	"encoding/binary"
	"errors"
	"fmt"

	lerrors "github.com/syndtr/goleveldb/leveldb/errors"
)

// Errors that a Reader returns. Nothing returns ErrIterReleased: released iterators have the error
// iterator.ErrIterReleased.
var (
	ErrNotFound       = lerrors.ErrNotFound
	ErrReaderReleased = errors.New("leveldb/table: reader released")
	ErrIterReleased   = errors.New("leveldb/table: iterator released")
)

// ErrCorrupted describes the damaged part of a table. It is wrapped in an errors.ErrCorrupted.
type ErrCorrupted struct {
	Pos    int64
	Size   int64
	Kind   string
	Reason string
}

// Error returns the part, its position, and the reason.
func (e *ErrCorrupted) Error() string {
	return fmt.Sprintf("leveldb/table: corruption on %s (pos=%d): %s", e.Kind, e.Pos, e.Reason)
}

// A table consists of blocks, each followed by its compression in one byte and a checksum, and a
// footer: the handles of the metaindex block and the index block, padded with zeros to 40 bytes,
// and the magic number. On disk; do not change.
const (
	trailerLen = 5
	footerLen  = 48
	magic      = "\x57\xfb\x80\x8b\x24\x75\x47\xdb"

	rawBlock    = 0
	snappyBlock = 1

	filterPrefix = "filter."
)

// handle is the position of a block in the file.
type handle struct{ offset, length uint64 }

func (h handle) append(dst []byte) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, h.offset), h.length)
}

// cutHandle cuts a handle from the front of b.
func cutHandle(b []byte) (h handle, rest []byte, ok bool) {
	var n int
	if h.offset, n = binary.Uvarint(b); n <= 0 {
		return handle{}, nil, false
	}
	b = b[n:]
	if h.length, n = binary.Uvarint(b); n <= 0 {
		return handle{}, nil, false
	}
	return h, b[n:], true
}

// entry is a key and its value.
type entry struct{ key, value []byte }

var errBlock = errors.New("malformed block")

// maxBlockShared bounds how many bytes all keys of a block share with the keys before them. A block
// is decoded as a whole, and a small one could claim any amount; all other bytes are in the block.
const maxBlockShared = 256 << 20

// decodeBlock returns the entries of a block. Values alias data. An entry is three varints (the
// number of bytes that its key shares with the previous one, the number of its other bytes, and the
// length of the value), those other bytes, and the value. The entries are followed by the offsets
// of those that share nothing, 4 bytes each, and their number.
func decodeBlock(data []byte) (entries []entry, err error) {
	if len(data) < 4 {
		return nil, errBlock
	}
	restarts := uint64(binary.LittleEndian.Uint32(data[len(data)-4:]))
	if restarts*4+4 > uint64(len(data)) {
		return nil, errBlock
	}
	data = data[:uint64(len(data))-restarts*4-4]
	var last []byte
	totalShared := uint64(0)
	for len(data) > 0 {
		var field [3]uint64
		for i := range field {
			n := 0
			if field[i], n = binary.Uvarint(data); n <= 0 {
				return nil, errBlock
			}
			data = data[n:]
		}
		shared, unshared, valueLen := field[0], field[1], field[2]
		if shared > uint64(len(last)) || unshared > uint64(len(data)) || valueLen > uint64(len(data))-unshared {
			return nil, errBlock
		}
		if totalShared += shared; totalShared > maxBlockShared {
			return nil, errBlock
		}
		key := append(append(make([]byte, 0, shared+unshared), last[:shared]...), data[:unshared]...)
		data = data[unshared:]
		entries = append(entries, entry{key, data[:valueLen:valueLen]})
		data, last = data[valueLen:], key
	}
	return entries, nil
}

// blockWriter builds a block.
type blockWriter struct {
	interval int // one entry in interval shares nothing with the previous one
	buf      []byte
	restarts []uint32
	entries  int
	last     []byte // the key
}

func (w *blockWriter) add(key, value []byte) {
	shared := 0
	if w.entries%w.interval == 0 {
		w.restarts = append(w.restarts, uint32(len(w.buf)))
	} else {
		for shared < len(key) && shared < len(w.last) && key[shared] == w.last[shared] {
			shared++
		}
	}
	w.buf = binary.AppendUvarint(w.buf, uint64(shared))
	w.buf = binary.AppendUvarint(w.buf, uint64(len(key)-shared))
	w.buf = binary.AppendUvarint(w.buf, uint64(len(value)))
	w.buf = append(append(w.buf, key[shared:]...), value...)
	w.last = append(w.last[:0], key...)
	w.entries++
}

// size returns the size that the block would have if it were finished now.
func (w *blockWriter) size() int { return len(w.buf) + 4*max(len(w.restarts), 1) + 4 }

// finish returns the block, which is valid until the next add.
func (w *blockWriter) finish() []byte {
	if len(w.restarts) == 0 {
		w.restarts = append(w.restarts, 0)
	}
	for _, r := range w.restarts {
		w.buf = binary.LittleEndian.AppendUint32(w.buf, r)
	}
	return binary.LittleEndian.AppendUint32(w.buf, uint32(len(w.restarts)))
}

func (w *blockWriter) reset() {
	w.buf, w.restarts, w.entries, w.last = w.buf[:0], w.restarts[:0], 0, w.last[:0]
}
