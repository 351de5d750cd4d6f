package serve

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/redisbloom"
)

// Filters are kept in memory. Before replies are sent, the changes of all commands that were
// executed together are written to the store, as one redo entry per filter, or as several if they
// are large. When a filter's redo entries are as large as the filter, a checkpoint in the
// background writes the pages that have changed and removes the entries.

const (
	// A checkpoint is due when the redo entries are as large as the filter, within these bounds.
	// Adds change pages at random, so a checkpoint writes nearly all of them. If it were due
	// earlier, checkpoints would be most of the cost of adding; if later, restarts would be
	// slow, since they replay some 30 MiB per second.
	minRedoBytes = 1 << 20
	maxRedoBytes = 128 << 20
	// muchRedo is the size from which changes are written at once, instead of together with those
	// of other commands. In a group, where a write takes longer, it is groupRedo.
	muchRedo  = 32 << 10
	groupRedo = 256 << 10
	// filterOverhead and linkOverhead are roughly the bytes that a filter and each of its links
	// take in addition to their bits and the key.
	filterOverhead = 768
	linkOverhead   = 256
	// redoDeletes is how many redo entries are removed in one write.
	redoDeletes = 1024
	// largeFilter is the size from which allocating the memory may be slow.
	largeFilter = 1 << 20
	// checkpointPages is how many pages are copied while the filter is locked.
	checkpointPages = 64
)

// filter is a Bloom or cuckoo filter. Exactly one of bloom and cuckoo is set, unless it is damaged.
type filter struct {
	id     uint64
	kind   kind
	expiry atomic.Int64
	due    atomic.Bool // waits for a checkpoint
	slow   atomic.Bool // mu is held for a long time

	mu     sync.RWMutex
	name   string // the store's key of its head
	bloom  *redisbloom.Bloom
	cuckoo *redisbloom.Cuckoo
	damage error  // why it could not be loaded; bloom and cuckoo are nil then
	dead   bool   // deleted: the key must be looked up again
	lsn    uint64 // of the next redo entry
	logged int    // bytes of redo entries since the header
	oldest uint64 // lsn of the first redo entry in the store; the checkpointer's

	// The writes that touched it last, and one more than their number of flushes by then.
	toucher   *writes
	touchedIn uint64
	seen      observation
	// counters for the status page
	probes, positives atomic.Uint64
}

// observation is the last observation of a filter's false positive rate, and its number of items
// then.
type observation struct {
	sync.Mutex
	rate  float64
	items uint64
	at    time.Time
}

// parts is implemented by both kinds of filters.
type parts interface {
	Header() []byte
	Bytes() uint64
	Links() int
	GrowBytes() uint64
	Contains(item []byte) bool
	TakeRedo([]byte) []byte
	RedoBytes() int
	Replay([]byte, uint64) error
	TakeDirty(link, page int, fn func(link, page int, data []byte) bool) bool
	SetPage(link, page int, data []byte) error
	ExpectedFPR() float64
}

func (f *filter) parts() parts {
	if f.kind == kindBloom {
		return f.bloom
	}
	return f.cuckoo
}

// memory returns how much of Config.FilterBytes the filter takes. Its lock is held.
func (f *filter) memory() uint64 {
	n := uint64(len(f.name)) + filterOverhead
	if f.damage == nil {
		n += f.parts().Bytes() + linkOverhead*uint64(f.parts().Links())
	}
	return n
}

// header returns the value that the store keeps under "h".
func (f *filter) header() []byte {
	return append(binary.BigEndian.AppendUint64(nil, f.lsn), f.parts().Header()...)
}

// filterAt returns the filter at a key, nil if there is none. One of st's locks is held.
func (w *writes) filterAt(st *stripe, key []byte) *filter {
	if len(st.filters) == 0 {
		return nil
	}
	w.keyBuf = w.headKey(w.keyBuf[:0], key)
	return st.filters[string(w.keyBuf)]
}

// find returns the filter at a key, nil if there is none.
func (w *writes) find(key []byte) *filter {
	st := w.srv.stripe(key)
	st.names.RLock()
	f := w.filterAt(st, key)
	st.names.RUnlock()
	if f == nil {
		return nil
	}
	if w.srv.expiredNow(f.expiry.Load()) {
		return nil
	}
	return f
}

