package sift_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
)

var (
	modelOps  = flag.Int("model.ops", 12000, "operations of each run of the model test")
	modelSeed = flag.Uint64("model.seed", 1, "seed of the model test")
)

// optionSets returns the configurations under which every operation list must give the
// same results.
func optionSets() map[string]*sift.Options {
	return map[string]*sift.Options{
		"default":        {},
		"tiny memtables": {MemtableBytes: 4 << 10},
		"tiny tables":    {MemtableBytes: 16 << 10, TableBytes: 2 << 10, BlockBytes: 256},
		"tiny levels":    {MemtableBytes: 8 << 10, TableBytes: 4 << 10, LevelBaseBytes: 16 << 10, LevelMultiplier: 3, L0Tables: 2},
		"no filter":      {Filter: filter.None(), MemtableBytes: 8 << 10, TableBytes: 8 << 10, LevelBaseBytes: 32 << 10},
		"always yes":     {Filter: alwaysYes{}, MemtableBytes: 8 << 10, TableBytes: 8 << 10, LevelBaseBytes: 32 << 10},
		"rocksdb bloom":  {Filter: filter.RocksDBBloom(10), MemtableBytes: 8 << 10, TableBytes: 8 << 10, LevelBaseBytes: 32 << 10},
		"filter a level": {LevelFilters: []filter.Policy{filter.Bloom(4), filter.None(), filter.RocksDBBloom(8)}, MemtableBytes: 4 << 10, TableBytes: 4 << 10, LevelBaseBytes: 8 << 10, LevelMultiplier: 4},
		"no compression": {DisableCompression: true, MemtableBytes: 8 << 10, BlockBytes: 100, CacheBytes: -1},
		"prefixes":       {Prefix: sift.FixedPrefix(6), MemtableBytes: 4 << 10, TableBytes: 2 << 10, LevelBaseBytes: 8 << 10, LevelMultiplier: 4},
		"manual only":    {DisableAutoCompaction: true, MemtableBytes: 8 << 10, TableBytes: 4 << 10},
	}
}

func TestModel(t *testing.T) {
	for name, opts := range optionSets() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runModel(t, opts, *modelSeed, *modelOps)
		})
	}
}

// model is a database and what it should hold.
type model struct {
	t    *testing.T
	rng  *rand.Rand
	dir  string
	opts *sift.Options
	db   *sift.DB
	want map[string]string

	snaps []modelSnapshot
	iters []modelIter
}

type modelSnapshot struct {
	snap *sift.Snapshot
	want map[string]string
}

// modelIter is an iterator and the sorted keys that it should walk over.
type modelIter struct {
	it   *sift.Iter
	keys []string
	want map[string]string
	pos  int // index into keys; -1 or len(keys): at no key
}

func runModel(t *testing.T, opts *sift.Options, seed uint64, ops int) {
	m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 7)), dir: t.TempDir(), opts: opts, want: map[string]string{}}
	m.open()
	for i := range ops {
		m.step()
		if t.Failed() {
			t.Fatalf("seed %d, operation %d", seed, i)
		}
	}
	m.compareAll()
	m.reopen()
	m.compareAll()
	m.close()
	checkClean(t, m.dir, opts)
}

func checkClean(t testing.TB, dir string, opts *sift.Options) {
	t.Helper()
	report, err := sift.Check(context.Background(), dir, opts, func(fault error) { t.Errorf("check: %v", fault) })
	if err != nil {
		t.Errorf("check: %v", err)
	}
	for _, n := range report.Notes {
		t.Errorf("check: a note about a database that was closed cleanly: %s", n)
	}
}

func (m *model) open() {
	db, err := sift.Open(m.dir, m.opts)
	if err != nil {
		m.t.Fatal(err)
	}
	m.db = db
}

func (m *model) close() {
	for _, s := range m.snaps {
		m.noError(s.snap.Close())
	}
	for _, it := range m.iters {
		m.noError(it.it.Close())
	}
	m.snaps, m.iters = nil, nil
	m.noError(m.db.Close())
}

func (m *model) reopen() {
	m.close()
	m.open()
}

func (m *model) noError(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Error(err)
	}
}

// key returns a key from a set small enough for overwrites and hits, which includes
// shared prefixes and empty and long keys.
func (m *model) key() []byte {
	switch n := m.rng.IntN(1000); {
	case n < 5:
		return nil
	case n < 10:
		return bytes.Repeat([]byte{0xff}, m.rng.IntN(4)+1)
	case n < 15:
		return bytes.Repeat([]byte("long"), 1+m.rng.IntN(200))
	case n < 400:
		return fmt.Appendf(nil, "hot%d", m.rng.IntN(30))
	default:
		return fmt.Appendf(nil, "key%05d", m.rng.IntN(3000))
	}
}

