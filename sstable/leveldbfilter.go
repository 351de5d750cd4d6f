package sstable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// LevelDB and goleveldb write the Bloom filters of a table into one block, a filter for
// every 2 KiB of data blocks (util/bloom.cc and table/filter_block.cc of LevelDB 1.23).
// Integers are little-endian:
//
//	size  field
//	...   the filters, one after another: bits, and the number of probes in the last byte
//	4     the offset of each filter in the block
//	...
//	4     the offset of the first of these offsets
//	1     g: filter i is for the data blocks that begin at offsets o with o >> g == i
//
// Example: 80 00 00 00 00 00 00 00 01 00 00 00 00 09 00 00 00 0b is one filter with one
// probe and 64 bits, where bit 7 is set, for blocks that begin below 2048. A filter
// without bits contains no key. A number of probes above 30 is reserved for later formats.
//
// The bits of a key are h, h + d, h + 2d and so on, modulo the number of bits, where h is
// its 32-bit hash and d is h rotated right by 17 bits.
//
// On disk; do not change.
const (
	levelDBPrefix  = "filter."
	levelDBFamily2 = "leveldb.BuiltinBloomFilter2" // LevelDB since 1.15
	levelDBFamily  = "leveldb.BuiltinBloomFilter"  // LevelDB before, and goleveldb

	levelDBSeed      = 0xbc9f1d34
	maxLevelDBProbes = 30
)

// maxLevelDBFilter is the maximum length of one filter: the number of its bits must fit in 32 bits.
const maxLevelDBFilter = math.MaxUint32 / 8

var errNotUnderBudget = errors.New("not loaded under a memory limit: LevelDB filters cannot be loaded in part")

var errLevelDBFilter = errors.New("malformed LevelDB filter block")

// levelDBFilter is the filter.Reader over such a block. It needs the table's index to find the
// filters of the data blocks that may contain a key.
type levelDBFilter struct {
	index  *packedIndex
	data   []byte   // the filters
	ends   []uint32 // end of each, relative to the start of the first
	baseLg uint8
	// signed is set if a LevelDB on a platform with signed chars may have written the filters:
	// its hash differs for keys with bytes above 127. Then a key is excluded only if the filter
	// excludes both hashes.
	signed bool
	fpr    float64
	at     Handle // of the block
}

// newLevelDBFilter parses the filter block; ok is false if it is malformed.
func newLevelDBFilter(x *packedIndex, family string, block []byte) (f *levelDBFilter, ok bool) {
	n := len(block) - 5
	if n < 0 {
		return nil, false
	}
	starts := uint64(binary.LittleEndian.Uint32(block[n:]))
	f = &levelDBFilter{index: x, baseLg: block[n+4], signed: family == levelDBFamily}
	if starts > uint64(n) || (uint64(n)-starts)%4 != 0 || f.baseLg > 31 {
		return nil, false
	}
	f.data = block[:starts:starts]
	for i := starts; i < uint64(n)+4; i += 4 { // the last word is the offset of the offsets, where the filters end
		end := binary.LittleEndian.Uint32(block[i:])
		if uint64(end) > starts {
			return nil, false
		}
		if n := len(f.ends); n > 0 && (end < f.ends[n-1] || end-f.ends[n-1] > maxLevelDBFilter) {
			return nil, false
		}
		f.ends = append(f.ends, end)
	}
	// Every data block needs a filter: without one, all its keys would be excluded.
	for i := range x.numBlocks() {
		if x.handle(i).Offset>>f.baseLg+1 >= uint64(len(f.ends)) {
			return nil, false
		}
	}
	f.fpr = f.estimate()
	return f, true
}

// filterOf returns the filter of a data block.
func (f *levelDBFilter) filterOf(i int) []byte {
	g := f.index.handle(i).Offset >> f.baseLg
	return f.data[f.ends[g]:f.ends[g+1]]
}

// estimate returns the false positive rate according to the share of bits that are set.
func (f *levelDBFilter) estimate() float64 {
	var sum, n float64
	for i := range f.ends[1:] {
		b := f.data[f.ends[i]:f.ends[i+1]]
		if len(b) < 2 {
			continue
		}
		set := 0
		for _, c := range b[:len(b)-1] {
			set += bits.OnesCount8(c)
		}
		sum += math.Pow(float64(set)/float64(8*(len(b)-1)), float64(b[len(b)-1]))
		n++
	}
	if n == 0 {
		return 0
	}
	return sum / n
}

