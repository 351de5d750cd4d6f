package live

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

// As the comment of Pair says, elements disappear at the FPR of the second filter, and
// deleted ones cannot be added again.
func TestPair(t *testing.T) {
	const n, removed = 100_000, 50_000
	p := must(NewPair(BloomOptions[string]{Items: n, FPR: 0.01, Seed: 1}, BloomOptions[string]{Items: removed, FPR: 0.02, Seed: 2}))
	for i := range n {
		if err := addErr(p, member(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range removed {
		p.Delete(member(i))
	}
	for i := range removed {
		if p.MayContain(member(i)) {
			t.Fatalf("%d is there after Delete", i)
		}
		if err := addErr(p, member(i)); !errors.Is(err, ErrRemoved) {
			t.Fatalf("%d was added again: %v", i, err)
		}
	}
	lost := 0
	for i := removed; i < n; i++ {
		if !p.MayContain(member(i)) {
			lost++
		}
	}
	rate := float64(lost) / (n - removed)
	t.Logf("%.2f%% of the elements disappeared, %.2f%% expected", 100*rate, 100*p.FalseNegativeRate())
	if lost == 0 {
		t.Error("no element has disappeared, but the comment of Pair says that they do")
	}
	checkFPR(t, "elements that disappear", rate, p.FalseNegativeRate(), n-removed, 0.05)
	checkFPR(t, "FPR", measureFPR(200_000, p.MayContain), p.FPR(), 200_000, 0.05)
	if p.Delete(nonMember(1)) && !p.added.MayContain(nonMember(1)) {
		t.Error("removed an absent element")
	}

	var b bytes.Buffer
	if k, err := p.WriteTo(&b); err != nil || k != int64(b.Len()) {
		t.Fatal(k, err)
	}
	q, err := ReadPair(bytes.NewReader(b.Bytes()), ReadOptions[string]{MaxBytes: int64(p.MemoryBytes())})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if q.MayContain(member(i*n/1000)) != p.MayContain(member(i*n/1000)) {
			t.Fatal("the answers differ after saving and reading")
		}
	}
	if _, err := ReadPair(bytes.NewReader(b.Bytes()), ReadOptions[string]{MaxBytes: int64(p.MemoryBytes()) - 1}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
	if _, err := ReadPair(bytes.NewReader(b.Bytes()[:b.Len()-1]), ReadOptions[string]{MaxBytes: 1 << 30}); !isFormat(err) {
		t.Errorf("truncated: %v", err)
	}
}

// If one of its filters is full, a Pair returns no estimate instead of one that is far off.
func TestPairFull(t *testing.T) {
	for _, full := range []string{"added", "removed"} {
		p := must(NewPair(BloomOptions[string]{Items: 10, FPR: 0.1}, BloomOptions[string]{Items: 10, FPR: 0.1}))
		f := map[string]*Bloom[string]{"added": p.added, "removed": p.removed}[full]
		p.added.Add("a")
		p.removed.Add("b")
		for i := range 10_000 {
			f.Add(member(i))
		}
		if n := p.ApproxCount(); n != math.MaxUint64 {
			t.Errorf("%s is full: %d elements", full, n)
		}
	}
}
