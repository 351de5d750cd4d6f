package ranges

import (
	"testing"

	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/filter"
)

// TestRates checks that range filters stay within the proven false positive rate and their bits
// per key, and that Trie gives a plausible size.
func TestRates(t *testing.T) {
	for _, s := range []*Set{Uniform(5000), Correlated(5000), Clustered(5000), EntityTime(5000)} {
		r, err := Measure(s, filter.Range(12, s.Drop))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range Lengths {
			f, ok := r.FPR[n]
			if bound := filter.RangeFPR(12, n); ok && f > 1.3*bound+0.001 {
				t.Errorf("%s: ranges of %d have a false positive rate of %.4f, above the bound of %.4f", s.Name, n, f, bound)
			}
		}
		if r.BitsPerKey < 11 || r.BitsPerKey > 13 {
			t.Errorf("%s: %.2f bits per key", s.Name, r.BitsPerKey)
		}
		if trie := Trie(s, 1); trie.BitsPerKey < 10 {
			t.Errorf("%s: a trie of %.1f bits per key", s.Name, trie.BitsPerKey)
		}
	}
}

// TestEmptyScans scans empty ranges in each store; sift must read hardly any blocks.
func TestEmptyScans(t *testing.T) {
	for _, e := range engine.All() {
		if e.RangeWays == nil {
			continue
		}
		all, err := EmptyScans(e, Terms{Keys: 30_000, ValueBytes: 100, FilterBits: 10, RangeBits: 16, Length: 10, Rounds: 1}, t.TempDir())
		if err != nil {
			t.Error(err)
		}
		for _, s := range all {
			if e.Name == "sift" && s.BlockReads > 20 {
				t.Errorf("sift, %s: %.1f block reads per 1,000 scans", s.Way, s.BlockReads)
			}
		}
	}
}
