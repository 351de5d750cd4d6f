// Package gap records gaps: key ranges that hold no live key, so that iterators need not walk over
// the same tombstones again.
//
// A gap is only an optimization: dropping one costs time. But iterators trust gaps, so a wrong one
// would hide keys. A gap [From, To) since a View means that no reader with that View or a later one
// finds a key in it, whatever memtables and tables it reads. It does not depend on where entries
// are stored, so it stays valid after flushes and compactions. Only a key that is set in it ends
// it.
//
// Two rules guarantee that. A writer calls Cut for each key that it sets, after the entry is in
// the memtable and before its sequence number becomes visible. And an iterator, whose walk takes
// time, watches the range: from Watch to Done every Cut shortens it, and the walk itself finds the
// keys that were set before Watch.
package gap

import (
	"bytes"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

// View determines what a reader sees: its sequence number, and how many times tables had been
// dropped from the state that it reads. Dropping tables removes keys without a sequence number.
type View struct{ Seq, Drops uint64 }

// includes reports whether v is the view o or a later one.
func (v View) includes(o View) bool { return v.Seq >= o.Seq && v.Drops >= o.Drops }

// Gap is a range of user keys that holds no live key. It is immutable.
type Gap struct {
	From   []byte // inclusive; empty: from the first key
	To     []byte // exclusive; nil: to the end of all keys
	Since  View   // readers with an earlier view must not use the gap
	Weight int    // about how many tombstones iterators skip
}

// before reports whether the whole gap lies before the key.
func (g *Gap) before(key []byte) bool { return g.To != nil && bytes.Compare(g.To, key) <= 0 }

// size returns the memory of the gap in bytes.
func (g *Gap) size() int { return gapOverhead + len(g.From) + len(g.To) }

// gapOverhead is the memory of a Gap besides its keys, in bytes.
const gapOverhead = 96

// minWeight is the minimum weight of the parts of a cut gap: a seek costs about as much as walking
// over that many tombstones.
const minWeight = 16

// maxShare limits the size of a single gap to 1/maxShare of the Set's maximum.
const maxShare = 4

// Set is a bounded set of gaps that do not overlap. The nil Set is always empty; Cuts, Grow and
// Watch must not be called on it. All methods are safe for concurrent use.
type Set struct {
	maxBytes int

	// active is the number of gaps and watches: writers have nothing to do while it is 0.
	active atomic.Int64
	list   atomic.Pointer[[]*Gap] // sorted by From; replaced as a whole; nil: no gaps

	cuts atomic.Uint64 // number of calls of Cut and Clear while active was not 0

	mu      sync.Mutex // guards the fields below, and changes of those above
	bytes   int        // total size of the gaps
	watches []*Watch
}

// NewSet returns a set that takes at most about maxBytes of memory, or nil if each gap takes more.
func NewSet(maxBytes int) *Set {
	if maxBytes < gapOverhead {
		return nil
	}
	return &Set{maxBytes: maxBytes}
}

// Gaps returns the current gaps in ascending order. The result must not be modified.
func (s *Set) Gaps() []*Gap {
	if s == nil {
		return nil
	}
	if l := s.list.Load(); l != nil {
		return *l
	}
	return nil
}

// Cuts returns a number that changes with each Cut and Clear while there are gaps or watches.
func (s *Set) Cuts() uint64 { return s.cuts.Load() }

// Grow extends a gap to a later key, if the gap is still in the set and nothing has been cut since
// Cuts returned cuts. weight is the number of tombstones between the end of the gap and the key.
// REQUIRES: between them, a reader with view v finds no live key, and no key that it does not see
// yet had been Cut before Cuts was called.
func (s *Set) Grow(g *Gap, to []byte, v View, weight int, cuts uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cuts.Load() != cuts || !slices.Contains(s.Gaps(), g) {
		return
	}
	s.add(&Gap{From: g.To, To: bytes.Clone(to), Since: v, Weight: g.Weight + weight})
}

// find returns the index of the first gap that ends after the key.
func find(gaps []*Gap, key []byte) int {
	return sort.Search(len(gaps), func(i int) bool { return !gaps[i].before(key) })
}

// Next returns the first of the gaps that a reader with view v may use and that ends after the key:
// it holds the key or lies after it. It returns nil if there is none.
func Next(gaps []*Gap, key []byte, v View) *Gap {
	for i := find(gaps, key); i < len(gaps); i++ {
		if v.includes(gaps[i].Since) {
			return gaps[i]
		}
	}
	return nil
}

// Prev returns the last of the gaps that a reader with view v may use and that begins before the
// key: it reaches the key or lies before it. It returns nil if there is none. A nil key is the end
// of all keys.
func Prev(gaps []*Gap, key []byte, v View) *Gap {
	i := len(gaps)
	if key != nil {
		i = sort.Search(len(gaps), func(i int) bool { return bytes.Compare(gaps[i].From, key) >= 0 })
	}
	for i--; i >= 0; i-- {
		if v.includes(gaps[i].Since) {
			return gaps[i]
		}
	}
	return nil
}

// Holds reports whether the key lies in the gap.
func (g *Gap) Holds(key []byte) bool { return bytes.Compare(g.From, key) <= 0 && !g.before(key) }

// ReachesTo reports whether the gap extends at least to the key; a nil key is the end of all keys.
// REQUIRES: the gap begins before the key.
func (g *Gap) ReachesTo(key []byte) bool {
	return g.To == nil || key != nil && bytes.Compare(key, g.To) <= 0
}

// Active reports whether there is anything for Cut to do.
func (s *Set) Active() bool { return s != nil && s.active.Load() != 0 }

// Cut removes a key from the gaps and the watched ranges, because the key has been set.
func (s *Set) Cut(key []byte) {
	if !s.Active() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts.Add(1)
	for _, w := range s.watches {
		w.cut(key)
	}
	gaps := s.Gaps()
	i := find(gaps, key)
	if i == len(gaps) || !gaps[i].Holds(key) {
		return
	}
	g := gaps[i]
	var parts []*Gap
	if g.Weight/2 >= minWeight && gapOverhead+len(key) <= s.maxBytes/maxShare {
		at := append([]byte{}, key...)
		after := append(at[:len(at):len(at)], 0)
		first := bytes.Equal(g.From, at)
		if !first {
			parts = append(parts, &Gap{From: g.From, To: at, Since: g.Since, Weight: g.Weight / 2})
		}
		if g.To == nil || bytes.Compare(after, g.To) < 0 {
			parts = append(parts, &Gap{From: after, To: g.To, Since: g.Since, Weight: g.Weight / 2})
		}
		if len(parts) == 1 {
			parts[0].Weight = g.Weight
		}
	}
	s.replace(gaps, i, i+1, parts...)
	s.evict()
}

// Worth reports whether a new gap with the given weight is worth recording: always until the set is
// three quarters full, and then if its weight is more than twice that of the lightest gap.
func (s *Set) Worth(weight int) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	full := s.bytes > s.maxBytes/4*3
	s.mu.Unlock()
	gaps := s.Gaps()
	if !full || len(gaps) == 0 {
		return true
	}
	return weight > 2*gaps[lightest(gaps)].Weight
}