// isAt reports whether a filter, which has been locked since find returned it, is still at that
// key: it may have been deleted or renamed.
func (w *writes) isAt(f *filter) bool { return !f.dead && f.name == string(w.keyBuf) }

// Errors whose text is sent to the client.
var (
	errWrongType = errors.New("WRONGTYPE Operation against a key holding the wrong kind of value")
	errNotFound  = errors.New("ERR not found")
	errExists    = errors.New("ERR item exists")
	errOOM       = errors.New("OOM command not allowed when used memory > 'maxmemory'.")
	errReplyOOM  = errors.New("OOM no memory for the reply: other clients' requests and replies take it, or the reply is too large")
	errBusy      = errors.New("ERR the filter is busy") // never sent: the command is executed again
	errReadOnly  = errors.New("MISCONF the store failed and takes no more writes; the server's log says why")
)

// read returns the filter at a key with its lock held for reading. It returns errNotFound if there
// is none, and errWrongType if the key holds something else.
func (s *Server) read(c *client, key []byte, k kind) (*filter, error) {
	for {
		f := c.find(key)
		if f == nil {
			if got, _, err := c.kindOf(key); err != nil {
				return nil, err
			} else if got == kindString {
				return nil, errWrongType
			}
			return nil, errNotFound
		}
		if f.damage != nil {
			return nil, f.damage
		}
		if f.kind != k {
			return nil, errWrongType
		}
		if c.mustHandOver(f) {
			return nil, errBusy
		}
		f.mu.RLock()
		if c.isAt(f) {
			c.sees(f)
			return f, nil
		}
		f.mu.RUnlock()
	}
}

// mustHandOver reports whether an event loop must hand the command over to another goroutine,
// because the filter may be locked for a long time.
func (c *client) mustHandOver(f *filter) bool {
	c.handOver = c.handOver || f.slow.Load() && c.onLoop()
	return c.handOver
}

// keepsLong marks a command as heavy until end is called, if the filter, which is locked, is large:
// the command may keep it locked for a long time.
func (c *client) keepsLong(f *filter) (end func()) {
	if f.parts().Bytes() < largeFilter {
		return func() {}
	}
	c.srv.heavy.Add(1)
	return func() { c.srv.heavy.Add(-1) }
}

// willGrow reports whether an event loop must hand the command over to another goroutine, because
// the filter, which is locked, may soon take much more memory.
func (c *client) willGrow(f *filter) bool {
	if f.kind != kindBloom || f.bloom.Room() > shortArgs || f.growth() < largeFilter || !c.onLoop() {
		return false
	}
	c.handOver = true
	return true
}

// growth is roughly how much memory a filter, which is locked, takes when it grows.
func (f *filter) growth() uint64 {
	if f.kind == kindCuckoo {
		return f.cuckoo.Bytes() * max(1, f.cuckoo.Expansion())
	}
	n, _ := f.bloom.Expansion()
	return f.bloom.Bytes() * uint64(n)
}

// sees is called when replies will show the contents of a filter, which is locked. With
// FsyncAlways, what other clients have changed in it is written before the replies are sent.
func (c *client) sees(f *filter) {
	if Fsync(c.srv.fsync.Load()) != FsyncAlways || f.parts().RedoBytes() == 0 || c.srv.failed.Load() {
		return
	}
	c.wrote = true
	if n := len(c.touched); n == 0 || c.touched[n-1] != f {
		c.touched = append(c.touched, f)
	}
}

// write returns the filter at a key with its lock held for writing. If there is none, make creates
// it; with a nil make, write returns errNotFound.
func (s *Server) write(c *client, key []byte, k kind, make func(f *filter, room uint64) error) (*filter, error) {
	for {
		f := c.find(key)
		if f == nil {
			if make == nil {
				if got, _, err := c.kindOf(key); err != nil {
					return nil, err
				} else if got == kindString {
					return nil, errWrongType
				}
				return nil, errNotFound
			}
			if err := s.create(c, key, k, make); err != nil && err != errExists {
				return nil, err
			}
			continue
		}
		if f.damage != nil {
			return nil, f.damage
		}
		if f.kind != k {
			return nil, errWrongType
		}
		if c.mustHandOver(f) {
			return nil, errBusy
		}
		f.mu.Lock()
		if c.willGrow(f) {
			f.mu.Unlock()
			return nil, errBusy
		}
		if c.isAt(f) {
			c.touch(f)
			return f, nil
		}
		f.mu.Unlock()
	}
}

