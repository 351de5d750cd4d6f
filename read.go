package sift

import (
	"bytes"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/memtable"
	"github.com/siftdb/sift/sstable"
)

// readState, the superversion, is everything that a read needs: the memtables and the version.
// It is immutable; each change to either installs a new one. A reader that loads it inside the
// database's epoch may use it until it leaves the epoch; a longer-lived reader, such as an
// iterator, first takes a reference on the version.
type readState struct {
	mem     *memtable.Memtable
	imms    []*memtable.Memtable // full and waiting to be flushed, newest first
	version *manifest.Version
	drops   uint64 // number of edits that only dropped tables, which removes keys without a sequence number
	flushed uint64 // all entries with higher sequence numbers are in the memtables
}

// lookup is the search for one key.
type lookup struct {
	key     filter.Key
	keyed   bool   // the key's hash is keyed with the database's secret
	seq     uint64 // entries with higher sequence numbers are ignored
	counts  *readStripe
	probed  uint           // bit i: the lookup has probed a filter of level i
	sampled bool           // count the lookup in the traffic of tables that do not hold the key
	buf     sstable.Buffer // for a block that is not in the cache
}

// One in sampleEvery lookups is sampled.
const sampleEvery = 16

// get returns the newest value of a key. The value is in memory that does not change until buf
// is released: a memtable's arena, a cached block, or buf. found is false if there is no entry,
// or the newest one is a tombstone. turn determines whether the lookup is sampled.
func (s *readState) get(secret *filter.Secret, key []byte, seq uint64, counts *readStripe, turn uint64) (value []byte, buf sstable.Buffer, found bool, err error) {
	// Set field by field: with a composite literal, whose copy later loads have to wait for,
	// lookups of absent keys took 15 to 24% longer (BenchmarkGet).
	var l lookup
	l.key = lookupKey(secret, key)
	l.keyed = secret != nil
	l.seq = seq
	l.counts = counts
	l.sampled = turn%sampleEvery == 0
	value, found, err = s.search(&l)
	l.count()
	return value, l.buf, found, err
}

// count adds the finished lookup to the counters.
func (l *lookup) count() { l.counts.probed[l.probed%(1<<manifest.NumLevels)].Add(1) }

// search is get without adding the lookup to the counters.
func (s *readState) search(l *lookup) (value []byte, found bool, err error) {
	if v, kind, ok := l.memtable(s.mem); ok {
		return v, kind == base.KindSet, nil
	}
	for _, m := range s.imms {
		if v, kind, ok := l.memtable(m); ok {
			return v, kind == base.KindSet, nil
		}
	}
	v := s.version
	if v.Large {
		return l.large(v)
	}
	if len(v.Levels[0]) > 0 {
		value, kind, ok, err := l.level0(v.Levels[0])
		if err != nil || ok {
			return value, ok && kind == base.KindSet, err
		}
	}
	for level := 1; level <= v.Deepest; level++ {
		tables := v.Levels[level]
		if len(tables) == 0 {
			continue
		}
		i, last := v.FindTable(level, l.key.Bytes)
		if i == len(tables) || i == 0 && before(l.key.Bytes, tables[0]) {
			continue
		}
		f, no := l.filter(tables[i], level)
		if no && !last {
			continue // the common case
		}
		value, kind, ok, err := l.level(tables[i:], f, no, level)
		if err != nil || ok {
			return value, ok && kind == base.KindSet, err
		}
	}
	return nil, false, nil
}

// place is the position of a key in a level.
type place struct {
	table int  // the index of the table that may hold the key
	last  bool // the key is the table's largest
}

// large searches the tables of a version that has a large level. Before the first filter probe it
// prefetches for those of all levels, so that their cache misses overlap: with 100 million keys in
// four levels, a lookup of an absent key takes 0.43 µs instead of 0.57 (docs/speed.md). With 30
// million keys that saves no time.
func (l *lookup) large(v *manifest.Version) (value []byte, found bool, err error) {
	var places [manifest.NumLevels]place
	for level := 1; level <= v.Deepest; level++ {
		tables := v.Levels[level]
		if len(tables) == 0 {
			continue
		}
		i, last := v.FindTable(level, l.key.Bytes)
		places[level] = place{i, last}
		if i < len(tables) {
			l.prefetch(tables[i])
		}
	}
	value, kind, ok, err := l.level0(v.Levels[0])
	if err != nil || ok {
		return value, ok && kind == base.KindSet, err
	}
	for level := 1; level <= v.Deepest; level++ {
		tables, p := v.Levels[level], places[level]
		if p.table == len(tables) || p.table == 0 && before(l.key.Bytes, tables[0]) {
			continue
		}
		f, no := l.filter(tables[p.table], level)
		if no && !p.last {
			continue // the common case
		}
		value, kind, ok, err := l.level(tables[p.table:], f, no, level)
		if err != nil || ok {
			return value, ok && kind == base.KindSet, err
		}
	}
	return nil, false, nil
}

// prefetch starts loading the memory that a probe of the table's filter reads first.
func (l *lookup) prefetch(meta *manifest.TableMeta) {
	if r := meta.Handle.(*table).reader.Load(); r != nil {
		r.PrefetchFilter(l.key.Hash)
	}
}

