package pebblefilter

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/filter/filtertest"
)

// plain hides that a policy is a filter.BlockPolicy.
type plain struct{ filter.Policy }

// policies returns the policies that are tested.
func policies() []filter.Policy {
	return []filter.Policy{
		filter.Bloom(10),
		filter.Bloom(3.5),
		filter.Fuse(8),
		filter.Ribbon(10),
		filter.RibbonFPR(0.01),
		filter.RocksDBBloom(10),
		plain{filter.Bloom(10)},
	}
}

func key(i int) []byte    { return fmt.Appendf(nil, "key%06d", i) }
func absent(i int) []byte { return fmt.Appendf(nil, "key%06d-", i) }

func TestNew(t *testing.T) {
	for _, fp := range policies() {
		p := New(fp)
		for _, n := range []int{1, 2, 1000, 30_000} {
			w := p.NewWriter(pebble.TableFilter)
			for i := range n {
				w.AddKey(key(i))
			}
			prefix := []byte("before")
			block := w.Finish(bytes.Clone(prefix))
			if !bytes.HasPrefix(block, prefix) {
				t.Fatalf("%s: Finish drops the contents of the buffer", fp.Name())
			}
			block = block[len(prefix):]
			again := p.NewWriter(pebble.TableFilter)
			for i := range n {
				again.AddKey(key(i))
			}
			if !bytes.Equal(again.Finish(nil), block) {
				t.Errorf("%s: Finish gives other bytes without a buffer", fp.Name())
			}
			probed := min(n, 1000)
			if _, ok := fp.(filter.BlockPolicy); !ok {
				probed = min(n, 50) // slow
			}
			found := 0
			for i := range probed {
				if !p.MayContain(pebble.TableFilter, block, key(i)) {
					t.Fatalf("%s, %d keys: key %d is excluded", fp.Name(), n, i)
				}
				if p.MayContain(pebble.TableFilter, block, absent(i)) {
					found++
				}
			}
			if n >= 1000 && found > probed/3 {
				t.Errorf("%s, %d keys: %d of %d absent ones are not excluded", fp.Name(), n, found, probed)
			}
			for cut := 0; cut < len(block); cut += 1 + len(block)/100 {
				if !p.MayContain(pebble.TableFilter, block[:cut], key(0)) {
					t.Errorf("%s, %d keys: a block cut to %d of %d bytes excludes a key", fp.Name(), n, cut, len(block))
				}
			}
			if _, ok := fp.(filter.BlockPolicy); !ok {
				continue
			}
			k := key(0)
			if allocs := testing.AllocsPerRun(10, func() { p.MayContain(pebble.TableFilter, block, k) }); allocs != 0 {
				t.Errorf("%s: MayContain allocates %v times", fp.Name(), allocs)
			}
		}
	}
}

// TestNames checks that a policy reads the blocks of any policy of its family.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		a, b filter.Policy
		name string
	}{
		{filter.Bloom(4), filter.Bloom(20), "sift.Bloom"},
		{filter.Fuse(4), filter.Fuse(13), "sift.Fuse"},
		{filter.Ribbon(5), filter.RibbonFPR(0.001), "sift.Ribbon.joined"},
		{filter.RocksDBBloom(5), filter.RocksDBBloom(12), "rocksdb.BuiltinBloomFilter"},
		{plain{filter.Bloom(4)}, plain{filter.Bloom(20)}, "joined.sift.Bloom"},
	} {
		a, b := New(c.a), New(c.b)
		if a.Name() != c.name || b.Name() != c.name {
			t.Errorf("%s and %s are named %q and %q, want %q", c.a.Name(), c.b.Name(), a.Name(), b.Name(), c.name)
		}
		w := a.NewWriter(pebble.TableFilter)
		for i := range 1000 {
			w.AddKey(key(i))
		}
		block := w.Finish(nil)
		for i := range 1000 {
			for _, k := range [][]byte{key(i), absent(i)} {
				if a.MayContain(pebble.TableFilter, block, k) != b.MayContain(pebble.TableFilter, block, k) {
					t.Fatalf("%s and %s give different answers", c.a.Name(), c.b.Name())
				}
			}
		}
	}
}

// named is pebble's Bloom policy under another name.
type named struct {
	bloom.FilterPolicy
	name string
}

func (n named) Name() string { return n.name }

func TestFrom(t *testing.T) {
	t.Run("bloom", func(t *testing.T) {
		filtertest.RunWith(t, From(bloom.FilterPolicy(10)), filtertest.Options{Unsealed: true, MaxKeys: 100_000})
	})
	t.Run("other", func(t *testing.T) {
		filtertest.RunWith(t, From(named{10, "test.Other"}), filtertest.Options{MaxKeys: 100_000})
	})
	if p := From(bloom.FilterPolicy(10)); p.Family() != "rocksdb.BuiltinBloomFilter" {
		t.Errorf("family %q", p.Family())
	}
	if p := From(named{10, "test.Other"}); p.Family() != "sealed.test.Other" {
		t.Errorf("family %q", p.Family())
	}
	for _, p := range policies() {
		if From(New(p)) != p {
			t.Errorf("From(New(%s)) is another policy", p.Name())
		}
	}
	for _, p := range []filter.Policy{nil, filter.None()} {
		if New(p) != pebble.NoFilterPolicy {
			t.Errorf("New(%v) is %v", p, New(p))
		}
	}
	for _, p := range []pebble.FilterPolicy{nil, pebble.NoFilterPolicy} {
		if !filter.IsNone(From(p)) {
			t.Errorf("From(%v) is %v", p, From(p))
		}
	}
}

// raw is a policy whose blocks are the keys themselves.
type raw struct{}

func (raw) Name() string                                           { return "test.Raw" }
func (raw) MayContain(_ pebble.FilterType, block, key []byte) bool { return bytes.Contains(block, key) }
func (raw) NewWriter(pebble.FilterType) pebble.FilterWriter        { return new(rawWriter) }

type rawWriter struct{ b []byte }

func (w *rawWriter) AddKey(key []byte)        { w.b = append(w.b, key...) }
func (w *rawWriter) Finish(buf []byte) []byte { return append(buf, w.b...) }

// TestSealedExample checks the example in the format comment.
func TestSealedExample(t *testing.T) {
	w := From(raw{}).NewWriter()
	w.Add(filter.NewKey([]byte("a")))
	units, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(units[0]); len(units) != 1 || got != "615b6e8ca9f1c44ed2" {
		t.Errorf("got %s", got)
	}
}