// endWrite unlocks a filter that was changed. If much has changed, it writes the changes at once,
// while they are in the CPU's caches and before they take much memory.
func (c *client) endWrite(f *filter) {
	much := muchRedo
	if c.srv.cfg.Group != nil && c.overlay == nil {
		much = groupRedo
	}
	c.drain(f, much)
	f.mu.Unlock()
}

// drain writes what has changed in a filter, which is locked, if that takes at least n bytes. In a
// transaction, which is one write, it adds the changes to the batch, whose size is bounded.
func (c *client) drain(f *filter, n int) {
	switch {
	case f.parts().RedoBytes() < n:
	case c.overlay != nil:
		c.valBuf = c.srv.takeRedo(f, &c.batch, c.valBuf)
	case c.err == nil:
		c.resetBatch()
		c.valBuf, c.err = c.srv.flushFilter(f, &c.batch, c.valBuf)
	}
}

// create creates a filter at a key. It returns errExists or errWrongType if the key holds
// something.
func (s *Server) create(c *client, key []byte, k kind, make func(f *filter, room uint64) error) error {
	return s.createAs(c, key, k, 0, false, make)
}

// createAs is create with an expiry, 0 for none. If replace is set, it replaces what the key holds.
func (s *Server) createAs(c *client, key []byte, k kind, expiry int64, replace bool, make func(f *filter, room uint64) error) error {
	st := s.stripe(key)
	st.lock()
	err := s.vacant(c, st, key, k)
	st.unlock()
	if err != nil && !replace {
		return err
	}
	f := &filter{kind: k, name: string(c.headKey(nil, key))}
	if err := s.makeFilter(c, f, make); err != nil {
		return err
	}
	st.lock()
	defer st.unlock()
	if err := s.vacant(c, st, key, k); err != nil && !replace { // another client was faster
		s.filterBytes.Add(-int64(f.memory()))
		return err
	}
	f.name = string(c.headKey(nil, key))
	f.id = s.nextID.Add(1)
	c.begin()
	if !c.unindex(key) {
		s.filterBytes.Add(-int64(f.memory()))
		return c.batchErr
	}
	c.forget(&c.batch, st, key)
	c.setHead(key, head{kind: k, expiry: expiry, payload: binary.BigEndian.AppendUint64(nil, f.id)})
	c.batch.Put(nameKey(c.gen(), f.id), key)
	c.batch.Put(filterKey(f.id, partHeader), f.header())
	f.expiry.Store(expiry)
	f.mu.Lock() // a checkpoint must wait until the filter is stored
	defer f.mu.Unlock()
	c.valBuf = s.takeRedo(f, &c.batch, c.valBuf)
	if err := c.apply(); err != nil {
		s.filterBytes.Add(-int64(f.memory()))
		return err
	}
	st.filters[f.name] = f
	return nil
}

// vacant returns errExists if a key holds a filter of kind k, and errWrongType if it holds
// something else. st is locked.
func (s *Server) vacant(c *client, st *stripe, key []byte, k kind) error {
	if f := c.filterAt(st, key); f != nil && !s.expired(f.expiry.Load()) {
		if f.damage != nil {
			return f.damage
		}
		if f.kind != k {
			return errWrongType
		}
		return errExists
	}
	if got, _, err := c.kindOf(key); err != nil {
		return err
	} else if got == kindString {
		return errWrongType
	}
	return nil
}

