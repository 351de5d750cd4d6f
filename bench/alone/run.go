package alone

import (
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/result"
)

// Options selects what is measured, and how thoroughly.
type Options struct {
	Filters []Filter
	Sizes   []int // numbers of keys
	// Filters of HotSize keys are probed in cache, and many of them out of cache; from BigSize
	// keys on, a few large ones are probed out of cache. Both are among Sizes.
	HotSize, BigSize int
	KeyKinds         []string
	Absent           int   // absent keys to probe, to measure the false positive rate
	ColdBytes        int64 // total size of the filters that are probed out of cache
	Probes           int
	Rounds           int

	Curve       []Filter
	CurveSize   int
	CurveAbsent int

	Out  io.Writer
	Step func(what string)
}

// Sections of the results.
const (
	Section      = "filters"
	CurveSection = "curve"
	FloorSection = "floor"
)

// Terms describes how filters are measured.
func (o *Options) Terms() []string {
	return []string{
		fmt.Sprintf("Filters alone: through the interface of each library, the hashing of the key included; one thread; %d round(s) in turns, but only one for the largest filters.", o.Rounds),
		fmt.Sprintf("False positive rate over %d absent keys. In cache: one filter of %d keys. Out of cache: filters of %d keys, or (big) of %d and more, that take %d MB together, in huge pages where the system has them, except holiman's and the cuckoo filter, which allocate their own memory; filters and %d keys in random order. Batches of %d keys, where a filter can probe many keys in one call.",
			o.Absent, o.HotSize, o.HotSize, o.BigSize, o.ColdBytes/1e6, coldKeys, batchSize),
		"Isolated: an atomic addition between probes keeps the CPU from overlapping them; its own time is subtracted. The floor hashes the key (XXH64) and reads one cache line of memory; no filter can do less.",
	}
}

