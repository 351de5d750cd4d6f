package sstable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/epoch"
)

var (
	errTruncated = errors.New("file too short")
	errChecksum  = errors.New("checksum mismatch")
	errSnappyLen = errors.New("snappy block claims more bytes than it can hold")
)

// BlockIO counts block reads. Several readers can share one. It is safe for concurrent use; its
// counters are sharded to avoid contention. The zero BlockIO is ready for use. It must not be
// copied.
type BlockIO struct {
	stripes [epoch.NumStripes]ioStripe
}

type ioStripe struct {
	reads, bytes, hits atomic.Uint64
	_                  [104]byte
}

// BlockIOCounts is a snapshot of a BlockIO.
type BlockIOCounts struct {
	Reads uint64 // reads of data blocks from the file; one read may cover several adjacent blocks
	Bytes uint64 // bytes read
	Hits  uint64 // blocks found in the cache or in a Buffer
}

// Load returns the counts.
func (b *BlockIO) Load() BlockIOCounts {
	var c BlockIOCounts
	for i := range b.stripes {
		s := &b.stripes[i]
		c.Reads += s.reads.Load()
		c.Bytes += s.bytes.Load()
		c.Hits += s.hits.Load()
	}
	return c
}

func (b *BlockIO) hit() { b.stripes[epoch.Stripe()].hits.Add(1) }

func (b *BlockIO) read(n int) {
	s := &b.stripes[epoch.Stripe()]
	s.reads.Add(1)
	s.bytes.Add(uint64(n))
}

// corrupt returns the error for a damaged block.
func (r *Reader) corrupt(h Handle, what string, cause error) error {
	return &base.CorruptionError{Path: r.path, Offset: int64(h.Offset), What: what, Err: cause}
}

// readAt fills buf from the file.
func (r *Reader) readAt(buf []byte, offset uint64, what string) error {
	n, err := r.r.ReadAt(buf, int64(offset))
	switch {
	case n == len(buf):
		return nil
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return r.corrupt(Handle{Offset: offset}, what, errTruncated)
	}
	return base.InFile(r.path, fmt.Errorf("read %s at offset %d: %w", what, offset, err))
}

// readRaw reads a block and its trailer into buf, whose length must be that of both, and verifies
// the checksum.
func (r *Reader) readRaw(buf []byte, h Handle, what string) (payload []byte, blockType byte, err error) {
	if err := r.readAt(buf, h.Offset, what); err != nil {
		return nil, 0, err
	}
	return r.checkRaw(buf, h, what)
}

// checkRaw verifies the checksum of a block that is followed by its trailer.
func (r *Reader) checkRaw(raw []byte, h Handle, what string) (payload []byte, blockType byte, err error) {
	n := len(raw) - blockTrailerLen
	if got, want := base.Checksum(raw[:n+1]), binary.LittleEndian.Uint32(raw[n+1:]); got != want {
		return nil, 0, r.corrupt(h, what, fmt.Errorf("%w: computed %08x, stored %08x", errChecksum, got, want))
	}
	return raw[:n:n], raw[n], nil
}

// decompress appends the decompressed payload to dst. The memory that it allocates is bounded by a
// multiple of the payload's size.
func decompress(dst, payload []byte, blockType byte) ([]byte, error) {
	switch blockType {
	case typePlain:
		return append(dst, payload...), nil
	case typeSnappy:
		return appendSnappy(dst, payload)
	}
	return nil, unknownType(blockType)
}

// readBlock reads, verifies and decompresses a block.
func (r *Reader) readBlock(h Handle, what string) ([]byte, error) {
	var buf Buffer
	defer buf.Release()
	payload, t, err := r.readRaw(buf.mem().rawBytes(int(h.Length)+blockTrailerLen), h, what)
	if err != nil {
		return nil, err
	}
	data, err := decompress(nil, payload, t)
	if err != nil {
		return nil, r.corrupt(h, what, err)
	}
	return data, nil
}