// makeFilter calls make, and takes what the filter needs from the memory for filters. If that is
// much, no other client waits while it is allocated: except in a transaction and when CLIENT PAUSE
// waits for the command, no lock is held that others need, and an event loop hands the command over
// to another goroutine.
func (s *Server) makeFilter(c *client, f *filter, make func(f *filter, room uint64) error) error {
	large := false
	err := s.account(int64(len(f.name)+filterOverhead+linkOverhead), func(room uint64) (uint64, error) {
		err := make(f, min(room, largeFilter))
		if err != nil {
			large = room > largeFilter && errors.Is(err, redisbloom.ErrTooLarge)
			return 0, err
		}
		return f.memory(), nil
	})
	switch {
	case !large:
		return err
	case c.onLoop():
		c.handOver = true
		return err
	}
	c.yield(func() { err = s.makeLarge(f, make) })
	return err
}

// makeLarge creates one large filter at a time, so that no two rely on the same free memory.
func (s *Server) makeLarge(f *filter, make func(f *filter, room uint64) error) error {
	s.makeMu.Lock()
	defer s.makeMu.Unlock()
	room := s.cfg.FilterBytes - s.filterBytes.Load() - int64(len(f.name)+filterOverhead+linkOverhead)
	if room <= 0 {
		return errOOM
	}
	if err := make(f, uint64(room)); errors.Is(err, redisbloom.ErrTooLarge) {
		return errOOM
	} else if err != nil {
		return err
	}
	return s.takeFilterBytes(int64(f.memory())) // others may have grown meanwhile
}

// takeFilterBytes takes n bytes of the memory for filters, or gives them back if n is negative.
func (s *Server) takeFilterBytes(n int64) error {
	if n > 0 {
		s.growMu.Lock() // account relies on the free memory that it has found
		defer s.growMu.Unlock()
	}
	if !take(&s.filterBytes, n, s.cfg.FilterBytes) {
		return errOOM
	}
	return nil
}

// account calls fn with the memory that is left for filters, minus beside, the bytes that the
// filter takes in addition to its bits. It then counts the bytes that fn returns as taken.
func (s *Server) account(beside int64, fn func(room uint64) (uint64, error)) error {
	s.growMu.Lock()
	defer s.growMu.Unlock()
	room := s.cfg.FilterBytes - s.filterBytes.Load() - beside
	if room <= 0 {
		return errOOM
	}
	n, err := fn(uint64(room))
	s.filterBytes.Add(int64(n))
	if errors.Is(err, redisbloom.ErrTooLarge) {
		return errOOM
	}
	return err
}

// grow calls add, which may make a locked filter grow: first with no memory to grow, and if that is
// not enough, with as much as the filter needs. Other filters do not wait while it is allocated.
func (c *client) grow(f *filter, add func(room uint64) error) error {
	err := add(0)
	if !errors.Is(err, redisbloom.ErrTooLarge) {
		return err
	}
	if f.kind == kindCuckoo && f.growth() >= largeFilter && c.onLoop() { // willGrow cannot predict it
		c.handOver = true
		return errBusy
	}
	room := f.parts().GrowBytes()
	if room == 0 {
		return errOOM
	}
	taken := int64(room + linkOverhead)
	if err := c.srv.takeFilterBytes(taken); err != nil {
		return err
	}
	f.slow.Store(true)
	defer f.slow.Store(false)
	before := int64(f.memory())
	err = add(room)
	c.srv.filterBytes.Add(int64(f.memory()) - before - taken)
	if errors.Is(err, redisbloom.ErrTooLarge) {
		return errOOM
	}
	return err
}

// shrunk accounts for a filter that may have released memory.
func (s *Server) shrunk(f *filter, before uint64) {
	s.filterBytes.Add(int64(f.memory()) - int64(before))
}

// forget removes the filter at a key, if there is one, from memory, and adds its removal from the
// store to a batch. st is locked.
func (w *writes) forget(b *sift.Batch, st *stripe, key []byte) {
	f := w.filterAt(st, key)
	if f == nil {
		return
	}
	f.mu.Lock()
	f.dead = true
	bytes := f.memory()
	f.mu.Unlock()
	delete(st.filters, f.name)
	w.srv.filterBytes.Add(-int64(bytes))
	b.Delete(nameKey(w.gen(), f.id))
	w.garbage = append(w.garbage, f.id)
}

