// Package journal reads and writes LevelDB's logs.
//
// A log is a sequence of blocks of 32 KiB, the last of which may be shorter. A block
// holds chunks, and zeros where no header fits any more:
//
//	offset  size  field
//	0       4     checksum of kind and data, as util.CRC.Value, little-endian
//	4       2     length of the data, little-endian
//	6       1     kind: 1 a whole journal; 2 its first, 3 a middle, 4 its last part
//	7       ...   data
//
// Example: the journal "a" is 4c 60 98 8b 01 00 01 61. On disk; do not change.
package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	lerrors "github.com/syndtr/goleveldb/leveldb/errors"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"
)

const (
	blockSize  = 32 << 10
	headerSize = 7

	fullChunk   = 1
	firstChunk  = 2
	middleChunk = 3
	lastChunk   = 4
)

// ErrCorrupted describes dropped bytes. It is wrapped in an errors.ErrCorrupted.
type ErrCorrupted struct {
	Size   int // bytes
	Reason string
}

// Error returns the reason and the size.
func (e *ErrCorrupted) Error() string {
	return fmt.Sprintf("leveldb/journal: block/chunk corrupted: %s (%d bytes)", e.Reason, e.Size)
}

// Dropper is notified when a Reader drops bytes.
type Dropper interface {
	// Drop is called with an errors.ErrCorrupted that holds an ErrCorrupted.
	Drop(err error)
}

var (
	errSkip        = errors.New("leveldb/journal: skipped")
	errStaleReader = errors.New("leveldb/journal: stale reader")
	errStaleWriter = errors.New("leveldb/journal: stale writer")
	errClosed      = errors.New("leveldb/journal: closed Writer")
)

// Reader reads journals. It must not be used concurrently.
type Reader struct {
	r                io.Reader
	dropper          Dropper
	strict, checksum bool
	err              error

	seq  int             // counts calls of Next, to detect readers of earlier journals
	buf  [blockSize]byte // the current block
	n    int             // its length
	i, j int             // bounds of the unread data of the current chunk
	last bool            // whether the current chunk is the journal's last
}

// NewReader returns a Reader of the log in r. dropper may be nil. If strict is set, damage is
// an error; otherwise damaged parts are skipped. If checksum is set, checksums are verified.
func NewReader(r io.Reader, dropper Dropper, strict, checksum bool) *Reader {
	return &Reader{r: r, dropper: dropper, strict: strict, checksum: checksum}
}

// Reset makes the Reader read another log. It returns the Reader's previous error.
func (r *Reader) Reset(reader io.Reader, dropper Dropper, strict, checksum bool) error {
	err := r.err
	seq := r.seq + 1
	*r = Reader{r: reader, dropper: dropper, strict: strict, checksum: checksum, seq: seq}
	return err
}

// damaged reports n dropped bytes. It returns errSkip if that is tolerated or the Reader is not
// strict.
func (r *Reader) damaged(n int, reason string, tolerated bool) error {
	err := lerrors.NewErrCorrupted(storage.FileDesc{}, &ErrCorrupted{n, reason})
	if r.dropper != nil {
		r.dropper.Drop(err)
	}
	if r.strict && !tolerated {
		r.err = err
		return err
	}
	return errSkip
}

// dropBlock drops the rest of the block.
func (r *Reader) dropBlock(from int, reason string) error {
	r.i, r.j = r.n, r.n
	return r.damaged(r.n-from, reason, false)
}

// nextChunk moves to the next chunk, the first one of a journal if first is set. It returns
// errSkip if it dropped something on the way.
func (r *Reader) nextChunk(first bool) error {
	for {
		at := r.j
		if at+headerSize > r.n {
			err := r.nextBlock()
			if err == io.EOF && !first {
				return r.damaged(0, "missing chunk part", false)
			} else if err != nil {
				return err
			}
			continue
		}
		header := r.buf[at : at+headerSize]
		sum, length, kind := binary.LittleEndian.Uint32(header), int(binary.LittleEndian.Uint16(header[4:])), header[6]
		switch {
		case sum == 0 && length == 0 && kind == 0:
			return r.dropBlock(at, "zero header")
		case kind < fullChunk || kind > lastChunk:
			return r.dropBlock(at, fmt.Sprintf("invalid chunk type %#x", kind))
		case at+headerSize+length > r.n:
			return r.dropBlock(at, "chunk length overflows block")
		case r.checksum && sum != util.NewCRC(r.buf[at+6:at+headerSize+length]).Value():
			return r.dropBlock(at, "checksum mismatch")
		}
		r.i, r.j = at+headerSize, at+headerSize+length
		r.last = kind == fullChunk || kind == lastChunk
		if begins := kind == fullChunk || kind == firstChunk; begins == first {
			return nil
		} else if first {
			r.i = r.j
			return r.damaged(length, "orphan chunk", true)
		}
		r.i, r.j = at, at // the chunk begins another journal
		return r.damaged(0, "missing chunk part", false)
	}
}

// nextBlock reads the next block.
func (r *Reader) nextBlock() error {
	if r.n > 0 && r.n < blockSize {
		return io.EOF
	}
	n, err := io.ReadFull(r.r, r.buf[:])
	r.n, r.i, r.j = n, 0, 0
	switch {
	case n == 0 && (err == io.EOF || err == io.ErrUnexpectedEOF):
		return io.EOF
	case err != nil && err != io.ErrUnexpectedEOF:
		r.err = err
		return err
	}
	return nil
}

