package serve

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/siftdb/sift"
)

const (
	sweepEvery = time.Second
	// sweepBatch is how many keys the sweeper removes at most in one write. Their stripes are
	// locked meanwhile.
	sweepBatch = 64
	// removeBatch is how many entries the collector removes at most in one write.
	removeBatch = 256
	// removeBytes bounds the keys of what the sweeper or the collector removes in one write, unless
	// that is one entry: a write that removes many long keys might be larger than the store
	// accepts.
	removeBytes = 256 << 10
	// collectPause is how long after an error the collector looks for old entries again. It is
	// doubled after each further error, up to maxCollectPause: damage does not go away.
	collectPause, maxCollectPause = time.Minute, time.Hour
)

// sweeper removes expired keys. Reads ignore an expired key even before it is removed.
func (s *Server) sweeper() {
	c := &client{srv: s, writes: s.newWrites(keptBytes)}
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		s.keyCounts.dropOld(s)
		if err := s.sweepDue(c); err != nil {
			s.cfg.Logger.Warn("removing expired keys failed", "err", err)
		}
	}
}

// sweepDue removes the keys that have expired, and determines when the next one is due. Until then
// it does not read the index: a read would make the store sort its newest entries.
func (s *Server) sweepDue(c *client) (err error) {
	if s.expiring.next.Load() > s.nowMs() {
		return nil
	}
	s.sweeps.Add(1)
	s.expiring.next.Store(never)
	for c.db = range numDatabases {
		err = errors.Join(err, s.sweepDatabase(c))
		next, nextErr := s.nextDue(c.gen())
		err = errors.Join(err, nextErr)
		s.expiring.due(next)
	}
	if err != nil {
		s.expiring.due(0)
		return err
	}
	if s.expiring.next.Load() == never && s.expiring.ones.Load() > fewBits {
		return s.forgetExpiring()
	}
	return nil
}

// nextDue returns when the first entry of a database's expiry index is due.
func (s *Server) nextDue(gen uint32) (int64, error) {
	for e, err := range s.db.Scan(&sift.IterOptions{Prefix: appendSpace(nil, spaceExpiry, gen)}) {
		if err == nil && len(e.Key) < genLen+8 {
			err = errHead
		}
		if err != nil {
			return 0, err
		}
		return int64(binary.BigEndian.Uint64(e.Key[genLen:])), nil
	}
	return never, nil
}

// forgetExpiring empties the set of keys that may have an entry in the index, if the index is
// empty.
func (s *Server) forgetExpiring() error {
	s.world.Lock()
	defer s.world.Unlock()
	for _, gen := range s.generations() {
		if next, err := s.nextDue(gen); err != nil || next != never {
			return err
		}
	}
	s.expiring.clear()
	return nil
}

// sweepDatabase removes the expired keys of a database. It skips those that cannot be read.
func (s *Server) sweepDatabase(c *client) error {
	var damage error
	var last []byte
	var pause time.Duration
	for s.ctx.Err() == nil && !s.failed.Load() {
		begin := time.Now()
		due, more, err := s.findExpired(c.gen(), last)
		if err == nil {
			err = s.sweep(c, due, &damage)
		}
		if !more || err != nil {
			return errors.Join(err, damage)
		}
		last = due[len(due)-1]
		if pause += sweepPause(time.Since(begin), s.since(due[0])); pause < time.Millisecond {
			continue // a timer would take longer
		}
		select {
		case <-s.ctx.Done():
		case <-time.After(pause):
		}
		pause = 0
	}
	return damage
}

// since returns how long ago an entry of the expiry index was due.
func (s *Server) since(index []byte) time.Duration {
	return time.Duration(s.nowMs()-int64(binary.BigEndian.Uint64(index[genLen:]))) * time.Millisecond
}

// sweepPause returns how long the sweeper leaves the stripes to clients after a batch. took is how
// long the batch took, late how long ago its first key was due. The pause is twice took, so the
// sweeper takes a third of the time. It is shorter if the sweeper has fallen behind, because that
// was not enough to remove keys as fast as clients set them.
func sweepPause(took, late time.Duration) time.Duration {
	return time.Duration(min(2*float64(took)/max(1, late.Seconds()/sweepEvery.Seconds()), float64(sweepEvery)))
}

