// Package budget simulates ways to spend filter memory: how many reads lookups of
// absent keys waste under a budget that is spread evenly, by Monkey, by the store's
// plan, and by an optimum that knows the traffic.
//
// The store is a quiesced LSM tree in which each level's keys are spread evenly over
// its tables. False positive rates and sizes are those of filters that are built for
// the simulation; the plan is the store's, fed with the counts that the store would
// have.
package budget

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/result"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/plan"
)

// Options selects what is simulated.
type Options struct {
	// TableKeys is the number of keys per table. Levels lists the numbers of tables
	// from level 1 on, each a multiple of the previous one; level 0 has ZeroTables
	// over the whole range.
	TableKeys  int
	Levels     []int
	ZeroTables int
	// Filters lists the filters that are simulated, one at a time.
	Filters []string
	// BitsPerKey lists the budgets.
	BitsPerKey []float64
	// Lookups is the number of lookups of absent keys per second.
	Lookups float64
	// Wasted reads count for MeasuredSeconds, after a warm-up of WarmSeconds.
	WarmSeconds, MeasuredSeconds int
	// ShiftSeconds is how often shifting traffic moves.
	ShiftSeconds int
	Seed         uint64

	Out  io.Writer
	Step func(what string)
}

// Section is the section of the results.
const Section = "plan"

// Names of the ways to spend the memory.
const (
	Uniform   = "uniform"
	Monkey    = "Monkey"
	Hindsight = "optimum from hindsight"
	// Prefixes of a filter's name: the store's plan, and the optimum with whole steps of that
	// filter, which knows the traffic.
	Planned   = "sift's plan, "
	BestSteps = "optimum in whole bits, "
)

// Names of the kinds of traffic.
const (
	Even     = "even"
	Zipf     = "Zipf over keys"
	Ranges   = "hot ranges"
	Shifting = "shifting ranges"
)

// Traffics lists the kinds of traffic.
func Traffics() []string { return []string{Even, Zipf, Ranges, Shifting} }

// Keys returns the number of keys of the store.
func (o *Options) Keys() int {
	tables := o.ZeroTables
	for _, n := range o.Levels {
		tables += n
	}
	return tables * o.TableKeys
}

// Steps returns how often Run calls Step.
func (o *Options) Steps() int { return len(Traffics()) }

// Terms describes what is simulated.
func (o *Options) Terms() []string {
	tables := 0
	for _, n := range o.Levels {
		tables += n
	}
	return []string{fmt.Sprintf("Plan of filter memory, simulated: levels of %v tables of %d keys and %d in level 0; %.0f lookups of absent keys a second, each of which probes every level; Zipf is 0.99 over all keys, spread over the range, or over %d ranges; shifting ranges are permuted every %d s. The store's plan starts with equal access rates, runs once a second on sampled counts, and moves a bounded number of bytes each time; after %d s the wasted reads of %d s count. Uniform, Monkey and the optimum may use any fraction of a bit; the optimum knows the traffic of each second.",
		o.Levels, o.TableKeys, o.ZeroTables, o.Lookups, o.Levels[len(o.Levels)-1], o.ShiftSeconds, o.WarmSeconds, o.MeasuredSeconds)}
}

// family is a kind of filter over one table.
type family struct {
	name  string
	steps []int64 // bytes of each step that can be held: a bit per key of a ribbon filter
	fpr   float64 // with all steps
}

// bitsPerHalving returns what halving the rate costs, in bits per key, with all steps.
func (f *family) bitsPerHalving(keys int) float64 {
	var bytes int64
	for _, step := range f.steps {
		bytes += step
	}
	return float64(bytes*8) / float64(keys) / -math.Log2(f.fpr)
}

func newFamily(name string, keys int) (family, error) {
	policy, err := filter.Parse(name)
	if err != nil {
		return family{}, err
	}
	w := policy.NewWriter()
	set, err := data.MadeUp(data.Random, keys, 0, 0)
	if err != nil {
		return family{}, err
	}
	var key []byte
	for i := range keys {
		key = set.Key(key[:0], i)
		w.Add(filter.NewKey(key))
	}
	units, err := w.Finish()
	if err != nil {
		return family{}, err
	}
	r, err := policy.Open(units)
	if err != nil {
		return family{}, err
	}
	f := family{name: name, fpr: r.FPR()}
	for i, u := range units {
		held := 0
		for step := range filter.StepsPerUnit(policy.Family()) {
			n := filter.TrimmedSize(policy.Family(), i, len(units), len(u), step+1)
			f.steps = append(f.steps, int64(n-held))
			held = n
		}
	}
	return f, nil
}

// shape is the tree: which slices of the key range each table covers. A slice is the range of
// one table of the last level.
type shape struct {
	tables []span
	slices int
}

type span struct {
	from, to int     // slices
	share    float64 // of lookups under even traffic
}