func (m *model) value() []byte {
	if m.rng.IntN(200) == 0 {
		return bytes.Repeat([]byte{byte(m.rng.Uint32())}, m.rng.IntN(20000))
	}
	return fmt.Appendf(nil, "value%d-%s", m.rng.Uint32(), bytes.Repeat([]byte("x"), m.rng.IntN(60)))
}

func (m *model) writeOptions() *sift.WriteOptions {
	if m.rng.IntN(50) == 0 {
		return sift.Sync
	}
	return sift.NoSync
}

func (m *model) step() {
	switch n := m.rng.IntN(1000); {
	case n < 350:
		k, v := m.key(), m.value()
		m.noError(m.db.Put(k, v, m.writeOptions()))
		m.want[string(k)] = string(v)
	case n < 480:
		k := m.key()
		m.noError(m.db.Delete(k, m.writeOptions()))
		delete(m.want, string(k))
	case n < 520:
		var b sift.Batch
		for range m.rng.IntN(20) {
			k := m.key()
			if m.rng.IntN(3) == 0 {
				b.Delete(k)
				delete(m.want, string(k))
			} else {
				v := m.value()
				b.Put(k, v)
				m.want[string(k)] = string(v)
			}
		}
		m.noError(m.db.Write(&b, m.writeOptions()))
	case n < 800:
		m.compareGet(m.db, m.key(), m.want)
	case n < 830:
		m.compareMany()
	case n < 850:
		if len(m.snaps) < 5 {
			m.snaps = append(m.snaps, modelSnapshot{m.db.Snapshot(), maps.Clone(m.want)})
		} else {
			i := m.rng.IntN(len(m.snaps))
			m.compareScan(m.snaps[i].snap, m.snaps[i].want)
			m.noError(m.snaps[i].snap.Close())
			m.snaps = slices.Delete(m.snaps, i, i+1)
		}
	case n < 880 && len(m.snaps) > 0:
		s := m.snaps[m.rng.IntN(len(m.snaps))]
		m.compareGet(s.snap, m.key(), s.want)
	case n < 890:
		m.openIter()
	case n < 985:
		m.moveIter()
	case n < 989:
		m.noError(m.db.Flush())
	case n < 991:
		from, to := m.key(), m.key()
		if bytes.Compare(from, to) > 0 {
			from, to = to, from
		}
		m.noError(m.db.Compact(context.Background(), from, to))
	case n < 992:
		m.noError(m.db.Compact(context.Background(), nil, nil))
	case n < 993:
		m.reopen()
	case n < 994:
		m.compareScan(m.db, m.want)
	}
}

type getter interface {
	Get(key []byte) ([]byte, error)
	Has(key []byte) (bool, error)
	NewIter(o *sift.IterOptions) (*sift.Iter, error)
}

func (m *model) compareGet(db getter, key []byte, want map[string]string) {
	m.t.Helper()
	v, err := db.Get(key)
	w, there := want[string(key)]
	switch {
	case there && (err != nil || string(v) != w):
		m.t.Errorf("Get(%q) = %.40q, %v; want %.40q", key, v, err, w)
	case !there && !errors.Is(err, sift.ErrNotFound):
		m.t.Errorf("Get(%q) = %.40q, %v; want ErrNotFound", key, v, err)
	}
	has, err := db.Has(key)
	if has != there || err != nil {
		m.t.Errorf("Has(%q) = %v, %v; want %v", key, has, err, there)
	}
}

func (m *model) compareMany() {
	keys := make([][]byte, m.rng.IntN(50))
	for i := range keys {
		keys[i] = m.key()
	}
	values, err := m.db.GetMany(keys)
	m.noError(err)
	for i, k := range keys {
		w, there := m.want[string(k)]
		if there != (values[i] != nil) || string(values[i]) != w {
			m.t.Errorf("GetMany: %q = %.40q; want %.40q, %v", k, values[i], w, there)
		}
	}
}

func (m *model) compareScan(db getter, want map[string]string) {
	m.t.Helper()
	keys := slices.Sorted(maps.Keys(want))
	it, err := db.NewIter(nil)
	if err != nil {
		m.t.Error(err)
		return
	}
	i := 0
	for ok := it.First(); ok; ok = it.Next() {
		if i >= len(keys) || string(it.Key()) != keys[i] || string(it.Value()) != want[keys[i]] {
			m.t.Errorf("scan: entry %d is %q", i, it.Key())
			break
		}
		i++
	}
	if i != len(keys) {
		m.t.Errorf("scan: %d keys; want %d", i, len(keys))
	}
	i = len(keys)
	for ok := it.Last(); ok; ok = it.Prev() {
		i--
		if i < 0 || string(it.Key()) != keys[i] || string(it.Value()) != want[keys[i]] {
			m.t.Errorf("scan backwards: entry %d is %q", i, it.Key())
			break
		}
	}
	if i != 0 {
		m.t.Errorf("scan backwards: stopped %d keys too early", i)
	}
	m.noError(it.Close())
}

