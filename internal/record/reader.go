package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/siftdb/sift/internal/base"
)

// ErrChecksum is the cause of damage to a chunk that is complete but whose checksum does not
// match.
var ErrChecksum = errors.New("checksum mismatch")

// Other causes of damage.
var (
	errCut     = errors.New("truncated by the end of the file")
	errZeros   = errors.New("zeros")
	errType    = errors.New("unknown chunk type")
	errLength  = errors.New("chunk exceeds its block")
	errNoFirst = errors.New("continuation of a missing record")
	errNoLast  = errors.New("record is not continued")
)

// TailKind says what follows the readable part of a log.
type TailKind uint8

const (
	// Clean: nothing.
	Clean TailKind = iota
	// Zeros: zeros up to the end of the file, after a complete record. This is preallocated
	// space, or a record none of whose bytes reached the disk.
	Zeros
	// Torn: bytes that are not a whole record, with no valid chunk after them. A crash leaves
	// such a tail; so does damage to the last record.
	Torn
	// Damaged: bytes that are not a whole record, with a valid chunk after them. If the bytes
	// were synced, this is damage; if not, a power cut can cause it.
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
	// Offset is where the first incomplete record begins, or the size of the log if there is
	// none. Truncated there, the log is clean.
	Offset int64
	// Dropped is the number of bytes after Offset.
	Dropped int64
	// Next is the offset of the first valid chunk after the damage, or -1 if the log is not
	// Damaged.
	Next int64
	// Err is a *base.CorruptionError with the path and the offset of the bad chunk; nil if the
	// log is Clean.
	Err error
}

// Reader reads the records of a log up to the first incomplete one. It skips nothing: every
// byte up to there belongs to a record or pads a block. It then searches the rest for valid
// chunks at every byte position, because only their existence tells a damaged log from a torn
// one; Salvage reads them. If the rest is all zeros, there is nothing to search.
//
// A Reader needs memory for one block, and for a record of several chunks the length of that
// record, at most the size of the log. The search takes time linear in the rest of the log,
// whatever it holds. A Reader must not be used concurrently.
type Reader struct {
	src  io.ReaderAt
	size int64
	path string

	block   []byte // the file's bytes of the block at blockAt
	blockAt int64  // -1 if there is none
	index   crcIndex
	buf     []byte // payload of a record of several chunks

	off  int64 // offset of the next chunk
	tail Tail
	err  error // io.EOF after the last record
}

// NewReader returns a reader of the first size bytes of src. path names the
// file in errors.
func NewReader(src io.ReaderAt, size int64, path string) *Reader {
	return &Reader{src: src, size: size, path: path, blockAt: -1}
}

// Next returns the payload of the next record, valid until the next method call, and the offset
// of its first chunk. After the last record the error is io.EOF, however the log ends; see
// Tail. Any other error is an I/O error.
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
	start, pending := r.off, false // start of the record; whether its first chunk was read
	for {
		if rest := BlockSize - r.off%BlockSize; rest < HeaderLen {
			// Padding holds no data and is not checked.
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

// zerosFrom reports whether all bytes from off on are zeros.
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

// end determines how a log ends whose record at start has a bad chunk.
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

// Tail returns what follows the records. REQUIRES: Next returned io.EOF.
func (r *Reader) Tail() Tail { return r.tail }

// Salvage calls fn with each whole valid record after the damage, in order, until fn returns
// false. Only a Damaged log has such records. A payload is valid during the call. Only damaged
// records are left out: after bad bytes reading resumes at the next valid chunk, wherever it
// is. That can be inside the payload of a damaged record, if it contains (part of) a log. An
// error is an I/O error. REQUIRES: Next returned io.EOF.
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

// chunk is a valid chunk. The payload points into the loaded block.
type chunk struct {
	kind    byte
	payload []byte
}

// chunkAt reads the chunk at off, which is below the size of the log. cause says what is wrong
// with it; err is an I/O error.
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

// load loads the block that contains offset off.
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
			err = io.ErrUnexpectedEOF // the file is shorter than its size
		}
		return fmt.Errorf("%s: read at offset %d: %w", r.path, at, err)
	}
	r.blockAt = at
	return nil
}

// search returns the offset of the first valid chunk at or after off, at any position in its
// block, or -1 if there is none.
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
