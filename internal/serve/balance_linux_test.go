package serve

import (
	"testing"
	"time"
)

// machine simulates steps of a balancer, in each of which the loops can execute rate commands and
// are sent load. It returns the number of loops that were used most often.
func machine(b *balancer, steps int, rate func(loops int) uint64, load uint64) (longest int) {
	used := map[int]int{}
	now := b.notBefore
	for range steps {
		can := rate(b.inUse)
		did := min(can, load)
		busy := make([]float64, b.most)
		for i := range b.inUse {
			busy[i] = float64(did) / float64(can)
		}
		now += balanceEvery
		used[b.step(now, did, busy)]++
	}
	for n, times := range used {
		if times > used[longest] {
			longest = n
		}
	}
	return longest
}

func TestBalance(t *testing.T) {
	alone := func(loops int) uint64 { return 1000 * uint64(loops) }
	crowded := func(loops int) uint64 { return 1000 - 100*uint64(loops-1) }
	for _, c := range []struct {
		desc  string
		inUse int
		rate  func(int) uint64
		load  uint64
		want  int
	}{
		{"one is enough", 1, alone, 500, 1},
		{"processors are free", 1, alone, 10_000, 4},
		{"processors have other work", 1, crowded, 10_000, 1},
		{"processors get other work", 4, crowded, 10_000, 1},
		{"less to do", 4, alone, 1500, 3},
		{"nothing to do", 4, alone, 0, 1},
		{"as much as four can do", 4, alone, 10_000, 4},
	} {
		b := &balancer{inUse: c.inUse, most: 4}
		if got := machine(b, 1000, c.rate, c.load); got != c.want {
			t.Errorf("%s: %d loops most of the time, want %d", c.desc, got, c.want)
		}
		if b.inUse < 1 || b.inUse > 4 {
			t.Errorf("%s: %d loops", c.desc, b.inUse)
		}
	}
	// A trial during which the work ends is inconclusive: the next one starts as soon as there is
	// work again.
	b := &balancer{inUse: 1, most: 2}
	for round := range 5 {
		at := time.Duration(round) * time.Second
		for i := range enough {
			b.step(at+time.Duration(i)*balanceEvery, 100, []float64{1, 0})
		}
		if b.inUse != 2 {
			t.Fatalf("round %d: no trial", round)
		}
		for i := range trialSteps {
			b.step(at+time.Duration(enough+i)*balanceEvery, 0, []float64{0, 0})
		}
		if b.inUse != 1 {
			t.Fatalf("round %d: the trial does not end", round)
		}
	}
	// A trial that does not help ends soon, and the next one starts later.
	b = &balancer{inUse: 1, most: 2}
	trials := 0
	for i := range 1000 {
		if b.step(time.Duration(i)*balanceEvery, 100, []float64{1, 1}) == 2 {
			trials++
		}
	}
	if trials == 0 || trials > 7*trialSteps {
		t.Errorf("a second loop in %d of 1000 steps", trials)
	}
}