// MayContain implements filter.Reader. Versions of a key can be in the first block whose
// separator is not before the key, and in the next one as long as the separator has the
// same user key.
func (f *levelDBFilter) MayContain(key filter.Key) bool {
	h := levelDBHash(key.Bytes, false)
	other := h
	if f.signed {
		other = levelDBHash(key.Bytes, true)
	}
	for i := f.index.find(key.Bytes, base.Trailer(base.MaxSequence, base.KindSeek)); i < f.index.numBlocks(); i++ {
		b := f.filterOf(i)
		if levelDBMayContain(b, h) || other != h && levelDBMayContain(b, other) {
			return true
		}
		if !f.index.endsAt(i, key.Bytes) {
			break
		}
	}
	return false
}

// MayContainMany implements filter.Reader.
func (f *levelDBFilter) MayContainMany(keys []filter.Key, positive []bool) {
	for i, key := range keys {
		positive[i] = f.MayContain(key)
	}
}

// FPR implements filter.Reader.
func (f *levelDBFilter) FPR() float64 { return f.fpr }

// SizeBytes implements filter.Reader.
func (f *levelDBFilter) SizeBytes() int { return len(f.data) + 4*len(f.ends) }

func levelDBMayContain(b []byte, h uint32) bool {
	if len(b) < 2 {
		return false
	}
	probes := b[len(b)-1]
	if probes > maxLevelDBProbes {
		return true
	}
	n := uint32(8 * (len(b) - 1))
	d := h>>17 | h<<15
	for range probes {
		bit := h % n
		if b[bit/8]&(1<<(bit%8)) == 0 {
			return false
		}
		h += d
	}
	return true
}

// levelDBHash is LevelDB's hash (util/hash.cc). signed is whether the bytes after the last
// whole word are signed. On disk; do not change.
func levelDBHash(b []byte, signed bool) uint32 {
	const m = 0xc6a4a793
	h := uint32(levelDBSeed) ^ uint32(len(b))*m
	for ; len(b) >= 4; b = b[4:] {
		h += binary.LittleEndian.Uint32(b)
		h *= m
		h ^= h >> 16
	}
	if len(b) == 0 {
		return h
	}
	for i, c := range b {
		v := uint32(c)
		if signed {
			v = uint32(int32(int8(c)))
		}
		h += v << (8 * i)
	}
	h *= m
	return h ^ h>>24
}

// openLevelDBFilter loads the LevelDB filters of a table without a usable filter of sift. They
// cannot be loaded in part. If they are damaged, it returns a corruption error.
func (r *Reader) openLevelDBFilter(family string, h Handle, o *ReaderOptions) error {
	unknown := func(cause error) error {
		r.filterFamily, r.filterState = family, FilterUnknown
		r.filterErr = r.unknownFilter(family, cause)
		return nil
	}
	if o.MaxFilterUnits != 0 || !r.pool.claim(int64(h.Length)) {
		return unknown(errNotUnderBudget)
	}
	defer r.pool.unclaim(int64(h.Length))
	block, err := r.readBlock(h, "filter block")
	if err != nil {
		return err
	}
	more := int64(len(block)) - int64(h.Length) // LevelDB does not compress the block, but others may
	if !r.pool.claim(more) {
		return unknown(errNotUnderBudget)
	}
	defer r.pool.unclaim(more)
	x, err := r.loadIndex()
	if err != nil {
		return err
	}
	f, ok := newLevelDBFilter(&x.packedIndex, family, block)
	if !ok {
		return r.corrupt(h, "filter block", errLevelDBFilter)
	}
	switch err := r.checkLevelDBFilter(f); {
	case err == errNotChecked:
		return unknown(err)
	case err != nil:
		return r.corrupt(h, "filter block", err)
	}
	f.at = h
	r.pinned = true // the filter needs the index
	r.filterFamily, r.filterState, r.filterErr = family, FilterOK, nil
	m := r.getMemory(len(block))
	f.data = m.bytes[:copy(m.bytes, f.data)]
	r.filter.Store(newHeldFilter(f, []filterMem{m}, 0, r.secret))
	return nil
}

// maxCheckedBlocks is the maximum number of data blocks that checkLevelDBFilter tries to read.
const maxCheckedBlocks = 4

var errNotChecked = errors.New("cannot be checked: no data block is readable")

// checkLevelDBFilter checks that the filters contain the user keys of the first readable data
// block. Programs other than LevelDB may have added different keys, internal ones for example.
// If none of the first blocks is readable, it returns errNotChecked.
func (r *Reader) checkLevelDBFilter(f *levelDBFilter) error {
	for i := range min(f.index.numBlocks(), maxCheckedBlocks) {
		var b block
		data, err := r.readBlock(f.index.handle(i), "data block")
		if err != nil || r.initDataBlock(f.index, &b, data, i) != nil {
			continue
		}
		return b.walk(func(_ entry, key []byte) error {
			userKey, _, _, ok := base.SplitInternalKey(key)
			if ok && !f.MayContain(filter.NewKey(userKey)) {
				return fmt.Errorf("excludes key %q", userKey)
			}
			return nil
		})
	}
	return errNotChecked
}
