package sift

import (
	"bytes"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/memtable"
	"github.com/siftdb/sift/sstable"
)

const (
	// minAsk is the number of keys from which on a filter is probed for all of them at once.
	minAsk = 4
	// minShare is the minimum number of keys per goroutine that searches blocks.
	minShare = 4
	// readersPerCPU bounds the goroutines of one call where the system cannot be asked to read
	// ahead: some wait for the disk.
	readersPerCPU = 4
	// maxPooledMany bounds the number of keys whose memory is kept for the next call.
	maxPooledMany = 4096
)

// many looks up several keys together: level by level, first the filters, with all keys of a
// table at once, then the blocks, on several goroutines.
type many struct {
	keys    []manyKey
	pending []int // keys not yet answered, as indices into keys
	values  [][]byte

	byTable []uint64 // the pending keys of a level: table<<32 | key
	ask     []filter.Key
	maybe   []bool
	jobs    []manyJob
}

type manyKey struct {
	lookup
	done bool
}

// manyJob is a key to search for in a table's blocks.
type manyJob struct {
	key    int
	table  *table
	filter filter.Reader // it was positive; nil: none
}

var manyPool = sync.Pool{New: func() any { return new(many) }}

// getMany returns copies of the newest values of keys, nil where there is none.
func (s *readState) getMany(secret *filter.Secret, keys [][]byte, seq uint64, counts *readStripe, turn uint64) ([][]byte, error) {
	m := manyPool.Get().(*many)
	m.values = make([][]byte, len(keys))
	m.add(secret, keys, seq, counts, turn)
	err := m.search(s)
	for i := range m.keys {
		m.keys[i].count()
	}
	values := m.values
	if len(keys) <= maxPooledMany {
		m.clear()
		manyPool.Put(m)
	}
	if err != nil {
		return nil, err
	}
	return values, nil
}

func copyOf(value []byte) []byte { return append(make([]byte, 0, len(value)), value...) }

func (m *many) add(secret *filter.Secret, keys [][]byte, seq uint64, counts *readStripe, turn uint64) {
	m.keys = slices.Grow(m.keys[:0], len(keys))[:len(keys)]
	m.pending = slices.Grow(m.pending[:0], len(keys))[:len(keys)]
	for i, key := range keys {
		m.keys[i] = manyKey{lookup: lookup{
			key: lookupKey(secret, key), keyed: secret != nil, seq: seq, counts: counts,
			sampled: (turn+uint64(i))%sampleEvery == 0,
		}}
		m.pending[i] = i
	}
}

// clear drops references to memory that many does not own.
func (m *many) clear() {
	clear(m.keys)
	clear(m.ask[:cap(m.ask)])
	clear(m.jobs[:cap(m.jobs)])
	m.values, m.keys, m.ask, m.jobs = nil, m.keys[:0], m.ask[:0], m.jobs[:0]
}

func (m *many) search(s *readState) error {
	m.memtable(s.mem)
	for _, mem := range s.imms {
		m.memtable(mem)
	}
	for _, meta := range s.version.Levels[0] {
		m.byTable = m.byTable[:0]
		for _, i := range m.pending {
			if withinTable(meta, m.keys[i].key.Bytes) {
				m.byTable = append(m.byTable, uint64(i))
			}
		}
		if err := m.askTable(meta, 0, m.byTable); err != nil {
			return err
		}
		if err := m.read(0); err != nil {
			return err
		}
	}
	for level := 1; level < manifest.NumLevels && len(m.pending) > 0; level++ {
		if err := m.level(s.version, level); err != nil {
			return err
		}
	}
	return nil
}

// answer records the result for a key. It may be called concurrently for different keys.
func (m *many) answer(key int, value []byte, kind base.Kind) {
	m.keys[key].done = true
	if kind == base.KindSet {
		m.values[key] = copyOf(value)
	}
}

// dropAnswered removes the keys that have an answer from the pending ones.
func (m *many) dropAnswered() {
	m.pending = slices.DeleteFunc(m.pending, func(i int) bool { return m.keys[i].done })
}

func (m *many) memtable(mem *memtable.Memtable) {
	if mem.Empty() {
		return
	}
	for _, i := range m.pending {
		if value, kind, ok := m.keys[i].memtable(mem); ok {
			m.answer(i, value, kind)
		}
	}
	m.dropAnswered()
}

