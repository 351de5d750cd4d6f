package filtertest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/siftdb/sift/filter"
)

// RunRange reports to t each way in which p violates the contract of filter.RangePolicy. It builds
// filters over numbers of several distributions. It probes ranges that contain keys, which must not
// be excluded, and empty ranges, many of them right next to a key, whose false positive rate must
// not exceed the reader's FPR. It also reuses writers after Finish, counts allocations, and damages
// filters at every byte.
func RunRange(t TB, p filter.RangePolicy) { RunRangeWith(t, p, Options{}) }

// RunRangeWith is RunRange with options.
func RunRangeWith(t TB, p filter.RangePolicy, o Options) {
	t.Helper()
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = 100_000
		if testing.Testing() && testing.Short() {
			o.MaxKeys = 10_000
		}
	}
	s := &rangeSuite{suite{t: t, o: o, name: p.Name()}, p, max(1, o.RangeUnit)}
	for _, n := range []int{0, 1, 2, 63, 64, 65, 1000, 10_000, 100_000} {
		for _, kind := range rangeKinds {
			if n <= o.MaxKeys {
				s.step(fmt.Sprintf("%d %s", n, kind.name), func() { s.answers(s.keys(n, kind), kind.rated) })
			}
		}
	}
	s.step("writer again", s.again)
	s.step("allocations", s.allocations)
	for _, n := range []int{0, 1, 65, 500} {
		s.step(fmt.Sprintf("damage to %d keys", n), func() { s.damage(n) })
	}
}

// rangeSuite is one run of the tests for one range policy.
type rangeSuite struct {
	suite
	p    filter.RangePolicy
	unit uint64 // Options.RangeUnit, at least 1
}

// rangeKey is a key as it is passed to a range filter.
type rangeKey struct {
	prefix string
	x      uint64
}

func (k rangeKey) compare(o rangeKey) int {
	if c := bytes.Compare([]byte(k.prefix), []byte(o.prefix)); c != 0 || k.x == o.x {
		return c
	}
	if k.x < o.x {
		return -1
	}
	return 1
}

// rangeKind is a distribution of keys.
type rangeKind struct {
	name string
	// rated is set if the false positive rate of each filter is near FPR. That does not hold for
	// keys in dense runs, since whole runs collide.
	rated bool
	key   func(seed, i uint64) rangeKey // the i-th key
}

var rangeKinds = []rangeKind{
	{"random numbers", true, func(seed, i uint64) rangeKey { return rangeKey{"", mix(seed<<32 + i)} }},
	{"sequential numbers", false, func(seed, i uint64) rangeKey { return rangeKey{"p", 1<<40 + i} }},
	{"numbers 1,000 apart", false, func(seed, i uint64) rangeKey { return rangeKey{"", i * 1000} }},
	{"clusters", false, func(seed, i uint64) rangeKey { return rangeKey{"", mix(seed+i/100)&^0xffff + i%100*3} }},
	{"short prefixes", true, func(seed, i uint64) rangeKey { return rangeKey{fmt.Sprint("d", i%50), mix(i) >> 40} }},
	{"a prefix each", true, func(seed, i uint64) rangeKey { return rangeKey{fmt.Sprint("device/", i, "/"), mix(seed + i)} }},
	{"ends of the numbers", false, func(seed, i uint64) rangeKey {
		return rangeKey{fmt.Sprint(i / 4), [4]uint64{0, math.MaxUint64, 1, math.MaxUint64 - 1}[i%4]}
	}},
}

// keys returns n keys, sorted and without duplicates.
func (s *rangeSuite) keys(n int, kind rangeKind) []rangeKey {
	keys := make([]rangeKey, n)
	for i := range keys {
		keys[i] = kind.key(s.o.Seed, uint64(i))
	}
	slices.SortFunc(keys, rangeKey.compare)
	return slices.Compact(keys)
}

