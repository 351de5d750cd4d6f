package filter_test

import (
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/filter/filtertest"
)

func TestKeyedConformance(t *testing.T) {
	for _, c := range []struct {
		p filter.Policy
		o filtertest.Options
	}{
		{filter.Bloom(10), filtertest.Options{Salted: true, MaxKeys: 100_000}},
		{filter.Fuse(8), filtertest.Options{Salted: true, MaxKeys: 10_000}},
		{filter.Ribbon(10), filtertest.Options{Salted: true, MaxKeys: 100_000}},
	} {
		p, err := filter.Keyed(c.p, filter.Secret{3, 1, 4, 1, 5})
		if err != nil {
			t.Fatal(err)
		}
		t.Run(p.Name(), func(t *testing.T) { filtertest.RunWith(t, p, c.o) })
	}
}
