package live

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// The format of a Cold: a Blocked Bloom whose blocks are read one at a time, each
// with its own checksum. Little-endian.
//
//	offset    size  field
//	     0       8  "siftcold"
//	     8       1  version, 1
//	     9       1  how elements become bytes (internal/funnel.Kind)
//	    10       2  0
//	    12       4  hashes, 1 to 255
//	    16       8  number of blocks, 1 to 2³⁴
//	    24       8  seed
//	    32      24  0
//	    56       8  XXH64, seed 0, of bytes 0 to 55
//	    64    68×n  blocks: 64 bytes as in a Blocked Bloom (see table), then the
//	                CRC-32C of these and of the block's number as 8 bytes
//
// The checksum includes the number so that swapped blocks are detected. Bytes after the last block
// are not part of the filter.
//
// A filter of strings with one block, one hash and no seed that holds "a" begins
//
//	73 69 66 74 63 6f 6c 64  01 01 00 00 01 00 00 00  01 00 00 00 00 00 00 00
//
// and its block has bit 510 set, so byte 63 is 40: the hash of "a" is d24ec4f1a98c6e5b,
// and the upper 9 bits of its product with the chain's factor are 510 (TestColdExample).
//
// On disk; do not change.
const (
	coldMagic   = "siftcold"
	coldVersion = 1
	coldHeader  = 64
	coldBlock   = blockWords*8 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func coldSum(block []byte, number uint64) uint32 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], number)
	return crc32.Update(crc32.Checksum(block, castagnoli), castagnoli, b[:])
}

// coldHead returns the header of a filter.
func coldHead(elements funnel.Kind, hashes int, blocks, seed uint64) []byte {
	h := append([]byte(coldMagic), coldVersion, byte(elements), 0, 0)
	h = binary.LittleEndian.AppendUint32(h, uint32(hashes))
	h = binary.LittleEndian.AppendUint64(h, blocks)
	h = binary.LittleEndian.AppendUint64(h, seed)
	h = append(h, make([]byte, 24)...)
	return binary.LittleEndian.AppendUint64(h, xxhash.Sum64(h))
}

// WriteCold writes a Blocked filter in the format that OpenCold reads. For any other Scheme the
// error matches ErrIncompatible. WriteCold includes all elements whose Add has returned; one that
// is added meanwhile may be missing.
func (f *Bloom[T]) WriteCold(w io.Writer) (int64, error) {
	if f.scheme != Blocked {
		return 0, incompatible("schemes of the filter and of OpenCold", f.scheme, Blocked)
	}
	blocks := f.bits / blockBits
	n, err := w.Write(coldHead(f.key.Kind(), f.hashes, blocks, f.seed))
	written := int64(n)
	buf := make([]byte, 0, ioChunk)
	for i := range blocks {
		if err != nil {
			return written, err
		}
		for j := range uint64(blockWords) {
			buf = binary.LittleEndian.AppendUint64(buf, atomic.LoadUint64(&f.words[i*blockWords+j]))
		}
		buf = binary.LittleEndian.AppendUint32(buf, coldSum(buf[len(buf)-blockWords*8:], i))
		if len(buf)+coldBlock > cap(buf) || i == blocks-1 {
			n, err = w.Write(buf)
			written += int64(n)
			buf = buf[:0]
		}
	}
	return written, err
}

// Cold is a Bloom filter that stays in a file, or in whatever an io.ReaderAt reads. A lookup reads
// one block of 68 bytes, and nothing is kept in memory. It is safe for concurrent use if the
// ReaderAt is. A file must not be overwritten while it is in use: a block of another filter in its
// place has a valid checksum. Replace it with a new file, as WriteFile does, or on Windows, where a
// file that is open cannot be replaced, use another name.
type Cold[T any] struct {
	key    funnel.Key[T]
	r      io.ReaderAt
	blocks uint64
	hashes int
	seed   uint64
	held   int // bytes in memory
	reads  atomic.Uint64
}

// OpenCold opens a filter that Bloom.WriteCold wrote. size is the size of r in bytes. The caller
// keeps r open while the filter is in use, and closes it. OpenCold ignores o.MaxBytes, since
// nothing is kept in memory. It verifies the header, with the errors of ReadBloom; blocks are
// verified when they are read.
func OpenCold[T any](r io.ReaderAt, size int64, o ReadOptions[T]) (*Cold[T], error) {
	key, err := newKey(o.Funnel)
	if err != nil {
		return nil, err
	}
	return openCold(r, size, key)
}

