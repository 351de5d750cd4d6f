package live

import (
	"flag"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

var million = flag.Bool("live.million", false, "measure false positive rates with a million elements, not only with some ten thousand")

// sized returns n, or an eighth of it in short mode, which is for the race detector.
func sized(n int) int {
	if testing.Short() {
		return n / 8
	}
	return n
}

// An element that member returns is never equal to one that nonMember returns.
func member(i int) string    { return "user:" + strconv.Itoa(i) }
func nonMember(i int) string { return "ghost:" + strconv.Itoa(i) }

// measureFPR returns the fraction of non-members for which has returns true. probes is their
// number.
func measureFPR(probes int, has func(string) bool) float64 {
	n := 0
	for i := range probes {
		if has(nonMember(i)) {
			n++
		}
	}
	return float64(n) / float64(probes)
}

// checkFPR fails if a measured rate differs from want by more than chance explains: five
// standard deviations of the probes, plus slack, a share of want, for the variance of the fill.
func checkFPR(t *testing.T, what string, got, want float64, probes int, slack float64) {
	t.Helper()
	dev := 5*math.Sqrt(want*(1-want)/float64(probes)) + slack*want
	if got > want+dev || got < want-dev {
		t.Errorf("%s: FPR %.3g, want %.3g ± %.2g", what, got, want, dev)
	}
}

// checkFPRBelow fails if a measured rate exceeds limit by more than chance explains.
func checkFPRBelow(t *testing.T, what string, got, limit float64, probes int) {
	t.Helper()
	if dev := 4 * math.Sqrt(limit*(1-limit)/float64(probes)); got > limit+dev {
		t.Errorf("%s: FPR %.3g, limit %.3g + %.2g", what, got, limit, dev)
	}
}

// seededRand returns a generator whose seed is logged if the test fails.
func seededRand(t testing.TB) *rand.Rand {
	const seed = 20240607
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// addErr is the error of an Add that may fail.
func addErr[T any](f FallibleAdder[T], v T) error {
	_, err := f.Add(v)
	return err
}
