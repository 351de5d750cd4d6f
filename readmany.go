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
	// minProbes is the minimum number of keys for which a filter is probed with one call.
	minProbes = 4
	// minShare is the minimum number of keys per goroutine that searches blocks in memory. Two
	// goroutines take as long for 16 keys each as one for 32, and more CPU time
	// (BenchmarkGetMany).
	minShare = 32
	// minWait replaces minShare if the searches wait for the disk. It is also the number of keys
	// that a goroutine takes at a time.
	minWait = 4
	// readersPerCPU is the maximum number of goroutines of a call, per CPU, if blocks cannot be
	// prefetched: some of them wait for the disk.
	readersPerCPU = 4
	// maxAhead is the maximum number of blocks that are prefetched, so that none is evicted before
	// it is used.
	maxAhead = 256
	// maxPooledMany is the maximum number of keys of a call whose memory returns to the pool.
	maxPooledMany = 4096
)

// many looks up several keys together, in rounds. A round first finds, for every key, the next
// table whose filter does not exclude it, whatever its level, and then reads the blocks of all
// keys on several goroutines. So the disk serves the reads in parallel, and no table is read for
// a key after the table with its newest entry.
type many struct {
	keys    []manyKey
	pending []int // keys without a result, as indices into keys
	values  [][]byte

	seeking  []int        // the pending keys for which the round has not found a table
	byTable  []uint64     // keys of seeking that are in the range of a table of the level: table<<32 | key
	probes   []filter.Key // scratch
	positive []bool       // scratch
	jobs     []manyJob
	stopped  int   // number of keys in seeking that are stopped
	shared   []int // keys that are a table's largest: the next table of the level may hold them, too
}

// manyKey is the lookup of a key.
type manyKey struct {
	lookup
	from    int  // the first source that has not been probed; see source
	stopped bool // the round has found a table
	done    bool // there is a result
}

// manyJob is a search for a key in a table's blocks.
type manyJob struct {
	key    int
	table  *table
	filter filter.Reader // the table's filter, which has not excluded the key; nil: none
	level  int
}

var manyPool = sync.Pool{New: func() any { return new(many) }}

// getMany returns copies of the newest values of keys, or nil for keys without one.
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

// clear drops references to the caller's memory, and to tables and filters.
func (m *many) clear() {
	clear(m.keys)
	clear(m.probes[:cap(m.probes)])
	clear(m.jobs[:cap(m.jobs)])
	m.values, m.keys, m.probes, m.jobs = nil, m.keys[:0], m.probes[:0], m.jobs[:0]
}

func (m *many) search(s *readState) error {
	m.memtable(s.mem)
	for _, mem := range s.imms {
		m.memtable(mem)
	}
	for len(m.pending) > 0 {
		if err := m.round(s.version); err != nil {
			return err
		}
	}
	return nil
}

// round finds the next table that may hold each pending key, and searches it. A key stays pending
// if the table does not hold it and others may.
func (m *many) round(v *manifest.Version) error {
	m.seeking, m.shared, m.stopped = append(m.seeking[:0], m.pending...), m.shared[:0], 0
	for i, meta := range v.Levels[0] {
		m.byTable = m.byTable[:0]
		for _, k := range m.seeking {
			if m.keys[k].from <= i && withinTable(meta, m.keys[k].key.Bytes) {
				m.byTable = append(m.byTable, uint64(k))
			}
		}
		if err := m.probeTable(meta, 0, m.byTable); err != nil {
			return err
		}
		m.dropStopped(i)
	}
	for level := 1; level <= v.Deepest && len(m.seeking) > 0; level++ {
		if err := m.level(v, level); err != nil {
			return err
		}
	}
	if len(m.seeking) == len(m.pending) {
		m.pending = m.pending[:0] // the common case for absent keys
		return nil
	}
	if err := m.read(); err != nil {
		return err
	}
	if err := m.neighbors(v); err != nil {
		return err
	}
	m.pending = slices.DeleteFunc(m.pending, func(i int) bool {
		k := &m.keys[i]
		again := k.stopped && !k.done
		k.stopped = false
		return !again
	})
	return nil
}

// source returns the number of a level >= 1 among the sources, which are the tables of level 0,
// newest first, and then the other levels.
func source(v *manifest.Version, level int) int { return len(v.Levels[0]) + level - 1 }

// dropStopped removes stopped keys from seeking. Their next table is in source at.
func (m *many) dropStopped(at int) {
	if m.stopped == 0 {
		return
	}
	m.stopped = 0
	m.seeking = slices.DeleteFunc(m.seeking, func(i int) bool {
		k := &m.keys[i]
		if k.stopped {
			k.from = at + 1
		}
		return k.stopped
	})
}

// answer records the result for a key. It may be called concurrently for different keys.
func (m *many) answer(key int, value []byte, kind base.Kind) {
	m.keys[key].done = true
	if kind == base.KindSet {
		m.values[key] = copyOf(value)
	}
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
	m.pending = slices.DeleteFunc(m.pending, func(i int) bool { return m.keys[i].done })
}

// stop marks a key for which the round has found a table.
func (m *many) stop(k *manyKey) {
	k.stopped = true
	m.stopped++
}

