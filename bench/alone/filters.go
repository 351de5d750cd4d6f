// Package alone measures filters without a store around them: size, false
// positive rate, and the time to build and to probe.
package alone

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"unsafe"

	"github.com/FastFilter/xorfilter"
	bitsandblooms "github.com/bits-and-blooms/bloom/v3"
	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
	pebblebloom "github.com/cockroachdb/pebble/v2/bloom"
	bloomfilter "github.com/holiman/bloomfilter/v2"
	cuckoo "github.com/seiflotfy/cuckoofilter"
	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/filter"
	levelfilter "github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// Filter is a kind of filter with its parameters.
type Filter struct {
	// Name is the library and the filter, such as "pebble bloom(10)".
	Name string
	// build builds a filter over distinct keys.
	build func(keys *data.Keys) (built, error)
}

// built is a filter over some keys.
type built interface {
	// mayContain hashes and probes a key.
	mayContain(key []byte) bool
	// bits returns the size in bits.
	bits() int64
	// clone returns a copy in separate memory.
	clone() (built, error)
}

// batcher is a filter that can probe many keys in one call.
type batcher interface {
	mayContainMany(keys [][]byte, positive []bool)
}

// Family returns the name without the parameters.
func (f Filter) Family() string {
	family, _, _ := strings.Cut(f.Name, "(")
	return family
}

// FloorName is the name of the lower bound: hash a key and read one cache line.
const FloorName = "floor: hash, one line"

// List returns the filters of the main table. missing lists those that this version
// of sift lacks.
func List() (filters []Filter, missing []string) {
	for _, name := range []string{"bloom(10)", "ribbon(7)", "ribbon(8)", "ribbon(10)", "fuse(8)", "rocksdb-bloom(10)"} {
		f, err := sift(name)
		if err != nil {
			missing = append(missing, "sift "+name)
			continue
		}
		filters = append(filters, f)
	}
	return append(filters,
		pebbleBloom(10), pebbleBloom(20), xorFuse8(), bitsAndBlooms(10), holiman(10), goLevelDB(10), cuckooFilter(),
		Filter{FloorName, buildFloor},
	), missing
}

// Curve returns filters of several sizes, to plot the false positive rate over bits
// per key.
func Curve() []Filter {
	var filters []Filter
	for _, b := range []int{4, 5, 6, 7, 8, 10, 12, 14, 16, 20} {
		for _, name := range []string{"bloom(%d)", "ribbon(%d)", "rocksdb-bloom(%d)"} {
			if f, err := sift(fmt.Sprintf(name, b)); err == nil {
				filters = append(filters, f)
			}
		}
		filters = append(filters, pebbleBloom(b), bitsAndBlooms(b), goLevelDB(b))
	}
	for _, b := range []int{4, 8, 12, 16} {
		if f, err := sift(fmt.Sprintf("fuse(%d)", b)); err == nil {
			filters = append(filters, f)
		}
	}
	return append(filters, xorFuse8(), xorFuse16())
}

// sift returns one of this project's filters, by the name that filter.Parse accepts.
func sift(name string) (Filter, error) {
	policy, err := filter.Parse(name)
	if err != nil {
		return Filter{}, err
	}
	return Filter{"sift " + name, func(keys *data.Keys) (built, error) {
		w := policy.NewWriter()
		for i := range keys.Len() {
			w.Add(filter.NewKey(keys.At(i)))
		}
		units, err := w.Finish()
		if err != nil {
			return nil, err
		}
		return openSift(policy, units)
	}}, nil
}

// siftFilter is a reader with the state that its clones share.
type siftFilter struct {
	reader filter.BytesReader
	*siftShared
}

type siftShared struct {
	policy filter.Policy
	units  [][]byte
	keys   []filter.Key
}

func openSift(p filter.Policy, units [][]byte) (built, error) {
	return (&siftShared{policy: p, units: units}).open(units)
}

func (s *siftShared) open(units [][]byte) (built, error) {
	r, err := s.policy.Open(units)
	if err != nil {
		return nil, err
	}
	return &siftFilter{r.(filter.BytesReader), s}, nil
}

func (f *siftFilter) mayContain(key []byte) bool { return f.reader.MayContainBytes(key) }

func (f *siftFilter) mayContainMany(keys [][]byte, positive []bool) {
	f.keys = f.keys[:0]
	for _, k := range keys {
		f.keys = append(f.keys, filter.NewKey(k))
	}
	f.reader.MayContainMany(f.keys, positive)
}