// build returns the filter over keys, or nil after a failure.
func (s *rangeSuite) build(w filter.RangeWriter, keys []rangeKey) filter.RangeReader {
	s.t.Helper()
	for _, k := range keys {
		prefix := []byte(k.prefix)
		w.Add(prefix, k.x)
		clear(prefix) // the writer must not retain it
	}
	if n := w.NumKeys(); n > len(keys) || (n == 0) != (len(keys) == 0) {
		s.errorf("NumKeys is %d after %d keys", n, len(keys))
	}
	block, err := w.Finish()
	if err != nil {
		s.errorf("Finish over %d keys: %v", len(keys), err)
		return nil
	}
	if n := w.NumKeys(); n != 0 {
		s.errorf("NumKeys is %d after Finish", n)
	}
	r, err := s.p.Open(block)
	if err != nil {
		s.errorf("Open of a fresh filter: %v", err)
		return nil
	}
	if r == nil {
		s.errorf("Open of a fresh filter returns no reader and no error")
	}
	return r
}

// holds reports whether a range contains one of the sorted keys.
func holds(keys []rangeKey, prefix string, lo, hi uint64) bool {
	i, _ := slices.BinarySearchFunc(keys, rangeKey{prefix, lo}, rangeKey.compare)
	return i < len(keys) && keys[i].prefix == prefix && keys[i].x <= hi
}

// answers builds a filter and probes it, whole and trimmed.
func (s *rangeSuite) answers(keys []rangeKey, rated bool) {
	s.t.Helper()
	r := s.build(s.p.NewWriter(), keys)
	if r == nil {
		return
	}
	s.probe(r, keys, rated)
	if trimmer, ok := r.(filter.RangeTrimmer); ok {
		s.trims(trimmer, keys, rated)
	}
}

// trims trims a filter bit by bit, and checks each size.
func (s *rangeSuite) trims(r filter.RangeTrimmer, keys []rangeKey, rated bool) {
	s.t.Helper()
	last := filter.RangeReader(r)
	steps := filter.RangeSteps(s.p.Name(), len(keys), 1)
	slices.Reverse(steps)
	for i, step := range steps {
		t := r.Trim(step.BitsPerKey)
		switch {
		case t == nil:
			s.errorf("Trim(%d) is nil", step.BitsPerKey)
			return
		case int64(t.SizeBytes()) > step.Bytes:
			s.errorf("a filter of %d bits per key over %d keys takes %d bytes, want at most the %d of RangeSteps", step.BitsPerKey, len(keys), t.SizeBytes(), step.Bytes)
		case i > 0 && (t.SizeBytes() > last.SizeBytes() || rated && len(keys) >= 1000 && t.SizeBytes() == last.SizeBytes() || t.FPR(1) > 2*last.FPR(1)):
			s.errorf("%d bits per key take %d bytes with an FPR of %.4g, one bit more %d with %.4g", step.BitsPerKey, t.SizeBytes(), t.FPR(1), last.SizeBytes(), last.FPR(1))
		}
		if i == len(steps)/2 || i == len(steps)-1 {
			s.probe(t, keys, rated)
		}
		last = t
	}
	if t := r.Trim(0); t != nil {
		s.errorf("Trim(0) is not nil")
	}
}

