package torture

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/torture/damage"
)

// TestDamage damages the files of a database in many ways. Every answer must be right, or an error
// that names the file.
func TestDamage(t *testing.T) { runDamage(short(t)) }

func runDamage(p *plan) {
	samples := p.samples()
	for _, s := range samples {
		region := s.Region()
		cases := damage.Flips(s.Files, region, len(damage.Masks))
		cases = append(cases, damage.Truncations(s.Files, region)...)
		cases = append(cases, damage.Swaps(s.Files, region)...)
		cases = append(cases, damage.Stale(s.Files, s.Old, region)...)
		cases = append(cases, s.SwappedBlocks()...)
		if !p.full() {
			// A quarter of the most numerous cases; the full form has all.
			rng := rand.New(rand.NewPCG(p.seed, 9))
			cases = slices.DeleteFunc(cases, func(c damage.Case) bool {
				many := c.Kind == "truncate" || c.Kind == "flip" && strings.HasPrefix(c.Region, "table")
				return many && rng.IntN(4) > 0
			})
		}
		for _, readOnly := range []bool{true, false} {
			if !p.full() && !readOnly {
				continue
			}
			u := Unnamed{CheckEvery: choose(p, 4, 1)}
			tally := damage.Run(SiftEngine{s, readOnly}, cases, s.Want, s.Keys, s.Verdict(&u))
			p.t.Logf("%d bytes in %d files, read-only %v, %d cases; %d errors name the file, %d of them no offset; Check missed %d of %d flips in tables\n%v",
				s.Files.Size(), len(s.Files), readOnly, tally.Cases(), u.Named, u.NoOffset, u.Unfound, u.Checked, tally)
			for _, bad := range tally.Bad {
				p.t.Error(bad)
			}
			if u.Count > 0 {
				p.t.Errorf("%d errors do not name the file: %s", u.Count, u.First)
			}
		}
	}
}

// samples returns the databases to damage.
func (p *plan) samples() []*Sample {
	var samples []*Sample
	add := func(s *Sample, err error) {
		if err != nil {
			p.t.Fatal(err)
		}
		samples = append(samples, s)
	}
	add(CleanSample("clean", filter.Bloom(10)))
	add(CrashedSample(choose(p, 100, 4000)))
	add(KeyedSample())
	if p.full() {
		for _, f := range families() {
			add(CleanSample(f.Name(), f))
		}
	}
	return samples
}