// findExpired returns entries of a database's expiry index that are due, in order: the first ones
// after last, as many as sweepBatch and removeBytes allow. If it returns more, there are others.
func (s *Server) findExpired(gen uint32, last []byte) (due [][]byte, more bool, err error) {
	lower := appendSpace(nil, spaceExpiry, gen)
	upper := binary.BigEndian.AppendUint64(slices.Clone(lower), uint64(s.nowMs()+1))
	if last != nil && bytes.HasPrefix(last, lower) {
		lower = append(last, 0)
	}
	size := 0
	for e, err := range s.db.Scan(&sift.IterOptions{LowerBound: lower, UpperBound: upper}) {
		if err != nil {
			return nil, false, err
		}
		if len(e.Key) < genLen+8 {
			return nil, false, errHead
		}
		if size += len(e.Key); len(due) == sweepBatch || len(due) > 0 && size > removeBytes {
			return due, true, nil
		}
		due = append(due, bytes.Clone(e.Key))
	}
	return due, false, nil
}

// sweep removes entries of the expiry index, and their keys if they have expired. It skips keys
// that cannot be read, and stores the first such error in damage.
func (s *Server) sweep(c *client, due [][]byte, damage *error) error {
	s.world.RLock()
	defer s.world.RUnlock()
	keys := make([][]byte, len(due))
	for i, index := range due {
		keys[i] = index[genLen+8:]
	}
	return c.locked(func() error {
		for i, index := range due {
			if [genLen]byte(index) != [genLen]byte(appendSpace(nil, spaceExpiry, c.gen())) {
				return nil // FLUSHDB or SWAPDB ran in between
			}
			if err := s.sweepKey(c, index, keys[i]); err != nil && *damage == nil {
				*damage = fmt.Errorf("key %q: %w", keys[i], err)
			}
		}
		return nil
	}, keys...)
}

// sweepKey adds to the batch the removal of an index entry that is due, and of its key if that has
// expired. The key's stripe is locked.
func (s *Server) sweepKey(c *client, index, key []byte) error {
	gone, early := false, false
	if err := c.view(key, func(v []byte) error {
		h, err := decodeHead(v)
		gone = err == nil && s.expired(h.expiry)
		early = !gone && h.expiry == int64(binary.BigEndian.Uint64(index[genLen:])) // the clock was set back
		return err
	}); err != nil || early {
		return err
	}
	c.batch.Delete(index)
	if gone {
		c.forget(&c.batch, s.stripe(key), key)
		c.keyBuf = c.headKey(c.keyBuf[:0], key)
		s.keyCounts.noteChange(c.keyBuf)
		c.batch.Delete(c.keyBuf)
		s.stats.expired.Add(1)
	}
	return nil
}

// collector removes entries that no longer belong to a key from the store: first those that an
// earlier run left behind, then those of each filter that is deleted. What it cannot remove, as
// while the disk is full, it looks for again after a while.
func (s *Server) collector() {
	err, pause := s.collectOld(), s.collectPause
	var again <-chan time.Time // nil: there was no error
	for {
		if err != nil {
			s.cfg.Logger.Warn("removing old entries failed", "err", err)
			if again == nil && !s.failed.Load() {
				again = time.After(pause)
				pause = min(2*pause, maxCollectPause)
			}
		}
		select {
		case <-s.ctx.Done():
			return
		case id := <-s.garbage:
			err = s.collect(id)
		case <-again:
			if again, err = nil, s.collectOld(); err == nil {
				pause = s.collectPause
			}
		}
	}
}

// lookForOld makes the collector look for entries that no longer belong to a key.
func (s *Server) lookForOld() {
	s.oldLeft.Store(true) // before: if garbage is full, one of its ids has yet to be received
	select {
	case s.garbage <- 0:
	default:
	}
}

