package pebblefilter

import (
	"encoding/binary"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
	"github.com/siftdb/sift/filter"
)

// FuzzBlock checks that no policy panics if pebble passes it arbitrary bytes as a block.
func FuzzBlock(f *testing.F) {
	var all []pebble.FilterPolicy
	for _, fp := range policies() {
		p := New(fp)
		all = append(all, p)
		for _, n := range []int{1, 300} {
			w := p.NewWriter(pebble.TableFilter)
			for i := range n {
				w.AddKey(key(i))
			}
			f.Add(w.Finish(nil), key(0))
		}
	}
	f.Fuzz(func(t *testing.T, block, key []byte) {
		for _, p := range all {
			p.MayContain(pebble.TableFilter, block, key)
		}
	})
}

// FuzzSealed opens bytes as sealed blocks. Those with a valid checksum must open and
// give the raw policy's answers.
func FuzzSealed(f *testing.F) {
	f.Add([]byte("some keys"), []byte("key"))
	f.Add([]byte{}, []byte{})
	p := From(raw{})
	f.Fuzz(func(t *testing.T, b, k []byte) {
		if r, err := p.Open([][]byte{b}); err == nil {
			r.MayContain(filter.NewKey(k))
		}
		sealed := binary.LittleEndian.AppendUint64(b[:len(b):len(b)], xxhash.Sum64(b))
		r, err := p.Open([][]byte{sealed})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := r.MayContain(filter.NewKey(k)), (raw{}).MayContain(pebble.TableFilter, b, k); got != want {
			t.Fatalf("%q in %q: %v, want %v", k, b, got, want)
		}
	})
}