func (f *siftFilter) bits() int64 { return 8 * int64(f.reader.SizeBytes()) }

func (f *siftFilter) clone() (built, error) {
	units := make([][]byte, len(f.units))
	for i, u := range f.units {
		units[i] = cloneSlice(u)
	}
	return f.open(units)
}

// slab is the rest of the slab that cloneSlice allocates from.
var slab []byte

// cloneSlice copies s into memory like that of the store's filters: large slabs, which
// filter.AlignedBytes puts in huge pages. It clones all filters whose libraries permit that.
func cloneSlice[T any](s []T) []T {
	const line, slabBytes = 64, 16 << 20
	var zero T
	size := int(unsafe.Sizeof(zero)) * len(s)
	n := (size + line - 1) / line * line
	if len(slab) < n {
		slab = filter.AlignedBytes(max(n, slabBytes))
	}
	c := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(slab))), len(s))
	slab = slab[n:]
	copy(c, s)
	return c
}

func pebbleBloom(bitsPerKey int) Filter {
	policy := pebblebloom.FilterPolicy(bitsPerKey)
	return Filter{fmt.Sprintf("pebble bloom(%d)", bitsPerKey), func(keys *data.Keys) (built, error) {
		w := policy.NewWriter(pebble.TableFilter)
		for i := range keys.Len() {
			w.AddKey(keys.At(i))
		}
		return &pebbleFilter{policy, w.Finish(nil)}, nil
	}}
}

type pebbleFilter struct {
	policy pebble.FilterPolicy
	block  []byte
}

func (f *pebbleFilter) mayContain(key []byte) bool {
	return f.policy.MayContain(pebble.TableFilter, f.block, key)
}

func (f *pebbleFilter) bits() int64 { return 8 * int64(len(f.block)) }

func (f *pebbleFilter) clone() (built, error) {
	return &pebbleFilter{f.policy, cloneSlice(f.block)}, nil
}

func goLevelDB(bitsPerKey int) Filter {
	policy := levelfilter.NewBloomFilter(bitsPerKey)
	return Filter{fmt.Sprintf("goleveldb bloom(%d)", bitsPerKey), func(keys *data.Keys) (built, error) {
		g := policy.NewGenerator()
		for i := range keys.Len() {
			g.Add(keys.At(i))
		}
		var b util.Buffer
		g.Generate(&b)
		return &goLevelFilter{policy, b.Bytes()}, nil
	}}
}

type goLevelFilter struct {
	policy levelfilter.Filter
	block  []byte
}

func (f *goLevelFilter) mayContain(key []byte) bool { return f.policy.Contains(f.block, key) }

func (f *goLevelFilter) bits() int64 { return 8 * int64(len(f.block)) }

func (f *goLevelFilter) clone() (built, error) {
	return &goLevelFilter{f.policy, cloneSlice(f.block)}, nil
}

// hashes returns the XXH64 of all keys.
func hashes(keys *data.Keys) []uint64 {
	h := make([]uint64, keys.Len())
	for i := range h {
		h[i] = xxhash.Sum64(keys.At(i))
	}
	return h
}

func xorFuse8() Filter {
	return Filter{"xorfilter fuse(8)", func(keys *data.Keys) (built, error) {
		f, err := xorfilter.PopulateBinaryFuse8(hashes(keys))
		return &fuse8Filter{f}, err
	}}
}

type fuse8Filter struct{ f *xorfilter.BinaryFuse8 }

func (f *fuse8Filter) mayContain(key []byte) bool { return f.f.Contains(xxhash.Sum64(key)) }

func (f *fuse8Filter) bits() int64 { return 8 * int64(len(f.f.Fingerprints)) }

func (f *fuse8Filter) clone() (built, error) {
	c := *f.f
	c.Fingerprints = cloneSlice(c.Fingerprints)
	return &fuse8Filter{&c}, nil
}

func xorFuse16() Filter {
	return Filter{"xorfilter fuse(16)", func(keys *data.Keys) (built, error) {
		f, err := xorfilter.NewBinaryFuse[uint16](hashes(keys))
		return &fuse16Filter{f}, err
	}}
}

type fuse16Filter struct{ f *xorfilter.BinaryFuse[uint16] }

func (f *fuse16Filter) mayContain(key []byte) bool { return f.f.Contains(xxhash.Sum64(key)) }

