package filter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/cespare/xxhash/v2"
	"github.com/siftdb/sift/filter/internal/fuse"
	"github.com/siftdb/sift/filter/internal/xxh3"
)

// The fuse block, family "sift.Fuse". Integers are little-endian.
//
//	+--------------+------------+--------------+---------+--------+-----------+------------+
//	| fingerprints | segments 4 | segmentLog 1 | width 1 | seed 1 | version 1 | checksum 8 |
//	+--------------+------------+--------------+---------+--------+-----------+------------+
//
//	segments    number of segments in which a key can have its first slot; 0 without keys
//	segmentLog  log2 of the number of slots per segment, 0 to 18; 0 without keys
//	width       bits per fingerprint, 4 to 16
//	seed        0 to 199, the seed with which construction succeeded
//	version     0
//	checksum    XXH64, seed 0, of all bytes before it
//
// There are (segments + 2) × 2^segmentLog fingerprints, none if segments is 0.
// Fingerprint i is the width bits from bit i × width on, the lowest first; the
// last byte is padded with zero bits. internal/fuse defines the slots and the
// fingerprint that belong to a key's Hash. Blocks that do not match this
// description are rejected.
//
// The block over the one key "a" with 8 bits is
//
//	00 00 00 00 00 00 00 00  82 00 00 00
//	01 00 00 00 02 08 00 00  a6 eb c1 79 86 b8 e5 93
//
// All of this is on disk; do not change.
const (
	fuseFamily      = "sift.Fuse"
	fuseVersion     = 0
	fuseTrailerSize = 16
)

type fusePolicy struct{ width int }

// Fuse returns the policy for 3-wise binary fuse filters with fingerprints of 4 to 16
// bits; other values are clamped to these bounds. The FPR is 2^-fingerprintBits. A
// filter takes 1.125 fingerprints per key from a million keys on, and 1.19 at 100,000.
// A probe costs three cache misses, which overlap. Building takes about 30 bytes of
// memory per key.
func Fuse(fingerprintBits int) Policy {
	return fusePolicy{min(max(fingerprintBits, fuse.MinWidth), fuse.MaxWidth)}
}

func (p fusePolicy) Name() string { return "fuse(" + strconv.Itoa(p.width) + ")" }

func (p fusePolicy) Family() string { return fuseFamily }

func (p fusePolicy) NewWriter() Writer { return &fuseWriter{width: p.width} }

func (p fusePolicy) Open(units [][]byte) (Reader, error) { return openFuse(units) }

func (p fusePolicy) BlockFamily() string { return fuseFamily }

func (p fusePolicy) MayContainBlock(block []byte, key Key) bool {
	return fuseMayContainBlock(block, key)
}

func fuseMayContainBlock(block []byte, key Key) bool {
	shape, seed, ok := fuseShape(block)
	return !ok || fuse.MayContainIn(block, shape, seed, key.Hash)
}

// fuseBlockMayContainBytes is fuseMayContainBlock for an unhashed key.
func fuseBlockMayContainBytes(block, key []byte) bool { return fuseMayContainBlock(block, NewKey(key)) }

func parseFuse(args []string) (Policy, error) {
	if len(args) != 1 {
		return nil, errors.New("want one argument, the bits per fingerprint")
	}
	b, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, fmt.Errorf("%q is not a whole number", args[0])
	}
	if b < fuse.MinWidth || b > fuse.MaxWidth {
		return nil, fmt.Errorf("bits per fingerprint %d is outside [%d, %d]", b, fuse.MinWidth, fuse.MaxWidth)
	}
	return Fuse(b), nil
}

// fuseWriter is the Writer of Fuse.
type fuseWriter struct {
	width  int
	hashes hashList
}

func (w *fuseWriter) Add(key Key) { w.hashes.add(key.Hash) }

func (w *fuseWriter) NumKeys() int { return w.hashes.n }

func (w *fuseWriter) Finish() ([][]byte, error) {
	all := hashSlices.Get().(*[]uint64)
	defer hashSlices.Put(all)
	*all = w.hashes.appendTo((*all)[:0])
	w.hashes.reset()
	var block []byte
	_, shape, seed, ok := fuse.Build(*all, w.width, func(n uint64) []byte {
		block = AlignedBytes(int(n) - fuse.Pad + fuseTrailerSize)
		return block
	})
	if !ok {
		return nil, errTooManyKeys
	}
	t := block[len(block)-fuseTrailerSize:]
	binary.LittleEndian.PutUint32(t, shape.Segments)
	t[4], t[5], t[6], t[7] = shape.SegmentLog, shape.Width, seed, fuseVersion
	sum := len(block) - checksumSize
	binary.LittleEndian.PutUint64(block[sum:], xxhash.Sum64(block[:sum]))
	return [][]byte{block}, nil
}

// fuseShape reads the trailer of a block. It checks everything but the checksum,
// so that probes stay within the block.
func fuseShape(block []byte) (shape fuse.Shape, seed uint8, ok bool) {
	size := len(block) - fuseTrailerSize
	if size < 0 {
		return shape, 0, false
	}
	t := block[size:]
	shape = fuse.Shape{Segments: binary.LittleEndian.Uint32(t), SegmentLog: t[4], Width: t[5]}
	if t[7] != fuseVersion || t[6] >= fuse.MaxSeeds ||
		shape.SegmentLog > fuse.MaxSegmentLog || shape.Segments == 0 && shape.SegmentLog != 0 ||
		shape.Width < fuse.MinWidth || shape.Width > fuse.MaxWidth || shape.Bytes() != uint64(size) {
		return shape, 0, false
	}
	return shape, t[6], true
}

func openFuse(units [][]byte) (Reader, error) {
	if len(units) != 1 {
		return nil, damaged("fuse filter with %d units", len(units))
	}
	block := units[0]
	shape, seed, ok := fuseShape(block)
	if !ok {
		return nil, damaged("invalid trailer of a fuse block of %d bytes", len(block))
	}
	sum := len(block) - checksumSize
	if binary.LittleEndian.Uint64(block[sum:]) != xxhash.Sum64(block[:sum]) {
		return nil, damaged("checksum mismatch in a fuse block")
	}
	return &fuseReader{
		filter: fuse.Over(block, shape, seed),
		fpr:    fuseFPR(shape),
		size:   len(block),
	}, nil
}

// fuseFPR returns the FPR of a filter: 0 for one over no keys, which excludes every key.
func fuseFPR(shape fuse.Shape) float64 {
	if shape.Segments == 0 {
		return 0
	}
	return math.Ldexp(1, -int(shape.Width))
}

// fuseReader is the Reader of Fuse.
type fuseReader struct {
	filter fuse.Filter
	fpr    float64
	size   int
}

func (r *fuseReader) MayContain(key Key) bool { return r.filter.MayContain(key.Hash) }

func (r *fuseReader) MayContainBytes(key []byte) bool {
	if n := len(key); n > 8 && n <= 16 {
		return r.filter.MayContain(xxh3.Sum9to16(key))
	}
	return r.filter.MayContain(Hash(key))
}

func (r *fuseReader) MayContainMany(keys []Key, positive []bool) {
	positive = positive[:len(keys)]
	var hashes [hashBatch]uint64
	for len(keys) > 0 {
		m := min(len(keys), hashBatch)
		for i := range keys[:m] {
			hashes[i] = keys[i].Hash
		}
		r.filter.MayContainMany(hashes[:m], positive[:m])
		keys, positive = keys[m:], positive[m:]
	}
}

func (r *fuseReader) FPR() float64 { return r.fpr }

func (r *fuseReader) SizeBytes() int { return r.size }