func newShape(o *Options) *shape {
	s := &shape{slices: o.Levels[len(o.Levels)-1]}
	for range o.ZeroTables {
		s.tables = append(s.tables, span{0, s.slices, 1})
	}
	for _, n := range o.Levels {
		for i := range n {
			s.tables = append(s.tables, span{s.slices * i / n, s.slices * (i + 1) / n, 1 / float64(n)})
		}
	}
	return s
}

// probed returns for each table the share of the lookups that probe it.
func (s *shape) probed(slices []float64) []float64 {
	sums := make([]float64, s.slices+1)
	for i, v := range slices {
		sums[i+1] = sums[i] + v
	}
	out := make([]float64, len(s.tables))
	for i, t := range s.tables {
		out[i] = sums[t.to] - sums[t.from]
	}
	return out
}

// Run simulates, and records for each way to spend the memory and each budget how many reads
// 1,000 lookups waste.
func Run(o *Options, file *result.File) error {
	var families []family
	for _, name := range o.Filters {
		f, err := newFamily(name, o.TableKeys)
		if err != nil {
			return fmt.Errorf("filter %s: %w", name, err)
		}
		families = append(families, f)
	}
	s := newShape(o)
	for _, kind := range Traffics() {
		if o.Step != nil {
			o.Step("filter memory plan, " + kind)
		}
		seconds := newTraffic(o, s, kind)
		for _, bits := range o.BitsPerKey {
			budget := bits * float64(len(s.tables)*o.TableKeys) / 8
			note := func(who string, perLookup, moved float64) {
				r := file.Row(result.Key{Section: Section, Store: who, Benchmark: kind, State: fmt.Sprintf("%g bits/key", bits), Num: o.Keys()})
				r.Add(result.BlockReads, 1000*perLookup)
				r.Add(result.FilterBytes, budget)
				if moved >= 0 {
					r.Add(result.Moved, moved)
				}
				if o.Out != nil {
					fmt.Fprintf(o.Out, "%-28s %-16s %5g bits/key: %9.3f wasted reads/1000\n", who, kind, bits, 1000*perLookup)
				}
			}
			cost := families[0].bitsPerHalving(o.TableKeys)
			rates := constantRates(len(s.tables), math.Exp2(-bits/cost))
			note(Uniform, s.average(o, seconds, rates), -1)
			even := make([]float64, len(s.tables))
			for i, t := range s.tables {
				even[i] = t.share
			}
			note(Monkey, s.average(o, seconds, waterfill(even, bits/cost)), -1)
			for i := range families {
				wasted, moved := s.planned(o, &families[i], seconds, int64(budget))
				note(Planned+families[i].name, wasted, moved)
				note(BestSteps+families[i].name, s.bestSteps(o, &families[i], seconds, int64(budget)), -1)
			}
			note(Hindsight, s.hindsight(o, seconds, bits/cost), -1)
		}
	}
	return nil
}

func constantRates(n int, rate float64) []float64 {
	rates := make([]float64, n)
	for i := range rates {
		rates[i] = rate
	}
	return rates
}

// wasted returns the number of reads that a lookup wastes.
func wasted(probed, rates []float64) float64 {
	var sum float64
	for i, a := range probed {
		sum += a * rates[i]
	}
	return sum
}

// average returns the reads that a lookup wastes, averaged over the measured seconds.
func (s *shape) average(o *Options, seconds []second, rates []float64) float64 {
	var sum float64
	for _, t := range seconds[o.WarmSeconds:] {
		sum += wasted(t.probed, rates)
	}
	return sum / float64(o.MeasuredSeconds)
}

// hindsight is average with the optimal rates for each second.
func (s *shape) hindsight(o *Options, seconds []second, halvings float64) float64 {
	var sum, last float64
	for i, t := range seconds[o.WarmSeconds:] {
		if i == 0 || &t.probed[0] != &seconds[o.WarmSeconds+i-1].probed[0] {
			last = wasted(t.probed, waterfill(t.probed, halvings))
		}
		sum += last
	}
	return sum / float64(o.MeasuredSeconds)
}

// waterfill returns the rates that waste the fewest reads with the given number of halvings
// per key, if all tables are of one size: each table's rate is inversely proportional to how
// often it is probed (Monkey's Lagrangian), and at most 1.
func waterfill(probed []float64, halvings float64) []float64 {
	total := halvings * float64(len(probed))
	need := func(level float64) (sum float64) { // level: log2 of rate times share of the lookups
		for _, a := range probed {
			if a > 0 {
				sum += max(0, math.Log2(a)-level)
			}
		}
		return sum
	}
	low, high := -2000.0, 1.0
	for range 100 {
		if mid := (low + high) / 2; need(mid) > total {
			low = mid
		} else {
			high = mid
		}
	}
	rates := make([]float64, len(probed))
	for i, a := range probed {
		rates[i] = 1
		if a > 0 {
			rates[i] = math.Exp2(-max(0, math.Log2(a)-high))
		}
	}
	return rates
}