func (f *fuse16Filter) bits() int64 { return 16 * int64(len(f.f.Fingerprints)) }

func (f *fuse16Filter) clone() (built, error) {
	c := *f.f
	c.Fingerprints = cloneSlice(c.Fingerprints)
	return &fuse16Filter{&c}, nil
}

// classicProbes returns the optimal number of probes of a classic Bloom filter.
func classicProbes(bitsPerKey int) int {
	return max(1, int(math.Round(float64(bitsPerKey)*math.Ln2)))
}

func bitsAndBlooms(bitsPerKey int) Filter {
	return Filter{fmt.Sprintf("bits-and-blooms bloom(%d)", bitsPerKey), func(keys *data.Keys) (built, error) {
		f := bitsandblooms.New(uint(keys.Len()*bitsPerKey), uint(classicProbes(bitsPerKey)))
		for i := range keys.Len() {
			f.Add(keys.At(i))
		}
		return &bitsAndBloomsFilter{f}, nil
	}}
}

type bitsAndBloomsFilter struct{ f *bitsandblooms.BloomFilter }

func (f *bitsAndBloomsFilter) mayContain(key []byte) bool { return f.f.Test(key) }

func (f *bitsAndBloomsFilter) bits() int64 { return int64(f.f.Cap()) }

func (f *bitsAndBloomsFilter) clone() (built, error) {
	words := cloneSlice(f.f.BitSet().Words())
	return &bitsAndBloomsFilter{bitsandblooms.FromWithM(words, f.f.Cap(), f.f.K())}, nil
}

func holiman(bitsPerKey int) Filter {
	return Filter{fmt.Sprintf("holiman bloom(%d)", bitsPerKey), func(keys *data.Keys) (built, error) {
		f, err := bloomfilter.New(uint64(keys.Len()*bitsPerKey), uint64(classicProbes(bitsPerKey)))
		if err != nil {
			return nil, err
		}
		for i := range keys.Len() {
			f.AddHash(xxhash.Sum64(keys.At(i)))
		}
		return &holimanFilter{f}, nil
	}}
}

type holimanFilter struct{ f *bloomfilter.Filter }

func (f *holimanFilter) mayContain(key []byte) bool { return f.f.ContainsHash(xxhash.Sum64(key)) }

func (f *holimanFilter) bits() int64 { return int64(f.f.M()) }

func (f *holimanFilter) clone() (built, error) {
	c, err := f.f.Copy()
	return &holimanFilter{c}, err
}

// cuckooFilter requests capacity for all keys, which the library rounds up to a
// power of two, and twice as much if they do not fit.
func cuckooFilter() Filter {
	return Filter{"seiflotfy cuckoo", func(keys *data.Keys) (built, error) {
		n := keys.Len()
		for size := n; size <= 4*n; size *= 2 {
			f := cuckoo.NewFilter(uint(size))
			i := 0
			for i < n && f.Insert(keys.At(i)) {
				i++
			}
			if i == n {
				return &cuckooBuilt{f: f}, nil
			}
		}
		return nil, errors.New("the keys do not fit in the filter")
	}}
}

type cuckooBuilt struct {
	f    *cuckoo.Filter
	size int64
}

func (f *cuckooBuilt) mayContain(key []byte) bool { return f.f.Lookup(key) }

func (f *cuckooBuilt) bits() int64 {
	if f.size == 0 {
		f.size = 8 * int64(len(f.f.Encode()))
	}
	return f.size
}

func (f *cuckooBuilt) clone() (built, error) {
	c, err := cuckoo.Decode(f.f.Encode())
	return &cuckooBuilt{f: c, size: f.size}, err
}

// floorFilter reads one cache line, which the key's hash selects: no probe can do less.
type floorFilter struct{ lines []byte }

const lineBytes = 64

func buildFloor(keys *data.Keys) (built, error) {
	return &floorFilter{make([]byte, (keys.Len()*10/8/lineBytes+1)*lineBytes)}, nil
}

func (f *floorFilter) mayContain(key []byte) bool {
	line, _ := bits.Mul64(xxhash.Sum64(key), uint64(len(f.lines)/lineBytes))
	return f.lines[line*lineBytes] != 0
}

func (f *floorFilter) bits() int64 { return 8 * int64(len(f.lines)) }

func (f *floorFilter) clone() (built, error) {
	return &floorFilter{cloneSlice(f.lines)}, nil
}
