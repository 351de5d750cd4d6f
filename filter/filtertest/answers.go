package filtertest

import (
	"bytes"
	"math"
	"sync"
	"testing"

	"github.com/siftdb/sift/filter"
)

// answers builds a filter over n keys, and checks the answers of each non-empty prefix
// of its units.
func (s *suite) answers(n int, k kind) {
	s.t.Helper()
	keys := s.keys(n, k)
	units := s.build(s.p.NewWriter(), keys)
	if units == nil {
		return
	}
	if again := s.build(s.p.NewWriter(), keys); again != nil && !s.o.Salted && !equalUnits(units, again) {
		s.errorf("building from the same keys again gives other bytes")
	}
	before := cloneUnits(units)
	size, fpr := 0, math.Inf(1)
	for have := 1; have <= len(units); have++ {
		r := s.open(units[:have])
		if r == nil {
			return
		}
		s.holds(r, keys)
		s.measure(r, n)
		if got := r.SizeBytes(); got <= size && len(units[have-1]) > 0 {
			s.errorf("SizeBytes is %d with %d units, %d with one fewer", got, have, size)
		}
		if got := r.FPR(); !(got >= 0 && got <= 1) || got > fpr {
			s.errorf("FPR is %v with %d units, %v with one fewer", got, have, fpr)
		}
		size, fpr = r.SizeBytes(), r.FPR()
		if have == len(units) {
			s.block(r, units, keys)
		}
	}
	if !equalUnits(units, before) {
		s.errorf("the reader changed the units")
	}
}

// holds checks that r excludes none of keys, and that MayContainMany agrees with
// MayContain.
func (s *suite) holds(r filter.Reader, keys []filter.Key) {
	s.t.Helper()
	excluded := 0
	ahead, _ := r.(filter.Prefetcher)
	for i, k := range keys {
		if ahead != nil { // any hash is allowed, and has no effect on answers
			ahead.Prefetch(k.Hash)
			ahead.Prefetch(^k.Hash)
		}
		if !r.MayContain(k) {
			if excluded++; excluded == 1 {
				s.errorf("key %d of %d, %q, was added and is excluded", i, len(keys), k.Bytes)
			}
		}
	}
	if excluded > 1 {
		s.errorf("%d of %d keys are excluded", excluded, len(keys))
	}
	s.many(r, keys)
}

// many compares MayContainMany, in batches of many sizes, and MayContainBytes, if there
// is one, with MayContain.
func (s *suite) many(r filter.Reader, keys []filter.Key) {
	s.t.Helper()
	if b, ok := r.(filter.BytesReader); ok {
		for _, k := range keys {
			if got, want := b.MayContainBytes(k.Bytes), r.MayContain(k); got != want {
				s.errorf("MayContainBytes of %q is %v, MayContain is %v", k.Bytes, got, want)
				break
			}
		}
	}
	const spare = 3
	positive := make([]bool, len(keys)+spare)
	for at, size := 0, 0; at < len(keys); size = (size + 1) % 150 {
		batch := keys[at:min(at+size, len(keys))]
		out := positive[at : at+len(batch)+spare]
		for i := range out {
			out[i] = (at+i)%2 == 0 // the old contents must not matter
		}
		r.MayContainMany(batch, out)
		for i, k := range batch {
			if want := r.MayContain(k); out[i] != want {
				s.errorf("MayContainMany of %d keys returns %v for key %d, MayContain %v", len(batch), out[i], i, want)
				return
			}
		}
		for i := len(batch); i < len(out); i++ {
			if out[i] != ((at+i)%2 == 0) {
				s.errorf("MayContainMany of %d keys wrote to positive[%d]", len(batch), i)
				return
			}
		}
		at += len(batch)
	}
}

// measure compares the share of absent keys that r does not exclude with its FPR.
func (s *suite) measure(r filter.Reader, n int) {
	s.t.Helper()
	probed := min(max(50_000, n), 1_000_000)
	keys := make([]filter.Key, 1000)
	positive := make([]bool, len(keys))
	var buf []byte
	found := 0
	for at := 0; at < probed; at += len(keys) {
		buf = buf[:0]
		for i := range keys {
			was := len(buf)
			buf = s.randomKey(1, uint64(at+i), buf)
			keys[i] = filter.NewKey(buf[was:len(buf):len(buf)])
		}
		if at == 0 {
			s.many(r, keys)
		}
		r.MayContainMany(keys, positive)
		for _, m := range positive {
			if m {
				found++
			}
		}
		// The keys alias buf, which is reused: every round needs as many bytes.
	}
	// The tolerance is five standard deviations of the count, 15% for the error of an
	// estimated FPR, and a few more for small expectations.
	claimed := r.FPR()
	want := claimed * float64(probed)
	slack := 0.15*want + 5*math.Sqrt(want*(1-claimed)) + 8
	if got := float64(found); math.IsNaN(claimed) || math.Abs(got-want) > slack {
		s.errorf("%d of %d absent keys are not excluded, a rate of %.4g; FPR is %.4g", found, probed, got/float64(probed), claimed)
	}
}

