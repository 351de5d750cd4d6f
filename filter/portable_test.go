package filter

import (
	"fmt"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// TestPortable pins the bytes of larger filters, which must be the same on
// machines of any word size and byte order.
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

// TestPortableAnswers pins the answers to absent keys, of readers, one by one and in
// batches, and of blocks: probes in assembly and in Go give the same answers. Run it with
// -tags purego, too.
func TestPortableAnswers(t *testing.T) {
	for _, c := range []struct {
		p    Policy
		keys int
		want uint64
	}{
		{Bloom(10), 5000, 0xb67092b9244b9fcc},
		{Bloom(4.5), 5000, 0xb8331bb8a4ae23c2},
		{Fuse(4), 5000, 0xfacfeeb640235c6a},
		{Fuse(8), 5000, 0xc91b0275f58ff266},
		{RocksDBBloom(5), 5000, 0x37f4c1e240811d7e},
		{RibbonFPR(0.3), 1000, 0x5f10127696c7d821},
		{RibbonFPR(0.3), 30_000, 0xb3ffe3c546580781},
		{Ribbon(4), 30_000, 0xed176b88a0cb737f},
		{Ribbon(6.7), 30_000, 0x8ecfdb73ba6abcb7},
	} {
		w := c.p.NewWriter()
		for i := range c.keys {
			w.Add(NewKey(fmt.Appendf(nil, "key %d", i)))
		}
		units, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.p.Open(units)
		if err != nil {
			t.Fatal(err)
		}
		block := units[0]
		bp := c.p.(BlockPolicy)
		if bp.BlockFamily() != bp.Family() {
			if block, err = JoinUnits(units); err != nil {
				t.Fatal(err)
			}
		}
		absent := make([]Key, 20_000)
		for i := range absent {
			absent[i] = NewKey(fmt.Appendf(nil, "absent %d", i))
		}
		positive := make([]bool, len(absent))
		r.MayContainMany(absent, positive)
		answers := make([]byte, len(absent))
		for i, k := range absent {
			if a, b := r.MayContain(k), bp.MayContainBlock(block, k); a != positive[i] || b != a {
				t.Fatalf("%s, key %d: the reader returns %v, %v in a batch, the block %v", c.p.Name(), i, a, positive[i], b)
			}
			if positive[i] {
				answers[i] = 1
			}
		}
		if got := xxhash.Sum64(answers); got != c.want {
			t.Errorf("%s, %d keys: checksum of the answers %#016x, want %#016x", c.p.Name(), c.keys, got, c.want)
		}
	}
}
