package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/testhook"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestMetamorphic runs the same operations on databases with different options, which must
// give the same answers. The first has no filters, remembers no gaps and keeps everything in
// one memtable.
func TestMetamorphic(t *testing.T) { runMetamorphic(short(t)) }

func runMetamorphic(p *plan) {
	ops, runs, answers := 0, 0, 0
	for i := range uint64(choose(p, 5, 1<<30)) {
		seed := p.seed + i
		if p.over() || p.t.Failed() {
			break
		}
		n := choose(p, 800, 6000)
		sets := optionSets(rand.New(rand.NewPCG(seed, 3)))
		traces := make([]*trace, len(sets))
		p.each(len(sets), func(i int) error {
			var err error
			traces[i], err = play(sets[i].o, seed, n, i == 0)
			if err != nil {
				return fmt.Errorf("seed %d, options %s: %w", seed, sets[i].name, err)
			}
			return nil
		})
		if traces[0] == nil {
			continue // the time is up
		}
		for i, t := range traces[1:] {
			if t == nil {
				continue
			}
			if at := t.diverges(traces[0]); at >= 0 {
				p.t.Errorf("seed %d: databases with options %s and %s answer operation %d differently", seed, sets[0].name, sets[i+1].name, at)
			}
			runs++
		}
		ops += n
		answers += len(traces[0].sums)
	}
	p.t.Logf("%d operations; %d runs compared with those of a database without filters and tables", ops, runs)
	if answers == 0 {
		p.t.Error("no operation was answered")
	}
}

type optionSet struct {
	name string
	o    sift.Options
}

// optionSets returns the control, fixed sets and random ones.
func optionSets(rng *rand.Rand) []optionSet {
	control := sift.Options{Filter: filter.None(), MemtableBytes: 2 << 20}
	testhook.Apply(&control, testhook.Settings{GapBytes: -1})
	few := tiny()
	testhook.Apply(&few, testhook.Settings{GapBytes: 1200})
	sets := []optionSet{
		{"control", control},
		{"few gaps", few},
		{"defaults", sift.Options{}},
		{"tiny", tiny()},
		{"no cache", sift.Options{CacheBytes: -1, MemtableBytes: 4 << 10, BlockBytes: 100, DisableCompression: true}},
		{"by hand", sift.Options{DisableAutoCompaction: true, MemtableBytes: 4 << 10, TableBytes: 2 << 10}},
		{"another filter on each level", sift.Options{LevelFilters: families(), MemtableBytes: 4 << 10, TableBytes: 4 << 10, LevelBaseBytes: 8 << 10, LevelMultiplier: 3}},
	}
	for _, f := range families() {
		o := tiny()
		o.Filter = f
		sets = append(sets, optionSet{f.Name(), o})
	}
	keyed := tiny()
	keyed.KeyedFilters = true
	budget := tiny()
	budget.FilterMemory = 1 << 10
	prefixes := keyed
	prefixes.Prefix = sift.FixedPrefix(4)
	ranges := tiny()
	ranges.RangeFilter = filter.Range(8, 0)
	some := ranges
	some.FilterMemory = 2 << 10
	both := prefixes
	both.RangeFilter = filter.Range(12, 3)
	sets = append(sets, optionSet{"keyed filters", keyed}, optionSet{"a budget for filters", budget}, optionSet{"prefixes, keyed", prefixes},
		optionSet{"range filters", ranges}, optionSet{"range filters in a budget", some}, optionSet{"prefixes and range filters, keyed", both})
	for range 4 {
		o := sift.Options{
			MemtableBytes: 1 << (10 + rng.IntN(8)), TableBytes: 1 << (10 + rng.IntN(6)), BlockBytes: 64 << rng.IntN(7),
			LevelBaseBytes: 1 << (11 + rng.IntN(6)), LevelMultiplier: 2 + rng.IntN(9), L0Tables: 1 + rng.IntN(5),
			CacheBytes: int64(rng.IntN(3)-1) * 20000, DisableCompression: rng.IntN(2) == 0,
			Filter: families()[rng.IntN(len(families()))],
		}
		sets = append(sets, optionSet{fmt.Sprintf("%+v", o), o})
	}
	return sets
}

// trace is a database's answers: a checksum for each operation.
type trace struct{ sums []uint64 }

func (t *trace) add(format string, args ...any) {
	h := fnv.New64a()
	fmt.Fprintf(h, format, args...)
	t.sums = append(t.sums, h.Sum64())
}

// diverges returns the first operation that was answered differently, or -1.
func (t *trace) diverges(o *trace) int {
	for i := range min(len(t.sums), len(o.sums)) {
		if t.sums[i] != o.sums[i] {
			return i
		}
	}
	if len(t.sums) != len(o.sums) {
		return min(len(t.sums), len(o.sums))
	}
	return -1
}

