package serve

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift"
)

// A plain SET does not check whether its key exists. With a lookup in the store for each SET, and
// all keys in memory, SETs took 1.55 times the CPU time in pipelines of 16 commands, and 1.7 times
// in pipelines of 100. If not all keys are in memory, a lookup also reads from disk. So no write
// counts keys.
//
// Instead the server keeps a snapshot with the numbers of its keys, and the names of the keys that
// writes may have changed since. A count looks these keys up in that snapshot and in a new one,
// which replaces it. When so many keys have changed that a scan is faster, names and snapshot are
// dropped, and the next count is a scan.

const (
	// changedShare bounds the changed keys to one in this many. Looking up one key twice takes
	// about as long as reading this many in a scan.
	changedShare = 16
	// changedKeys may always change. changedBytes bounds the memory for their names.
	changedKeys  = 1024
	changedBytes = 8 << 20
	// baseLifetime is how long a base may keep old entries from being dropped if no count is
	// requested.
	baseLifetime = 10 * time.Minute
	// INFO repeats the result of a scan for up to staleFactor times as long as the scan took.
	staleFactor = 100
)

// keyCount is the number of a database's keys, and of those that have an expiry.
type keyCount struct{ keys, expires int64 }

// keyCounts counts the keys of all databases.
type keyCounts struct {
	mu   sync.Mutex // held while counting; taken before world
	base atomic.Pointer[countBase]

	// The last result, without keys that had expired; how long the last scan took, and when it
	// ended. Guarded by mu.
	found   map[uint32]keyCount
	took    time.Duration
	scanned time.Time
	scans   atomic.Int64
}

// countBase is a state of the store whose keys are counted, or are being counted, and the keys that
// may have changed since.
type countBase struct {
	made time.Time

	mu      sync.Mutex
	snap    *sift.Snapshot      // nil if there were no keys
	dbs     map[uint32]keyCount // by generation, with expired keys; nil while they are being counted
	limit   int                 // of n
	changed []byte              // the store's key of each head, preceded by its length
	n       int                 // keys in changed
	dropped bool
}

// noteChange is called before a write that may change the head of a key. World is held until that
// write has ended.
func (k *keyCounts) noteChange(head []byte) {
	if b := k.base.Load(); b != nil {
		b.mu.Lock()
		b.note(head)
		full := b.full()
		b.mu.Unlock()
		if full {
			k.drop(b)
		}
	}
}

// notePending is noteChange for the plain SETs that a client or a loop has collected.
func (w *writes) notePending() {
	k := &w.srv.keyCounts
	b := k.base.Load()
	if b == nil {
		return
	}
	b.mu.Lock()
	from := 0
	for _, p := range w.pended {
		b.note(w.pendKeys[from:p.end])
		from = p.end
	}
	full := b.full()
	b.mu.Unlock()
	if full {
		k.drop(b)
	}
}

func (b *countBase) note(head []byte) {
	if !b.dropped {
		b.changed = append(binary.AppendUvarint(b.changed, uint64(len(head))), head...)
		b.n++
	}
}

func (b *countBase) full() bool { return b.n > b.limit || len(b.changed) > changedBytes }

