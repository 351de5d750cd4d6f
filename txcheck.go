package sift

import (
	"bytes"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/memtable"
	"github.com/siftdb/sift/sstable"
)

// maxRounds is the number of times that a transaction itself searches for newer entries. After
// that the leader of the commit group does, while other writers wait.
const maxRounds = 3

// commit checks and writes the transaction. REQUIRES: its read set is not lost, as is the case for
// every transaction that has written something.
func (t *Tx) commit() error {
	c := &t.db.commit
	if t.reads.empty() {
		return c.write(&t.batch, !t.noSync)
	}
	since := t.seq // up to this sequence number, nothing that the transaction read has changed
	for round := 0; ; round++ {
		if now := t.db.visible.Load(); now > since {
			if changed, err := t.changed(since); err != nil {
				return err
			} else if changed {
				return ErrConflict
			}
			since = now
		}
		if t.expired.Load() {
			return t.expiredErr()
		}
		again, err := c.writeChecked(t, since, round >= maxRounds)
		if !again {
			return err
		}
	}
}

// changed reports whether any key or range that the transaction has read has an entry with a
// sequence number above since. It searches all entries that are visible when it is called.
func (t *Tx) changed(since uint64) (bool, error) {
	d := t.db
	g := d.epoch.Enter()
	s := d.state.Load()
	if s == nil {
		g.Exit()
		return false, ErrClosed
	}
	// The check may take long: leave the epoch, and keep the tables by a reference instead.
	s.version.Ref()
	g.Exit()
	defer d.releaseVersion(s.version)
	if t.changedInMemory(s.mem, since) {
		return true, nil
	}
	for _, m := range s.imms {
		if t.changedInMemory(m, since) {
			return true, nil
		}
	}
	if since >= s.flushed {
		return false, nil
	}
	for _, metas := range s.version.Levels {
		for _, meta := range metas {
			if meta.Num < t.firstFile && meta.Handle.(*table).ingested <= t.seq {
				continue // the table has no entry after t.seq
			}
			if changed, err := t.changedInTable(meta, since); changed || err != nil {
				return changed, d.closedErr(err)
			}
		}
	}
	return false, nil
}

func (t *Tx) changedInMemory(m *memtable.Memtable, since uint64) bool {
	if m.Empty() {
		return false
	}
	for i := range t.reads.keys {
		k := &t.reads.keys[i]
		if !m.MayContain(k.hash) {
			continue
		}
		if _, _, seq, ok := m.Find(k.hash, t.reads.key(k), base.MaxSequence); ok && seq > since {
			return true
		}
	}
	for i := range t.reads.ranges {
		// A memtable's iterator does not fail.
		if changed, _ := t.reads.ranges[i].changed(m.NewIter(), since); changed {
			return true
		}
	}
	return false
}

func (t *Tx) changedInTable(meta *manifest.TableMeta, since uint64) (bool, error) {
	tab := meta.Handle.(*table)
	var buf sstable.Buffer
	defer buf.Release()
	for i := range t.reads.keys {
		k := &t.reads.keys[i]
		key := t.reads.key(k)
		if !withinTable(meta, key) {
			continue
		}
		r, err := tab.load()
		if err != nil {
			return false, err
		}
		l := lookup{key: lookupKey(t.db.secret, key), keyed: t.db.secret != nil}
		if f := r.Filter(); f != nil && !l.mayContain(f) {
			continue
		}
		if _, _, seq, ok, err := r.GetIn(&buf, key, base.MaxSequence); err != nil || ok && seq > since {
			return err == nil, err
		}
	}
	for i := range t.reads.ranges {
		r := &t.reads.ranges[i]
		if r.open && bytes.Compare(base.UserKey(meta.Largest), r.lower) < 0 || !r.open && !overlaps(meta, r.lower, r.upper) {
			continue
		}
		it, err := tab.iter(&sstable.IterOptions{DontFillCache: true})
		if err != nil {
			return false, err
		}
		changed, err := r.changed(it, since)
		if cerr := it.Close(); err == nil {
			err = cerr
		}
		if changed || err != nil {
			return changed, err
		}
	}
	return false, nil
}

// changed reports whether the iterator has an entry in the range that is newer than since.
func (r *keyRange) changed(it base.Iterator, since uint64) (bool, error) {
	at := base.AppendInternalKey(nil, r.lower, base.MaxSequence, base.KindSeek)
	for ok := it.SeekGE(at); ok; ok = it.Next() {
		if !r.open && bytes.Compare(base.UserKey(it.Key()), r.upper) >= 0 {
			return false, nil
		}
		if base.KeyTrailer(it.Key())>>8 > since {
			return true, nil
		}
	}
	return false, it.Err()
}