// Next returns a reader of the next journal, or io.EOF. A Reader that is not strict skips
// damaged journals. The reader is valid until the next call.
func (r *Reader) Next() (io.Reader, error) {
	r.seq++
	if r.err != nil {
		return nil, r.err
	}
	for {
		r.i = r.j
		if err := r.nextChunk(true); err == nil {
			return &singleReader{r, r.seq, nil}, nil
		} else if err != errSkip {
			return nil, err
		}
	}
}

// singleReader reads one journal.
type singleReader struct {
	r   *Reader
	seq int
	err error
}

// Read implements io.Reader. It returns io.ErrUnexpectedEOF if the rest of the journal is
// damaged.
func (s *singleReader) Read(p []byte) (int, error) {
	r := s.r
	switch {
	case r.seq != s.seq:
		return 0, errStaleReader
	case s.err != nil:
		return 0, s.err
	case r.err != nil:
		return 0, r.err
	}
	for r.i == r.j {
		if r.last {
			return 0, io.EOF
		}
		if err := r.nextChunk(false); err != nil {
			if err == errSkip {
				err = io.ErrUnexpectedEOF
			}
			s.err = err
			return 0, err
		}
	}
	n := copy(p, r.buf[r.i:r.j])
	r.i += n
	return n, nil
}

// ReadByte implements io.ByteReader.
func (s *singleReader) ReadByte() (byte, error) {
	var b [1]byte
	_, err := s.Read(b[:])
	return b[0], err
}

// Writer writes journals. It buffers a block that is not full until Flush or Close. It must not
// be used concurrently.
type Writer struct {
	w       io.Writer
	seq     int // counts journals, to detect writers of earlier ones
	pending bool
	first   bool // whether the current chunk is the journal's first
	blocks  int64
	buf     [blockSize]byte // the current block
	i, j    int             // the current chunk, header and data
	written int             // bytes of the block that have been written
	err     error
}

// NewWriter returns a Writer of a new log in w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Next finishes the current journal and returns a writer of the next one, which is valid until
// the next call of Next, Flush or Close.
func (w *Writer) Next() (io.Writer, error) {
	w.seq++
	if w.err != nil {
		return nil, w.err
	}
	w.finish()
	w.i, w.j = w.j, w.j+headerSize
	if w.j > blockSize {
		clear(w.buf[w.i:])
		w.writeBlock()
	}
	w.pending, w.first = true, true
	return singleWriter{w, w.seq}, w.err
}

// finish ends the current journal.
func (w *Writer) finish() {
	if w.pending {
		w.pending = false
		w.fillHeader(true)
	}
}

// fillHeader fills in the header of the current chunk.
func (w *Writer) fillHeader(last bool) {
	kind := byte(middleChunk)
	switch {
	case w.first && last:
		kind = fullChunk
	case w.first:
		kind = firstChunk
	case last:
		kind = lastChunk
	}
	header := w.buf[w.i : w.i+headerSize]
	header[6] = kind
	binary.LittleEndian.PutUint16(header[4:], uint16(w.j-w.i-headerSize))
	binary.LittleEndian.PutUint32(header, util.NewCRC(w.buf[w.i+6:w.j]).Value())
}

// writeBlock writes the rest of a full block, and begins a new one with a chunk.
func (w *Writer) writeBlock() {
	_, w.err = w.w.Write(w.buf[w.written:])
	w.i, w.j, w.written = 0, headerSize, 0
	w.blocks++
}

// writePending finishes the current journal and writes the buffer.
func (w *Writer) writePending() {
	if w.err != nil {
		return
	}
	w.finish()
	_, w.err = w.w.Write(w.buf[w.written:w.j])
	w.written = w.j
}

// Flush finishes the current journal, writes the buffer, and flushes the underlying writer if
// that has a method Flush() error.
func (w *Writer) Flush() error {
	w.seq++
	w.writePending()
	if f, ok := w.w.(interface{ Flush() error }); ok && w.err == nil {
		w.err = f.Flush()
	}
	return w.err
}

// Close finishes the current journal and writes the buffer. The Writer cannot be used
// afterwards. Close does not close the underlying writer.
func (w *Writer) Close() error {
	w.seq++
	w.writePending()
	if w.err != nil {
		return w.err
	}
	w.err = errClosed
	return nil
}

// Reset finishes the current journal and makes the Writer write another log.
func (w *Writer) Reset(writer io.Writer) (err error) {
	if w.err == nil {
		err = w.Close()
	}
	*w = Writer{w: writer, seq: w.seq + 1}
	return err
}

// Size returns the length of the log in bytes, the buffer included.
func (w *Writer) Size() int64 {
	if w == nil {
		return 0
	}
	return w.blocks*blockSize + int64(w.j)
}

// singleWriter writes one journal.
type singleWriter struct {
	w   *Writer
	seq int
}

// Write implements io.Writer.
func (s singleWriter) Write(p []byte) (int, error) {
	switch {
	case s.w.seq != s.seq:
		return 0, errStaleWriter
	case s.w.err != nil:
		return 0, s.w.err
	}
	n := len(p)
	for len(p) > 0 {
		if s.w.j == blockSize {
			s.w.fillHeader(false)
			s.w.writeBlock()
			s.w.first = false
			if s.w.err != nil {
				return n - len(p), s.w.err
			}
		}
		m := copy(s.w.buf[s.w.j:], p)
		s.w.j += m
		p = p[m:]
	}
	return n, nil
}
