package filter_test

import (
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/filter/filtertest"
)

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		p filter.Policy
		o filtertest.Options
	}{
		{filter.Bloom(1), filtertest.Options{MaxKeys: 10_000}},
		{filter.Bloom(7.3), filtertest.Options{MaxKeys: 100_000}},
		{filter.Bloom(10), filtertest.Options{}},
		{filter.Bloom(30), filtertest.Options{MaxKeys: 100_000}},
		{filter.Fuse(4), filtertest.Options{MaxKeys: 100_000}},
		{filter.Fuse(8), filtertest.Options{}},
		{filter.Fuse(13), filtertest.Options{MaxKeys: 100_000}},
		{filter.Fuse(16), filtertest.Options{MaxKeys: 100_000}},
		{filter.RocksDBBloom(1), filtertest.Options{MaxKeys: 10_000, Unsealed: true}},
		{filter.RocksDBBloom(10), filtertest.Options{MaxKeys: 100_000, Unsealed: true}},
		{filter.RocksDBBloom(30), filtertest.Options{MaxKeys: 10_000, Unsealed: true}},
	} {
		t.Run(c.p.Name(), func(t *testing.T) { filtertest.RunWith(t, c.p, c.o) })
	}
}