// drop ends a base: the next count is a scan, unless there is a newer base by then.
func (k *keyCounts) drop(b *countBase) {
	k.base.CompareAndSwap(b, nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropped, b.changed, b.dbs = true, nil, nil
	if b.snap != nil {
		b.snap.Close()
		b.snap = nil
	}
}

// dropOld drops a base that is older than baseLifetime, unless nothing was written since.
func (k *keyCounts) dropOld(s *Server) {
	if b := k.base.Load(); b != nil && time.Since(b.made) > baseLifetime {
		b.mu.Lock()
		old := b.snap != nil && b.snap.Sequence() != s.db.Metrics().LastSequence
		b.mu.Unlock()
		if old {
			k.drop(b)
		}
	}
}

// count returns the numbers of keys that have not expired, by generation. alone means that the
// caller holds world exclusively, stale that the numbers may be old if a new count would be a scan.
func (k *keyCounts) count(s *Server, alone, stale bool) (map[uint32]keyCount, error) {
	if alone && !k.mu.TryLock() { // the goroutine that holds mu may be waiting for world
		now := s.db.Snapshot()
		defer now.Close()
		raw, err := scanHeads(now, s.generations())
		if err != nil {
			return nil, err
		}
		return s.withoutExpired(now, raw)
	}
	if !alone {
		k.mu.Lock()
	}
	defer k.mu.Unlock()
	if dbs := k.unchanged(); dbs != nil {
		return dbs, nil
	}
	if stale && k.isStaleEnough(s) {
		return k.found, nil
	}
	old, base, now, gens := k.cut(s, alone)
	defer now.Close()
	raw, err := old.resolve(now, gens)
	if old != nil {
		k.drop(old)
	}
	if err == nil && raw == nil {
		k.scans.Add(1)
		begin := time.Now()
		raw, err = scanHeads(now, gens)
		k.scanned = time.Now()
		k.took = k.scanned.Sub(begin)
	}
	if err == nil {
		base.counted(raw)
		k.found, err = s.withoutExpired(now, raw)
	}
	if err != nil {
		k.drop(base)
		k.found = nil
	}
	return k.found, err
}

// unchanged returns the numbers of the base if nothing can have changed them since, or nil.
func (k *keyCounts) unchanged() map[uint32]keyCount {
	b := k.base.Load()
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n > 0 || b.dropped {
		return nil
	}
	for _, n := range b.dbs {
		if n.expires > 0 {
			return nil
		}
	}
	return b.dbs
}

// isStaleEnough reports whether INFO repeats the last result: a count would be a scan, and little
// time has passed compared with the duration of the last scan. mu is held.
func (k *keyCounts) isStaleEnough(s *Server) bool {
	if k.found == nil || k.base.Load() != nil || time.Since(k.scanned) >= staleFactor*k.took {
		return false
	}
	for _, gen := range s.generations() {
		if _, ok := k.found[gen]; !ok {
			return false
		}
	}
	return true
}

// cut takes a snapshot at a moment without writes, and starts a new base there.
func (k *keyCounts) cut(s *Server, alone bool) (old, base *countBase, now *sift.Snapshot, gens []uint32) {
	if !alone {
		s.world.Lock()
		defer s.world.Unlock()
	}
	base = &countBase{made: time.Now(), snap: s.db.Snapshot(), limit: math.MaxInt}
	return k.base.Swap(base), base, s.db.Snapshot(), s.generations()
}

// generations returns the generation of each database.
func (s *Server) generations() (gens []uint32) {
	for i := range s.gens {
		gens = append(gens, s.gens[i].Load())
	}
	return gens
}

// counted stores the numbers of keys in a base.
func (b *countBase) counted(dbs map[uint32]keyCount) {
	total := int64(0)
	for _, n := range dbs {
		total += n.keys
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dropped {
		return
	}
	b.dbs = dbs
	b.limit = int(max(changedKeys, total/changedShare))
	if total == 0 { // deleted entries need not be kept
		b.snap.Close()
		b.snap = nil
	}
}

// resolve returns the numbers of keys in a snapshot that is newer than the base, or nil if that
// takes a scan.
func (b *countBase) resolve(now *sift.Snapshot, gens []uint32) (map[uint32]keyCount, error) {
	if b == nil {
		return nil, nil
	}
	b.mu.Lock() // writes do not change a base that was replaced, but drop may
	defer b.mu.Unlock()
	if b.dbs == nil {
		return nil, nil
	}
	dbs := map[uint32]keyCount{}
	for _, gen := range gens {
		dbs[gen] = b.dbs[gen] // a missing generation was empty
	}
	heads, err := b.changedHeads()
	if err != nil {
		return nil, err
	}
	for _, key := range heads {
		gen := binary.BigEndian.Uint32(key[1:])
		n, ok := dbs[gen]
		if !ok {
			continue
		}
		before, err := countHead(b.snap, key)
		if err != nil {
			return nil, err
		}
		after, err := countHead(now, key)
		if err != nil {
			return nil, err
		}
		dbs[gen] = keyCount{n.keys + after.keys - before.keys, n.expires + after.expires - before.expires}
	}
	return dbs, nil
}

// changedHeads returns the keys that have changed, sorted, each once.
func (b *countBase) changedHeads() ([][]byte, error) {
	heads := make([][]byte, 0, b.n)
	for rest := b.changed; len(rest) > 0; {
		n, size := binary.Uvarint(rest)
		if size <= 0 || n < genLen || n > uint64(len(rest)-size) {
			return nil, errors.New("serve: the list of changed keys is damaged")
		}
		heads = append(heads, rest[size:][:n])
		rest = rest[size+int(n):]
	}
	slices.SortFunc(heads, bytes.Compare)
	return slices.CompactFunc(heads, bytes.Equal), nil
}

// countHead counts the key of a head: one, or none if it is not in the snapshot. A nil snapshot has
// no keys.
func countHead(snap *sift.Snapshot, key []byte) (n keyCount, err error) {
	if snap == nil {
		return keyCount{}, nil
	}
	err = snap.View(key, func(v []byte) error {
		h, err := decodeHead(v)
		n = keyCount{1, count(h.expiry != 0)}
		return err
	})
	if errors.Is(err, sift.ErrNotFound) {
		return keyCount{}, nil
	}
	return n, err
}

// scanHeads counts the keys of generations by a scan.
func scanHeads(snap *sift.Snapshot, gens []uint32) (map[uint32]keyCount, error) {
	dbs := map[uint32]keyCount{}
	for _, gen := range gens {
		var n keyCount
		err := eachHead(snap, gen, func(h head) {
			n.keys++
			n.expires += count(h.expiry != 0)
		})
		if err != nil {
			return nil, err
		}
		dbs[gen] = n
	}
	return dbs, nil
}

func eachHead(snap *sift.Snapshot, gen uint32, fn func(h head)) error {
	for e, err := range snap.Scan(&sift.IterOptions{Prefix: appendSpace(nil, spaceHead, gen), DontFillCache: true}) {
		if err != nil {
			return err
		}
		h, err := decodeHead(e.Value)
		if err != nil {
			return err
		}
		fn(h)
	}
	return nil
}

// withoutExpired subtracts the keys that have expired but have not been removed.
func (s *Server) withoutExpired(snap *sift.Snapshot, raw map[uint32]keyCount) (map[uint32]keyCount, error) {
	dbs := maps.Clone(raw)
	for gen, n := range raw {
		if n.expires == 0 {
			continue
		}
		gone, err := s.countExpired(snap, gen, changedKeys+n.keys/changedShare)
		if err != nil {
			return nil, err
		}
		dbs[gen] = keyCount{n.keys - gone, n.expires - gone}
	}
	return dbs, nil
}

// countExpired counts the keys that have expired: by the expiry index, or by a scan of all keys if
// more than most entries of the index are due.
func (s *Server) countExpired(snap *sift.Snapshot, gen uint32, most int64) (gone int64, err error) {
	prefix := appendSpace(nil, spaceExpiry, gen)
	now := s.nowMs()
	upper := binary.BigEndian.AppendUint64(slices.Clone(prefix), uint64(now+1))
	seen := int64(0)
	for e, err := range snap.Scan(&sift.IterOptions{Prefix: prefix, UpperBound: upper}) {
		if err != nil {
			return 0, err
		}
		if len(e.Key) < len(prefix)+8 {
			return 0, errHead
		}
		if seen++; seen > most {
			gone = 0
			err := eachHead(snap, gen, func(h head) { gone += s.countGone(h, now) })
			return gone, err
		}
		expiry := int64(binary.BigEndian.Uint64(e.Key[len(prefix):]))
		err := snap.View(append(appendSpace(nil, spaceHead, gen), e.Key[len(prefix)+8:]...), func(v []byte) error {
			h, err := decodeHead(v)
			if err == nil && h.expiry == expiry {
				gone += s.countGone(h, now)
			}
			return err
		})
		if err != nil && !errors.Is(err, sift.ErrNotFound) {
			return 0, err
		}
	}
	return gone, nil
}

// countGone returns 1 if a key had expired at the time now, and so no longer counts, otherwise 0.
func (s *Server) countGone(h head, now int64) int64 {
	if h.expiry == 0 || h.expiry > now {
		return 0
	}
	s.sawExpired(h.expiry)
	return 1
}

// The numbers of keys are kept from one run to the next as a value under "m" "keys": its sequence
// number, and for each database in turn how many keys it had and how many of them had an expiry, 8
// bytes each. They are valid if this was the last write to the store.

// saveCounts makes the server's last write, which is synced: the numbers of keys, or an empty value
// under "m" "sync" if they are not known.
func (s *Server) saveCounts() error {
	k := &s.keyCounts
	k.mu.Lock()
	defer k.mu.Unlock()
	old, base, now, gens := k.cut(s, false)
	defer now.Close()
	defer k.drop(base)
	if old != nil {
		defer k.drop(old)
	}
	dbs, err := old.resolve(now, gens)
	if err != nil || dbs == nil {
		return s.db.Put(metaSync, nil, sift.Sync)
	}
	v := binary.BigEndian.AppendUint64(nil, now.Sequence()+1)
	for _, gen := range gens {
		v = binary.BigEndian.AppendUint64(v, uint64(dbs[gen].keys))
		v = binary.BigEndian.AppendUint64(v, uint64(dbs[gen].expires))
	}
	return s.db.Put(metaKeys, v, sift.Sync)
}

// readCounts starts from the numbers of keys that the last run saved, if they are valid.
func (s *Server) readCounts() error {
	if s.cfg.Group != nil {
		return nil
	}
	snap := s.db.Snapshot()
	v, err := snap.Get(metaKeys)
	if err != nil || len(v) != 8+16*numDatabases || binary.BigEndian.Uint64(v) != snap.Sequence() {
		snap.Close()
		if errors.Is(err, sift.ErrNotFound) {
			err = nil
		}
		return err
	}
	dbs := map[uint32]keyCount{}
	for i, gen := range s.generations() {
		n := v[8+16*i:]
		dbs[gen] = keyCount{int64(binary.BigEndian.Uint64(n)), int64(binary.BigEndian.Uint64(n[8:]))}
	}
	base := &countBase{made: time.Now(), snap: snap}
	base.counted(dbs)
	s.keyCounts.base.Store(base)
	return nil
}

// Repaired must be called after a database was repaired. The repair may have lost keys, or restored
// deleted ones, so Repaired removes the numbers of keys that a server has saved. If no server wrote
// the database, it does nothing.
func Repaired(db *sift.DB) error {
	format, err := db.Get(metaFormat)
	if errors.Is(err, sift.ErrNotFound) || err == nil && string(format) != formatVersion {
		return nil
	}
	if err != nil {
		return err
	}
	return db.Delete(metaKeys, sift.Sync)
}
