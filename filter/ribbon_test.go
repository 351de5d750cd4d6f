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
		{filter.Ribbon(10), filtertest.Options{}},
	} {
		t.Run(c.p.Name(), func(t *testing.T) { filtertest.RunWith(t, c.p, c.o) })
	}
}