func (m *model) compareAll() {
	m.compareScan(m.db, m.want)
	for k := range m.want {
		m.compareGet(m.db, []byte(k), m.want)
	}
	for _, s := range m.snaps {
		m.compareScan(s.snap, s.want)
	}
}

func (m *model) openIter() {
	if len(m.iters) >= 4 {
		i := m.rng.IntN(len(m.iters))
		if m.rng.IntN(2) == 0 {
			o, mi := m.iterRange()
			mi.it = m.iters[i].it
			m.noError(mi.it.Reset(o))
			m.iters[i] = mi
			return
		}
		m.noError(m.iters[i].it.Close())
		m.iters = slices.Delete(m.iters, i, i+1)
		return
	}
	o, mi := m.iterRange()
	var err error
	if mi.it, err = m.db.NewIter(o); err != nil {
		m.t.Error(err)
		return
	}
	m.iters = append(m.iters, mi)
}

// iterRange returns a range, and what an iterator over it should find.
func (m *model) iterRange() (*sift.IterOptions, modelIter) {
	var o sift.IterOptions
	switch m.rng.IntN(4) {
	case 0:
		o.Prefix = []byte("key0")
		if m.rng.IntN(2) == 0 {
			o.Prefix = append([]byte{}, m.key()...)
			o.Prefix = o.Prefix[:min(6, len(o.Prefix))]
		}
	case 1:
		o.LowerBound = m.key()
	case 2:
		o.LowerBound, o.UpperBound = []byte("hot2"), append(m.key(), 0)
	}
	mi := modelIter{want: maps.Clone(m.want), pos: -1}
	for k := range mi.want {
		b := []byte(k)
		if bytes.HasPrefix(b, o.Prefix) && bytes.Compare(b, o.LowerBound) >= 0 && (o.UpperBound == nil || bytes.Compare(b, o.UpperBound) < 0) {
			mi.keys = append(mi.keys, k)
		}
	}
	slices.Sort(mi.keys)
	return &o, mi
}

func (m *model) moveIter() {
	if len(m.iters) == 0 {
		return
	}
	mi := &m.iters[m.rng.IntN(len(m.iters))]
	var what string
	switch n := m.rng.IntN(10); {
	case n == 0:
		what = "First"
		mi.it.First()
		mi.pos = 0
	case n == 1:
		what = "Last"
		mi.it.Last()
		mi.pos = len(mi.keys) - 1
	case n == 2:
		k := m.key()
		what = fmt.Sprintf("SeekGE(%q)", k)
		mi.it.SeekGE(k)
		mi.pos, _ = slices.BinarySearch(mi.keys, string(k))
	case n == 3:
		k := m.key()
		what = fmt.Sprintf("SeekLT(%q)", k)
		mi.it.SeekLT(k)
		mi.pos, _ = slices.BinarySearch(mi.keys, string(k))
		mi.pos--
	case n < 7:
		what = "Next"
		if mi.it.Next(); mi.pos < len(mi.keys) {
			mi.pos++
		}
	default:
		what = "Prev"
		if mi.it.Prev(); mi.pos >= 0 {
			mi.pos--
		}
	}
	m.noError(mi.it.Err())
	if mi.pos < 0 || mi.pos >= len(mi.keys) {
		if mi.it.Valid() {
			m.t.Errorf("%s: at %q; want to be at no key", what, mi.it.Key())
		}
		return
	}
	k := mi.keys[mi.pos]
	if !mi.it.Valid() || string(mi.it.Key()) != k || string(mi.it.Value()) != mi.want[k] {
		m.t.Errorf("%s: at %q (valid %v); want %q", what, mi.it.Key(), mi.it.Valid(), k)
	}
}

// alwaysYes is a filter that excludes nothing: results must not depend on filters.
type alwaysYes struct{}

func (alwaysYes) Name() string                         { return "always-yes" }
func (alwaysYes) Family() string                       { return "test.AlwaysYes" }
func (alwaysYes) NewWriter() filter.Writer             { return new(yesWriter) }
func (alwaysYes) Open([][]byte) (filter.Reader, error) { return alwaysYes{}, nil }
func (alwaysYes) MayContain(filter.Key) bool           { return true }
func (alwaysYes) MayContainMany(keys []filter.Key, m []bool) {
	for i := range keys {
		m[i] = true
	}
}
func (alwaysYes) FPR() float64   { return 1 }
func (alwaysYes) SizeBytes() int { return 3 }

type yesWriter struct{ n int }

func (w *yesWriter) Add(filter.Key)            { w.n++ }
func (w *yesWriter) NumKeys() int              { return w.n }
func (w *yesWriter) Finish() ([][]byte, error) { w.n = 0; return [][]byte{[]byte("yes")}, nil }