// player runs random operations that depend on nothing but the seed.
type player struct {
	trace
	rng   *rand.Rand
	o     sift.Options
	mem   *vfstest.Mem
	db    *sift.DB
	snaps []*sift.Snapshot
	iters []openIter
	renew bool // create a new iterator instead of a Reset
}

// openIter is an iterator and what it was made from.
type openIter struct {
	*sift.Iter
	from reader
}

func play(o sift.Options, seed uint64, n int, renew bool) (*trace, error) {
	p := &player{rng: rand.New(rand.NewPCG(seed, 11)), o: o, mem: vfstest.NewMem(), renew: renew}
	testhook.Apply(&p.o, testhook.Settings{FS: p.mem, ManifestBytes: manifestBytes})
	if err := p.open(); err != nil {
		return nil, err
	}
	for i := range n {
		if err := p.step(); err != nil {
			return nil, fmt.Errorf("operation %d: %w", i, err)
		}
	}
	p.scan(p.db, nil)
	if err := p.close(); err != nil {
		return nil, err
	}
	e := &Env{Options: p.o}
	return &p.trace, checkClean(e, p.mem, dbDir)
}

func (p *player) open() (err error) {
	p.db, err = sift.Open(dbDir, &p.o)
	return err
}

func (p *player) close() error {
	var err error
	for _, it := range p.iters {
		err = errors.Join(err, it.Close())
	}
	for _, s := range p.snaps {
		err = errors.Join(err, s.Close())
	}
	p.iters, p.snaps = nil, nil
	return errors.Join(err, p.db.Close())
}

// key returns a key that is often one of a few, and sometimes empty, long, or all 0xff.
func (p *player) key() []byte {
	switch n := p.rng.IntN(100); {
	case n == 0:
		return nil
	case n == 1:
		return bytes.Repeat([]byte{0xff}, 1+p.rng.IntN(12))
	case n == 2:
		return bytes.Repeat([]byte("k"), p.rng.IntN(500))
	case n < 40:
		return fmt.Appendf(nil, "hot%d", p.rng.IntN(20))
	}
	return fmt.Appendf(nil, "key%d/%03d", p.rng.IntN(5), p.rng.IntN(200))
}

func (p *player) value() []byte {
	if p.rng.IntN(100) == 0 {
		return bytes.Repeat([]byte{byte(p.rng.IntN(256))}, p.rng.IntN(9000))
	}
	return fmt.Appendf(nil, "%x", p.rng.Uint64())[:p.rng.IntN(16)]
}

func (p *player) writeOptions() *sift.WriteOptions {
	return &sift.WriteOptions{NoSync: p.rng.IntN(20) > 0}
}

type reader interface {
	Get(key []byte) ([]byte, error)
	GetMany(keys [][]byte) ([][]byte, error)
	Has(key []byte) (bool, error)
	NewIter(o *sift.IterOptions) (*sift.Iter, error)
}

// step runs one operation. It draws the same random numbers whatever the answers are.
func (p *player) step() error {
	switch n := p.rng.IntN(1000); {
	case n < 300:
		return p.db.Put(p.key(), p.value(), p.writeOptions())
	case n < 400:
		return p.db.Delete(p.key(), p.writeOptions())
	case n < 440:
		var b sift.Batch
		for range p.rng.IntN(10) {
			if p.rng.IntN(3) == 0 {
				b.Delete(p.key())
			} else {
				b.Put(p.key(), p.value())
			}
		}
		return p.db.Write(&b, p.writeOptions())
	case n < 600:
		p.get(p.db)
	case n < 630:
		keys := make([][]byte, p.rng.IntN(30))
		for i := range keys {
			keys[i] = p.key()
		}
		values, err := p.db.GetMany(keys)
		p.add("many %q %v", values, err)
	case n < 650:
		if len(p.snaps) < 4 {
			p.snaps = append(p.snaps, p.db.Snapshot())
			return nil
		}
		i := p.rng.IntN(len(p.snaps))
		p.scan(p.snaps[i], nil)
		s := p.snaps[i]
		p.snaps = slices.Delete(p.snaps, i, i+1)
		return s.Close()
	case n < 690:
		if len(p.snaps) > 0 {
			p.get(p.snaps[p.rng.IntN(len(p.snaps))])
		}
	case n < 710:
		return p.openIter()
	case n < 960:
		p.moveIter()
	case n < 970:
		return p.db.Flush()
	case n < 974:
		from, to := p.key(), p.key()
		if bytes.Compare(from, to) > 0 {
			from, to = to, from
		}
		return p.db.Compact(context.Background(), from, to)
	case n < 976:
		return p.db.Compact(context.Background(), nil, nil)
	case n < 978:
		if err := p.close(); err != nil {
			return err
		}
		return p.open()
	case n < 980:
		from, to := p.key(), p.key()
		if bytes.Compare(from, to) > 0 {
			from, to = to, from
		}
		return p.db.DeleteRange(context.Background(), from, to)
	case n < 988:
		p.ranges()
	case n < 990:
		p.scan(p.db, &sift.IterOptions{LowerBound: p.key(), UpperBound: append(p.key(), 0)})
	case n < 992:
		var b sift.Batch
		for range 1 + p.rng.IntN(30) {
			if p.rng.IntN(4) == 0 {
				b.Delete(p.key())
			} else {
				b.Put(p.key(), p.value())
			}
		}
		return p.db.Ingest(context.Background(), sorted(&b))
	}
	return nil
}

