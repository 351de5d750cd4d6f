package filter_test

import (
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/filter/filtertest"
)

func TestRibbonConformance(t *testing.T) {
	for _, c := range []struct {
		p filter.Policy
		o filtertest.Options
	}{
		{filter.Ribbon(1), filtertest.Options{MaxKeys: 10_000}},
		{filter.Ribbon(5.5), filtertest.Options{MaxKeys: 100_000}},
		{filter.Ribbon(10), filtertest.Options{}},
		{filter.Ribbon(20), filtertest.Options{MaxKeys: 100_000}},
		{filter.RibbonFPR(0.5), filtertest.Options{MaxKeys: 10_000}},
		{filter.RibbonFPR(0.003), filtertest.Options{MaxKeys: 100_000}},
	} {
		t.Run(c.p.Name(), func(t *testing.T) { filtertest.RunWith(t, c.p, c.o) })
	}
}