// dataBlock returns data block i, from the cache if possible. If the cache does not admit the
// block, it is in buf, and valid until buf is used again or released.
func (r *Reader) dataBlock(x *index, i int, buf *Buffer) (*block, error) {
	if b := x.cachedBlock(i, r.io); b != nil {
		return b, nil
	}
	keep := x.cached != nil && r.cache.admit(x, i)
	b := buf.holds(r, i)
	switch {
	case b == nil:
		return r.readDataBlock(x, i, buf, keep)
	case keep:
		r.io.hit()
		if kept, cached := r.keepBlock(x, i, b); cached {
			return kept, nil
		}
		return b, nil
	}
	r.io.hit()
	return b, nil
}

// readDataBlock reads data block i into buf. If keep is set, it returns a copy in the cache.
func (r *Reader) readDataBlock(x *index, i int, buf *Buffer, keep bool) (*block, error) {
	m, err := r.fetchDataBlock(x.handle(i), buf)
	if err != nil {
		return nil, err
	}
	if err := r.initDataBlock(&x.packedIndex, &m.blk, m.data, i); err != nil {
		return nil, err
	}
	if keep {
		if kept, cached := r.keepBlock(x, i, &m.blk); cached {
			return kept, nil
		}
	}
	m.r, m.i = r, i
	return &m.blk, nil
}

// fetchDataBlock reads, verifies and decompresses a data block into the memory of buf. It does not
// parse it: buf has no block afterwards.
func (r *Reader) fetchDataBlock(h Handle, buf *Buffer) (*bufferMem, error) {
	m := buf.mem()
	m.r = nil
	n := int(h.Length) + blockTrailerLen
	r.io.read(n)
	payload, t, err := r.readRaw(m.rawBytes(n), h, "data block")
	if err != nil {
		return nil, err
	}
	if m.data, err = decompress(m.data[:0], payload, t); err != nil {
		return nil, r.corrupt(h, "data block", err)
	}
	return m, nil
}

// keepBlock adds a copy of b, which is data block i, to the cache and returns it. cached is false
// if the cache does not take the block; kept may then be b itself.
func (r *Reader) keepBlock(x *index, i int, b *block) (kept *block, cached bool) {
	if r.cache.refuses(x, i, len(b.data)) {
		return b, false
	}
	var before []byte
	var bufs [2]separatorBuf
	if i > 0 {
		before = x.separator(&bufs[0], i-1)
	}
	return r.cache.insert(x, i, b.keep(before, x.separator(&bufs[1], i)))
}

// cachedBlock returns data block i from the cache and counts a hit in io, or returns nil if the
// block is not in the cache.
func (x *index) cachedBlock(i int, io *BlockIO) *block {
	if x.cached == nil {
		return nil
	}
	b := x.inCache(i)
	if b != nil {
		b.touch()
		io.hit()
	}
	return b
}

// initDataBlock parses data as data block i and checks that its first key is between the
// separators in the index: an intact block in the wrong place would hide keys.
func (r *Reader) initDataBlock(x *packedIndex, b *block, data []byte, i int) error {
	err := b.init(data)
	if err == nil {
		err = x.checkFirstKey(b, i)
	}
	if err != nil {
		return r.corrupt(x.handle(i), "data block", err)
	}
	return nil
}

func (x *packedIndex) checkFirstKey(b *block, i int) error {
	first, err := b.firstKey()
	if err != nil {
		return err
	}
	if x.within(base.UserKey(first), i) {
		return nil // the common case
	}
	var buf separatorBuf
	if base.CompareInternal(first, x.separator(&buf, i)) > 0 ||
		i > 0 && base.CompareInternal(first, x.separator(&buf, i-1)) <= 0 {
		return errBlockMissing
	}
	return nil
}

// firstKey returns the first internal key of a block. A block without entries is an error.
func (b *block) firstKey() ([]byte, error) {
	if b.entries == 0 {
		return nil, errBlockEmpty
	}
	first, ok := b.restartKey(0)
	if !ok {
		return nil, errEntry
	}
	if len(first) < base.TrailerLen {
		return nil, errEntryKey
	}
	return first, nil
}
