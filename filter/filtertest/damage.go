package filtertest

import (
	"fmt"
	"math"
	"runtime"

	"github.com/siftdb/sift/filter"
)

// maxAllocation is the most that Open may allocate for n bytes: a small multiple of n,
// and a constant for the reader.
func maxAllocation(n int) uint64 { return 16*uint64(n) + 64<<10 }

// damage damages the units of a filter over n keys in many ways. Each time Open must
// fail, or return a reader that excludes no key.
func (s *suite) damage(n int) {
	s.t.Helper()
	keys := s.keys(n, distinct)
	units := s.build(s.p.NewWriter(), keys)
	if units == nil {
		return
	}
	s.refused("no units", nil, nil)
	s.refused("an empty unit", [][]byte{{}}, nil)
	s.refused("a nil unit", [][]byte{nil}, nil)
	s.refused("one unit too many", append(cloneUnits(units), []byte{0}), keys)
	s.refused("the last unit twice", append(cloneUnits(units), units[len(units)-1]), keys)
	if len(units) > 1 {
		s.refused("without the first unit", units[1:], keys)
		swapped := cloneUnits(units)
		swapped[0], swapped[1] = swapped[1], swapped[0]
		s.refused("the first two units swapped", swapped, keys)
	}
	for _, size := range []int{1, 5, 8, 13, 16, 64, 80, 100} {
		for _, fill := range []byte{0, 1, 0x7f, 0x80, 0xff} {
			b := make([]byte, size)
			for i := range b {
				b[i] = fill
			}
			s.refused(fmt.Sprintf("%d bytes %#02x", size, fill), [][]byte{b}, nil)
		}
	}
	for u := range units {
		s.damageUnit(units, u, keys)
	}
	s.damageBlock(units, keys)
}

// damageUnit truncates and extends unit u, and flips its bits.
func (s *suite) damageUnit(units [][]byte, u int, keys []filter.Key) {
	s.t.Helper()
	c := cloneUnits(units)
	good := units[u]
	step := 1 + len(good)/1500
	for n := 0; n < len(good); n++ {
		// Near the ends, where headers and trailers are, try every length.
		if n > 100 && n < len(good)-100 && n%step != 0 {
			continue
		}
		c[u] = append([]byte(nil), good[:n]...)
		s.refused(fmt.Sprintf("unit %d cut to %d of %d bytes", u, n, len(good)), c, keys)
		c[u] = append([]byte(nil), good[n+1:]...)
		s.refused(fmt.Sprintf("unit %d without its first %d of %d bytes", u, n+1, len(good)), c, keys)
	}
	for _, more := range []int{1, 4, 8, 64, 1000} {
		c[u] = append(append([]byte(nil), good...), make([]byte, more)...)
		s.refused(fmt.Sprintf("unit %d with %d zeros appended", u, more), c, keys)
		c[u] = append(make([]byte, more), good...)
		s.refused(fmt.Sprintf("unit %d with %d zeros prepended", u, more), c, keys)
	}
	c[u] = append([]byte(nil), good...)
	flipKeys := keys
	if s.o.Unsealed {
		flipKeys = nil
	}
	for i := range good {
		flips := []byte{1 << (mix(uint64(i)) % 8)}
		if len(good) < 300 || i < 50 || i >= len(good)-50 {
			flips = []byte{1, 2, 4, 8, 16, 32, 64, 128, 255, good[i]}
		}
		for _, f := range flips {
			if f == 0 {
				continue
			}
			c[u][i] ^= f
			s.refused(fmt.Sprintf("byte %d of %d of unit %d flipped by %#02x", i, len(good), u, f), c, flipKeys)
			c[u][i] ^= f
		}
	}
}

// refused checks that Open fails, or returns a reader that excludes none of keys. Either
// way, nothing may panic, and Open may allocate at most maxAllocation.
func (s *suite) refused(what string, units [][]byte, keys []filter.Key) {
	s.t.Helper()
	defer func() {
		s.t.Helper()
		if r := recover(); r != nil {
			s.errorf("%s: panic: %v", what, r)
		}
	}()
	size := 0
	for _, u := range units {
		size += len(u)
	}
	var before, after runtime.MemStats
	// Reading the statistics stops the world, and some readers measure their FPR: do
	// both only now and then.
	s.seen++
	watch := s.seen%16 == 0 || size < 200 && s.seen%4 == 0
	if watch {
		runtime.ReadMemStats(&before)
	}
	r, err := s.p.Open(units)
	if watch {
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > maxAllocation(size) {
			s.errorf("%s: Open allocates %d bytes for %d", what, got, size)
		}
	}
	if err != nil {
		if r != nil {
			s.errorf("%s: Open returns a reader and the error %v", what, err)
		}
		return
	}
	if r == nil {
		s.errorf("%s: Open returns no reader and no error", what)
		return
	}
	positive := make([]bool, len(keys))
	r.MayContainMany(keys, positive)
	for i, k := range keys {
		if !r.MayContain(k) || !positive[i] {
			s.errorf("%s: Open succeeds, and key %d of %d is excluded", what, i, len(keys))
			return
		}
	}
	for i := range uint64(20) { // any answer, but no panic
		r.MayContain(filter.NewKey(s.randomKey(1, i, nil)))
	}
	if watch {
		if p := r.FPR(); math.IsNaN(p) || p < 0 || p > 1 {
			s.errorf("%s: Open succeeds, and FPR is %v", what, p)
		}
	}
}

// damageBlock probes truncated blocks, which must not exclude a key, and blocks with
// flipped bits, for which no probe may panic.
func (s *suite) damageBlock(units [][]byte, keys []filter.Key) {
	s.t.Helper()
	bp, block := s.joined(units)
	if block == nil {
		return
	}
	what := ""
	defer func() {
		s.t.Helper()
		if r := recover(); r != nil {
			s.errorf("block %s: panic: %v", what, r)
		}
	}()
	probed := keys[:min(len(keys), 30)]
	for n := range block {
		what = fmt.Sprintf("cut to %d of %d bytes", n, len(block))
		c := append([]byte(nil), block[:n]...)
		for _, k := range probed {
			if !bp.MayContainBlock(c, k) {
				s.errorf("block %s: a key is excluded", what)
				break
			}
		}
	}
	c := append([]byte(nil), block...)
	for i := range c {
		for _, f := range []byte{1, 0x10, 0x80, 0xff} {
			what = fmt.Sprintf("with byte %d of %d flipped by %#02x", i, len(block), f)
			c[i] ^= f
			for _, k := range probed {
				bp.MayContainBlock(c, k)
			}
			c[i] ^= f
		}
	}
}
