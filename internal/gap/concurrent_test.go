package gap

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// TestConcurrent runs all methods against each other: in the end the gaps are in order and
// disjoint, their sizes add up, and no watch is left. The race detector checks that each takes the
// lock.
func TestConcurrent(t *testing.T) {
	s := NewSet(4 << 10)
	key := func(i int) []byte { return fmt.Appendf(nil, "%03d", i) }
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(9, uint64(g)))
			for range 3000 {
				from := rng.IntN(990)
				to := from + 1 + rng.IntN(9)
				switch rng.IntN(8) {
				case 0, 1:
					s.Cut(key(from))
				case 2:
					if rng.IntN(4) == 0 {
						s.Clear()
					}
				case 3:
					cuts := s.Cuts()
					if gaps := s.Gaps(); len(gaps) > 0 {
						if gap := gaps[rng.IntN(len(gaps))]; gap.To != nil {
							s.Grow(gap, append(bytes.Clone(gap.To), '0'), View{Seq: uint64(to)}, 3, cuts)
						}
					}
				case 4:
					s.Worth(rng.IntN(100))
				default:
					w := s.Watch(key(from), key(to), View{Seq: uint64(to)}, rng.IntN(2) == 0)
					if rng.IntN(3) == 0 {
						w.Seen(key(from + rng.IntN(to-from)))
					}
					if rng.IntN(4) == 0 {
						w.Abandon()
					} else {
						w.Done(nil, 20+rng.IntN(100))
					}
				}
			}
		})
	}
	wg.Wait()
	gaps, size := s.Gaps(), 0
	for i, g := range gaps {
		if size += g.size(); bytes.Compare(g.From, g.To) >= 0 || i > 0 && bytes.Compare(gaps[i-1].To, g.From) > 0 {
			t.Errorf("gap %d is [%q,%q)", i, g.From, g.To)
		}
	}
	if size != s.bytes || len(s.watches) != 0 || s.active.Load() != int64(len(gaps)) {
		t.Errorf("%d bytes are counted of %d; %d watches; %d of %d are active", s.bytes, size, len(s.watches), s.active.Load(), len(gaps))
	}
}