// collect removes the entries of a filter, unless id is 0. If ids did not fit in garbage, it then
// looks for all old entries.
func (s *Server) collect(id uint64) (err error) {
	if id != 0 {
		err = s.removeRange(binary.BigEndian.AppendUint64([]byte{spaceFilter}, id),
			binary.BigEndian.AppendUint64([]byte{spaceFilter}, id+1))
	}
	if s.oldLeft.Swap(false) {
		err = errors.Join(err, s.collectOld())
	}
	return err
}

// collectOld removes the entries of old generations, and filters without a name.
func (s *Server) collectOld() error {
	s.world.RLock()
	var gens []uint32
	for i := range s.gens {
		gens = append(gens, s.gens[i].Load())
	}
	s.world.RUnlock()
	slices.Sort(gens)
	for _, space := range []byte{spaceHead, spaceExpiry, spaceName} {
		from := []byte{space}
		for _, gen := range gens { // only generations before the last have old entries
			if err := s.removeOld(from, appendSpace(nil, space, gen)); err != nil {
				return err
			}
			from = appendSpace(nil, space, gen+1)
		}
	}
	for id := uint64(0); s.ctx.Err() == nil; id++ {
		it, err := s.db.NewIter(&sift.IterOptions{Prefix: []byte{spaceFilter}})
		if err != nil {
			return err
		}
		found := it.SeekGE(binary.BigEndian.AppendUint64([]byte{spaceFilter}, id))
		if found {
			id = binary.BigEndian.Uint64(append(append([]byte(nil), it.Key()[1:]...), make([]byte, 8)...))
		}
		if err := it.Close(); err != nil || !found {
			return err
		}
		// A filter is named in the batch that creates it, so one without a name is dead, and its
		// id is not reused.
		named, err := s.isNamed(id)
		if err != nil {
			return err
		}
		if !named {
			if err := s.removeRange(binary.BigEndian.AppendUint64([]byte{spaceFilter}, id),
				binary.BigEndian.AppendUint64([]byte{spaceFilter}, id+1)); err != nil {
				return err
			}
		}
	}
	return nil
}

// isNamed reports whether a filter belongs to a key. It reads a snapshot, because MOVE may move the
// filter to a database that was already checked.
func (s *Server) isNamed(id uint64) (named bool, err error) {
	s.world.RLock()
	defer s.world.RUnlock()
	now := s.db.Snapshot()
	defer now.Close()
	for i := range s.gens {
		if named, err = now.Has(nameKey(s.gens[i].Load(), id)); named || err != nil {
			break
		}
	}
	return named, err
}

// minDrop is the size on disk from which old entries are dropped together with their tables.
const minDrop = 4 << 20

// removeOld is removeRange, except that it drops whole tables if the range is large. It does not do
// so in a group, to which a server writes only batches.
func (s *Server) removeOld(from, to []byte) error {
	size, err := s.db.ApproximateSize(from, to)
	if err != nil || size < minDrop || s.cfg.Group != nil {
		return errors.Join(err, s.removeRange(from, to))
	}
	if s.failed.Load() {
		return errReadOnly
	}
	if b := s.keyCounts.base.Load(); b != nil {
		s.keyCounts.drop(b) // its snapshot would keep the tables
	}
	if err := s.db.DeleteRange(s.ctx, from, to); s.ctx.Err() == nil {
		return err
	}
	return nil
}

// removeRange deletes the store's keys in [from, to).
func (s *Server) removeRange(from, to []byte) error {
	for more := true; more && s.ctx.Err() == nil; {
		more = false
		var b sift.Batch
		for e, err := range s.db.Scan(&sift.IterOptions{LowerBound: from, UpperBound: to, DontFillCache: true}) {
			if err != nil {
				return err
			}
			if b.Len() == removeBatch || b.Len() > 0 && b.Size()+len(e.Key) > removeBytes {
				from, more = bytes.Clone(e.Key), true
				break
			}
			b.Delete(e.Key)
		}
		if b.Len() == 0 {
			return nil
		}
		if err := s.put(&b); err != nil {
			return err
		}
	}
	return nil
}
