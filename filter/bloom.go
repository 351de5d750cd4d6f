package filter

import (
	"encoding/binary"
	"math"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/siftdb/sift/filter/internal/bloom"
	"github.com/siftdb/sift/filter/internal/xxh3"
)

// The Bloom block, family "sift.Bloom". Integers are little-endian.
//
//	+------------------------+------------+------------+-------------+-----------+--------------+
//	| lines, 64 bytes each   | numLines 4 | probes 1   | version 1   | zero 2    | checksum 8   |
//	+------------------------+------------+------------+-------------+-----------+--------------+
//
//	numLines  at least 1; the block is 64 × numLines + 16 bytes long
//	probes    1 to 14
//	version   0
//	checksum  XXH64, seed 0, of all bytes before it
//
// internal/bloom defines which line, and which bits of it, belong to a key's Hash.
// The lines come first so that they are aligned if the block is. A block over no
// keys has one line of zeros. Blocks that do not match this description are
// rejected.
//
// The block over the one key "a", whose hash is e6c632b61e964e1f, with 6 probes:
//
//	02 00 00 00 00 00 00 00  00 00 00 08 00 00 00 00
//	00 00 00 00 00 00 00 00  10 00 00 00 00 00 00 00
//	00 00 00 04 00 00 00 00  00 00 00 80 00 00 00 00
//	00 00 00 00 00 00 00 00  10 00 00 00 00 00 00 00
//	01 00 00 00 06 00 00 00  0c 31 22 13 1a 05 a6 89
//
// All of this is on disk; do not change.
const (
	bloomFamily      = "sift.Bloom"
	bloomVersion     = 0
	bloomTrailerSize = 16
	checksumSize     = 8
)

// Bounds and default of Bloom's bits per key.
const (
	minBloomBits     = 1
	maxBloomBits     = 30
	defaultBloomBits = 10
)

type bloomPolicy struct{ bitsPerKey float64 }

// Bloom returns the policy for blocked Bloom filters, whose probes read one cache
// line. They are the cheapest filters to build. bitsPerKey is 1 to 30, not
// necessarily whole; other values are clamped to these bounds, and NaN means 10. The
// false positive rates, at any number of keys, are these or slightly lower:
//
//	bits per key    4      6      8      10      12      14      16      20       24        30
//	FPR            14.8% 5.77% 2.33% 0.966% 0.415% 0.184% 0.084% 0.0198% 0.0053% 0.00091%
func Bloom(bitsPerKey float64) Policy {
	if math.IsNaN(bitsPerKey) {
		bitsPerKey = defaultBloomBits
	}
	return bloomPolicy{min(max(bitsPerKey, minBloomBits), maxBloomBits)}
}

func (p bloomPolicy) Name() string { return "bloom(" + formatFloat(p.bitsPerKey) + ")" }

func (p bloomPolicy) Family() string { return bloomFamily }

func (p bloomPolicy) NewWriter() Writer {
	return &bloomWriter{bitsPerKey: p.bitsPerKey, probes: bloom.Probes(p.bitsPerKey)}
}

func (p bloomPolicy) Open(units [][]byte) (Reader, error) { return openBloom(units) }

func (p bloomPolicy) BlockFamily() string { return bloomFamily }

func (p bloomPolicy) MayContainBlock(block []byte, key Key) bool {
	return bloomMayContainBlock(block, key)
}

func bloomMayContainBlock(block []byte, key Key) bool {
	probes := bloomProbes(block)
	return probes == 0 || bloom.MayContainIn(block[:len(block)-bloomTrailerSize], probes, key.Hash)
}

// bloomBlockMayContainBytes is bloomMayContainBlock for an unhashed key. It makes as few
// calls as possible, for the reason that NewKey states.
func bloomBlockMayContainBytes(block, key []byte) bool {
	probes := bloomProbes(block)
	if probes == 0 {
		return true
	}
	var hash uint64
	if n := len(key); n > 8 && n <= 16 {
		hash = xxh3.Sum9to16(key)
	} else {
		hash = Hash(key)
	}
	return bloom.MayContainIn(block[:len(block)-bloomTrailerSize], probes, hash)
}

func parseBloom(args []string) (Policy, error) {
	b, err := parseBits(args, minBloomBits, maxBloomBits)
	if err != nil {
		return nil, err
	}
	return Bloom(b), nil
}

