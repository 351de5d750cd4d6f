package serve

import (
	"hash/maphash"
	"time"

	"github.com/siftdb/sift"
)

// writes collects the changes of commands until they are written to the store, for one client or
// for all clients in a round of an event loop. It also keeps the buffers for writing them. One
// goroutine at a time uses it.
type writes struct {
	srv  *Server
	kept int  // bounds each buffer that is kept from one use to the next
	db   int  // the database that is selected
	held bool // world is held for reading
	// clock is the time when the last command ended, if the next one had arrived by then, otherwise
	// 0.
	clock time.Duration
	err   error // of a write that failed, which some replies would acknowledge

	// Plain SETs that wait to be written, and their keys.
	pending     sift.Batch
	pendKeys    []byte // with the space and the generation before each
	pended      []pended
	pendStripes uint64
	group       uint64    // counts commitPending
	wake        chan bool // of the combiner; nil before its first use

	touched  []*filter // changed since the last flush
	flushes  uint64
	needSync bool // something was put since the last sync
	batch    sift.Batch
	batchErr error // something that the batch needs could not be read
	// The store's keys of the heads that the batch changes, one after the other, and where each
	// ends. They are noted even if no client watches a key yet: one that begins to do so before the
	// batch is written may still read the old state.
	changed     []byte
	changedEnds []int
	due         int64 // when the first key of the batch expires; never: none does
	garbage     []uint64
	keyBuf      []byte
	valBuf      []byte

	// overlay says where in the batch the heads are that a transaction has changed; the zero span
	// is for one that it has removed. While overlay is not nil, all changes stay in the batch.
	overlay      map[string]span
	overlayBytes int // of its keys
}

// span is a part of the batch's Dump.
type span struct{ from, to int }

// pended is one of the plain SETs.
type pended struct {
	end  int // of its key in pendKeys
	db   int
	hash uint64 // of the key
}

// newWrites returns an empty writes, which keeps buffers of up to kept bytes each.
func (s *Server) newWrites(kept int) *writes { return &writes{srv: s, kept: kept, due: never} }

// hold takes world for reading, once for all commands of a pipeline that have arrived: taking it
// for each would cost as much as a small command.
func (w *writes) hold() {
	if !w.held {
		w.srv.world.RLock()
		w.held = true
	}
}

func (w *writes) release() {
	if w.held {
		w.held = false
		w.srv.world.RUnlock()
	}
}

// commit writes the collected changes. World is held. After an error it writes nothing more.
func (w *writes) commit() error {
	if w.err == nil {
		w.commitPending()
	}
	if w.err == nil {
		w.err = w.flushTouched()
	}
	return w.err
}

// pend collects a plain SET.
func (c *client) pend(key, value []byte) {
	from := len(c.pendKeys)
	c.pendKeys = c.headKey(c.pendKeys, key)
	c.valBuf = append(append(c.valBuf[:0], byte(kindString)), value...)
	c.pending.Put(c.pendKeys[from:], c.valBuf)
	if len(value) > shortBytes {
		c.srv.noteSize(key, len(value))
	}
	hash := maphash.Bytes(c.srv.seed, key)
	c.pended = append(c.pended, pended{len(c.pendKeys), c.db, hash})
	c.pendStripes |= 1 << (hash % numStripes)
	c.pendedIn = c.group + 1
}

// commitPending writes the collected SETs in one batch, with the removals of filters and index
// entries that they replace. World is held.
func (w *writes) commitPending() error {
	switch {
	case len(w.pended) == 0:
		return nil
	case w.err != nil: // of an earlier write: nothing more is written
		w.forgetPending()
		return w.err
	case w.srv.cfg.Group != nil:
		w.srv.combiner.commit(w)
	default:
		w.writePending()
	}
	w.needSync = true
	return w.err
}