// level0 searches the tables of level 0, which overlap.
func (l *lookup) level0(tables []*manifest.TableMeta) (value []byte, kind base.Kind, ok bool, err error) {
	for _, meta := range tables {
		if !withinTable(meta, l.key.Bytes) {
			continue
		}
		value, kind, ok, err = l.table(meta, 0)
		if err != nil || ok {
			return value, kind, ok, err
		}
	}
	return nil, 0, false, nil
}

// level searches the first of tables, whose filter f has been probed; no reports that it excludes
// the key. If the key is the table's largest, level also searches the next tables.
func (l *lookup) level(tables []*manifest.TableMeta, f filter.Reader, no bool, level int) (value []byte, kind base.Kind, ok bool, err error) {
	if !no {
		value, kind, ok, err = l.positive(tables[0], f, level)
	}
	if err != nil || ok || !endsWith(tables[0], l.key.Bytes) {
		return value, kind, ok, err
	}
	return l.neighbors(tables[1:], level)
}

// neighbors searches the tables of a level >= 1 after one whose largest key is the key: LevelDB can
// split the entries of one key over adjacent tables.
func (l *lookup) neighbors(tables []*manifest.TableMeta, level int) (value []byte, kind base.Kind, ok bool, err error) {
	for _, meta := range tables {
		if before(l.key.Bytes, meta) {
			break
		}
		value, kind, ok, err = l.table(meta, level)
		if err != nil || ok || !endsWith(meta, l.key.Bytes) {
			return value, kind, ok, err
		}
	}
	return nil, 0, false, nil
}

// endsWith reports whether the table's largest user key is userKey.
func endsWith(meta *manifest.TableMeta, userKey []byte) bool {
	return bytes.Equal(userKey, base.UserKey(meta.Largest))
}

// before reports whether the key is before the table's range.
func before(userKey []byte, meta *manifest.TableMeta) bool {
	return bytes.Compare(userKey, base.UserKey(meta.Smallest)) < 0
}

// withinTable reports whether the key is in the table's range.
func withinTable(meta *manifest.TableMeta, userKey []byte) bool {
	return !before(userKey, meta) && bytes.Compare(userKey, base.UserKey(meta.Largest)) <= 0
}

// memtable searches a memtable.
func (l *lookup) memtable(m *memtable.Memtable) (value []byte, kind base.Kind, ok bool) {
	if !m.MayContain(l.key.Hash) {
		return nil, 0, false
	}
	value, kind, _, ok = m.Find(l.key.Hash, l.key.Bytes, l.seq)
	return value, kind, ok
}

// table probes a table's filter and, unless that excludes the key, searches the table's blocks.
// REQUIRES: the key is not after the table's range.
func (l *lookup) table(meta *manifest.TableMeta, level int) (value []byte, kind base.Kind, ok bool, err error) {
	f, no := l.filter(meta, level)
	if no {
		return nil, 0, false, nil
	}
	return l.positive(meta, f, level)
}

// filter probes a table's filter and returns it, or nil if none is loaded; no reports that the
// filter excludes the key. REQUIRES: the key is not after the table's range. positive checks later
// whether it is before the range: probing the filter is faster than reading the smallest key, and
// few keys lie between two tables.
func (l *lookup) filter(meta *manifest.TableMeta, level int) (f filter.Reader, no bool) {
	t := meta.Handle.(*table)
	r := t.reader.Load()
	if r == nil {
		return nil, false
	}
	if f = r.Filter(); f == nil {
		return nil, false
	}
	l.countProbe(level)
	if l.mayContain(f) {
		return f, false
	}
	if l.sampled && !before(l.key.Bytes, meta) {
		l.missed(t)
	}
	return f, true
}

// positive searches a table whose filter f has not excluded the key.
func (l *lookup) positive(meta *manifest.TableMeta, f filter.Reader, level int) (value []byte, kind base.Kind, ok bool, err error) {
	if before(l.key.Bytes, meta) {
		return nil, 0, false, nil
	}
	t := meta.Handle.(*table)
	r, err := t.load()
	if err != nil {
		return nil, 0, false, err
	}
	if f == nil {
		// Perhaps load has just loaded the table.
		if f = r.Filter(); f != nil {
			l.countProbe(level)
			if !l.mayContain(f) {
				l.missed(t)
				return nil, 0, false, nil
			}
		}
	}
	return l.blocks(t, r, f, level, &l.buf)
}

// countProbe records that a filter of the level is probed.
func (l *lookup) countProbe(level int) {
	if bit := uint(1) << level; l.probed&bit == 0 {
		l.probed |= bit
	} else {
		l.counts.moreProbes[level].Add(1)
	}
}

// missed records that the table does not hold the key.
func (l *lookup) missed(t *table) {
	if l.sampled {
		t.traffic.AbsentKeys.Add(sampleEvery)
	}
}

// blocks searches the blocks of table t, whose reader is r. f is the table's filter, which has not
// excluded the key, or nil. The value is valid until buf is used again or released.
func (l *lookup) blocks(t *table, r *sstable.Reader, f filter.Reader, level int, buf *sstable.Buffer) (value []byte, kind base.Kind, ok bool, err error) {
	value, kind, _, ok, err = r.GetIn(buf, l.key.Bytes, l.seq)
	switch {
	case f == nil:
		l.counts.unfiltered[level].Add(1)
	case ok:
		l.counts.truePositive[level].Add(1)
	default:
		l.counts.falsePositive[level].Add(1)
	}
	if !ok {
		l.missed(t)
	}
	return value, kind, ok, err
}
