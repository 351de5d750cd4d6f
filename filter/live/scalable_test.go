package live

import (
	"bytes"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
)

// However small the first link is, the FPR of the chain stays below the target. RedisBloom 2.8,
// started at 100 elements, has 0.0015 instead of 0.001 at a million.
func TestScalableFPR(t *testing.T) {
	t.Parallel()
	for _, fpr := range []float64{0.01, 0.001} {
		for _, start := range []uint64{1, 100, 10_000, 1_000_000} {
			n, probes := sized(30_000), sized(200_000)
			if start == 100 && *million {
				n, probes = 1_000_000, 1_000_000
			}
			f := must(NewScalable(ScalableOptions[string]{Items: start, FPR: fpr}))
			for i := range n {
				f.Add(member(i))
				if i%(n/5) == 0 {
					checkFPRBelow(t, fmt.Sprintf("start %d, at %d", start, i), measureFPR(probes/10, f.MayContain), fpr, probes/10)
				}
			}
			for i := range n {
				if !f.MayContain(member(i)) {
					t.Fatalf("start %d: %d lost", start, i)
				}
			}
			got := measureFPR(probes, f.MayContain)
			t.Logf("start %d: FPR %.3g for %v, FPR() %.3g, %d links, %.2f bits per element", start, got, fpr, f.FPR(), f.Links(), float64(f.MemoryBytes()*8)/float64(n))
			checkFPRBelow(t, fmt.Sprintf("start %d", start), got, fpr, probes)
			if own := f.FPR(); got > own*1.1+4*math.Sqrt(own/float64(probes))+1e-5 {
				t.Errorf("start %d: FPR() is %.3g, measured %.3g", start, f.FPR(), got)
			}
			if c := float64(f.ApproxCount()); c > float64(n) || c < float64(n)*(1-2*fpr) {
				t.Errorf("start %d: ApproxCount %v", start, c)
			}
		}
	}
}

func TestScalableGrowth(t *testing.T) {
	for _, growth := range []int{1, 2, 4, 16} {
		f := must(NewScalable(ScalableOptions[int]{Items: 100, FPR: 1e-6, Growth: growth}))
		total := 0
		for links := 1; links <= 4; links++ {
			for range int(100 * math.Pow(float64(growth), float64(links-1))) {
				f.Add(total)
				total++
				if f.Links() != links {
					t.Fatalf("growth %d: %d links at %d elements, want %d", growth, f.Links(), total, links)
				}
			}
		}
	}
	f := must(NewScalable(ScalableOptions[int]{Items: 1, FPR: 0.5, Growth: 1}))
	for i := range 10_000 {
		f.Add(i)
	}
	if f.Links() != maxLinks {
		t.Errorf("%d links", f.Links())
	}
	for i := range 10_000 {
		if !f.MayContain(i) {
			t.Fatalf("%d lost", i)
		}
	}
}

func TestScalableOptions(t *testing.T) {
	for _, o := range []ScalableOptions[string]{
		{}, {FPR: 1}, {FPR: 0.1, Growth: 17}, {FPR: 0.1, Growth: -1}, {FPR: 0.1, Items: 1 << 37}, {FPR: 1e-300, Items: 1 << 36},
		{FPR: 5e-324, Items: 1},
	} {
		if _, err := NewScalable(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

func TestScalableConcurrent(t *testing.T) {
	const workers, n = 16, 30_000
	f := must(NewScalable(ScalableOptions[string]{Items: 10, FPR: 0.001}))
	var added atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range n {
				v := member((i + w*n/workers/2) % n)
				if f.Add(v) {
					added.Add(1)
				}
				if !f.MayContain(v) {
					t.Errorf("%d: lost", i)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := added.Load(); got < n*999/1000-10 || uint64(got) != f.ApproxCount() {
		t.Errorf("%d of %d were new, ApproxCount %d", got, n, f.ApproxCount())
	}
	checkFPRBelow(t, "filled by 16 goroutines", measureFPR(100_000, f.MayContain), 0.001, 100_000)
}

func TestReadScalableMalformed(t *testing.T) {
	f := must(NewScalable(ScalableOptions[string]{Items: 10, FPR: 0.1}))
	var b bytes.Buffer
	f.WriteTo(&b)
	for _, tc := range []struct {
		desc   string
		change func(b []byte)
	}{
		{"no links", func(b []byte) { b[12] = 0 }},
		{"65 links", func(b []byte) { b[12] = 65 }},
		{"two links, only one present", func(b []byte) { b[12] = 2 }},
		{"words", func(b []byte) { b[16] = 1 }},
		{"a seed that differs from its link's", func(b []byte) { b[24] = 1 }},
		{"no items", func(b []byte) { b[32] = 0 }},
		{"2^30 items in a link for 10", func(b []byte) { b[35] = 0x40 }},
		{"FPR 2", func(b []byte) { b[47], b[46] = 0x40, 0 }},
		{"growth 17", func(b []byte) { b[48] = 17 }},
	} {
		bad := bytes.Clone(b.Bytes())
		tc.change(bad)
		if _, err := ReadScalable(bytes.NewReader(reseal(bad)), ReadOptions[string]{MaxBytes: 1 << 20}); !isFormat(err) {
			t.Errorf("%s: %v", tc.desc, err)
		}
	}
	// A link that has elements is not a filter on its own.
	f.Add("a")
	b.Reset()
	f.WriteTo(&b)
	if _, err := ReadBloom(bytes.NewReader(b.Bytes()[recordSize+8:]), ReadOptions[string]{MaxBytes: 1 << 20}); !isFormat(err) {
		t.Errorf("a link read as a Bloom: %v", err)
	}
}

func FuzzReadScalable(f *testing.F) {
	s := must(NewScalable(ScalableOptions[string]{Items: 2, FPR: 0.1}))
	for i := range 10 {
		s.Add(member(i))
	}
	var buf bytes.Buffer
	s.WriteTo(&buf)
	f.Add(buf.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		resealAll(file)
		if len(file) >= 2*recordSize+8 {
			reseal(file[recordSize+8:])
		}
		g, err := ReadScalable(bytes.NewReader(file), ReadOptions[string]{MaxBytes: 1 << 20})
		if err != nil {
			return
		}
		g.MayContain("b")
		g.ApproxCount()
	})
}