// sorted returns the last operation of each key in a batch, sorted by key.
func sorted(b *sift.Batch) iter.Seq2[sift.Op, error] {
	last := map[string]sift.Op{}
	for op := range b.Ops() {
		last[string(op.Key)] = op
	}
	return func(yield func(sift.Op, error) bool) {
		for _, key := range slices.Sorted(maps.Keys(last)) {
			if !yield(last[key], nil) {
				return
			}
		}
	}
}

func (p *player) get(r reader) {
	key := p.key()
	v, err := r.Get(key)
	has, herr := r.Has(key)
	p.add("get %q %v %v %v", v, err, has, herr)
}

func (p *player) scan(r reader, o *sift.IterOptions) {
	it, err := r.NewIter(o)
	if err != nil {
		p.add("iter %v", err)
		return
	}
	for ok := it.First(); ok; ok = it.Next() {
		p.add("%q=%q", it.Key(), it.Value())
	}
	p.add("end %v", it.Close())
}

// ranges checks whether ranges hold keys, together and one by one.
func (p *player) ranges() {
	ranges := make([]sift.KeyRange, p.rng.IntN(40))
	for i := range ranges {
		ranges[i] = sift.KeyRange{From: p.key(), To: append(p.key(), 0)}
		if p.rng.IntN(2) == 0 {
			ranges[i].To = append(bytes.Clone(ranges[i].From), byte(p.rng.IntN(256)))
		}
	}
	type asker interface {
		HasRange(from, to []byte) (bool, error)
		HasRanges(ranges []sift.KeyRange) ([]bool, error)
	}
	var r asker = p.db
	if len(p.snaps) > 0 && p.rng.IntN(2) == 0 {
		r = p.snaps[0]
	}
	has, err := r.HasRanges(ranges)
	p.add("ranges %v %v", has, err)
	for i, k := range ranges {
		one, err := r.HasRange(k.From, k.To)
		if err != nil || one != has[i] {
			p.add("range %q to %q alone %v %v", k.From, k.To, one, err)
		}
	}
}

func (p *player) openIter() error {
	if len(p.iters) >= 4 && p.rng.IntN(2) == 0 {
		i := p.rng.IntN(4)
		if p.resetIter(&p.iters[i]) != nil { // its snapshot is closed
			p.iters[i].Close() // which returns that error
			p.iters = slices.Delete(p.iters, i, i+1)
		}
		return nil
	} else if len(p.iters) >= 4 {
		it := p.iters[0]
		p.iters = p.iters[1:]
		return it.Close()
	}
	o := p.iterOptions()
	var r reader = p.db
	if len(p.snaps) > 0 && p.rng.IntN(3) == 0 {
		r = p.snaps[0]
	}
	it, err := r.NewIter(o)
	if err == nil {
		p.iters = append(p.iters, openIter{it, r})
	}
	return err
}

// resetIter resets an iterator to another range, which sometimes begins at its current key.
func (p *player) resetIter(it *openIter) error {
	o := p.iterOptions()
	if p.rng.IntN(4) == 0 {
		o.LowerBound = it.Key()
	}
	if !p.renew {
		err := it.Reset(o)
		p.add("reset %v", err)
		return err
	}
	o.LowerBound = bytes.Clone(o.LowerBound)
	err := it.Close()
	if err == nil {
		var made *sift.Iter
		if made, err = it.from.NewIter(o); err == nil {
			it.Iter = made
		}
	}
	p.add("reset %v", err)
	return err
}

func (p *player) iterOptions() *sift.IterOptions {
	var o sift.IterOptions
	switch p.rng.IntN(4) {
	case 0:
		o.Prefix = []byte("key1")
	case 1:
		o.LowerBound = p.key()
	case 2:
		o.UpperBound = append(p.key(), 1)
	}
	return &o
}

func (p *player) moveIter() {
	if len(p.iters) == 0 {
		return
	}
	it := p.iters[p.rng.IntN(len(p.iters))]
	what, key := p.rng.IntN(10), p.key()
	var ok bool
	switch {
	case what == 0:
		ok = it.First()
	case what == 1:
		ok = it.Last()
	case what == 2:
		ok = it.SeekGE(key)
	case what == 3:
		ok = it.SeekLT(key)
	case what < 7:
		ok = it.Next()
	default:
		ok = it.Prev()
	}
	if ok != it.Valid() {
		p.add("move says %v and Valid %v", ok, it.Valid())
		return
	}
	if !ok {
		p.add("move: nowhere, %v", it.Err())
		return
	}
	p.add("move: %q=%q", it.Key(), it.Value())
}
