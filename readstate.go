package sift

import (
	"bytes"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/memtable"
	"github.com/siftdb/sift/sstable"
)

// readState is all that a read looks at, as it was at one moment. It is
// immutable; a write to the tree's shape makes a new one. A reader that loaded
// it inside the database's epoch may use it until it leaves the epoch; one that
// stays longer, an iterator, takes a reference on the version first.
type readState struct {
	mem     *memtable.Memtable
	imms    []*memtable.Memtable // full and waiting to be flushed, newest first
	version *manifest.Version
	drops   uint64 // how many edits took tables away and brought none: keys went without a sequence number
	flushed uint64 // the memtables hold all entries with higher sequence numbers
}

// lookup is the search for one key.
type lookup struct {
	key     filter.Key
	keyed   bool   // the key's hash is that of the database's secret
	seq     uint64 // entries with higher sequence numbers do not count
	counts  *readStripe
	asked   uint           // bit i: a filter of level i has been asked
	sampled bool           // tables that do not hold the key note it
	buf     sstable.Buffer // what a block is decoded into that is not cached
}

// sampleEvery is one in how many lookups is sampled for the tables' own counts.
const sampleEvery = 16

// get returns the newest value of a key. The value aliases memory that does not
// change until buf is released: a memtable's arena, a block, or buf's own. found
// is false if there is no entry or it is a deletion. turn tells which lookups are
// sampled.
func (s *readState) get(secret *filter.Secret, key []byte, seq uint64, counts *readStripe, turn uint64) (value []byte, buf sstable.Buffer, found bool, err error) {
	var l lookup // field by field: it would wait for a struct that is copied
	l.key = lookupKey(secret, key)
	l.keyed = secret != nil
	l.seq = seq
	l.counts = counts
	l.sampled = turn%sampleEvery == 0
	value, found, err = s.search(&l)
	l.count()
	return value, l.buf, found, err
}

// count counts the lookup once it has ended.
func (l *lookup) count() { l.counts.asked[l.asked%(1<<manifest.NumLevels)].Add(1) }

// search is get without the counts of a whole lookup.
func (s *readState) search(l *lookup) (value []byte, found bool, err error) {
	if v, kind, ok := l.memtable(s.mem); ok {
		return v, kind == base.KindSet, nil
	}
	for _, m := range s.imms {
		if v, kind, ok := l.memtable(m); ok {
			return v, kind == base.KindSet, nil
		}
	}
	for _, meta := range s.version.Levels[0] {
		if !withinTable(meta, l.key.Bytes) {
			continue
		}
		v, kind, ok, err := l.table(meta, 0)
		if err != nil || ok {
			return v, ok && kind == base.KindSet, err
		}
	}
	for level := 1; level <= s.version.Deepest; level++ {
		tables := s.version.Levels[level]
		i, last := s.version.FindTable(level, l.key.Bytes)
		if i == len(tables) || i == 0 && before(l.key.Bytes, tables[0]) {
			continue
		}
		f, no := l.filter(tables[i], level)
		if no && !last {
			continue // as all but a few
		}
		v, kind, ok, err := l.level(tables[i:], f, no, level)
		if err != nil || ok {
			return v, ok && kind == base.KindSet, err
		}
	}
	return nil, false, nil
}

// level searches the first of tables, whose filter f has been asked, and if it ends with
// the key its neighbours.
func (l *lookup) level(tables []*manifest.TableMeta, f filter.Reader, no bool, level int) (value []byte, kind base.Kind, ok bool, err error) {
	if !no {
		value, kind, ok, err = l.maybe(tables[0], f, level)
	}
	if err != nil || ok || !endsWith(tables[0], l.key.Bytes) {
		return value, kind, ok, err
	}
	return l.neighbours(tables[1:], level)
}

// neighbours searches the tables of a level >= 1 that follow one which ends with the
// key: LevelDB can split the versions of one key over neighbours.
func (l *lookup) neighbours(tables []*manifest.TableMeta, level int) (value []byte, kind base.Kind, ok bool, err error) {
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

// endsWith reports whether the key is the table's last.
func endsWith(meta *manifest.TableMeta, userKey []byte) bool {
	return bytes.Equal(userKey, base.UserKey(meta.Largest))
}

// before reports whether the table begins after the key.
func before(userKey []byte, meta *manifest.TableMeta) bool {
	return bytes.Compare(userKey, base.UserKey(meta.Smallest)) < 0
}

func withinTable(meta *manifest.TableMeta, userKey []byte) bool {
	return !before(userKey, meta) && bytes.Compare(userKey, base.UserKey(meta.Largest)) <= 0
}

// memtable searches a memtable.
func (l *lookup) memtable(m *memtable.Memtable) (value []byte, kind base.Kind, ok bool) {
	if !m.MayContain(l.key.Hash) {
		return nil, 0, false
	}
	value, kind, _, ok = m.Get(l.key.Bytes, l.seq)
	return value, kind, ok
}

// table asks a table's filter and then, on a positive, its blocks. The key is not after
// the table.
func (l *lookup) table(meta *manifest.TableMeta, level int) (value []byte, kind base.Kind, ok bool, err error) {
	f, no := l.filter(meta, level)
	if no {
		return nil, 0, false, nil
	}
	return l.maybe(meta, f, level)
}

// filter asks a table's filter, which it returns, nil if there is none. no is whether
// it says that the key is not there. The key is not after the table. A filter answers
// sooner than the first key that it is not before the table, and few keys lie between
// two tables, so that is looked at last.
func (l *lookup) filter(meta *manifest.TableMeta, level int) (f filter.Reader, no bool) {
	t := meta.Handle.(*table)
	r := t.reader.Load()
	if r == nil {
		return nil, false
	}
	if f = r.Filter(); f == nil {
		return nil, false
	}
	l.asks(level)
	if l.mayContain(f) {
		return f, false
	}
	if l.sampled && !before(l.key.Bytes, meta) {
		l.missed(t)
	}
	return f, true
}

// maybe looks into a table whose filter f has not said no.
func (l *lookup) maybe(meta *manifest.TableMeta, f filter.Reader, level int) (value []byte, kind base.Kind, ok bool, err error) {
	if before(l.key.Bytes, meta) {
		return nil, 0, false, nil
	}
	t := meta.Handle.(*table)
	r, err := t.load()
	if err != nil {
		return nil, 0, false, err
	}
	if f == nil {
		// The table may have been loaded just now.
		if f = r.Filter(); f != nil {
			l.asks(level)
			if !l.mayContain(f) {
				l.missed(t)
				return nil, 0, false, nil
			}
		}
	}
	return l.blocks(t, r, f, level, &l.buf)
}

// asks notes that a filter of the level is asked.
func (l *lookup) asks(level int) {
	if bit := uint(1) << level; l.asked&bit == 0 {
		l.asked |= bit
	} else {
		l.counts.askedMore.Add(1)
	}
}

// missed notes that the table does not hold the key.
func (l *lookup) missed(t *table) {
	if l.sampled {
		t.absent.Add(sampleEvery)
	}
}

// blocks looks for the key in the blocks of table t, which r reads; f is the filter that has said
// maybe, nil if there is none. The value is valid until buf is used again.
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