// probe probes a filter for ranges with and without keys.
func (s *rangeSuite) probe(r filter.RangeReader, keys []rangeKey, rated bool) {
	s.t.Helper()
	if r.SizeBytes() <= 0 {
		s.errorf("SizeBytes is %d", r.SizeBytes())
	}
	rnd := s.o.Seed
	next := func() uint64 { rnd++; return mix(rnd) }
	for _, k := range keys {
		for _, size := range []uint64{0, next() % 10, next() >> (next() % 64), math.MaxUint64} {
			below := size
			if size > 0 {
				below = next() % size
			}
			lo, hi := k.x-min(below, k.x), k.x+min(size-below, math.MaxUint64-k.x)
			if !r.MayContainRange([]byte(k.prefix), lo, hi) {
				s.errorf("key %q %d was added, and the range from %d to %d is excluded", k.prefix, k.x, lo, hi)
			}
		}
	}
	if len(keys) == 0 {
		if fpr := r.FPR(10); fpr != 0 && r.MayContainRange(nil, 0, 10) {
			s.errorf("a filter over no keys has an FPR of %v", fpr)
		}
		return
	}
	for _, length := range []uint64{1, 10, 100, 1000} {
		probed, wrong := 0, 0
		for range min(20_000, 2*len(keys)) { // with few keys, more ranges would repeat
			k := keys[next()%uint64(len(keys))]
			lo := k.x + 1 // right next to a key
			switch next() % 4 {
			case 0:
				lo = next()
			case 1:
				lo = k.x - length
			}
			hi := lo + length - 1
			if hi < lo || holds(keys, k.prefix, lo-lo%s.unit, hi+(s.unit-1-hi%s.unit)) {
				continue
			}
			if probed++; r.MayContainRange([]byte(k.prefix), lo, hi) {
				wrong++
			}
		}
		// A filter has one hash function, so ranges next to few keys are not independent.
		want := r.FPR(length)
		if limit := want*float64(probed)*1.2 + 6*math.Sqrt(want*float64(probed)) + 10; rated && len(keys) >= 1000 && float64(wrong) > limit {
			s.errorf("%d of %d ranges of %d without a key are not excluded; FPR is %.4g", wrong, probed, length, want)
		}
	}
}

// again builds two filters with one writer.
func (s *rangeSuite) again() {
	w := s.p.NewWriter()
	s.build(w, s.keys(500, rangeKinds[0]))
	keys := s.keys(300, rangeKinds[4])
	if r := s.build(w, keys); r != nil {
		for _, k := range keys {
			if !r.MayContainRange([]byte(k.prefix), k.x, k.x) {
				s.errorf("a writer's second filter excludes %q %d", k.prefix, k.x)
			}
		}
	}
}

// allocations checks that probes do not allocate.
func (s *rangeSuite) allocations() {
	if !testing.Testing() {
		return
	}
	keys := s.keys(1000, rangeKinds[4])
	r := s.build(s.p.NewWriter(), keys)
	if r == nil {
		return
	}
	prefix := []byte(keys[0].prefix)
	if n := testing.AllocsPerRun(100, func() { r.MayContainRange(prefix, 10, 1000) }); n != 0 {
		s.errorf("MayContainRange allocates %v times", n)
	}
}

// damage changes each byte of a filter, truncates the filter to each length, and extends it. Open
// must fail each time.
func (s *rangeSuite) damage(n int) {
	w := s.p.NewWriter()
	for _, k := range s.keys(n, rangeKinds[0]) {
		w.Add([]byte(k.prefix), k.x)
	}
	block, err := w.Finish()
	if err != nil {
		s.errorf("Finish: %v", err)
		return
	}
	refused := func(b []byte, what string, at int) {
		r, err := s.p.Open(b)
		if err == nil && r == nil {
			s.errorf("Open of a filter %s %d returns no reader and no error", what, at)
		} else if err == nil && s.o.Unsealed {
			r.MayContainRange(nil, 0, binary.LittleEndian.Uint64(append(b, make([]byte, 8)...)))
		} else if err == nil {
			s.errorf("Open of a filter %s %d of %d succeeds", what, at, len(block))
		} else if !errors.Is(err, filter.ErrDamaged) && !errors.Is(err, filter.ErrUnknownFamily) {
			s.errorf("Open of a filter %s %d: %v does not match ErrDamaged", what, at, err)
		}
	}
	for i := range block {
		for _, bit := range []byte{1, 0x80, 0xff} {
			b := bytes.Clone(block)
			b[i] ^= bit
			refused(b, "with a changed byte at", i)
		}
		refused(bytes.Clone(block[:i]), "cut off at", i)
	}
	refused(append(bytes.Clone(block), 0), "with one byte more than", len(block))
}