// planned runs the store's plan second by second. It returns the reads that a lookup wastes,
// and the bytes that are read into memory per second.
func (s *shape) planned(o *Options, f *family, seconds []second, budget int64) (perLookup, moved float64) {
	n := len(s.tables)
	counted := make([]plan.AccessRate, n)
	rates := make([]float64, n)
	held := make([]int, n)
	inputs := make([]plan.Table, n)
	rebalance := func(limit int64) (bytes int64) {
		for i, t := range s.tables {
			inputs[i] = plan.Table{AccessRate: t.share, Steps: f.steps, FPR: f.fpr, Held: held[i]}
			rates[i] = counted[i].PerSecond
		}
		plan.Follow(inputs, rates)
		for _, c := range plan.Changes(inputs, plan.Choose(inputs, budget), limit) {
			for step := held[c.Table]; step < c.Steps; step++ {
				bytes += f.steps[step]
			}
			held[c.Table] = c.Steps
		}
		return bytes
	}
	rebalance(math.MaxInt64)
	var bytes int64
	for i, t := range seconds {
		if i >= o.WarmSeconds {
			perLookup += plan.Wasted(s.inputs(f, t.probed), held)
		}
		for j := range counted {
			counted[j].Update(t.counted[j], plan.Tick)
		}
		b := rebalance(plan.MovedBytes(budget))
		if i >= o.WarmSeconds {
			bytes += b
		}
	}
	return perLookup / float64(o.MeasuredSeconds), float64(bytes) / float64(o.MeasuredSeconds)
}

// inputs returns the tables as the plan sees them.
func (s *shape) inputs(f *family, probed []float64) []plan.Table {
	list := make([]plan.Table, len(s.tables))
	for i := range list {
		// Held does not matter, as it is the same for all tables.
		list[i] = plan.Table{AccessRate: probed[i], Steps: f.steps, FPR: f.fpr}
	}
	return list
}

// bestSteps returns the number of reads that a lookup wastes if the optimal steps are held in
// each second.
func (s *shape) bestSteps(o *Options, f *family, seconds []second, budget int64) float64 {
	var sum, last float64
	for i, t := range seconds[o.WarmSeconds:] {
		if i == 0 || &t.probed[0] != &seconds[o.WarmSeconds+i-1].probed[0] {
			inputs := s.inputs(f, t.probed)
			last = plan.Wasted(inputs, plan.Choose(inputs, budget))
		}
		sum += last
	}
	return sum / float64(o.MeasuredSeconds)
}

// second is the traffic of one second. Seconds with the same traffic share probed.
type second struct {
	probed  []float64 // share of the lookups that probe each table
	counted []uint64  // value of each table's counter at the end of the second
}

// sampleEvery: the store counts one in sampleEvery lookups for its plan.
const sampleEvery = 16

func newTraffic(o *Options, s *shape, kind string) []second {
	r := data.Rand(o.Seed)
	list := make([]second, o.WarmSeconds+o.MeasuredSeconds)
	var probed []float64
	seen := make([]uint64, len(s.tables))
	for i := range list {
		if i == 0 || kind == Shifting && i%o.ShiftSeconds == 0 {
			probed = s.probed(sliceShares(o, s.slices, kind, r))
		}
		for j, a := range probed {
			seen[j] += sampleEvery * poisson(r, a*o.Lookups/sampleEvery)
		}
		list[i] = second{probed, append([]uint64(nil), seen...)}
	}
	return list
}

const zipfSkew = 0.99

// sliceShares returns the share of the lookups that each slice gets.
func sliceShares(o *Options, slices int, kind string, r *rand.Rand) []float64 {
	shares := make([]float64, slices)
	switch kind {
	case Even:
		for i := range shares {
			shares[i] = 1
		}
	case Zipf:
		// The frequent keys are placed one by one. The others are so many that their places do
		// not matter.
		keys, alone := float64(o.Keys()), min(o.Keys(), 1_000_000)
		for i := range alone {
			shares[r.IntN(slices)] += math.Pow(float64(i+1), -zipfSkew)
		}
		rest := (math.Pow(keys, 1-zipfSkew) - math.Pow(float64(alone), 1-zipfSkew)) / (1 - zipfSkew)
		for i := range shares {
			shares[i] += rest / float64(slices)
		}
	default:
		for i, at := range r.Perm(slices) {
			shares[at] = math.Pow(float64(i+1), -zipfSkew)
		}
	}
	var sum float64
	for _, v := range shares {
		sum += v
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares
}

// poisson draws from the Poisson distribution with the given mean.
func poisson(r *rand.Rand, expected float64) uint64 {
	if expected > 50 {
		return uint64(max(0, math.Round(expected+math.Sqrt(expected)*r.NormFloat64())))
	}
	var n uint64
	for p, limit := r.Float64(), math.Exp(-expected); p > limit; n++ {
		p *= r.Float64()
	}
	return n
}