func openCold[T any](r io.ReaderAt, size int64, key funnel.Key[T]) (*Cold[T], error) {
	c := &Cold[T]{key: key, r: r}
	if err := c.open(size); err != nil {
		return nil, fmt.Errorf("open cold filter: %w", err)
	}
	return c, nil
}

func (c *Cold[T]) open(size int64) error {
	var b [coldHeader]byte
	if err := readFull(io.NewSectionReader(c.r, 0, size), b[:]); err != nil {
		return err
	}
	hashes := binary.LittleEndian.Uint32(b[12:])
	c.blocks, c.seed = binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
	switch {
	case string(b[:8]) != coldMagic:
		return formatError("magic %q", b[:8])
	case b[8] != coldVersion:
		return formatError("version %d", b[8])
	case binary.LittleEndian.Uint64(b[56:]) != xxhash.Sum64(b[:56]):
		return formatError("wrong checksum of the header")
	case b[10] != 0 || b[11] != 0 || [24]byte(b[32:56]) != [24]byte{}:
		return formatError("bytes that are not 0")
	case hashes < 1 || hashes > maxHashes:
		return formatError("%d hashes", hashes)
	case c.blocks < 1 || c.blocks > maxBits/blockBits:
		return formatError("%d blocks", c.blocks)
	case uint64(size-coldHeader)/coldBlock < c.blocks:
		return formatError("%d blocks in %d bytes", c.blocks, size)
	case funnel.Kind(b[9]) != c.key.Kind():
		return incompatible("kinds of elements", c.key.Kind(), funnel.Kind(b[9]))
	}
	c.hashes = int(hashes)
	return nil
}

// MayContain reports false only if the element was not added. If the block cannot
// be read, or is damaged, it returns true and an error; damage matches ErrFormat.
func (c *Cold[T]) MayContain(v T) (bool, error) {
	h := seedHash(c.key.Sum64(v), c.seed)
	number := scale(h, c.blocks)
	c.reads.Add(1)
	var b [coldBlock]byte
	at := int64(coldHeader + number*coldBlock)
	if n, err := c.r.ReadAt(b[:], at); n < len(b) {
		if err == io.EOF {
			err = formatError("ends too early")
		}
		return true, fmt.Errorf("cold filter, block at %d: %w", at, err)
	}
	if err := checkBlock(b[:], number); err != nil {
		return true, err
	}
	for range c.hashes {
		h *= chain
		bit := h >> 55
		if b[bit/8]>>(bit%8)&1 == 0 {
			return false, nil
		}
	}
	return true, nil
}

// MayContainMany sets positive[i] to MayContain(vs[i]) for each i, and returns the first
// error. len(positive) >= len(vs).
func (c *Cold[T]) MayContainMany(vs []T, positive []bool) error { return manyInTurn(c, vs, positive) }

