package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/siftdb/sift/internal/base"
)

// ErrChecksum is what is wrong with a chunk that is there in full, but whose
// checksum does not match.
var ErrChecksum = errors.New("checksum mismatch")

// What else is wrong with a chunk.
var (
	errCut     = errors.New("cut off by the end of the file")
	errZeros   = errors.New("zeros")
	errType    = errors.New("unknown chunk type")
	errLength  = errors.New("chunk exceeds its block")
	errNoFirst = errors.New("continuation of a record that is not there")
	errNoLast  = errors.New("record is not continued")
)

// TailKind says how the readable part of a log ends.
type TailKind uint8

const (
	// Clean: with the file.
	Clean TailKind = iota
	// Zeros: with zeros up to the end of the file, before which no record has
	// begun. Room that was made in advance looks so, and so does a record whose
	// bytes are all gone.
	Zeros
	// Torn: with bytes that are no whole record and have no valid chunk after
	// them. A crash leaves such a tail; so does damage to the last record.
	Torn
	// Damaged: with bytes that are no whole record but have a valid chunk after
	// them. This is damage if the bytes were synced. A power cut leaves it too,
	// among the bytes that were not.
	Damaged
)

// String returns the kind's name in lower case.
func (k TailKind) String() string {
	switch k {
	case Clean:
		return "clean"
	case Zeros:
		return "zeros"
	case Torn:
		return "torn"
	}
	return "damaged"
}

// Tail describes what follows the records that Next returned.
type Tail struct {
	Kind TailKind
	// Offset is where the first record begins that is not whole; the size of
	// the log if there is none. Cut there, the log is clean.
	Offset int64
	// Dropped is the number of bytes from Offset to the end.
	Dropped int64
	// Next is the offset of the first valid chunk after the damage; -1 if the
	// log is not Damaged.
	Next int64
	// Err is a *base.CorruptionError with the path and the offset of the chunk
	// that is bad; nil if the log is Clean.
	Err error
}

// Reader reads the records of a log from its beginning up to the first that is
// not whole. It skips nothing on the way: every byte up to there belongs to a
// record or fills up a block. What follows is then searched for valid chunks at
// every byte position, because whether there are any decides if the log is torn
// or damaged; nothing else does. Salvage reads them. Only where nothing but zeros
// follows there is nothing to search.
//
// Reading takes one block of memory and a record's length for a record of
// several chunks, which is at most the size of the log; the search costs time
// proportional to the rest of the log, whatever it holds. A Reader is used by
// one goroutine at a time.
type Reader struct {
	src  io.ReaderAt
	size int64
	path string

	block   []byte // bytes of the block at blockAt that the file has
	blockAt int64  // -1 if there is none
	index   crcIndex
	buf     []byte // payload of a record of several chunks

	off  int64 // of the next chunk
	tail Tail
	err  error // io.EOF after the last record
}

// NewReader returns a reader of the first size bytes of src. path names the
// file in errors.
func NewReader(src io.ReaderAt, size int64, path string) *Reader {
	return &Reader{src: src, size: size, path: path, blockAt: -1}
}

// Next returns the next record's payload, valid until the next call of a
// method, and the offset of its first chunk. After the last record the error is
// io.EOF, however the log ends: Tail tells. Any other error comes from reading
// the file.
func (r *Reader) Next() (payload []byte, offset int64, err error) {
	if r.err != nil {
		return nil, 0, r.err
	}
	payload, offset, err = r.next()
	if err != nil {
		r.err = err
		return nil, 0, err
	}
	return payload, offset, nil
}

func (r *Reader) next() ([]byte, int64, error) {
	start, pending := r.off, false // of the record; whether its first chunk was read
	for {
		if rest := BlockSize - r.off%BlockSize; rest < HeaderLen && r.off < r.size {
			// What fills up the block holds no data, so it is not looked at.
			r.off = min(r.off+rest, r.size)
		}
		if !pending {
			start = r.off
		}
		if r.off == r.size {
			if pending {
				return r.end(start, r.off, errCut)
			}
			r.tail = Tail{Kind: Clean, Offset: r.size, Next: -1}
			return nil, 0, io.EOF
		}
		c, cause, err := r.chunkAt(r.off)
		if err != nil {
			return nil, 0, err
		}
		if cause != nil {
			if !pending {
				zeros, err := r.zerosFrom(start)
				if err != nil {
					return nil, 0, err
				} else if zeros {
					r.tail = Tail{Kind: Zeros, Offset: start, Dropped: r.size - start, Next: -1, Err: r.corruption(start, errZeros)}
					return nil, 0, io.EOF
				}
			}
			return r.end(start, r.off, cause)
		}
		switch begins := c.kind == typeFull || c.kind == typeFirst; {
		case begins && pending:
			return r.damaged(start, start, r.off, errNoLast)
		case !begins && !pending:
			return r.damaged(start, r.off, r.off, errNoFirst)
		}
		r.off += HeaderLen + int64(len(c.payload))
		switch c.kind {
		case typeFull:
			return c.payload, start, nil
		case typeFirst:
			pending = true
			r.buf = append(r.buf[:0], c.payload...)
		case typeMiddle:
			r.buf = append(r.buf, c.payload...)
		case typeLast:
			r.buf = append(r.buf, c.payload...)
			return r.buf, start, nil
		}
	}
}

