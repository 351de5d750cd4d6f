package sift

import (
	"bytes"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/memtable"
)

// readState is all that a read looks at, as it was at one moment. It is
// immutable; a write to the tree's shape makes a new one. A reader that loaded
// it inside the database's epoch may use it until it leaves the epoch; one that
// stays longer, an iterator, takes a reference on the version first.
type readState struct {
	mem     *memtable.Memtable
	imms    []*memtable.Memtable // full and waiting to be flushed, newest first
	version *manifest.Version
}

// get returns the newest value of the key with a sequence number of at most
// seq. The value aliases memory that is never changed: a memtable's arena or a
// block. found is false if there is no such entry or it is a deletion.
func (s *readState) get(key filter.Key, seq uint64, c *readStripe) (value []byte, found bool, err error) {
	var asked uint
	value, found, err = s.search(key, seq, &asked, c)
	if asked != 0 {
		c.asked[asked].Add(1)
	}
	return value, found, err
}

// search is get; it sets the bits of the levels whose filters it asked.
func (s *readState) search(key filter.Key, seq uint64, asked *uint, c *readStripe) (value []byte, found bool, err error) {
	if v, kind, ok := getFromMemtable(s.mem, key, seq); ok {
		return v, kind == base.KindSet, nil
	}
	for _, m := range s.imms {
		if v, kind, ok := getFromMemtable(m, key, seq); ok {
			return v, kind == base.KindSet, nil
		}
	}
	for _, meta := range s.version.Levels[0] {
		if !withinTable(meta, key.Bytes) {
			continue
		}
		v, kind, ok, err := getFromTable(meta, 0, key, seq, asked, c)
		if err != nil || ok {
			return v, ok && kind == base.KindSet, err
		}
	}
	for level := 1; level < manifest.NumLevels; level++ {
		tables := s.version.Levels[level]
		if len(tables) == 0 {
			continue
		}
		// One table, but for databases in which LevelDB has split the versions
		// of one key over two neighbours.
		for i := s.version.FindTable(level, key.Bytes); i < len(tables); i++ {
			if bytes.Compare(key.Bytes, base.UserKey(tables[i].Smallest)) < 0 {
				break
			}
			v, kind, ok, err := getFromTable(tables[i], level, key, seq, asked, c)
			if err != nil || ok {
				return v, ok && kind == base.KindSet, err
			}
			if !bytes.Equal(key.Bytes, base.UserKey(tables[i].Largest)) {
				break
			}
		}
	}
	return nil, false, nil
}

func withinTable(meta *manifest.TableMeta, userKey []byte) bool {
	return bytes.Compare(userKey, base.UserKey(meta.Smallest)) >= 0 &&
		bytes.Compare(userKey, base.UserKey(meta.Largest)) <= 0
}

// getFromTable asks the table's filter and then, on a maybe, its blocks.
func getFromTable(meta *manifest.TableMeta, level int, key filter.Key, seq uint64, asked *uint, c *readStripe) (value []byte, kind base.Kind, ok bool, err error) {
	t := meta.Handle.(*table)
	if t.err != nil {
		return nil, 0, false, t.err
	}
	f := t.reader.Filter()
	if f != nil {
		if bit := uint(1) << level; *asked&bit == 0 {
			*asked |= bit
		} else {
			c.askedMore.Add(1)
		}
		if !f.MayContain(key) {
			return nil, 0, false, nil
		}
	}
	value, kind, _, ok, err = t.reader.Get(key.Bytes, seq)
	switch {
	case f == nil:
		c.unfiltered[level].Add(1)
	case ok:
		c.truePositive[level].Add(1)
	default:
		c.falsePositive[level].Add(1)
	}
	return value, kind, ok, err
}

func getFromMemtable(m *memtable.Memtable, key filter.Key, seq uint64) (value []byte, kind base.Kind, ok bool) {
	if !m.MayContain(key.Hash) {
		return nil, 0, false
	}
	value, kind, _, ok = m.Get(key.Bytes, seq)
	return value, kind, ok
}