// again uses one writer for several filters.
func (s *suite) again() {
	s.t.Helper()
	w := s.p.NewWriter()
	sizes := []int{2000, 300, 0, 2000, 1}
	var kept, copies [][][]byte
	for round, n := range sizes {
		keys := s.keysOf(uint64(round+2), n, distinct)
		units := s.build(w, keys)
		if units == nil {
			return
		}
		if fresh := s.build(s.p.NewWriter(), keys); fresh != nil && !s.o.Salted && !equalUnits(units, fresh) {
			s.errorf("filter %d of a writer that is used again has other bytes than a new writer's", round)
		}
		kept, copies = append(kept, units), append(copies, cloneUnits(units))
	}
	for i := range kept {
		if !equalUnits(kept[i], copies[i]) {
			s.errorf("the units of filter %d changed when the writer was used again", i)
		}
	}
	if r := s.open(kept[0]); r != nil {
		s.holds(r, s.keysOf(2, sizes[0], distinct))
	}
}

// goroutines probes one reader from several goroutines, for the race detector.
func (s *suite) goroutines() {
	s.t.Helper()
	keys := s.keys(2000, distinct)
	units := s.build(s.p.NewWriter(), keys)
	if units == nil {
		return
	}
	r := s.open(units)
	if r == nil {
		return
	}
	const sides = 4
	var excluded [sides]int
	var wg sync.WaitGroup
	for side := range sides {
		wg.Go(func() {
			positive := make([]bool, len(keys))
			for range 5 {
				r.MayContainMany(keys, positive)
				for i, k := range keys {
					if !positive[i] || !r.MayContain(k) {
						excluded[side]++
					}
				}
				r.FPR()
				r.SizeBytes()
			}
		})
	}
	wg.Wait()
	for _, d := range excluded {
		if d > 0 {
			s.errorf("%d keys are excluded when several goroutines probe", d)
		}
	}
}

// allocations checks that probes do not allocate.
func (s *suite) allocations() {
	s.t.Helper()
	keys := s.keys(500, distinct)
	units := s.build(s.p.NewWriter(), keys)
	if units == nil {
		return
	}
	r := s.open(units)
	if r == nil {
		return
	}
	positive := make([]bool, len(keys))
	if n := testing.AllocsPerRun(20, func() { r.MayContain(keys[0]) }); n > 0 {
		s.errorf("MayContain allocates %v times", n)
	}
	if n := testing.AllocsPerRun(20, func() { r.MayContainMany(keys, positive) }); n > 0 {
		s.errorf("MayContainMany allocates %v times", n)
	}
	if bp, block := s.joined(units); bp != nil && block != nil {
		if n := testing.AllocsPerRun(20, func() { bp.MayContainBlock(block, keys[0]) }); n > 0 {
			s.errorf("MayContainBlock allocates %v times", n)
		}
	}
}

// joined returns the policy as a BlockPolicy and the block of the units. It returns nil
// and nil if the policy is not a BlockPolicy, and a nil block after a failure.
func (s *suite) joined(units [][]byte) (filter.BlockPolicy, []byte) {
	s.t.Helper()
	bp, ok := s.p.(filter.BlockPolicy)
	if !ok {
		return nil, nil
	}
	if bp.BlockFamily() == bp.Family() {
		if len(units) != 1 {
			s.errorf("%d units, but the family %q is also the BlockFamily", len(units), bp.Family())
			return bp, nil
		}
		return bp, units[0]
	}
	block, err := filter.JoinUnits(units)
	if err != nil {
		s.errorf("JoinUnits: %v", err)
	}
	return bp, block
}

// block checks that MayContainBlock excludes none of keys, and agrees with r on absent
// keys.
func (s *suite) block(r filter.Reader, units [][]byte, keys []filter.Key) {
	s.t.Helper()
	bp, block := s.joined(units)
	if block == nil {
		return
	}
	for i, k := range keys {
		if !bp.MayContainBlock(block, k) {
			s.errorf("MayContainBlock excludes key %d of %d, %q", i, len(keys), k.Bytes)
			return
		}
	}
	for _, k := range s.keysOf(1, 2000, distinct) {
		if got, want := bp.MayContainBlock(block, k), r.MayContain(k); got != want {
			s.errorf("MayContainBlock is %v for the absent key %q, MayContain is %v", got, k.Bytes, want)
			return
		}
	}
}

func equalUnits(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func cloneUnits(units [][]byte) [][]byte {
	c := make([][]byte, len(units))
	for i := range units {
		c[i] = bytes.Clone(units[i])
	}
	return c
}
