package ribbon_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/filter/pebblefilter"
)

// These benchmarks put Ribbon(10) beside pebble's bloom(10), in turns within one
// run: the machine's noise hits both, and what counts is the ratio.

// turns runs ours and theirs in short turns and reports the best of each, for one
// of n operations, the ratio of the two, and the median of the turns' ratios.
func turns(b *testing.B, n int, ours, theirs func(turn int)) {
	o, t := math.Inf(1), math.Inf(1)
	var ratios []float64
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		ours(i)
		mid := time.Now()
		theirs(i)
		end := time.Now()
		x, y := float64(mid.Sub(start))/float64(n), float64(end.Sub(mid))/float64(n)
		o, t = min(o, x), min(t, y)
		ratios = append(ratios, x/y)
	}
	slices.Sort(ratios)
	b.ReportMetric(o, "ns/key")
	b.ReportMetric(t, "other-ns/key")
	b.ReportMetric(o/t, "ratio")
	b.ReportMetric(ratios[len(ratios)/2], "median-ratio")
}

func keys(seed uint64, n int) [][]byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	all := make([]byte, 0, 16*n)
	k := make([][]byte, n)
	for i := range k {
		all = binary.LittleEndian.AppendUint64(all, rng.Uint64())
		all = binary.LittleEndian.AppendUint64(all, rng.Uint64())
		k[i] = all[16*i : 16*i+16 : 16*i+16]
	}
	return k
}

func buildOurs(b *testing.B, p filter.Policy, keys [][]byte) [][]byte {
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

func buildTheirs(keys [][]byte) []byte {
	w := bloom.FilterPolicy(10).NewWriter(pebble.TableFilter)
	for _, k := range keys {
		w.AddKey(k)
	}
	return w.Finish(nil)
}

func BenchmarkBuildAgainstPebble(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		k := keys(1, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			turns(b, n, func(int) { buildOurs(b, filter.Ribbon(10), k) }, func(int) { buildTheirs(k) })
		})
	}
}

var sink int

// BenchmarkProbeAgainstPebble asks one filter that is in the cache, and filters of
// 100k and of 2M keys that are not: a quarter of a GiB of them.
func BenchmarkProbeAgainstPebble(b *testing.B) {
	for _, where := range []struct {
		name       string
		n, filters int
	}{{"hot", 100_000, 1}, {"small", 100_000, 2048}, {"large", 2_000_000, 128}} {
		present := keys(1, where.n)
		s := newSides(b, present, where.filters)
		for _, asked := range []struct {
			name string
			keys [][]byte
		}{{"absent", keys(2, 512*perTurn)}, {"present", present[:48*perTurn]}} {
			s.ask(asked.keys)
			b.Run(where.name+"/"+asked.name+"/reader", func(b *testing.B) { turns(b, perTurn, s.readers, s.pebble) })
			b.Run(where.name+"/"+asked.name+"/adapter", func(b *testing.B) { turns(b, perTurn, s.adapter, s.pebble) })
			b.Run(where.name+"/"+asked.name+"/many64", func(b *testing.B) { turns(b, perTurn, s.many, s.loop) })
		}
	}
}

// perTurn is the number of keys asked for in a turn.
const perTurn = 1 << 11

// sides are filters over the same keys, and keys to ask for.
type sides struct {
	ours   []filter.Reader
	joined [][]byte
	theirs [][]byte

	asked  [][]byte
	hashed []filter.Key
}

func newSides(b *testing.B, keys [][]byte, copies int) *sides {
	p := filter.Ribbon(10)
	units, theirs := buildOurs(b, p, keys), buildTheirs(keys)
	joined, err := filter.JoinUnits(units)
	if err != nil {
		b.Fatal(err)
	}
	s := new(sides)
	// Each copy begins on a cache line, and not all on the same one of a page.
	size := 0
	for _, x := range append(units, joined, theirs) {
		size += len(x) + 64
	}
	arena := make([]byte, size*copies)
	place := func(x []byte) []byte {
		n := copy(arena, x)
		x, arena = arena[:n:n], arena[(n+63)&^63:]
		return x
	}
	for range copies {
		var u [][]byte
		for _, x := range units {
			u = append(u, place(x))
		}
		r, err := p.Open(u)
		if err != nil {
			b.Fatal(err)
		}
		s.ours = append(s.ours, r)
	}
	for range copies {
		s.joined = append(s.joined, place(joined))
	}
	for range copies {
		s.theirs = append(s.theirs, place(theirs))
	}
	return s
}

func (s *sides) ask(keys [][]byte) {
	s.asked, s.hashed = keys, nil
	for _, k := range keys {
		s.hashed = append(s.hashed, filter.NewKey(k))
	}
}

// turn returns where a turn's keys are, and which filter is the first. Each key asks
// another filter.
func (s *sides) turn(turn int) (at, first int) { return turn * perTurn % len(s.asked), turn * 31 }

const nextFilter = 7919

func (s *sides) readers(turn int) {
	at, f := s.turn(turn)
	for _, k := range s.asked[at : at+perTurn] {
		if s.ours[f&(len(s.ours)-1)].MayContain(filter.NewKey(k)) {
			sink++
		}
		f += nextFilter
	}
}

func (s *sides) pebble(turn int) {
	policy := pebble.FilterPolicy(bloom.FilterPolicy(10))
	at, f := s.turn(turn)
	for _, k := range s.asked[at : at+perTurn] {
		if policy.MayContain(pebble.TableFilter, s.theirs[f&(len(s.theirs)-1)], k) {
			sink++
		}
		f += nextFilter
	}
}

func (s *sides) adapter(turn int) {
	policy := pebblefilter.New(filter.Ribbon(10))
	at, f := s.turn(turn)
	for _, k := range s.asked[at : at+perTurn] {
		if policy.MayContain(pebble.TableFilter, s.joined[f&(len(s.joined)-1)], k) {
			sink++
		}
		f += nextFilter
	}
}

// many asks in batches of 64 keys with their hashes, all of one filter.
func (s *sides) many(turn int) {
	var maybe [64]bool
	at, f := s.turn(turn)
	for i := at; i < at+perTurn; i += len(maybe) {
		s.ours[f&(len(s.ours)-1)].MayContainMany(s.hashed[i:i+len(maybe)], maybe[:])
		f += nextFilter
	}
}

// loop asks for the keys of many one by one.
func (s *sides) loop(turn int) {
	at, f := s.turn(turn)
	for i := at; i < at+perTurn; i += 64 {
		r := s.ours[f&(len(s.ours)-1)]
		for _, k := range s.hashed[i : i+64] {
			if r.MayContain(k) {
				sink++
			}
		}
		f += nextFilter
	}
}