// bloomWriter is the Writer of Bloom.
type bloomWriter struct {
	bitsPerKey float64
	probes     int
	hashes     hashList
}

func (w *bloomWriter) Add(key Key) { w.hashes.add(key.Hash) }

func (w *bloomWriter) NumKeys() int { return w.hashes.n }

func (w *bloomWriter) Finish() ([][]byte, error) {
	defer w.hashes.reset()
	numLines := bloom.NumLines(float64(w.hashes.n), w.bitsPerKey)
	if numLines > math.MaxUint32 || numLines > (math.MaxInt-bloomTrailerSize-bloom.LineSize)/bloom.LineSize {
		return nil, errTooManyKeys
	}
	size := int(numLines) * bloom.LineSize
	block := AlignedBytes(size + bloomTrailerSize)
	w.hashes.each(func(hashes []uint64) { bloom.Build(block[:size], hashes, w.probes) })
	t := block[size:]
	binary.LittleEndian.PutUint32(t, uint32(numLines))
	t[4] = byte(w.probes)
	t[5] = bloomVersion
	sum := len(block) - checksumSize
	binary.LittleEndian.PutUint64(block[sum:], xxhash.Sum64(block[:sum]))
	return [][]byte{block}, nil
}

// bloomProbes returns the number of probes of a block, or 0 if the block is malformed. It checks
// everything but the checksum, so that probes stay within the lines.
func bloomProbes(block []byte) int {
	size := len(block) - bloomTrailerSize
	if size < bloom.LineSize || size%bloom.LineSize != 0 {
		return 0
	}
	// This reads the version and the zero bytes too: any that are not 0 make it too large.
	probes := binary.LittleEndian.Uint32(block[size+4:])
	if uint64(binary.LittleEndian.Uint32(block[size:])) != uint64(size/bloom.LineSize) || probes > bloom.MaxProbes {
		return 0
	}
	return int(probes)
}

func openBloom(units [][]byte) (Reader, error) {
	if len(units) != 1 {
		return nil, damaged("Bloom filter with %d units", len(units))
	}
	block := units[0]
	probes := bloomProbes(block)
	if probes == 0 {
		return nil, damaged("invalid trailer of a Bloom block of %d bytes", len(block))
	}
	data := block[:len(block)-bloomTrailerSize]
	sum := len(block) - checksumSize
	if binary.LittleEndian.Uint64(block[sum:]) != xxhash.Sum64(block[:sum]) {
		return nil, damaged("checksum mismatch in a Bloom block")
	}
	f := bloom.Over(aligned(data), probes)
	if f.HasProbe() {
		return &fastBloomReader{bloomReader{filter: f, size: len(block)}}, nil
	}
	return &bloomReader{filter: f, size: len(block)}, nil
}

// fastBloomReader is a bloomReader for filters that bloom.Filter.Probe supports.
type fastBloomReader struct{ bloomReader }

func (r *fastBloomReader) MayContain(key Key) bool { return r.filter.Probe(key.Hash) }

func (r *fastBloomReader) MayContainBytes(key []byte) bool {
	if n := len(key); n > 8 && n <= 16 {
		return r.filter.Probe(xxh3.Sum9to16(key))
	}
	return r.filter.Probe(Hash(key))
}

// bloomReader is the Reader of Bloom. It contains all that a probe needs except the
// line, so that a probe costs one cache miss.
type bloomReader struct {
	filter bloom.Filter
	size   int
	fpr    atomic.Uint64 // bits of the FPR plus one, or 0 until it is computed
}

func (r *bloomReader) MayContain(key Key) bool { return r.filter.MayContain(key.Hash) }

func (r *bloomReader) MayContainBytes(key []byte) bool { return r.filter.MayContain(Hash(key)) }

func (r *bloomReader) MayContainMany(keys []Key, positive []bool) {
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

func (r *bloomReader) FPR() float64 {
	if b := r.fpr.Load(); b != 0 {
		return math.Float64frombits(b - 1)
	}
	p := r.filter.FPR()
	r.fpr.Store(math.Float64bits(p) + 1)
	return p
}

func (r *bloomReader) SizeBytes() int { return r.size }