func manyInTurn[T any](l Layer[T], vs []T, positive []bool) (first error) {
	for i, v := range vs {
		var err error
		if positive[i], err = l.MayContain(v); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// WriteTo copies the filter and verifies the header and each block; damage matches ErrFormat.
func (c *Cold[T]) WriteTo(w io.Writer) (int64, error) {
	h := make([]byte, coldHeader)
	if err := readFull(io.NewSectionReader(c.r, 0, coldHeader), h); err != nil {
		return 0, err
	}
	if !bytes.Equal(h, coldHead(c.key.Kind(), c.hashes, c.blocks, c.seed)) {
		return 0, fmt.Errorf("cold filter: %w", formatError("the header has changed since the filter was opened"))
	}
	n, err := w.Write(h)
	written := int64(n)
	in := io.NewSectionReader(c.r, coldHeader, int64(c.blocks)*coldBlock)
	buf := make([]byte, coldBlock*(ioChunk/coldBlock))
	for number := uint64(0); err == nil && number < c.blocks; {
		part := buf[:min(uint64(len(buf)), (c.blocks-number)*coldBlock)]
		if err = readFull(in, part); err != nil {
			break
		}
		for at := 0; at < len(part); at += coldBlock {
			if err = checkBlock(part[at:at+coldBlock], number); err != nil {
				return written, err
			}
			number++
		}
		n, err = w.Write(part)
		written += int64(n)
	}
	return written, err
}

func checkBlock(b []byte, number uint64) error {
	if binary.LittleEndian.Uint32(b[blockWords*8:]) != coldSum(b[:blockWords*8], number) {
		return fmt.Errorf("cold filter, block at %d: %w", coldHeader+number*coldBlock, formatError("wrong checksum"))
	}
	return nil
}

// ReadFrom reads into memory a filter that WriteTo or WriteCold wrote, for readers that are
// not an io.ReaderAt. Use OpenCold for files. See Filter.
func (c *Cold[T]) ReadFrom(r io.Reader) (int64, error) {
	kind, err := elementKind(&c.key)
	if err != nil {
		return 0, err
	}
	s := newSource(r, 0, kind)
	read, err := readCold(s, c.key)
	if err != nil {
		return s.n, err
	}
	c.r, c.blocks, c.hashes, c.seed, c.held = read.r, read.blocks, read.hashes, read.seed, read.held
	c.reads.Store(0)
	return s.n, nil
}

// MarshalBinary returns what WriteTo writes.
func (c *Cold[T]) MarshalBinary() ([]byte, error) { return marshal(c) }

// UnmarshalBinary replaces the filter with the one in data, which it copies.
func (c *Cold[T]) UnmarshalBinary(data []byte) error { return unmarshal(c, data) }

// readCold reads a filter into memory and verifies its blocks.
func readCold[T any](s *source, key funnel.Key[T]) (*Cold[T], error) {
	file := make([]byte, coldHeader)
	if err := readFull(s, file); err != nil {
		return nil, err
	}
	// The size is unknown. Reading the blocks shows whether there are as many as the header claims.
	c, err := openCold(bytes.NewReader(file), math.MaxInt64, key)
	if err != nil {
		return nil, err
	}
	if err := s.take(uint64(c.SizeBytes()) / 8); err != nil {
		return nil, err
	}
	var block [coldBlock]byte
	for number := range c.blocks {
		if err := readFull(s, block[:]); err != nil {
			return nil, err
		}
		if err := checkBlock(block[:], number); err != nil {
			return nil, err
		}
		file = append(file, block[:]...)
	}
	c.r, c.held = bytes.NewReader(file), len(file)
	return c, nil
}

// Load reads the whole filter into memory and verifies each block. The Bloom that it returns can do
// what a Cold cannot: count, merge, and add elements.
func (c *Cold[T]) Load() (*Bloom[T], error) {
	if c.blocks > maxWords/blockWords {
		return nil, tooLarge(c.blocks*blockWords, maxMemory)
	}
	in := io.NewSectionReader(c.r, coldHeader, int64(c.blocks)*coldBlock)
	words := alignedWords(c.blocks * blockWords)
	buf := make([]byte, coldBlock*min(c.blocks, ioChunk/coldBlock))
	for number := uint64(0); number < c.blocks; {
		part := buf[:min(uint64(len(buf)), (c.blocks-number)*coldBlock)]
		if err := readFull(in, part); err != nil {
			return nil, fmt.Errorf("cold filter, block at %d: %w", coldHeader+number*coldBlock, err)
		}
		for ; len(part) > 0; part = part[coldBlock:] {
			if err := checkBlock(part[:coldBlock], number); err != nil {
				return nil, err
			}
			for i := range uint64(blockWords) {
				words[number*blockWords+i] = binary.LittleEndian.Uint64(part[i*8:])
			}
			number++
		}
	}
	return &Bloom[T]{c.key, tableOf(Blocked, words, c.hashes, c.seed)}, nil
}

// MemoryBytes is the memory that the filter takes: none, unless ReadFrom has read it.
func (c *Cold[T]) MemoryBytes() int { return c.held }

// Hashes is the number of bits that an element sets.
func (c *Cold[T]) Hashes() int { return c.hashes }

// Reads is the number of blocks read, one per lookup.
func (c *Cold[T]) Reads() uint64 { return c.reads.Load() }

// SizeBytes is the stored size in bytes.
func (c *Cold[T]) SizeBytes() int64 { return coldHeader + int64(c.blocks)*coldBlock }