// zerosFrom reports whether only zeros follow from off on.
func (r *Reader) zerosFrom(off int64) (bool, error) {
	for off < r.size {
		if err := r.load(off); err != nil {
			return false, err
		}
		for _, b := range r.block[off-r.blockAt:] {
			if b != 0 {
				return false, nil
			}
		}
		off = r.blockAt + int64(len(r.block))
	}
	return true, nil
}

// end settles how a log ends in which the record at start has a bad chunk.
func (r *Reader) end(start, bad int64, cause error) ([]byte, int64, error) {
	next, err := r.search(bad + 1)
	if err != nil {
		return nil, 0, err
	}
	if next >= 0 {
		return r.damaged(start, bad, next, cause)
	}
	r.tail = Tail{Kind: Torn, Offset: start, Dropped: r.size - start, Next: -1, Err: r.corruption(bad, cause)}
	return nil, 0, io.EOF
}

func (r *Reader) damaged(start, bad, next int64, cause error) ([]byte, int64, error) {
	r.tail = Tail{Kind: Damaged, Offset: start, Dropped: r.size - start, Next: next, Err: r.corruption(bad, cause)}
	return nil, 0, io.EOF
}

func (r *Reader) corruption(off int64, cause error) error {
	return &base.CorruptionError{Path: r.path, Offset: off, What: "log record", Err: cause}
}

// Tail describes what follows the records. REQUIRES: Next returned io.EOF.
func (r *Reader) Tail() Tail { return r.tail }

// Salvage calls fn with each whole valid record after the damage, in order,
// until fn returns false; of a log that is not Damaged there is none. A payload
// is valid during the call. Only what is damaged is left out: after bad bytes
// the reading resumes at the next valid chunk, wherever it is. That may be
// within what was a damaged record's payload, if that holds (part of) a log.
// The error comes from reading the file. REQUIRES: Next returned io.EOF.
func (r *Reader) Salvage(fn func(payload []byte, offset int64) bool) error {
	if r.tail.Kind != Damaged {
		return nil
	}
	start, pending := int64(0), false
	for off := r.tail.Next; off >= 0; {
		if rest := BlockSize - off%BlockSize; rest < HeaderLen {
			off += rest
		}
		if off >= r.size {
			return nil
		}
		c, cause, err := r.chunkAt(off)
		if err != nil {
			return err
		}
		if cause != nil {
			pending = false
			if off, err = r.search(off + 1); err != nil {
				return err
			}
			continue
		}
		switch {
		case c.kind == typeFull:
			pending = false
			if !fn(c.payload, off) {
				return nil
			}
		case c.kind == typeFirst:
			start, pending = off, true
			r.buf = append(r.buf[:0], c.payload...)
		case pending:
			r.buf = append(r.buf, c.payload...)
			if c.kind == typeLast {
				pending = false
				if !fn(r.buf, start) {
					return nil
				}
			}
		}
		off += HeaderLen + int64(len(c.payload))
	}
	return nil
}

// chunk is a valid chunk; the payload is part of the block that is loaded.
type chunk struct {
	kind    byte
	payload []byte
}

// chunkAt reads the chunk at off, which is below the size of the log. cause
// says what is wrong with it, err that it could not be read.
func (r *Reader) chunkAt(off int64) (c chunk, cause, err error) {
	if err := r.load(off); err != nil {
		return c, nil, err
	}
	b := r.block[off-r.blockAt:]
	if len(b) < HeaderLen {
		return c, errCut, nil
	}
	n, kind := int(binary.LittleEndian.Uint16(b[4:])), b[6]
	switch {
	case kind == 0 && n == 0 && binary.LittleEndian.Uint32(b) == 0:
		return c, errZeros, nil
	case kind < typeFull || kind > typeLast:
		return c, errType, nil
	case off%BlockSize+HeaderLen+int64(n) > BlockSize:
		return c, errLength, nil
	case HeaderLen+n > len(b):
		return c, errCut, nil
	case base.Checksum(b[HeaderLen-1:HeaderLen+n]) != binary.LittleEndian.Uint32(b):
		return c, ErrChecksum, nil
	}
	return chunk{kind, b[HeaderLen : HeaderLen+n : HeaderLen+n]}, nil, nil
}

// load makes r.block the block that holds offset off.
func (r *Reader) load(off int64) error {
	at := off - off%BlockSize
	if at == r.blockAt {
		return nil
	}
	n := int(min(BlockSize, r.size-at))
	if cap(r.block) < n {
		r.block = make([]byte, n)
	}
	r.block, r.blockAt = r.block[:n], -1
	r.index.reset()
	got, err := r.src.ReadAt(r.block, at)
	if got < n {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF // shorter than its size
		}
		return fmt.Errorf("%s: read at offset %d: %w", r.path, at, err)
	}
	r.blockAt = at
	return nil
}

// search returns the offset of the first valid chunk at or after off, at
// whatever position in its block; -1 if there is none.
func (r *Reader) search(off int64) (int64, error) {
	for off < r.size {
		if err := r.load(off); err != nil {
			return 0, err
		}
		b := r.block
		for i := int(off - r.blockAt); i+HeaderLen <= len(b); i++ {
			if kind := b[i+6]; kind < typeFull || kind > typeLast {
				continue
			}
			end := i + HeaderLen + int(binary.LittleEndian.Uint16(b[i+4:]))
			if end > len(b) || !r.index.match(b, i+HeaderLen-1, end, binary.LittleEndian.Uint32(b[i:])) {
				continue
			}
			return r.blockAt + int64(i), nil
		}
		off = r.blockAt + BlockSize
	}
	return -1, nil
}
