package pebblefilter

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/siftdb/sift/filter"
)

// side is one of several contenders that BenchmarkBeside measures in turns.
type side struct {
	name string
	// run does the work of a turn, n operations. Each turn of any side probes other
	// memory, so that none finds in the cache what another has read.
	run func(turn, n int)
}

// inTurns runs the sides in short turns, so that the machine's noise hits all of
// them. It reports the best time per operation of each, "name-ns", and for all but
// the first the median over the rounds of its time divided by that of the first,
// "name/first".
func inTurns(b *testing.B, n int, sides ...side) {
	best := make([]float64, len(sides))
	took := make([][]float64, len(sides))
	round := 0
	for b.Loop() {
		for i := range sides {
			at := (i + round) % len(sides)
			start := time.Now()
			sides[at].run(round*len(sides)+at, n)
			ns := float64(time.Since(start).Nanoseconds()) / float64(n)
			took[at] = append(took[at], ns)
			if round == 0 || ns < best[at] {
				best[at] = ns
			}
		}
		round++
	}
	b.ReportMetric(0, "ns/op")
	for i, s := range sides {
		b.ReportMetric(best[i], s.name+"-ns")
		if i == 0 {
			continue
		}
		ratios := make([]float64, round)
		for r := range ratios {
			ratios[r] = took[i][r] / took[0][r]
		}
		slices.Sort(ratios)
		b.ReportMetric(ratios[len(ratios)/2], s.name+"/"+sides[0].name)
	}
}

// besideTurn is the number of probes in a turn.
const besideTurn = 1 << 15

// besideBytes is the memory of the filters of each side where they should not fit
// in the cache: several times as large as caches are.
const besideBytes = 128 << 20

// BenchmarkBeside compares filters of package filter with pebble's bloom(10), hashing
// included. It builds them, and probes for absent and present keys: readers, as a
// store keeps them, and, with "block" before the name, blocks through pebble's
// interface. "hot" is one filter that fits in the cache, "small" and "large" are
// filters of 100,000 and of 2 million keys that do not fit, a random one for each
// key. Of batches, "one" probes a random filter for each key, "loop" one filter for
// 64 keys one by one, and "many" the same with MayContainMany.
//
//	go test -run '^$' -bench Beside ./filter/pebblefilter
func BenchmarkBeside(b *testing.B) {
	ours := []filter.Policy{filter.Bloom(10), filter.Ribbon(10), filter.Fuse(8)}
	for _, n := range []int{100_000, 1_000_000} {
		keys := benchKeys(1, n)
		sides := []side{{"pebble", func(int, int) { blockOf(bloom.FilterPolicy(10), keys) }}}
		for _, p := range ours {
			sides = append(sides, side{p.Name(), func(int, int) { unitsOf(b, p, keys) }})
		}
		b.Run(fmt.Sprintf("build/keys=%d", n), func(b *testing.B) { inTurns(b, n, sides...) })
	}
	for _, where := range []struct {
		name   string
		keys   int
		bytes  int
		probed int // few if there are many filters, to leave the cache to them
	}{{"hot", 100_000, 0, 1 << 17}, {"small", 100_000, besideBytes, 1 << 13}, {"large", 2_000_000, besideBytes, 1 << 13}} {
		if where.bytes > 0 && testing.Short() {
			continue
		}
		all, absent := benchKeys(1, where.keys), benchKeys(2, where.probed)
		probed := &absent
		theirs := newBlockProbes(bloom.FilterPolicy(10), all, where.bytes, probed)
		sides := []side{{"pebble", theirs.run}}
		var many []side
		for _, p := range ours {
			r := newReaderProbes(b, p, all, where.bytes, probed)
			block := newBlockProbes(New(p), all, where.bytes, probed)
			sides = append(sides, side{p.Name(), r.run}, side{"block-" + p.Name(), block.run})
			many = append(many, side{"one", r.run}, side{"loop", r.loop}, side{"many", r.many})
		}
		b.Run(where.name+"/absent", func(b *testing.B) { inTurns(b, besideTurn, sides...) })
		for i, p := range ours {
			b.Run(where.name+"/batches/"+p.Name(), func(b *testing.B) { inTurns(b, besideTurn, many[3*i:3*i+3]...) })
		}
		*probed = all[:min(where.probed, 1<<16)]
		b.Run(where.name+"/present", func(b *testing.B) { inTurns(b, besideTurn, sides...) })
	}
}

