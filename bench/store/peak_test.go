package store

import (
	"testing"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/measure"
	"github.com/siftdb/sift/bench/result"
)

// hoard is a store that forgets what is written, and holds 64 MB while it is open.
type hoard struct{ held []byte }

func (*hoard) NewReader(string) (engine.Reader, error) { return nil, engine.ErrUnsupported }
func (h *hoard) NewWriter() (engine.Writer, error)     { return h, nil }
func (*hoard) NewIter() (engine.Iter, error)           { return nil, engine.ErrUnsupported }
func (*hoard) Put(_, _ []byte) error                   { return nil }
func (*hoard) Delete([]byte) error                     { return nil }
func (*hoard) Quiesce() error                          { return nil }
func (*hoard) Flush() error                            { return nil }
func (*hoard) Compact() error                          { return engine.ErrUnsupported }
func (*hoard) Counters() engine.Counters               { return engine.Counters{} }
func (*hoard) FilterBytes() int64                      { return -1 }
func (h *hoard) Close() error                          { return nil }

// TestPeakOfOrder checks that the order of the writes counts neither for nor against the store's
// memory.
func TestPeakOfOrder(t *testing.T) {
	if _, peak := measure.RSS(); peak == 0 {
		t.Skip("the peak of memory is not known")
	}
	const held = 64e6
	spec := engine.Spec{Engine: &engine.Engine{Name: "hoard", Modes: []engine.Mode{{}}, Open: func(engine.Config) (engine.DB, error) {
		h := &hoard{make([]byte, held)}
		for i := range h.held {
			h.held[i] = 1
		}
		return h, nil
	}}}
	set, err := data.MadeUp(data.Decimal, 4_000_000, 8, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	o := small(t, "sift", 10)
	o.Set, o.Specs, o.Threads = set, []engine.Spec{spec}, 1
	o.Benchmarks = []string{"fillseq", "fillrandom", "overwrite"}
	f := result.New(result.Meta{})
	if err := Run(o, f); err != nil {
		t.Fatal(err)
	}
	peak := func(benchmark string) float64 {
		return f.Select(func(r *result.Row) bool { return r.Benchmark == benchmark })[0].Of(result.Peak).Median
	}
	want := peak("fillseq") // which has no order
	for _, b := range []string{"fillrandom", "overwrite"} {
		if p := peak(b); p < want-8 || p > want+8 { // the order takes 16 MB
			t.Errorf("%s: the peak is %.1f MB, that of fillseq %.1f", b, p, want)
		}
	}
}