// writePending writes the collected SETs. There must be at least one, and no write has failed.
func (w *writes) writePending() {
	large := w.pending.Size() > largePending
	var old []oldExpiry
	if large {
		old = w.findOld()
	}
	for st := range w.srv.stripesOf(w.pendStripes) {
		st.mu.Lock()
	}
	named := uint64(0) // the stripes whose filters change
	selected := w.db
	from := 0
	for _, p := range w.pended {
		key := w.pendKeys[from+genLen : p.end]
		w.db = p.db
		if st := &w.srv.stripes[p.hash%numStripes]; w.filterAt(st, key) != nil {
			if bit := uint64(1) << (p.hash % numStripes); named&bit == 0 {
				named |= bit
				st.names.Lock() // readers wait until the change is in the store
			}
		}
		if !large && w.srv.expiring.has(p.hash) {
			// If the key cannot be read, its entry is left to the sweeper: an error here would
			// refuse the SETs of all clients of an event loop.
			_ = w.dropExpiry(&w.pending, key)
		}
		from = p.end
	}
	if named != 0 {
		from = 0
		for _, p := range w.pended {
			w.db = p.db
			w.forget(&w.pending, &w.srv.stripes[p.hash%numStripes], w.pendKeys[from+genLen:p.end])
			from = p.end
		}
	}
	w.db = selected
	w.notePending()
	w.err = w.srv.put(&w.pending)
	for st := range w.srv.stripesOf(named) {
		st.names.Unlock()
	}
	for st := range w.srv.stripesOf(w.pendStripes) {
		st.mu.Unlock()
	}
	if w.srv.watching.Load() > 0 {
		from = 0
		for _, p := range w.pended {
			w.srv.signal(w.pendKeys[from:p.end])
			from = p.end
		}
	}
	w.collectGarbage()
	if w.err == nil && len(old) > 0 {
		w.err = w.removeOld(old)
	}
	w.forgetPending()
}

// forgetPending drops the SETs that pend has collected.
func (w *writes) forgetPending() {
	if w.pending.Size() > w.kept {
		w.pending, w.pendKeys, w.pended = sift.Batch{}, nil, nil
	}
	w.dropLarge()
	w.pending.Reset()
	w.pendKeys, w.pended, w.pendStripes = w.pendKeys[:0], w.pended[:0], 0
	w.group++
}

// touch records that a filter, which is locked, has changed.
func (w *writes) touch(f *filter) {
	if f.toucher != w || f.touchedIn != w.flushes+1 {
		f.toucher, f.touchedIn = w, w.flushes+1
		w.touched = append(w.touched, f)
	}
	if w.srv.watching.Load() > 0 {
		w.srv.signal([]byte(f.name))
	}
}

// flushTouched writes what was changed in filters, or adds it to a transaction's batch.
func (w *writes) flushTouched() error {
	if len(w.touched) == 0 {
		return nil
	}
	w.flushes++
	for _, f := range w.touched {
		f.mu.Lock()
		if f.toucher == w {
			f.toucher = nil // w may not outlive its client
		}
		// Another client may have written this client's changes with its changes, so a sync is
		// needed even if nothing is left to write.
		w.needSync = true
		var err error
		if w.overlay != nil {
			w.valBuf = w.srv.takeRedo(f, &w.batch, w.valBuf)
		} else {
			w.resetBatch()
			w.valBuf, err = w.srv.flushFilter(f, &w.batch, w.valBuf)
		}
		f.mu.Unlock()
		if err != nil {
			return err
		}
	}
	clear(w.touched)
	w.touched = w.touched[:0]
	return nil
}

// locked calls fn with the stripes of keys locked and the batch empty (except in a transaction),
// and applies the batch if fn returns nil.
func (w *writes) locked(fn func() error, keys ...[]byte) error {
	var set uint64
	for _, key := range keys {
		set |= 1 << w.srv.stripeOf(key)
	}
	for st := range w.srv.stripesOf(set) {
		st.lock()
	}
	defer w.unlock(set)
	w.begin()
	if err := fn(); err != nil {
		return err
	}
	return w.apply()
}

func (w *writes) unlock(set uint64) {
	for st := range w.srv.stripesOf(set) {
		st.unlock()
	}
}

// begin empties the batch, except in a transaction.
func (w *writes) begin() {
	w.batchErr = nil
	if w.overlay == nil {
		w.resetBatch()
		w.due = never
		w.changed, w.changedEnds = w.changed[:0], w.changedEnds[:0]
	}
}

// apply writes the batch, except in a transaction.
func (w *writes) apply() error {
	if w.batchErr != nil {
		return w.batchErr
	}
	if w.batch.Len() == 0 || w.overlay != nil {
		return nil
	}
	w.needSync = true
	err := w.srv.put(&w.batch)
	w.srv.expiring.due(w.due)
	if w.srv.watching.Load() > 0 {
		from := 0
		for _, end := range w.changedEnds {
			w.srv.signal(w.changed[from:end])
			from = end
		}
	}
	w.changed, w.changedEnds = w.changed[:0], w.changedEnds[:0]
	w.collectGarbage()
	w.dropLarge()
	return err
}