func unitsOf(b *testing.B, p filter.Policy, keys [][]byte) [][]byte {
	w := p.NewWriter()
	for _, k := range keys {
		w.Add(filter.NewKey(k))
	}
	units, err := w.Finish()
	if err != nil {
		b.Fatal(err)
	}
	return units
}

func blockOf(p pebble.FilterPolicy, keys [][]byte) []byte {
	w := p.NewWriter(pebble.TableFilter)
	for _, k := range keys {
		w.AddKey(k)
	}
	return w.Finish(nil)
}

// copies returns copies of some bytes, at least one and as many as fit in the given
// memory. Each begins on a cache line. They are in memory of filter.AlignedBytes if
// store is set, otherwise in plain memory.
func copies(of []byte, bytes int, store bool) [][]byte {
	const line = 64
	size := (len(of) + line - 1) / line * line
	n := max(1, bytes/size)
	var arena []byte
	if store {
		arena = filter.AlignedBytes(n * size)
	} else {
		arena = make([]byte, n*size+line)
		arena = arena[-uintptr(unsafe.Pointer(unsafe.SliceData(arena)))%line:]
	}
	list := make([][]byte, n)
	for i := range list {
		list[i] = arena[:len(of):len(of)]
		copy(list[i], of)
		arena = arena[size:]
	}
	return list
}

// pick returns a pseudorandom number below n for each i.
func pick(i, n int) int {
	x := uint64(i+1) * 0x9e3779b97f4a7c15
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	return int((x >> 32 * uint64(n)) >> 32)
}

// blockProbes probes blocks through pebble's interface.
type blockProbes struct {
	policy pebble.FilterPolicy
	blocks [][]byte
	keys   *[][]byte
}

func newBlockProbes(p pebble.FilterPolicy, keys [][]byte, bytes int, probed *[][]byte) *blockProbes {
	return &blockProbes{p, copies(blockOf(p, keys), bytes, false), probed}
}

func (a *blockProbes) run(turn, n int) {
	keys := *a.keys
	for i := turn * n; i < (turn+1)*n; i++ {
		if a.policy.MayContain(pebble.TableFilter, a.blocks[pick(i, len(a.blocks))], keys[i&(len(keys)-1)]) {
			found++
		}
	}
}

// readerProbes probes readers.
type readerProbes struct {
	readers []filter.Reader
	keys    *[][]byte
}

func newReaderProbes(b *testing.B, p filter.Policy, keys [][]byte, bytes int, probed *[][]byte) *readerProbes {
	a := &readerProbes{keys: probed}
	units := unitsOf(b, p, keys)
	block, err := filter.JoinUnits(units)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range copies(block, bytes, true) {
		u, err := filter.SplitUnits(c)
		if err != nil {
			b.Fatal(err)
		}
		r, err := p.Open(u)
		if err != nil {
			b.Fatal(err)
		}
		a.readers = append(a.readers, r)
	}
	return a
}

func (a *readerProbes) run(turn, n int) {
	keys := *a.keys
	for i := turn * n; i < (turn+1)*n; i++ {
		if a.readers[pick(i, len(a.readers))].MayContain(filter.NewKey(keys[i&(len(keys)-1)])) {
			found++
		}
	}
}

const besideBatch = 64

func (a *readerProbes) loop(turn, n int) {
	keys := *a.keys
	for i := turn * n; i < (turn+1)*n; i += besideBatch {
		r := a.readers[pick(i, len(a.readers))]
		at := i & (len(keys) - 1)
		for _, k := range keys[at : at+besideBatch] {
			if r.MayContain(filter.NewKey(k)) {
				found++
			}
		}
	}
}

func (a *readerProbes) many(turn, n int) {
	keys := *a.keys
	var batch [besideBatch]filter.Key
	var positive [besideBatch]bool
	for i := turn * n; i < (turn+1)*n; i += besideBatch {
		r := a.readers[pick(i, len(a.readers))]
		at := i & (len(keys) - 1)
		for j, k := range keys[at : at+besideBatch] {
			batch[j] = filter.NewKey(k)
		}
		r.MayContainMany(batch[:], positive[:])
	}
}

// benchKeys returns n random keys of 16 bytes.
func benchKeys(seed uint64, n int) [][]byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	buf := make([]byte, 16*n)
	keys := make([][]byte, n)
	for i := range keys {
		k := buf[16*i : 16*i+16 : 16*i+16]
		binary.LittleEndian.PutUint64(k, rng.Uint64())
		binary.LittleEndian.PutUint64(k[8:], rng.Uint64())
		keys[i] = k
	}
	return keys
}

var found int