// level probes the filters of a level >= 1.
func (m *many) level(v *manifest.Version, level int) error {
	tables := v.Levels[level]
	if len(tables) == 0 {
		return nil
	}
	m.byTable = m.byTable[:0]
	at := source(v, level)
	for _, i := range m.seeking {
		k := &m.keys[i]
		if k.from > at {
			continue
		}
		t, last := v.FindTable(level, k.key.Bytes)
		if t < len(tables) && !before(k.key.Bytes, tables[t]) {
			m.byTable = append(m.byTable, uint64(t)<<32|uint64(i))
			if last {
				m.shared = append(m.shared, i)
				m.stop(k)
			}
		}
	}
	slices.Sort(m.byTable)
	for group := m.byTable; len(group) > 0; {
		t, n := group[0]>>32, 1
		for n < len(group) && group[n]>>32 == t {
			n++
		}
		if err := m.probeTable(tables[t], level, group[:n]); err != nil {
			return err
		}
		group = group[n:]
	}
	m.dropStopped(at)
	return nil
}

// neighbors searches the tables after those whose largest key is one of shared.
func (m *many) neighbors(v *manifest.Version) error {
	for _, i := range m.shared {
		k := &m.keys[i]
		if k.done {
			continue
		}
		level := k.from - source(v, 0) - 1
		t, _ := v.FindTable(level, k.key.Bytes)
		value, kind, ok, err := k.neighbors(v.Levels[level][t+1:], level)
		if err != nil {
			return err
		}
		if ok {
			m.answer(i, value, kind)
		}
		k.buf.Release()
	}
	return nil
}

// probeTable probes a table's filter for the keys in the lower halves of group, and creates jobs
// for those that it does not exclude.
func (m *many) probeTable(meta *manifest.TableMeta, level int, group []uint64) error {
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
			m.searchBlocks(int(uint32(g)), t, nil, level)
		}
	case len(group) < minProbes || m.keys[0].keyed: // MayContainMany of a keyed filter would hash the keys again
		for _, g := range group {
			m.filtered(int(uint32(g)), t, f, level, m.keys[uint32(g)].mayContain(f))
		}
	default:
		m.probes = m.probes[:0]
		for _, g := range group {
			m.probes = append(m.probes, m.keys[uint32(g)].key)
		}
		m.positive = slices.Grow(m.positive[:0], len(group))[:len(group)]
		f.MayContainMany(m.probes, m.positive)
		for j, g := range group {
			m.filtered(int(uint32(g)), t, f, level, m.positive[j])
		}
	}
	// Put keys of the same block next to each other.
	slices.SortFunc(m.jobs[before:], func(a, b manyJob) int {
		return bytes.Compare(m.keys[a.key].key.Bytes, m.keys[b.key].key.Bytes)
	})
	return nil
}

// filtered handles the result of a filter probe.
func (m *many) filtered(key int, t *table, f filter.Reader, level int, positive bool) {
	k := &m.keys[key]
	k.countProbe(level)
	if positive {
		m.searchBlocks(key, t, f, level)
	} else {
		k.missed(t)
	}
}

// searchBlocks creates a job for a key, and stops the key until the result is known.
func (m *many) searchBlocks(key int, t *table, f filter.Reader, level int) {
	m.stop(&m.keys[key])
	m.jobs = append(m.jobs, manyJob{key, t, f, level})
}

// read executes the jobs.
func (m *many) read() error {
	for jobs := m.jobs; len(jobs) > 0; {
		n := min(len(jobs), maxAhead)
		if err := m.readAhead(jobs[:n]); err != nil {
			return err
		}
		jobs = jobs[n:]
	}
	m.jobs = m.jobs[:0]
	return nil
}

// readAhead prefetches the blocks for the jobs, and then searches them, on several goroutines if
// there are many.
func (m *many) readAhead(jobs []manyJob) error {
	workers, share := runtime.GOMAXPROCS(0), minShare
	if len(jobs) > 1 && !m.prefetch(jobs) {
		workers, share = workers*readersPerCPU, minWait
	}
	if workers = min(len(jobs)/share, workers); workers > 1 {
		return m.readTogether(jobs, workers)
	}
	return m.readSome(jobs)
}

// prefetch prefetches the blocks for the jobs, so that the disk reads them in parallel. It returns
// false if it could not prefetch all of them.
func (m *many) prefetch(jobs []manyJob) bool {
	all := true
	for _, j := range jobs {
		k := &m.keys[j.key]
		all = j.table.reader.Load().Prefetch(k.key.Bytes, k.seq) && all
	}
	return all
}

// readTogether executes the jobs on several goroutines.
func (m *many) readTogether(jobs []manyJob, workers int) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			for errs[w] == nil {
				from := int(next.Add(minWait)) - minWait
				if from >= len(jobs) {
					return
				}
				errs[w] = m.readSome(jobs[from:min(from+minWait, len(jobs))])
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

// readSome executes the jobs on this goroutine.
func (m *many) readSome(jobs []manyJob) error {
	var buf sstable.Buffer
	defer buf.Release()
	for _, j := range jobs {
		value, kind, ok, err := m.keys[j.key].blocks(j.table, j.table.reader.Load(), j.filter, j.level, &buf)
		if err != nil {
			return err
		}
		if ok {
			m.answer(j.key, value, kind)
		}
	}
	return nil
}
