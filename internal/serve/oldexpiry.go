package serve

// largePending is the size from which collected SETs count as a large MSET, whose stripes are
// locked only for the write itself. Old entries of its keys in the expiry index have no effect once
// the keys have changed, so they are looked up before the write and removed after it, some at a
// time. If another client changes a key in between, or after a crash, an old entry may remain; the
// sweeper removes it when it is due.
const largePending = 2 * pendBytes

// oldExpiry is the expiry of a key before it is overwritten.
type oldExpiry struct {
	db     int
	key    []byte // in pendKeys
	expiry int64
}

// findOld returns the expiries of the collected keys that have one. It leaves out keys that cannot
// be read; their entries are left to the sweeper.
func (w *writes) findOld() (old []oldExpiry) {
	selected, from := w.db, 0
	defer func() { w.db = selected }()
	for _, p := range w.pended {
		key := w.pendKeys[from+genLen : p.end]
		from = p.end
		if !w.srv.expiring.has(p.hash) {
			continue
		}
		w.db = p.db
		_ = w.view(key, func(v []byte) error {
			if h, err := decodeHead(v); err == nil && h.expiry != 0 {
				old = append(old, oldExpiry{p.db, key, h.expiry})
			}
			return nil
		})
	}
	return old
}

// removeOld removes the old entries of keys from the expiry index, unless a key has the same expiry
// again.
func (w *writes) removeOld(old []oldExpiry) error {
	selected := w.db
	defer func() { w.db = selected }()
	for len(old) > 0 {
		part := old[:min(len(old), partArgs)]
		old = old[len(part):]
		keys := make([][]byte, len(part))
		for i, o := range part {
			keys[i] = o.key
		}
		err := w.locked(func() error {
			for _, o := range part {
				w.db = o.db
				w.dropOld(o)
			}
			return nil
		}, keys...)
		if err != nil {
			return err
		}
	}
	return nil
}

// dropOld adds the removal of an old entry to the batch. If its key cannot be read, the entry is
// left to the sweeper. The key's stripe is locked.
func (w *writes) dropOld(o oldExpiry) {
	again := false
	err := w.view(o.key, func(v []byte) error {
		h, err := decodeHead(v)
		again = h.expiry == o.expiry
		return err
	})
	if err == nil && !again {
		w.batch.Delete(w.expiryKey(nil, o.expiry, o.key))
	}
}
