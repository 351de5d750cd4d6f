package filter

import (
	"fmt"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// TestPortable pins the bytes of larger filters, which must be the same on every
// machine: run it on one with another word size or byte order.
func TestPortable(t *testing.T) {
	for _, c := range []struct {
		p    Policy
		want uint64
	}{
		{Bloom(1), 0x525a9f98d2c78a5f},
		{Bloom(7.5), 0xc98de075e0f64b2d},
		{Bloom(10), 0xaaa5f530d754d79a},
		{Bloom(30), 0x63267ed05c6130ae},
		{Fuse(4), 0x23e7f7a32c98c735},
		{Fuse(8), 0xdf367c2c662e62f3},
		{Fuse(13), 0xdcf0ba7c320f23c8},
		{RocksDBBloom(10), 0xbeefe48cdc57f332},
	} {
		var keys []string
		for i := range 5000 {
			keys = append(keys, fmt.Sprintf("%*d", i%300, i))
		}
		sum := xxhash.New()
		for _, u := range build(t, c.p, keys...) {
			if _, err := sum.Write(u); err != nil {
				t.Fatal(err)
			}
		}
		if got := sum.Sum64(); got != c.want {
			t.Errorf("%s: checksum %#016x, want %#016x", c.p.Name(), got, c.want)
		}
	}
}