// Run measures the filters, and adds the results to file. A filter that fails is left out,
// and its error returned at the end.
func Run(o *Options, file *result.File) error {
	var failed []error
	o.step("memory")
	floor := file.Row(result.Key{Section: FloorSection, Store: "this machine", Benchmark: "random line of 64 bytes"})
	for range o.Rounds {
		dependent, independent := randomLines(int(o.ColdBytes), o.Probes)
		floor.Add(result.Dependent, dependent)
		floor.Add(result.Independent, independent)
	}
	o.line("%-28s dependent %.0f ns, independent %.0f ns", "random line of memory", floor.Of(result.Dependent).Median, floor.Of(result.Independent).Median)
	for _, kind := range o.KeyKinds {
		for _, n := range o.sizes(kind) {
			if err := o.size(file, kind, n); err != nil {
				failed = append(failed, err)
			}
		}
	}
	if err := o.curve(file); err != nil {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// Steps returns how often Run calls Step.
func (o *Options) Steps() int {
	steps := 1 + len(o.Curve)
	for _, kind := range o.KeyKinds {
		for _, n := range o.sizes(kind) {
			steps += o.rounds(n) * len(o.Filters)
		}
	}
	return steps
}

// sizes returns all sizes for the first kind of keys, and those from HotSize on for the
// others.
func (o *Options) sizes(kind string) []int {
	if kind == o.KeyKinds[0] {
		return o.Sizes
	}
	return slices.DeleteFunc(slices.Clone(o.Sizes), func(n int) bool { return n < o.HotSize })
}

// rounds returns 1 for filters that are so large that building them is slow.
func (o *Options) rounds(n int) int {
	if n > o.BigSize {
		return 1
	}
	return o.Rounds
}

func (o *Options) step(format string, args ...any) {
	if o.Step != nil {
		o.Step(fmt.Sprintf(format, args...))
	}
}

func (o *Options) line(format string, args ...any) {
	if o.Out != nil {
		fmt.Fprintf(o.Out, format+"\n", args...)
	}
}

// The number of distinct keys to probe. In cache there are enough that the branch predictor
// cannot learn them. Out of cache there are few: a key has usually just been created, and
// should not be another cache miss besides the filter's.
const (
	hotKeys  = 1 << 16
	coldKeys = 1 << 13
)

// size measures all filters over n keys of a kind.
func (o *Options) size(file *result.File, kind string, n int) error {
	set, err := data.MadeUp(kind, max(n, o.Absent, hotKeys), 0, 0)
	if err != nil {
		return err
	}
	keys := data.Collect(n, set.Key)
	absent := newKeyList(hotKeys, set.Absent)
	present := newKeyList(hotKeys, func(dst []byte, i int) []byte { return append(dst, keys.At(i*7%n)...) })
	var failed []error
	rounds := o.rounds(n)
	for round := range rounds {
		for _, f := range o.Filters {
			o.step("filters  %d %s keys  round %d/%d  %s", n, kind, round+1, rounds, f.Name)
			k := result.Key{Section: Section, Store: f.Name, Benchmark: "filter", State: kind, Num: n}
			p := probing{o, file.Row(k), set, keys, absent, present}
			if err := p.measure(f, round); err != nil {
				failed = append(failed, fmt.Errorf("%s, %d %s keys: %w", f.Name, n, kind, err))
			}
		}
	}
	for _, f := range o.Filters {
		r := file.Row(result.Key{Section: Section, Store: f.Name, Benchmark: "filter", State: kind, Num: n})
		v := func(unit string) float64 { return r.Of(unit).Median }
		o.line("%-28s %9d %-7s keys: %6.2f bits/key  fpr %.4f%%  x limit %.3f  build %5.0f ns/key  hot %4.0f cold %4.0f isolated %4.0f big %4.0f ns",
			f.Name, n, kind, v(result.BitsPerKey), 100*v(result.FPR), v(result.OverLimit), v(result.Build),
			v(result.HotAbsent), v(result.ColdAbsent), v(result.ColdIsolated), v(result.BigAbsent))
	}
	return errors.Join(failed...)
}

// probing measures one filter.
type probing struct {
	o       *Options
	row     *result.Row
	set     data.Set
	keys    *data.Keys
	absent  keyList
	present keyList
}

func (p *probing) measure(f Filter, round int) error {
	n := p.keys.Len()
	runtime.GC()
	b, err := p.build(f)
	if err != nil {
		return err
	}
	for i := 0; i < n; i += 1 + n/10_000 {
		if f.Name != FloorName && !b.mayContain(p.keys.At(i)) {
			return errors.New("false negative")
		}
	}
	if round == 0 {
		bits := float64(b.bits()) / float64(n)
		p.row.Add(result.BitsPerKey, bits)
		if f.Name != FloorName {
			p.fpr(b, bits, p.o.Absent)
		}
	}
	p.row.Add(result.Single, hotLoop(b, p.absent, p.o.Probes))
	if n == p.o.HotSize {
		p.row.Add(result.HotAbsent, hotLoop(b, p.absent, p.o.Probes))
		p.row.Add(result.HotPresent, hotLoop(b, p.present, p.o.Probes))
		if many, ok := b.(batcher); ok {
			p.row.Add(result.HotBatch, hotBatches(many, p.absent, p.o.Probes))
		}
	}
	if n != p.o.HotSize && n < p.o.BigSize {
		return nil
	}
	list, err := copies(b, p.o.ColdBytes)
	if err != nil {
		return err
	}
	_, many := b.(batcher)
	if n == p.o.HotSize {
		p.row.Add(result.ColdAbsent, coldLoop(list, p.absent[:coldKeys], p.o.Probes))
		p.row.Add(result.ColdPresent, coldLoop(list, p.present[:coldKeys], p.o.Probes))
		p.row.Add(result.ColdIsolated, coldIsolated(list, p.absent[:coldKeys], p.o.Probes))
		if many {
			p.row.Add(result.ColdBatch, coldBatches(list, p.absent[:coldKeys], p.o.Probes))
		}
		return nil
	}
	p.row.Add(result.BigAbsent, coldLoop(list, p.absent[:coldKeys], p.o.Probes))
	if many {
		p.row.Add(result.BigBatch, coldBatches(list, p.absent[:coldKeys], p.o.Probes))
	}
	return nil
}

// build builds the filter, repeatedly if it is small, and records the time.
func (p *probing) build(f Filter) (b built, err error) {
	const atLeast = 50 * time.Millisecond
	times := 0
	start := time.Now()
	for took := time.Duration(0); took < atLeast; took = time.Since(start) {
		if b, err = f.build(p.keys); err != nil {
			return nil, err
		}
		times++
	}
	if f.Name != FloorName {
		p.row.Add(result.Build, perProbe(time.Since(start), times*p.keys.Len()))
	}
	return b, nil
}

// fewestHits is the minimum number of false positives for a rate to be reported: the standard
// deviation is then at most about a fifth of the rate.
const fewestHits = 25

// fpr records the false positive rate over distinct absent keys.
func (p *probing) fpr(b built, bits float64, absent int) {
	rate := falsePositives(b, p.set, absent)
	if rate*float64(absent) < fewestHits {
		return
	}
	p.row.Add(result.FPR, rate)
	if rate > 0 && rate < 1 {
		p.row.Add(result.OverLimit, bits/-math.Log2(rate))
	}
}

func falsePositives(b built, set data.Set, absent int) float64 {
	const chunk = 4096
	hits := 0
	keys := data.NewKeys(chunk, 64)
	for from := 0; from < absent; from += chunk {
		keys.Bytes, keys.Ends = keys.Bytes[:0], keys.Ends[:0]
		for i := from; i < min(absent, from+chunk); i++ {
			keys.Grow(func(dst []byte) []byte { return set.Absent(dst, i) })
		}
		for i := range keys.Len() {
			if b.mayContain(keys.At(i)) {
				hits++
			}
		}
	}
	return float64(hits) / float64(absent)
}

// curve measures the false positive rate of filters of several sizes.
func (o *Options) curve(file *result.File) error {
	if len(o.Curve) == 0 {
		return nil
	}
	set, err := data.MadeUp(data.Random, max(o.CurveSize, o.CurveAbsent), 0, 0)
	if err != nil {
		return err
	}
	keys := data.Collect(o.CurveSize, set.Key)
	var failed []error
	for _, f := range o.Curve {
		o.step("false positives over bits per key  %s", f.Name)
		b, err := f.build(keys)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", f.Name, err))
			continue
		}
		p := probing{o: o, set: set, row: file.Row(result.Key{Section: CurveSection, Store: f.Name, Mode: "", Benchmark: f.Family(), State: data.Random, Num: o.CurveSize})}
		bits := float64(b.bits()) / float64(o.CurveSize)
		p.row.Add(result.BitsPerKey, bits)
		p.fpr(b, bits, o.CurveAbsent)
	}
	return errors.Join(failed...)
}
