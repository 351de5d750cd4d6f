package serve

import (
	"os"
	"testing"
	"time"
)

func TestBalanced(t *testing.T) {
	for _, c := range []struct {
		desc      string
		busy      []float64
		most      int
		free, own float64
		want      int
	}{
		{"one is enough", []float64{0.8}, 4, 2.5, 0.8, 1},
		{"CPUs are free", []float64{1}, 4, 2, 1, 2},
		{"clients use the other CPU", []float64{1}, 2, 0, 1, 1},
		{"clients use most of the other CPU", []float64{1}, 2, 0.3, 1, 1},
		{"clients use half of the other CPU", []float64{1}, 2, 0.5, 1, 2},
		{"no loop for another CPU", []float64{1, 1}, 2, 2, 2, 2},
		{"one of two is not busy", []float64{1, 0.5}, 4, 2, 1.5, 2},
		{"both are busy, clients on another machine", []float64{1, 1}, 2, 0, 2, 2},
		{"both are busy, clients use a third of a CPU", []float64{1, 1}, 2, 0, 1.67, 2},
		{"clients compete with both", []float64{1, 1}, 2, 0, 1.2, 1},
		{"clients compete with four", []float64{1, 1, 1, 1}, 8, 0, 3.2, 3},
		{"one can do the work of two", []float64{0.3, 0.2}, 2, 1, 0.5, 1},
		{"three can do the work of four", []float64{0.4, 0.4, 0.4, 0.4}, 4, 2, 1.6, 3},
		{"nothing to do", []float64{0, 0}, 2, 2, 0, 1},
		{"nothing to do for one", []float64{0}, 2, 2, 0, 1},
	} {
		if got := balanced(c.busy, c.most, c.free, c.own); got != c.want {
			t.Errorf("%s: %d loops, want %d", c.desc, got, c.want)
		}
	}
}

// TestBalancedShares: with clients on the same two CPUs, the number of loops does not alternate. A
// client uses share of the CPU time that the server does, 1.3 times as much with two loops as with
// one.
func TestBalancedShares(t *testing.T) {
	for share := 0.0; share < 2; share += 0.01 {
		n, changes := 1, 0
		for range 20 {
			busy, free, own := []float64{1}, 1-share, 1.0
			switch {
			case n == 2:
				server := 2 * 1.3 / (1.3 + share)
				busy, free, own = []float64{1, 1}, 0, server
			case share > 1: // the client keeps the loop waiting
				busy, free, own = []float64{1 / share}, 1-1/share, 1/share
			}
			if to := balanced(busy, 2, free, own); to != n {
				n = to
				changes++
			}
		}
		if want := 1; changes > 1 || share < 0.5 && n == want || share > 0.7 && n != want {
			t.Errorf("share %.2f: %d loops after %d changes", share, n, changes)
		}
	}
}

func TestIdle(t *testing.T) {
	stat := []byte("cpu  9 9 9 900 9 9 9 9 9 9\ncpu0 1 1 1 100 20 1 1 1 1 1\ncpu1 1 1 1 300 0 1 1 1 1 1\ncpu64 1 1 1 500 0 1\ncpu65 1\nintr 4 0\n")
	for _, c := range []struct {
		set  cpuSet
		want float64
	}{
		{cpuSet{1}, 1.2},
		{cpuSet{2}, 3},
		{cpuSet{3}, 4.2},
		{cpuSet{2, 3}, 8},
		{cpuSet{}, 0},
	} {
		if got := c.set.idle(stat); got != c.want {
			t.Errorf("%v: idle for %v s, want %v", c.set, got, c.want)
		}
	}
	if got := (cpuSet{1}).idle(nil); got != 0 {
		t.Errorf("idle for %v s without a file", got)
	}
	if _, err := os.Stat("/proc/stat"); err != nil {
		t.Skip(err)
	}
	cpus := 0
	for _, word := range allowedCPUs() {
		for ; word != 0; word &= word - 1 {
			cpus++
		}
	}
	var c cpuClock
	c.step(time.Second)
	begin := time.Now()
	time.Sleep(100 * time.Millisecond)
	free, own := c.step(time.Since(begin))
	if most := float64(cpus) + 0.5; cpus == 0 || free < 0 || own < 0 || free > most || own > most {
		t.Errorf("%v CPUs are free and %v used, of %d", free, own, cpus)
	}
}
