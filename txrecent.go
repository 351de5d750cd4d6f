package sift

import (
	"sync/atomic"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/wal"
)

// recentWrites is a list of the keys of the latest writes, with consecutive sequence numbers.
// The leader of the commit group maintains it while there are transactions that may write, and
// searches it for conflicting writes since a transaction's own check. So the time for which a
// transaction delays other writers depends on the number of writes since then, not on how much
// the transaction has read.
type recentWrites struct {
	valid    bool   // there are no later writes than those in the list
	old, now keyRun // now follows old

	bytes atomic.Int64 // the memory of the list
}

// keyRun is a list of the keys of writes with consecutive sequence numbers.
type keyRun struct {
	first  uint64   // the sequence number of the first write
	hashes []uint64 // of the keys
	ends   []uint32 // where each key ends in keys
	keys   []byte   // the keys, one after another
}

const (
	// A group begins a new run once the current one has this many bytes of keys, or this many
	// keys.
	keyRunBytes = 1 << 20
	keyRunKeys  = 1 << 16
	// No transaction joins a group of more than maxCheckedBytes. That bounds the writes against
	// which the leader checks a transaction.
	maxCheckedBytes = 1 << 20
	// keptRunBytes is the maximum memory that is retained while there are no transactions.
	keptRunBytes = 64 << 10
)

// begin prepares for the keys of a group whose first sequence number is next.
func (w *recentWrites) begin(next uint64) {
	switch {
	case !w.valid:
		w.old.reset(next)
		w.now.reset(next)
		w.valid = true
	case len(w.now.keys) >= keyRunBytes || len(w.now.hashes) >= keyRunKeys:
		w.old, w.now = w.now, w.old
		w.now.reset(next)
	}
}

// stop drops all keys, and makes the list invalid.
func (w *recentWrites) stop() {
	if !w.valid {
		return
	}
	w.valid = false
	if w.old.size()+w.now.size() > keptRunBytes {
		w.old, w.now = keyRun{}, keyRun{}
		w.bytes.Store(0)
	}
}

// add adds the keys of a batch.
func (w *recentWrites) add(b *Batch, secret *filter.Secret) {
	if b.count == 0 {
		return
	}
	r := &w.now
	c := base.NewCursor(b.data[wal.BatchHeaderLen:])
	for c.Len() > 0 {
		kind := base.Kind(c.Uint8())
		key := c.LengthPrefixed()
		if kind == base.KindSet {
			c.LengthPrefixed()
		}
		r.hashes = append(r.hashes, lookupKey(secret, key).Hash)
		r.keys = append(r.keys, key...)
		r.ends = append(r.ends, uint32(len(r.keys)))
	}
}

// count updates bytes.
func (w *recentWrites) count() { w.bytes.Store(int64(w.old.size() + w.now.size())) }

// covers reports whether the list has all writes after the sequence number since.
func (w *recentWrites) covers(since uint64) bool { return w.valid && w.old.first <= since+1 }

// touch reports whether a write after since conflicts with a read set.
func (w *recentWrites) touch(s *readSet, since uint64) bool {
	return w.now.touch(s, since) || w.old.touch(s, since)
}

func (r *keyRun) touch(s *readSet, since uint64) bool {
	n := uint64(len(r.hashes))
	for i := max(since+1, r.first) - r.first; i < n; i++ {
		from := uint32(0)
		if i > 0 {
			from = r.ends[i-1]
		}
		if s.touches(r.hashes[i], r.keys[from:r.ends[i]]) {
			return true
		}
	}
	return false
}

func (r *keyRun) reset(first uint64) {
	r.first, r.hashes, r.ends, r.keys = first, r.hashes[:0], r.ends[:0], r.keys[:0]
}

func (r *keyRun) size() int { return 8*cap(r.hashes) + 4*cap(r.ends) + cap(r.keys) }

// writeChecked queues a transaction whose reads have not changed up to the sequence number
// since, and waits until it has been written or rejected. again reports that the transaction must
// check its reads again; if force is set, the leader does so instead.
func (c *committer) writeChecked(t *Tx, since uint64, force bool) (again bool, err error) {
	r := commitPool.Get().(*commit)
	r.tx, r.since, r.force, r.refused = t, since, force, nil
	err = c.enqueue(r, &t.batch, !t.noSync)
	r.tx, r.refused = nil, nil
	commitPool.Put(r)
	return err == errCheckAgain, err
}

// admit returns the commits of a group that may be written: all but transactions that conflict
// with earlier writes, which may be in the same group.
func (c *committer) admit(group []*commit) []*commit {
	if c.watchers.Load() == 0 {
		c.recent.stop()
		return group
	}
	c.recent.begin(c.lastSeq + 1)
	passed := c.passed[:0]
	for _, r := range group {
		if r.tx != nil {
			if r.refused = c.refuse(r); r.refused != nil {
				continue
			}
		}
		if len(r.batch.data) > maxGroupBytes {
			c.recent.stop() // no transaction follows in the group
		} else if c.recent.valid {
			c.recent.add(r.batch, c.db.secret)
		}
		passed = append(passed, r)
	}
	c.recent.count()
	c.passed = passed
	return passed
}

// refuse returns the reason why a transaction may not be written, or nil.
func (c *committer) refuse(r *commit) error {
	since := r.since
	if r.force && !c.recent.covers(since) {
		changed, err := r.tx.changed(since)
		if err != nil {
			return err
		} else if changed {
			return ErrConflict
		}
		if r.tx.expired.Load() {
			return r.tx.expiredErr()
		}
		since = c.lastSeq
	}
	switch {
	case !c.recent.covers(since):
		return errCheckAgain
	case c.recent.touch(&r.tx.reads, since):
		return ErrConflict
	}
	return nil
}
