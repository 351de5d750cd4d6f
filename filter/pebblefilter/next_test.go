package pebblefilter

import (
	"fmt"
	"testing"

	"github.com/siftdb/sift/filter"
)

// The filter interfaces of pebble's master branch.
type (
	nextFamily string
	nextWriter interface {
		AddKey(key []byte)
		Finish() (block []byte, family nextFamily, ok bool)
	}
	nextPolicy interface {
		Name() string
		NewWriter() nextWriter
	}
	nextDecoder interface {
		Family() nextFamily
		MayContain(block, key []byte) bool
	}
)

// The three types below implement them.

type ourNextPolicy struct{ filter.BlockPolicy }

func (p ourNextPolicy) NewWriter() nextWriter {
	return &ourNextWriter{p.BlockPolicy, p.BlockPolicy.NewWriter()}
}

type ourNextWriter struct {
	policy filter.BlockPolicy
	w      filter.Writer
}

func (w *ourNextWriter) AddKey(key []byte) { w.w.Add(filter.NewKey(key)) }

func (w *ourNextWriter) Finish() (block []byte, family nextFamily, ok bool) {
	units, err := w.w.Finish()
	if err != nil {
		return nil, "", false
	}
	if family = nextFamily(w.policy.BlockFamily()); w.policy.BlockFamily() == w.policy.Family() {
		return units[0], family, true
	}
	block, err = filter.JoinUnits(units)
	return block, family, err == nil
}

type ourNextDecoder struct{ any filter.BlockPolicy } // any policy of the family

func (d ourNextDecoder) Family() nextFamily { return nextFamily(d.any.BlockFamily()) }
func (d ourNextDecoder) MayContain(block, key []byte) bool {
	return d.any.MayContainBlock(block, filter.NewKey(key))
}

// TestNextInterface writes with several configurations of each family and reads with
// one decoder per family, found by name.
func TestNextInterface(t *testing.T) {
	decoders := map[nextFamily]nextDecoder{}
	for _, p := range []filter.Policy{filter.Bloom(10), filter.Fuse(8), filter.Ribbon(10), filter.RocksDBBloom(10)} {
		d := ourNextDecoder{p.(filter.BlockPolicy)}
		decoders[d.Family()] = d
	}
	for _, name := range []string{"bloom(4)", "bloom(17.5)", "fuse(5)", "fuse(16)", "ribbon(6)", "ribbon(fpr=0.001)", "rocksdb-bloom(7)"} {
		fp, err := filter.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		var p nextPolicy = ourNextPolicy{fp.(filter.BlockPolicy)}
		if p.Name() != name {
			t.Errorf("%s is named %s", name, p.Name())
		}
		w := p.NewWriter()
		for _, n := range []int{1, 20_000, 0, 300} { // a writer is used again
			for i := range n {
				w.AddKey(key(i))
			}
			block, family, ok := w.Finish()
			d := decoders[family]
			if !ok || d == nil {
				t.Fatalf("%s: family %q, %v", name, family, ok)
			}
			found := 0
			for i := range n {
				if !d.MayContain(block, key(i)) {
					t.Fatalf("%s, %d keys: key %d is excluded", name, n, i)
				}
				if d.MayContain(block, fmt.Appendf(nil, "absent %d", i)) {
					found++
				}
			}
			if n >= 300 && found > n/4 {
				t.Errorf("%s: %d of %d absent keys are not excluded", name, found, n)
			}
		}
	}
}
