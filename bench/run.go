package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/siftdb/sift/bench/alone"
	"github.com/siftdb/sift/bench/budget"
	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/measure"
	"github.com/siftdb/sift/bench/report"
	"github.com/siftdb/sift/bench/result"
	"github.com/siftdb/sift/bench/store"
	"github.com/siftdb/sift/internal/bytesize"
)

// runCmd measures. Its flags are named as in db_bench where that has them.
type runCmd struct {
	Quick bool `help:"A quick look within two minutes: fewer keys, rounds and benchmarks."`

	Parts      []string `name:"parts" help:"What to measure: stores, sweep, growth, filters, plan. Default: all, or only stores if --engines or --benchmarks is given." enum:"stores,sweep,growth,filters,plan" placeholder:"PART"`
	Engines    string   `name:"engines" help:"Stores, each optionally with a filter: sift:ribbon(8),pebble,pebble:none. Default: all that are built in." placeholder:"LIST"`
	Benchmarks []string `name:"benchmarks" help:"Workloads, in order; see list." placeholder:"LIST"`

	Num    int    `name:"num" help:"Keys (2000000; quick: 50000)." placeholder:"N"`
	Reads  int    `name:"reads" help:"Operations per read benchmark (200000; quick: 20000)." placeholder:"N"`
	Rounds int    `name:"rounds" help:"Rounds, each starting with empty stores (3; quick: 2). The significance test of compare needs 4." placeholder:"N"`
	Passes int    `name:"passes" default:"1" help:"How often each round repeats the benchmarks that do not change the stores."`
	Growth []int  `name:"growth" help:"Sizes of the growing stores (100000 to 10000000; quick: 10000 to 100000)." placeholder:"N,..."`
	Seed   uint64 `name:"seed" default:"301" help:"Seed of the random numbers."`

	Keys             string        `name:"keys" default:"decimal" enum:"decimal,random,text" help:"Kind of generated keys."`
	Data             string        `name:"data" default:"made-up" help:"made-up for generated keys and values, gosrc for the lines of Go's source tree, or tsv:FILE for a file of lines with key, tab, value." placeholder:"DATA"`
	ValueSize        int           `name:"value_size" default:"100" help:"Bytes per value."`
	CompressionRatio float64       `name:"compression_ratio" default:"0.5" help:"Share of each value that is random."`
	CompressionType  string        `name:"compression_type" default:"snappy" enum:"snappy,none" help:"snappy or none."`
	Threads          int           `name:"threads" default:"1" help:"Goroutines that share the operations."`
	BloomBits        int           `name:"bloom_bits" default:"10" help:"Bits per key of a store's default filter."`
	CacheSize        bytesize.Size `name:"cache_size" default:"8MiB" help:"Size of the block cache (${default})." placeholder:"BYTES"`
	WriteBufferSize  bytesize.Size `name:"write_buffer_size" default:"4MiB" help:"Size of a memtable (${default})." placeholder:"BYTES"`
	BlockSize        bytesize.Size `name:"block_size" default:"4KiB" help:"Size of a data block before compression (${default})." placeholder:"BYTES"`
	Sync             bool          `name:"sync" help:"Wait for the disk on every write."`
	TxnBatch         int           `name:"txn_batch" default:"100" help:"Writes per transaction, in stores that write only in transactions."`
	SeekNexts        int           `name:"seek_nexts" default:"10" help:"Entries read after a seek."`
	BatchSize        int           `name:"batch_size" default:"32" help:"Keys per call of multiread."`
	WriteRate        bytesize.Size `name:"benchmark_write_rate_limit" default:"2MiB" help:"Bytes per second that the writer of readwhilewriting writes (${default})." placeholder:"BYTES"`
	Histogram        bool          `name:"histogram" help:"Time every operation instead of one in 16, and print the distributions."`
	UseExistingDB    bool          `name:"use_existing_db" help:"Use the databases that a run with --keep left in --db."`
	DB               string        `name:"db" help:"Directory of the databases; by default a temporary one." placeholder:"DIR"`
	Keep             bool          `name:"keep" help:"Keep the databases of the last round in --db."`
	Out              string        `name:"out" default:"out" help:"Directory for report.html, result.json, result.csv, benchstat.txt and the plots."`
	Merge            bool          `name:"merge" help:"Keep those results in --out that this run does not measure."`
	As               string        `name:"as" hidden:"" help:"The command that the report names, if a script runs this one."`
	NoProgress       bool          `name:"no-progress" help:"Do not show progress on a terminal."`
}