// flushFilter writes a filter's changes as one redo entry. Its lock is held, so entries reach the
// store in the order of the changes. After a failed write it returns an error even if nothing is
// left to write: the failed write of another client may have included this client's changes.
func (s *Server) flushFilter(f *filter, b *sift.Batch, buf []byte) ([]byte, error) {
	b.Reset()
	buf = s.takeRedo(f, b, buf)
	if b.Len() > 0 || b.Err() != nil {
		return buf, s.put(b)
	}
	if s.failed.Load() {
		return buf, s.failure()
	}
	return buf, nil
}

// takeRedo adds a filter's changes to a batch, as one redo entry.
func (s *Server) takeRedo(f *filter, b *sift.Batch, buf []byte) []byte {
	p := f.parts()
	if f.dead || p.RedoBytes() == 0 {
		return buf
	}
	buf = p.TakeRedo(buf[:0])
	b.Put(redoKey(f.id, f.lsn), buf)
	f.lsn++
	f.logged += len(buf)
	if f.logged > int(max(s.minRedo, min(p.Bytes(), maxRedoBytes))) && f.due.CompareAndSwap(false, true) {
		select {
		case s.checkpoints <- f:
		default:
			f.due.Store(false) // the next flush tries again
		}
	}
	return buf
}

// lockFilter locks a filter for the checkpointer. It holds world, so no transaction is in progress:
// the changes of a transaction must not be in the store before it ends.
func (s *Server) lockFilter(f *filter) {
	s.world.RLock()
	f.mu.Lock()
}

func (s *Server) unlockFilter(f *filter) {
	f.mu.Unlock()
	s.world.RUnlock()
}

// checkpoint writes the pages of a filter that have changed, then a header, and removes the redo
// entries that these replace. It goes over the pages once, while the filter keeps changing: the
// header describes the state at the start of the checkpoint, and replaying the redo entries since
// then gives the right state even if a page is newer than the header.
func (s *Server) checkpoint(f *filter) error {
	defer f.due.Store(false)
	var b sift.Batch
	s.lockFilter(f)
	buf, err := s.flushFilter(f, &b, nil)
	start, logged, header := f.lsn, f.logged, f.header()
	s.unlockFilter(f)
	if err != nil {
		return err
	}
	link, page := 0, 0
	for done := false; !done; {
		s.lockFilter(f)
		if f.dead {
			s.unlockFilter(f)
			s.collectAgain(f)
			return nil
		}
		// The redo entry for a page's changes must be stored before the page is.
		if buf, err = s.flushFilter(f, &b, buf); err != nil {
			s.unlockFilter(f)
			return err
		}
		b.Reset()
		left := checkpointPages
		done = f.parts().TakeDirty(link, page, func(l, p int, data []byte) bool {
			b.Put(pageKey(f.id, l, p), data)
			link, page = l, p+1
			left--
			return left > 0
		})
		s.unlockFilter(f)
		// Only this goroutine writes pages, so they may be written unlocked.
		if err := s.put(&b); err != nil {
			return err
		}
	}
	b.Reset()
	b.Put(filterKey(f.id, partHeader), header)
	f.mu.Lock()
	if f.dead {
		f.mu.Unlock()
		s.collectAgain(f)
		return nil
	}
	if err = s.put(&b); err == nil {
		f.logged -= logged
	}
	f.mu.Unlock()
	for ; err == nil && f.oldest < start; err = s.put(&b) {
		b.Reset()
		for ; f.oldest < start && b.Len() < redoDeletes; f.oldest++ {
			b.Delete(redoKey(f.id, f.oldest))
		}
	}
	return err
}

// collectAgain makes the collector remove the entries of a deleted filter again: it may have done
// so before the checkpointer wrote the last pages. Once world and the stripe are locked, the
// deletion is in the store.
func (s *Server) collectAgain(f *filter) {
	s.world.RLock()
	defer s.world.RUnlock()
	st := s.stripe([]byte(f.name[genLen:]))
	st.mu.Lock()
	defer st.mu.Unlock()
	select {
	case s.garbage <- f.id:
	default:
		s.lookForOld()
	}
}
