package serve

import (
	"github.com/siftdb/sift"
)

// writes is what commands changed that the store has not been told of, of one client
// or of all that an event loop found ready at once, and the memory for telling it.
// It is used by one goroutine.
type writes struct {
	srv  *Server
	kept int   // bytes of each kind that are kept from one use to the next
	held bool  // world is held for reading, until the replies can go out
	err  error // a write failed, and with it what some replies acknowledge

	// Plain SETs that wait to be written, and their keys.
	pending     sift.Batch
	pendKeys    []byte
	pendEnds    []int
	pendStripes uint64
	group       uint64 // counts commitPending

	touched  []*filter // changed since the last flush
	flushes  uint64
	needSync bool // something was put since the last sync
	batch    sift.Batch
	garbage  []uint64
	keyBuf   []byte
	valBuf   []byte
}

// newWrites returns an empty collector, which keeps up to so many bytes of memory.
func (s *Server) newWrites(kept int) *writes { return &writes{srv: s, kept: kept} }

// commit writes what was collected. World is held. After an error nothing is
// written any more.
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
	c.keyBuf = c.srv.headKey(c.keyBuf[:0], key)
	c.valBuf = append(append(c.valBuf[:0], byte(kindString)), value...)
	c.pending.Put(c.keyBuf, c.valBuf)
	c.pendKeys = append(c.pendKeys, key...)
	c.pendEnds = append(c.pendEnds, len(c.pendKeys))
	c.pendStripes |= 1 << c.srv.stripeOf(key)
	c.pendedIn = c.group + 1
}

// touch notes that a filter, which is locked, has changed.
func (w *writes) touch(f *filter) {
	if f.toucher != w || f.touchedIn != w.flushes+1 {
		f.toucher, f.touchedIn = w, w.flushes+1
		w.touched = append(w.touched, f)
	}
}

// flushTouched writes what was changed in filters.
func (w *writes) flushTouched() error {
	if len(w.touched) == 0 {
		return nil
	}
	w.flushes++
	for _, f := range w.touched {
		f.mu.Lock()
		// Another client may have written this one's changes along with its own,
		// so it takes a sync even if nothing is left.
		w.needSync = true
		var err error
		w.valBuf, err = w.srv.flushFilter(f, &w.batch, w.valBuf)
		f.mu.Unlock()
		if err != nil {
			return err
		}
	}
	clear(w.touched)
	w.touched = w.touched[:0]
	if cap(w.valBuf) > w.kept {
		w.valBuf = nil
	}
	return nil
}

// commitPending writes the collected SETs. World is held.
func (w *writes) commitPending() error {
	if len(w.pendEnds) == 0 {
		return nil
	}
	w.lock(w.pendStripes)
	w.batch.Reset() // forget adds to it
	from := 0
	for _, end := range w.pendEnds {
		key := w.pendKeys[from:end]
		if st := w.srv.stripe(key); len(st.filters) > 0 {
			w.forget(st, key)
		}
		from = end
	}
	w.err = w.srv.put(&w.pending)
	if w.err == nil && w.batch.Len() > 0 {
		w.err = w.srv.put(&w.batch)
	}
	w.unlock(w.pendStripes)
	w.needSync = true
	w.collectGarbage()
	if w.pending.Size() > w.kept {
		w.pending, w.pendKeys, w.pendEnds = sift.Batch{}, nil, nil
	}
	w.pending.Reset()
	w.pendKeys, w.pendEnds, w.pendStripes = w.pendKeys[:0], w.pendEnds[:0], 0
	w.group++
	return w.err
}

// lock locks stripes, given as bits, in their order.
func (w *writes) lock(set uint64) {
	for i := range w.srv.stripes {
		if set&(1<<i) != 0 {
			w.srv.stripes[i].mu.Lock()
		}
	}
}

func (w *writes) unlock(set uint64) {
	for i := range w.srv.stripes {
		if set&(1<<i) != 0 {
			w.srv.stripes[i].mu.Unlock()
		}
	}
}

// locked calls fn with the stripes of keys locked and the batch empty, and
// applies the batch if fn returns nil.
func (w *writes) locked(fn func() error, keys ...[]byte) error {
	var set uint64
	for _, key := range keys {
		set |= 1 << w.srv.stripeOf(key)
	}
	w.lock(set)
	defer w.unlock(set)
	w.batch.Reset()
	if err := fn(); err != nil {
		return err
	}
	return w.apply()
}

// apply writes the batch.
func (w *writes) apply() error {
	if w.batch.Len() == 0 {
		return nil
	}
	w.needSync = true
	err := w.srv.put(&w.batch)
	w.collectGarbage()
	return err
}

// collectGarbage hands on the filters whose deletion has been written. What does
// not fit is found at the next start.
func (w *writes) collectGarbage() {
	for _, id := range w.garbage {
		select {
		case w.srv.garbage <- id:
		default:
		}
	}
	w.garbage = w.garbage[:0]
}

// setHead adds to the batch what sets a key. The key's stripe is locked.
func (w *writes) setHead(key []byte, h head) {
	w.keyBuf = w.srv.headKey(w.keyBuf[:0], key)
	w.valBuf = appendHead(w.valBuf[:0], h)
	w.batch.Put(w.keyBuf, w.valBuf)
	if h.expiry != 0 {
		w.batch.Put(w.srv.expiryKey(nil, h.expiry, key), nil)
	}
}

// setString sets a key to a string, whatever it held. The stripe is locked.
func (w *writes) setString(key, value []byte, expiry int64) {
	w.forget(w.srv.stripe(key), key)
	w.setHead(key, head{kindString, expiry, value})
}

// remove deletes a key. The stripe is locked.
func (w *writes) remove(key []byte) {
	w.forget(w.srv.stripe(key), key)
	w.keyBuf = w.srv.headKey(w.keyBuf[:0], key)
	w.batch.Delete(w.keyBuf)
}
