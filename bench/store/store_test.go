package store

import (
	"bytes"
	"strings"
	"testing"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/result"
)

// small returns options for the given specs with n keys.
func small(t *testing.T, specs string, n int) *Options {
	t.Helper()
	set, err := data.MadeUp(data.Decimal, n, 100, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := engine.ParseSpecs(specs)
	if err != nil {
		t.Fatal(err)
	}
	return &Options{
		Specs: list, Set: set, Reads: 2000, Rounds: 1, Threads: 2, BloomBits: 10,
		CacheBytes: 1 << 20, WriteBufferBytes: 1 << 20, BlockBytes: 4096, TxnBatch: 100,
		SeekNexts: 10, BatchSize: 16, WriteRate: 1 << 20, TimeEvery: 16, Seed: 1, Dir: t.TempDir(),
	}
}

func allSpecs() string {
	var names []string
	for _, e := range engine.All() {
		names = append(names, e.Name)
	}
	return strings.Join(names, ",")
}

// TestEveryBenchmark runs each workload on each engine; the workloads verify
// their reads.
func TestEveryBenchmark(t *testing.T) {
	o := small(t, allSpecs(), 20_000)
	for _, b := range benchmarks {
		if b.name != "absent-deleted" {
			o.Benchmarks = append(o.Benchmarks, b.name)
		}
	}
	o.Benchmarks = append(o.Benchmarks, "fillseq", "deleterandom", "absent-deleted", "readrandom", "readseq", "compact", "readmissing")
	var out bytes.Buffer
	o.Out = &out
	f := result.New(result.Meta{})
	if err := Run(o, f); err != nil {
		t.Fatal(err)
	}
	if testing.Verbose() {
		t.Log("\n" + out.String())
	}
	for _, spec := range o.Specs {
		for _, b := range benchmarks {
			unit := result.OpsPerSec
			switch b.name {
			case "open":
				unit = result.OpenTime
			case "compact":
				if spec.Name == "bbolt" {
					continue
				}
			}
			rows := f.Select(func(r *result.Row) bool { return r.Store == spec.Name && r.Benchmark == b.name })
			if len(rows) == 0 {
				t.Errorf("%s: no row of %s", spec, b.name)
			}
			for _, r := range rows {
				if s := r.Of(unit); s.N < o.Rounds || s.Median <= 0 {
					t.Errorf("%s %s: %d values of %s, median %v", spec, b.name, s.N, unit, s.Median)
				}
			}
		}
	}
}