// The workloads of the full report, and of a quick look.
var (
	fullBenchmarks = []string{
		"fillseq", "fillsync", "fillrandom", "readmissing", "readrandom", "seekrandom", "readseq",
		"freshen", "readmissing", "compact",
		"readmissing", "readrandom", "readhot", "multiread", "multimissing", "seekrandom", "readseq", "readreverse",
		"absent-outside", "absent-zipf", "absent-mix10", "absent-mix50", "absent-mix90",
		"open", "readwhilewriting", "overwrite", "sustained", "ycsb", "deleterandom", "absent-deleted",
	}
	quickBenchmarks = []string{"fillseq", "fillrandom", "readmissing", "readrandom", "compact", "readmissing", "readrandom", "seekrandom", "readseq", "open"}
)

// fullStores and quickStores are compared unless --engines is given, grownStores
// in the growth part. Stores that are not built in are skipped, and the report
// names them.
const (
	fullStores  = "sift,sift:bloom(10),sift:ribbon(7),sift:none,pebble,pebble:none,pebble:sift-ribbon(10),goleveldb,badger,bbolt,rocksdb,rocksdb:ribbon(10),leveldb"
	quickStores = "sift,sift:ribbon(7),pebble,goleveldb,badger,bbolt,rocksdb,leveldb"
	grownStores = "sift,sift:ribbon(7),pebble,goleveldb,badger,bbolt,rocksdb,leveldb"
)

// sweptFilters are the filters of the sweep part, which compares their memory and
// wasted reads.
var sweptFilters = []string{
	"none", "bloom(4)", "bloom(6)", "bloom(8)", "bloom(10)", "bloom(12)", "bloom(16)", "bloom(20)",
	"ribbon(4)", "ribbon(6)", "ribbon(8)", "ribbon(10)", "ribbon(12)", "ribbon(16)", "ribbon(20)",
}

func (c *runCmd) part(name string) bool { return len(c.Parts) == 0 || slices.Contains(c.Parts, name) }

// defaults sets the flags that were not given.
func (c *runCmd) defaults() {
	if len(c.Parts) == 0 && (c.Engines != "" || len(c.Benchmarks) > 0) {
		c.Parts = []string{"stores"}
	}
	set := func(p *int, full, quick int) {
		if *p == 0 {
			*p = full
			if c.Quick {
				*p = quick
			}
		}
	}
	set(&c.Num, 2_000_000, 50_000)
	set(&c.Reads, 200_000, 20_000)
	set(&c.Rounds, 3, 2)
	if len(c.Growth) == 0 {
		c.Growth = []int{100_000, 300_000, 1_000_000, 3_000_000, 10_000_000}
		if c.Quick {
			c.Growth = []int{10_000, 30_000, 100_000}
		}
	}
	if len(c.Benchmarks) == 0 {
		c.Benchmarks = fullBenchmarks
		if c.Quick {
			c.Benchmarks = quickBenchmarks
		}
	}
}

