package sift

import (
	"sync/atomic"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// recentWrites are the keys of the last writes, by their sequence numbers, which have
// no gap. The leader of the commit group keeps them while there are transactions that
// may write, and looks there for writes to what a transaction has read which came
// after it had looked itself. So the time for which a transaction holds others up
// depends on what was written in that time, not on how much it has read.
type recentWrites struct {
	valid    bool // it holds the writes before the next one
	old, now keyRun

	bytes atomic.Int64 // the memory that they take
}

// keyRun are the keys of writes with consecutive sequence numbers.
type keyRun struct {
	first  uint64 // the sequence number of the first
	hashes []uint64
	ends   []uint32 // where each key ends in keys
	keys   []byte
}

const (
	// A new run begins with a group when the last one has this many bytes of keys.
	keyRunBytes = 1 << 20
	keyRunKeys  = 1 << 16
	// maxCheckedBytes is how large the batches before a transaction in one group may
	// be: what it is checked against is bounded.
	maxCheckedBytes = 1 << 20
	// keptRunBytes is what a run may take while there is no transaction.
	keptRunBytes = 64 << 10
)

// begin says that groups are added from now on, the next one beginning with the
// sequence number next.
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

// stop forgets all.
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
	c := base.NewCursor(b.data[batchHeaderLen:])
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

// covers reports whether all writes after since are there.
func (w *recentWrites) covers(since uint64) bool { return w.valid && w.old.first <= since+1 }

// touch reports whether a write after since is one to what was read.
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

// writeChecked queues a transaction, whose reads have no newer entries up to since,
// and returns when it has been written or refused. again says that it has to look
// for newer entries once more. With force the leader does that.
func (c *committer) writeChecked(t *Tx, since uint64, force bool) (again bool, err error) {
	r := commitPool.Get().(*commit)
	r.tx, r.since, r.force, r.refused = t, since, force, nil
	err = c.enqueue(r, &t.batch, !t.noSync)
	r.tx, r.refused = nil, nil
	commitPool.Put(r)
	return err == errCheckAgain, err
}

// admit returns those of a group that may be written: all but transactions whose reads
// were written to, by those before them in the group as well.
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
			c.recent.stop() // no transaction comes after it in the group
		} else if c.recent.valid {
			c.recent.add(r.batch, c.db.secret)
		}
		passed = append(passed, r)
	}
	c.recent.count()
	c.passed = passed
	return passed
}

// refuse returns why a transaction may not be written, or nil.
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