// lightest returns the index of the gap with the smallest weight.
func lightest(gaps []*Gap) int {
	least := 0
	for i, g := range gaps {
		if g.Weight < gaps[least].Weight {
			least = i
		}
	}
	return least
}

// Watch is a range over which an iterator is walking, shortened by the keys that have been set in
// it since.
type Watch struct {
	set      *Set
	view     View
	from, to []byte
	backward bool
}

// Watch begins a watch on [from, to), over which a reader with view v is about to walk, forward
// from from or, if backward is set, backward from to; a nil to is the end of all keys. It copies
// the keys. Done or Abandon ends the watch. REQUIRES: the walk begins afterwards, and finds every
// entry that was inserted before it begins.
func (s *Set) Watch(from, to []byte, v View, backward bool) *Watch {
	w := &Watch{set: s, view: v, from: bytes.Clone(from), backward: backward}
	if to != nil {
		w.to = append([]byte{}, to...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = append(s.watches, w)
	s.active.Add(1)
	return w
}

// cut shortens the range to the part that the walk passes before it reaches the key. REQUIRES: the
// Set's lock is held, or no other goroutine knows the watch.
func (w *Watch) cut(key []byte) {
	if bytes.Compare(key, w.from) < 0 || w.to != nil && bytes.Compare(key, w.to) >= 0 {
		return
	}
	if w.backward {
		w.from = append(append(w.from[:0:0], key...), 0)
	} else {
		w.to = append([]byte{}, key...)
	}
}

// Seen is cut for the walk itself, which calls it for keys on its way that were set after its
// sequence number.
func (w *Watch) Seen(key []byte) {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	w.cut(key)
}

// Abandon ends the watch without recording a gap.
func (w *Watch) Abandon() {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	w.end()
}

// end removes the watch from the set. REQUIRES: the set's lock.
func (w *Watch) end() {
	s := w.set
	i := slices.Index(s.watches, w)
	s.watches = slices.Delete(s.watches, i, i+1)
	s.active.Add(-1)
}

// Done ends the watch and records a gap: the walk has found no live key before the live key at, in
// its direction, or before the end of the range if at is nil. weight is the number of tombstones on
// the way, including those in known gaps.
func (w *Watch) Done(at []byte, weight int) {
	s := w.set
	s.mu.Lock()
	defer s.mu.Unlock()
	defer w.end() // after adding the gap, so that the set is active throughout: otherwise a writer would not cut
	if at != nil {
		if w.backward && bytes.Compare(at, w.from) >= 0 {
			w.from = append(append(w.from[:0:0], at...), 0)
		} else if !w.backward {
			w.cut(at)
		}
	}
	if w.to != nil && bytes.Compare(w.from, w.to) >= 0 {
		return
	}
	s.add(&Gap{From: w.from, To: w.to, Since: w.view, Weight: weight})
}

// add adds a gap, merged with those that it overlaps or touches, unless the result is too large.
// REQUIRES: mu.
func (s *Set) add(g *Gap) {
	gaps := s.Gaps()
	// i is the first gap that does not end before g begins, j the first one that begins after g
	// ends.
	i := sort.Search(len(gaps), func(i int) bool { return gaps[i].To == nil || bytes.Compare(gaps[i].To, g.From) >= 0 })
	j := i
	for j < len(gaps) && (g.To == nil || bytes.Compare(gaps[j].From, g.To) <= 0) {
		j++
	}
	for _, h := range gaps[i:j] {
		if bytes.Compare(h.From, g.From) < 0 {
			g.From = h.From
		}
		if h.To == nil || g.To != nil && bytes.Compare(h.To, g.To) > 0 {
			g.To = h.To
		}
		g.Since = View{max(g.Since.Seq, h.Since.Seq), max(g.Since.Drops, h.Since.Drops)}
		g.Weight = max(g.Weight, h.Weight)
	}
	if g.size() > s.maxBytes/maxShare {
		return
	}
	s.replace(gaps, i, j, g)
	s.evict()
}

// Clear removes all gaps and empties all watched ranges. A writer that makes many keys visible at
// once calls it instead of Cut for each key.
func (s *Set) Clear() {
	if !s.Active() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts.Add(1)
	for _, w := range s.watches {
		w.to = append([]byte{}, w.from...) // an empty range
	}
	gaps := s.Gaps()
	s.replace(gaps, 0, len(gaps))
}

// replace replaces gaps[i:j] by others. REQUIRES: mu.
func (s *Set) replace(gaps []*Gap, i, j int, others ...*Gap) {
	for _, g := range gaps[i:j] {
		s.bytes -= g.size()
	}
	for _, g := range others {
		s.bytes += g.size()
	}
	s.active.Add(int64(len(others) - (j - i)))
	next := make([]*Gap, 0, len(gaps)+len(others)-(j-i))
	next = append(append(append(next, gaps[:i]...), others...), gaps[j:]...)
	if len(next) == 0 {
		s.list.Store(nil)
		return
	}
	s.list.Store(&next)
}

// evict removes the lightest gaps until the others fit. REQUIRES: mu.
func (s *Set) evict() {
	for s.bytes > s.maxBytes {
		gaps := s.Gaps()
		i := lightest(gaps)
		s.replace(gaps, i, i+1)
	}
}