// dropLarge drops memory that held large keys or values, or many of them.
func (w *writes) dropLarge() {
	if cap(w.changed)+8*cap(w.changedEnds) > w.kept {
		w.changed, w.changedEnds = nil, nil
	}
	if len(w.touched) == 0 && 8*cap(w.touched) > w.kept {
		w.touched = nil
	}
	if len(w.garbage) == 0 && 8*cap(w.garbage) > w.kept {
		w.garbage = nil
	}
	if cap(w.keyBuf) > w.kept {
		w.keyBuf = nil
	}
	if cap(w.valBuf) > w.kept {
		w.valBuf = nil
	}
	w.resetBatch()
}

// resetBatch empties the batch, and drops its memory if it was large.
func (w *writes) resetBatch() {
	if w.batch.Size() > w.kept {
		w.batch = sift.Batch{}
	} else {
		w.batch.Reset()
	}
}

// transact starts a transaction, which keeps all changes in one batch.
func (w *writes) transact() {
	w.begin()
	w.overlay, w.overlayBytes = map[string]span{}, 0
}

// applyAll ends a transaction: all changes are one write to the store.
func (w *writes) applyAll() error {
	err := w.flushTouched()
	changed := w.overlay
	for head := range changed {
		w.srv.keyCounts.noteChange([]byte(head))
	}
	w.overlay = nil
	w.batchErr = nil // of the last command, which has changed nothing
	if err == nil {
		err = w.apply()
	}
	if w.srv.watching.Load() > 0 {
		for head := range changed {
			w.srv.signal([]byte(head))
		}
	}
	w.dropLarge()
	if err != nil {
		w.err = err
	}
	return err
}

// collectGarbage passes to the collector the filters whose deletion has been written. The collector
// looks in the store for those that do not fit in its channel.
func (w *writes) collectGarbage() {
	for _, id := range w.garbage {
		select {
		case w.srv.garbage <- id:
		default:
			w.srv.lookForOld()
		}
	}
	w.garbage = w.garbage[:0]
}

// setHead adds a key's new head to the batch, after unindex. The key's stripe is locked.
func (w *writes) setHead(key []byte, h head) {
	if len(h.payload) > shortBytes {
		w.srv.noteSize(key, len(h.payload))
	}
	w.keyBuf = w.headKey(w.keyBuf[:0], key)
	w.valBuf = appendHead(w.valBuf[:0], h)
	w.batch.Put(w.keyBuf, w.valBuf)
	w.note(w.valBuf)
	if h.expiry != 0 {
		w.srv.expiring.add(maphash.Bytes(w.srv.seed, key))
		w.due = min(w.due, h.expiry)
		w.batch.Put(w.expiryKey(nil, h.expiry, key), nil)
	}
}

// unindex adds the removal of a key's entry in the expiry index to the batch. If the key's head
// cannot be read it returns false: then the key must not change, and apply returns the error.
func (w *writes) unindex(key []byte) bool {
	err := w.dropExpiry(&w.batch, key)
	if err != nil && w.batchErr == nil {
		w.batchErr = err
	}
	return err == nil
}

// note records that the head whose key is in keyBuf was just added to the batch: v, or its removal
// if v is nil.
func (w *writes) note(v []byte) {
	if w.overlay == nil {
		w.srv.keyCounts.noteChange(w.keyBuf)
		w.changed = append(w.changed, w.keyBuf...)
		w.changedEnds = append(w.changedEnds, len(w.changed))
		return
	}
	at := span{}
	if end := w.batch.Size(); v != nil && w.batch.Err() == nil {
		at = span{end - len(v), end}
	}
	if _, again := w.overlay[string(w.keyBuf)]; !again {
		w.overlayBytes += len(w.keyBuf)
	}
	w.overlay[string(w.keyBuf)] = at
}

// headAt returns a head of the overlay, nil if it was removed.
func (w *writes) headAt(at span) []byte {
	if at == (span{}) {
		return nil
	}
	return w.batch.Dump()[at.from:at.to:at.to]
}

// setString sets a key to a string, whatever it held. The stripe is locked.
func (w *writes) setString(key, value []byte, expiry int64) {
	if w.unindex(key) {
		w.forget(&w.batch, w.srv.stripe(key), key)
		w.setHead(key, head{kindString, expiry, value})
	}
}

// remove deletes a key. The stripe is locked.
func (w *writes) remove(key []byte) {
	if w.unindex(key) {
		w.forget(&w.batch, w.srv.stripe(key), key)
		w.removeHead(key)
	}
}

// removeHead adds the removal of a key's head to the batch, after unindex.
func (w *writes) removeHead(key []byte) {
	w.keyBuf = w.headKey(w.keyBuf[:0], key)
	w.batch.Delete(w.keyBuf)
	w.note(nil)
}
