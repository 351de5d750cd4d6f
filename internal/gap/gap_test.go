package gap

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// describe prints the gaps of a set on one line.
func describe(s *Set) string {
	var parts []string
	for _, g := range s.Gaps() {
		to := "end"
		if g.To != nil {
			to = fmt.Sprintf("%q", g.To)
		}
		parts = append(parts, fmt.Sprintf("[%q,%s)@%d*%d", g.From, to, g.Since.Seq, g.Weight))
	}
	return strings.Join(parts, " ")
}

func key(s string) []byte {
	if s == "-" {
		return nil
	}
	return []byte(s)
}

// TestSet checks, step by step, which gaps walks add and writes cut.
func TestSet(t *testing.T) {
	for _, tt := range []struct{ desc, steps, want string }{
		{"a walk forward", "walk a z 7 100 m", `["a","m")@7*100`},
		{"to the end of all keys", "walk a - 7 100 -", `["a",end)@7*100`},
		{"a walk backward", "back a z 7 100 m", `["m\x00","z")@7*100`},
		{"from the end of all keys", "back - - 7 100 -", `["",end)@7*100`},
		{"a walk that touches the gap before", "walk a m 7 100 -, walk m z 9 110 -", `["a","z")@9*110`},
		{"a walk that overlaps two gaps", "walk a c 1 20 -, walk f k 2 30 -, walk b g 3 90 -", `["a","k")@3*90`},
		{"neighbors apart", "walk a c 1 20 -, walk d k 2 30 -", `["a","c")@1*20 ["d","k")@2*30`},
		{"a write in the middle", "walk a z 7 100 -, cut m", `["a","m")@7*50 ["m\x00","z")@7*50`},
		{"a write at the first key", "walk a z 7 100 -, cut a", `["a\x00","z")@7*100`},
		{"a write after the last key", "walk a z 7 100 -, cut z", `["a","z")@7*100`},
		{"a write into a gap of little weight", "walk a z 7 20 -, cut m", ``},
		{"a write during a walk", "walk a z 7 100 - cut=m", `["a","m")@7*100`},
		{"a write after the end of a walk", "walk a z 7 100 m cut=n", `["a","m")@7*100`},
		{"a write at the start of a walk", "walk a z 7 100 - cut=a", ``},
		{"a write during a walk backward", "back a z 7 100 - cut=m", `["m\x00","z")@7*100`},
		{"a write before the end of a walk backward", "back a z 7 100 m cut=c", `["m\x00","z")@7*100`},
	} {
		s := NewSet(1 << 20)
		for step := range strings.SplitSeq(tt.steps, ", ") {
			f := strings.Fields(step)
			if f[0] == "cut" {
				s.Cut([]byte(f[1]))
				continue
			}
			var seq uint64
			var weight int
			fmt.Sscan(f[3], &seq)
			fmt.Sscan(f[4], &weight)
			w := s.Watch(key(f[1]), key(f[2]), View{Seq: seq}, f[0] == "back")
			if len(f) > 6 {
				s.Cut([]byte(strings.TrimPrefix(f[6], "cut=")))
			}
			w.Done(key(f[5]), weight)
		}
		if got := describe(s); got != tt.want {
			t.Errorf("%s: %s\n got %s\nwant %s", tt.desc, tt.steps, got, tt.want)
		}
		s.mu.Lock()
		if active := int(s.active.Load()); active != len(s.Gaps()) || len(s.watches) != 0 {
			t.Errorf("%s: %d gaps and %d watches count as %d", tt.desc, len(s.Gaps()), len(s.watches), active)
		}
		s.mu.Unlock()
	}
}