// level looks for the keys in a level >= 1.
func (m *many) level(v *manifest.Version, level int) error {
	tables := v.Levels[level]
	if len(tables) == 0 {
		return nil
	}
	m.byTable = m.byTable[:0]
	shared := false // a key is its table's largest: the next table may hold it, too
	for _, i := range m.pending {
		key := m.keys[i].key.Bytes
		t, last := v.FindTable(level, key)
		if t < len(tables) && bytes.Compare(key, base.UserKey(tables[t].Smallest)) >= 0 {
			m.byTable = append(m.byTable, uint64(t)<<32|uint64(i))
			shared = shared || last
		}
	}
	slices.Sort(m.byTable)
	for group := m.byTable; len(group) > 0; {
		t, n := group[0]>>32, 1
		for n < len(group) && group[n]>>32 == t {
			n++
		}
		if err := m.askTable(tables[t], level, group[:n]); err != nil {
			return err
		}
		group = group[n:]
	}
	if err := m.read(level); err != nil || !shared {
		return err
	}
	for _, i := range m.pending {
		k := &m.keys[i]
		t, last := v.FindTable(level, k.key.Bytes)
		if !last {
			continue
		}
		value, kind, ok, err := k.neighbors(tables[t+1:], level)
		if err != nil {
			return err
		}
		if ok {
			m.answer(i, value, kind)
		}
		k.buf.Release()
	}
	m.dropAnswered()
	return nil
}

// askTable probes a table's filter for its keys, the low halves of group, and creates jobs
// for the positives.
func (m *many) askTable(meta *manifest.TableMeta, level int, group []uint64) error {
	if len(group) == 0 {
		return nil
	}
	t := meta.Handle.(*table)
	r, err := t.load()
	if err != nil {
		return err
	}
	f := r.Filter()
	before := len(m.jobs)
	switch {
	case f == nil:
		for _, g := range group {
			m.jobs = append(m.jobs, manyJob{int(uint32(g)), t, nil})
		}
	case len(group) < minAsk || m.keys[0].keyed: // one at a time, a keyed filter uses the hash that the key already has
		for _, g := range group {
			m.filtered(int(uint32(g)), t, f, level, m.keys[uint32(g)].mayContain(f))
		}
	default:
		m.ask = m.ask[:0]
		for _, g := range group {
			m.ask = append(m.ask, m.keys[uint32(g)].key)
		}
		m.maybe = slices.Grow(m.maybe[:0], len(group))[:len(group)]
		f.MayContainMany(m.ask, m.maybe)
		for j, g := range group {
			m.filtered(int(uint32(g)), t, f, level, m.maybe[j])
		}
	}
	// Keys of the same block next to each other.
	slices.SortFunc(m.jobs[before:], func(a, b manyJob) int {
		return bytes.Compare(m.keys[a.key].key.Bytes, m.keys[b.key].key.Bytes)
	})
	return nil
}

// filtered handles the result of a filter probe.
func (m *many) filtered(key int, t *table, f filter.Reader, level int, maybe bool) {
	k := &m.keys[key]
	k.asks(level)
	if maybe {
		m.jobs = append(m.jobs, manyJob{key, t, f})
	} else {
		k.missed(t)
	}
}

// read searches the blocks for the jobs, on several goroutines if there are many.
func (m *many) read(level int) error {
	jobs := m.jobs
	m.jobs = m.jobs[:0]
	if len(jobs) == 0 {
		return nil
	}
	workers := runtime.GOMAXPROCS(0)
	if len(jobs) > 1 && !m.prefetch(jobs) {
		workers *= readersPerCPU
	}
	var err error
	if workers = min(len(jobs)/minShare, workers); workers > 1 {
		err = m.readTogether(jobs, level, workers)
	} else {
		err = m.readSome(jobs, level)
	}
	m.dropAnswered()
	return err
}

// prefetch begins to read the blocks for the jobs that are not in memory, so that the disk serves
// them side by side. It reports whether the system does that.
func (m *many) prefetch(jobs []manyJob) bool {
	does := true
	for _, j := range jobs {
		k := &m.keys[j.key]
		does = j.table.reader.Load().Prefetch(k.key.Bytes, k.seq) && does
	}
	return does
}

func (m *many) readTogether(jobs []manyJob, level, workers int) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			for errs[w] == nil {
				from := int(next.Add(minShare)) - minShare
				if from >= len(jobs) {
					return
				}
				errs[w] = m.readSome(jobs[from:min(from+minShare, len(jobs))], level)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *many) readSome(jobs []manyJob, level int) error {
	var buf sstable.Buffer
	defer buf.Release()
	for _, j := range jobs {
		value, kind, ok, err := m.keys[j.key].blocks(j.table, j.table.reader.Load(), j.filter, level, &buf)
		if err != nil {
			return err
		}
		if ok {
			m.answer(j.key, value, kind)
		}
	}
	return nil
}
