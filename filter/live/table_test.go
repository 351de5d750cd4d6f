package live

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// TestMod compares mod with a division, for the largest numbers and near multiples of the
// size, where the quotient is off by one.
func TestMod(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		n := 1 + rng.Uint64()>>(1+rng.IntN(62))
		table := table{bits: n, recip: math.MaxUint64 / n}
		multiple := math.MaxInt64 / n * n
		for _, c := range []uint64{0, n - 1, n, n + 1, multiple - 1, multiple, multiple + 1, math.MaxInt64 - 1, math.MaxInt64, rng.Uint64() >> 1} {
			if c &= math.MaxInt64; table.mod(c) != c%n {
				t.Fatalf("%d mod %d is %d, want %d", c, n, table.mod(c), c%n)
			}
		}
	}
}

// TestTooLargeFor32Bits checks that filters larger than the address space give errors.
func TestTooLargeFor32Bits(t *testing.T) {
	if math.MaxInt > math.MaxInt32 {
		t.Skip("sizes above the address space are invalid anyway")
	}
	const items, fpr = 1 << 36, 0.01 // 80 GiB and more
	isOptionError := func(what string, err error) {
		t.Helper()
		if oe := (*OptionError)(nil); !errors.As(err, &oe) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, scheme := range []Scheme{Scattered, Blocked, Guava} {
		_, err := NewBloom(BloomOptions[string]{Items: items, FPR: fpr, Scheme: scheme})
		isOptionError(scheme.String(), err)
		_, err = NewBloom(BloomOptions[string]{Bits: 1 << 36, Hashes: 1, Scheme: scheme})
		isOptionError(scheme.String()+" by bits", err)
	}
	_, err := NewCounting(CountingOptions[string]{Items: items, FPR: fpr})
	isOptionError("Counting", err)
	_, err = NewCuckoo(CuckooOptions[string]{Items: items, FPR: fpr})
	isOptionError("Cuckoo", err)
	_, err = NewScalable(ScalableOptions[string]{Items: items, FPR: fpr})
	isOptionError("Scalable", err)
	_, err = NewGenerations(GenerationsOptions[string]{Items: items, FPR: fpr, Span: time.Hour})
	isOptionError("Generations", err)

	rec := record{kind: kindBloom, elements: funnel.Bytes, hashes: 1, words: 1 << 30}
	_, err = ReadBloom(bytes.NewReader(appendRecord(nil, rec)), ReadOptions[string]{})
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("ReadBloom: %v", err)
	}
	const blocks = 1 << 28
	cold := bytes.NewReader(coldHead(funnel.Bytes, 1, blocks, 0))
	c, err := openCold(cold, coldHeader+blocks*coldBlock, must(funnel.For[string](nil)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Load(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Cold.Load: %v", err)
	}
}