// TestSetAgainstModel compares sets of several sizes with a model: an array of the sequence number
// at which each of a few keys was last set.
func TestSetAgainstModel(t *testing.T) {
	const keys = 60
	var names [keys + 1][]byte
	for i := range names {
		names[i] = fmt.Appendf(nil, "%02d", i)
	}
	name := func(i int) []byte { return names[i] }
	for _, maxBytes := range []int{700, 4000, 1 << 20} {
		rng := rand.New(rand.NewPCG(1, uint64(maxBytes)))
		s := NewSet(maxBytes)
		var lastSet [keys]uint64 // the last sequence number at which the key was set
		used := 0
		for seq := uint64(1); seq < 3000; seq++ {
			switch from, to := rng.IntN(keys), rng.IntN(keys+1); {
			case from < to && rng.IntN(3) == 0:
				// A walk that sees nothing set up to now.
				w := s.Watch(name(from), name(to), View{Seq: seq}, rng.IntN(2) == 0)
				if rng.IntN(3) == 0 {
					seq++
					k := rng.IntN(keys)
					lastSet[k] = seq
					s.Cut(name(k))
				}
				if rng.IntN(5) == 0 {
					w.Abandon()
				} else {
					w.Done(nil, 1+rng.IntN(1000))
				}
			default:
				k := rng.IntN(keys)
				lastSet[k] = seq
				s.Cut(name(k))
			}
			total := 0
			for i, g := range s.Gaps() {
				total += g.size()
				if i > 0 && bytes.Compare(s.Gaps()[i-1].To, g.From) > 0 {
					t.Fatalf("gaps overlap: %s", describe(s))
				}
				for k := range keys {
					if g.Holds(name(k)) && lastSet[k] > g.Since.Seq {
						t.Fatalf("at %d: key %02d was set at %d and lies in [%q,%q)@%d", seq, k, lastSet[k], g.From, g.To, g.Since.Seq)
					}
					used++
				}
			}
			if total > maxBytes || total != s.bytes {
				t.Fatalf("%d bytes, counted as %d, of %d", total, s.bytes, maxBytes)
			}
		}
		if used == 0 {
			t.Errorf("%d bytes: there never was a gap", maxBytes)
		}
	}
}

// TestGrow checks that a gap grows to the key that a reader has reached, unless something was cut
// meanwhile or the gap is gone.
func TestGrow(t *testing.T) {
	for _, tt := range []struct {
		desc      string
		meanwhile func(*Set)
		want      string
	}{
		{"nothing else happens", func(*Set) {}, `["a","q")@9*53`},
		{"a key between the two is set", func(s *Set) { s.Cut(key("n")) }, `["a","m")@7*50`},
		{"a key elsewhere is set", func(s *Set) { s.Cut(key("z")) }, `["a","m")@7*50`},
		{"a key in the gap is set", func(s *Set) { s.Cut(key("c")) }, `["a","c")@7*25 ["c\x00","m")@7*25`},
		{"the set is cleared", (*Set).Clear, ``},
		{"the gap has grown", func(s *Set) { s.Grow(s.Gaps()[0], key("p"), View{Seq: 8}, 1, s.Cuts()) }, `["a","p")@8*51`},
	} {
		s := NewSet(1 << 20)
		s.Watch(key("a"), key("z"), View{Seq: 7}, false).Done(key("m"), 50)
		g, cuts := s.Gaps()[0], s.Cuts()
		tt.meanwhile(s)
		s.Grow(g, key("q"), View{Seq: 9}, 3, cuts)
		if got := describe(s); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.desc, got, tt.want)
		}
	}
}

// TestNextAndPrev checks that a reader gets only gaps that are valid for its view.
func TestNextAndPrev(t *testing.T) {
	gaps := []*Gap{{From: key("a"), To: key("c"), Since: View{Seq: 5}}, {From: key("c\x00"), To: key("f"), Since: View{Seq: 9}}, {From: key("m"), Since: View{Seq: 2}}}
	for _, tt := range []struct {
		key        string
		seq        uint64
		next, prev int // indices; -1: none
	}{
		{"a", 9, 0, -1}, {"a", 4, 2, -1}, {"b", 9, 0, 0}, {"c", 9, 1, 0}, {"c", 5, 2, 0},
		{"g", 9, 2, 1}, {"g", 5, 2, 0}, {"z", 9, 2, 2}, {"z", 1, -1, -1}, {"-", 9, 0, 2},
	} {
		index := func(g *Gap) int {
			for i := range gaps {
				if gaps[i] == g {
					return i
				}
			}
			return -1
		}
		if got := index(Next(gaps, key(tt.key), View{Seq: tt.seq})); got != tt.next {
			t.Errorf("Next(%s, %d) = %d, want %d", tt.key, tt.seq, got, tt.next)
		}
		if got := index(Prev(gaps, key(tt.key), View{Seq: tt.seq})); got != tt.prev {
			t.Errorf("Prev(%s, %d) = %d, want %d", tt.key, tt.seq, got, tt.prev)
		}
	}
	// Tables were dropped at the sequence number of an older reader.
	late := []*Gap{{From: key("a"), To: key("c"), Since: View{Seq: 5, Drops: 1}}}
	if Next(late, key("a"), View{Seq: 5}) != nil || Prev(late, key("c"), View{Seq: 7}) != nil || Next(late, key("a"), View{5, 1}) == nil {
		t.Error("a gap from after a drop must be used by readers from after it, and by no others")
	}
}