func (c *runCmd) Run(s *streams) error {
	c.defaults()
	start := time.Now()
	defer removeTemporary()
	dir, err := c.directory()
	if err != nil {
		return err
	}
	stores, err := c.stores(dir)
	if err != nil {
		return err
	}
	filters := c.filters()
	file := result.New(c.meta(start, dir, stores, filters))
	for _, line := range report.Heading(&file.Meta) {
		fmt.Fprintln(s.out, line)
	}
	failed := c.measure(s, file, stores, filters)
	file.Meta.Took = time.Since(start).Round(time.Second).String()
	file.Meta.Warnings = append(file.Meta.Warnings, busyWarnings(file)...)
	if c.Merge {
		before, err := result.Read(filepath.Join(c.Out, "result.json"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err == nil {
			file.Merge(before)
		}
	}
	for _, t := range report.Tables(file) {
		fmt.Fprint(s.out, t.Text())
	}
	if c.Histogram {
		for _, r := range file.Rows {
			fmt.Fprint(s.out, report.Histogram(r))
		}
	}
	for _, w := range file.Meta.Warnings {
		fmt.Fprintln(s.out, "warning:", w)
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return err
	}
	if err := file.Write(filepath.Join(c.Out, "result.json")); err != nil {
		return err
	}
	return errors.Join(failed, writeReport(file, c.Out, s.out))
}

// measure runs all parts; if one fails, the others still run.
func (c *runCmd) measure(s *streams, file *result.File, stores *store.Options, filters *alone.Options) error {
	var failed []error
	sweep, grow := c.sweep(stores), c.grown(stores)
	steps := 0
	if c.part("stores") {
		steps += store.Steps(stores)
	}
	if c.part("sweep") {
		steps += sweep.Rounds * len(sweep.Specs)
	}
	if c.part("growth") {
		steps += len(c.Growth) * len(grow.Specs)
	}
	if c.part("filters") {
		steps += filters.Steps()
	}
	simulated := c.simulated()
	if c.part("plan") {
		steps += simulated.Steps()
	}
	bar := newProgress(s.err, steps, c.NoProgress)
	defer bar.done()
	for _, o := range []*store.Options{stores, sweep, grow} {
		o.Step, o.Out = bar.step, bar.above(s.out)
	}
	filters.Step, filters.Out = bar.step, bar.above(s.out)
	simulated.Step, simulated.Out = bar.step, bar.above(s.out)
	if c.part("stores") {
		failed = append(failed, store.Run(stores, file))
	}
	if c.part("filters") {
		failed = append(failed, alone.Run(filters, file))
	}
	if c.part("plan") {
		failed = append(failed, budget.Run(simulated, file))
	}
	if c.part("sweep") {
		failed = append(failed, store.Sweep(sweep, file))
	}
	if c.part("growth") {
		failed = append(failed, store.Growth(grow, c.Growth, file))
	}
	return errors.Join(failed...)
}

// dataSet returns the keys and values of the stores.
func (c *runCmd) dataSet() (data.Set, error) {
	if path, ok := strings.CutPrefix(c.Data, "tsv:"); ok {
		return data.TSV(path, c.Num)
	}
	switch c.Data {
	case "made-up":
		return data.MadeUp(c.Keys, c.Num, c.ValueSize, c.CompressionRatio)
	case "gosrc":
		return data.GoSource(c.Num)
	}
	return nil, fmt.Errorf("--data must be made-up, gosrc or tsv:FILE, not %q", c.Data)
}

func (c *runCmd) stores(dir string) (*store.Options, error) {
	set, err := c.dataSet()
	if err != nil {
		return nil, err
	}
	list := c.Engines
	if list == "" {
		list = fullStores
		if c.Quick {
			list = quickStores
		}
	}
	specs, _, err := engine.ParseSpecs(list)
	if err != nil {
		return nil, err
	}
	names, err := store.Expand(c.Benchmarks)
	if err != nil {
		return nil, err
	}
	every := 16
	if c.Histogram {
		every = 1
	}
	return &store.Options{
		Specs: specs, Benchmarks: names, Set: set, Reads: c.Reads, Rounds: c.Rounds, Passes: c.Passes, Threads: max(1, c.Threads),
		BloomBits: c.BloomBits, CacheBytes: int64(c.CacheSize), WriteBufferBytes: int(c.WriteBufferSize), BlockBytes: int(c.BlockSize),
		NoCompression: c.CompressionType == "none", Sync: c.Sync, TxnBatch: c.TxnBatch,
		SeekNexts: c.SeekNexts, BatchSize: max(1, c.BatchSize), WriteRate: int(c.WriteRate), TimeEvery: every, Seed: c.Seed,
		Dir: dir, UseExisting: c.UseExistingDB, Keep: c.Keep,
	}, nil
}

// sweep returns the options of the sweep part.
func (c *runCmd) sweep(o *store.Options) *store.Options {
	s := *o
	n := min(300_000, o.Set.Len())
	if c.Quick {
		n = min(50_000, n)
	}
	// Random keys: lookups of one key do not bring the blocks of the next into the
	// cache.
	s.Set, _ = data.MadeUp(data.Random, n, c.ValueSize, c.CompressionRatio)
	s.Reads = min(n, o.Reads/2)
	if c.Quick {
		s.CacheBytes = 2 << 20 // a larger one would hold all blocks
	}
	s.Rounds, s.Passes = 1, 1
	filters := sweptFilters
	if c.Quick {
		filters = []string{"none", "bloom(6)", "bloom(10)", "bloom(16)", "ribbon(6)", "ribbon(10)"}
	}
	s.Specs = store.SpecsWith(engine.Usual(), filters)
	return &s
}

// grown returns the options of the growth part.
func (c *runCmd) grown(o *store.Options) *store.Options {
	g := *o
	g.Set, _ = data.MadeUp(data.Random, slices.Max(c.Growth), c.ValueSize, c.CompressionRatio)
	g.Reads = o.Reads / 2
	g.Rounds, g.Passes = 1, 1
	if c.Engines == "" {
		list := grownStores
		if c.Quick {
			list = "sift,pebble,goleveldb,rocksdb,leveldb"
		}
		g.Specs, _, _ = engine.ParseSpecs(list)
	}
	return &g
}

func (c *runCmd) filters() *alone.Options {
	list, _ := alone.List()
	o := &alone.Options{
		Filters: list, Sizes: []int{10_000, 100_000, 1_000_000, 10_000_000}, HotSize: 100_000, BigSize: 1_000_000,
		KeyKinds: []string{data.Random, data.Text}, Absent: 1 << 24, ColdBytes: 288 << 20, Probes: 2_000_000, Rounds: min(c.Rounds, 5),
		Curve: alone.Curve(), CurveSize: 1_000_000, CurveAbsent: 1 << 22,
	}
	if c.Quick {
		o.Sizes, o.HotSize, o.BigSize = []int{10_000, 100_000}, 10_000, 100_000
		o.KeyKinds = o.KeyKinds[:1]
		o.Absent, o.ColdBytes, o.Probes = 1<<18, 64<<20, 100_000
		o.CurveSize, o.CurveAbsent = 50_000, 1<<18
	}
	return o
}

// simulated returns the options of the plan part: 111 million keys in tables of
// the size that sift's have.
func (c *runCmd) simulated() *budget.Options {
	o := &budget.Options{
		TableKeys: 100_000, Levels: []int{10, 100, 1000}, ZeroTables: 2, Filters: []string{"ribbon(16)", "ribbon(10)"},
		BitsPerKey: []float64{0.5, 1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14}, Lookups: 200_000,
		WarmSeconds: 30, MeasuredSeconds: 120, ShiftSeconds: 30, Seed: c.Seed,
	}
	if c.Quick {
		o.Levels, o.BitsPerKey, o.MeasuredSeconds = []int{1, 10, 100}, []float64{1, 2, 4, 6, 8, 10}, 60
	}
	return o
}

func (c *runCmd) meta(start time.Time, dir string, stores *store.Options, filters *alone.Options) result.Meta {
	m := result.Meta{
		When: start.UTC().Format("2006-01-02"), Took: "…", Command: cmp.Or(c.As, measure.Command()), Commit: measure.Commit(), Machine: measure.ThisMachine(dir),
	}
	for _, e := range engine.All() {
		m.Versions = append(m.Versions, result.Named{Name: e.Name, Text: e.Version})
		m.Deviations = append(m.Deviations, result.Named{Name: e.Name, Text: e.Terms})
	}
	if c.part("stores") || c.part("sweep") || c.part("growth") {
		m.Terms = append(m.Terms, stores.Terms()...)
	}
	if c.part("filters") {
		m.Terms = append(m.Terms, filters.Terms()...)
		_, missing := alone.List()
		for _, name := range missing {
			m.Skipped = append(m.Skipped, name+": not in this version of sift")
		}
	}
	if c.part("plan") {
		m.Terms = append(m.Terms, c.simulated().Terms()...)
	}
	for _, name := range sortedKeys(engine.Missing()) {
		m.Skipped = append(m.Skipped, name+": "+engine.Missing()[name])
	}
	return m
}
