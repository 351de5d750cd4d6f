// Package gap remembers ranges of keys in which nothing lives, so that iterators
// need not walk over the same tombstones again.
//
// A gap is advice: forgetting one costs time. But an iterator believes one, so none
// may be invented. A gap [From, To) since a View says that every reader that
// sees as much, or more, up to the present, finds no key in it, whatever
// memtables and tables it reads: it is about what is visible, not about where that is
// stored, so flushes and compactions change nothing. Only a key that is set ends it.
//
// Two things make that true. A writer calls Cut for each key that it sets, after the
// entry is in the memtable and before its sequence number becomes visible. And an
// iterator, whose walk takes time, watches what it walks over: from Watch to Done
// every Cut is noted, and what was set before Watch the walk sees itself.
package gap

import (
	"bytes"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

// View is how much a reader sees: the sequence number that it looks at, and how many times
// tables had been dropped from what it reads, which takes keys away without a number.
type View struct{ Seq, Drops uint64 }

// includes reports whether the view is that of another, or a later one.
func (v View) includes(o View) bool { return v.Seq >= o.Seq && v.Drops >= o.Drops }

// Gap is a range of user keys in which nothing lives. It is immutable.
type Gap struct {
	From   []byte // the first key; empty: the first there is
	To     []byte // the first key after it; nil: there is none
	Since  View   // readers that see less must not use it
	Weight int    // about how many tombstones it spares
}

// before reports whether all of the gap lies before the key.
func (g *Gap) before(key []byte) bool { return g.To != nil && bytes.Compare(g.To, key) <= 0 }

// size is what the gap counts for against the Set's bytes.
func (g *Gap) size() int { return gapOverhead + len(g.From) + len(g.To) }

// gapOverhead is the memory of a Gap beside its keys.
const gapOverhead = 96

// minWeight is the least that a part of a gap that was cut must spare to be kept: a
// seek costs about as much.
const minWeight = 16

// maxShare is the share of a Set's bytes that one gap may take, one in so many.
const maxShare = 4

// Set is a bounded set of gaps that do not overlap. The nil Set is always empty.
// All methods are safe for concurrent use.
type Set struct {
	maxBytes int

	// active is the number of gaps and watches: writers have nothing to do while it is 0.
	active atomic.Int64
	list   atomic.Pointer[[]*Gap] // by From; replaced as a whole; nil: none

	cuts atomic.Uint64 // calls of Cut that had something to do, and of Clear

	mu      sync.Mutex
	bytes   int
	watches []*Watch
}

// NewSet returns a set that takes about maxBytes of memory at most, nil if that is
// too little for any gap.
func NewSet(maxBytes int) *Set {
	if maxBytes < gapOverhead {
		return nil
	}
	return &Set{maxBytes: maxBytes}
}

// Gaps returns the present gaps, ascending. It is not to be changed.
func (s *Set) Gaps() []*Gap {
	if s == nil {
		return nil
	}
	if l := s.list.Load(); l != nil {
		return *l
	}
	return nil
}

// Cuts returns a number that changes with each Cut and Clear while there are gaps.
func (s *Set) Cuts() uint64 { return s.cuts.Load() }

// Grow makes a gap end at a key further on, if it is still in the set and nothing has been
// cut since Cuts returned cuts. weight is how many tombstones there are in between.
// REQUIRES: no key lives from the end of the gap to the key, for a reader with view v, and
// none was set there whose Cut was before that call of Cuts.
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

// Next returns, of the gaps that a reader with a view may use, the first that
// ends after the key: it holds the key or lies after it. nil if there is none.
func Next(gaps []*Gap, key []byte, v View) *Gap {
	for i := find(gaps, key); i < len(gaps); i++ {
		if v.includes(gaps[i].Since) {
			return gaps[i]
		}
	}
	return nil
}

// Prev returns, of the gaps that a reader with a view may use, the last that
// begins before the key, which is nil for the end of all keys: it reaches up to the key
// or lies further before it. nil if there is none.
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

// ReachesTo reports whether there is no key between the end of the gap and the key,
// which is nil for the end of all keys. The gap begins before the key.
func (g *Gap) ReachesTo(key []byte) bool {
	return g.To == nil || key != nil && bytes.Compare(key, g.To) <= 0
}

// Active reports whether there is anything for Cut to do.
func (s *Set) Active() bool { return s != nil && s.active.Load() != 0 }

// Cut takes a key that was set out of the gaps and the watched ranges.
func (s *Set) Cut(key []byte) {
	if !s.Active() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts.Add(1)
	for _, w := range s.watches {
		w.Cut(key)
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

// Worth reports whether a new gap of a weight is worth being remembered: it is while
// there is room, and if not for one that spares much more than the least that is there.
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

// lightest returns the index of the gap that spares the least.
func lightest(gaps []*Gap) int {
	least := 0
	for i, g := range gaps {
		if g.Weight < gaps[least].Weight {
			least = i
		}
	}
	return least
}

// Watch is a range that an iterator is walking over, less what was set in it since.
type Watch struct {
	set      *Set
	view     View
	from, to []byte
	backward bool
}

// Watch begins to watch [from, to), to nil for no end: the range that a reader with a
// view is about to walk over, backward from to or forward from from. The
// keys are copied. Done or Abandon end it. REQUIRES: the walk begins afterwards, and
// comes by every entry that was inserted before it begins.
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

// Cut shortens the range to the part before a key, in the direction of the walk. The
// walk calls it for what it sees of keys that were set after its sequence number.
// REQUIRES: the Set's lock, or that no other goroutine can know the watch.
func (w *Watch) Cut(key []byte) {
	if bytes.Compare(key, w.from) < 0 || w.to != nil && bytes.Compare(key, w.to) >= 0 {
		return
	}
	if w.backward {
		w.from = append(append(w.from[:0:0], key...), 0)
	} else {
		w.to = append([]byte{}, key...)
	}
}

// Seen is Cut for the walk itself.
func (w *Watch) Seen(key []byte) {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	w.Cut(key)
}

// Abandon ends the watch without a gap.
func (w *Watch) Abandon() {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	w.end()
}

// end takes the watch off the set. REQUIRES: the set's lock.
func (w *Watch) end() {
	s := w.set
	i := slices.Index(s.watches, w)
	s.watches = slices.Delete(s.watches, i, i+1)
	s.active.Add(-1)
}

// Done ends the watch: the walk has come as far as the key at, which is nil for the end
// of the range, and has found nothing before. A walk forward stopped at the key; one
// backward right behind it. weight is how many tombstones it passed or knew to be there.
func (w *Watch) Done(at []byte, weight int) {
	s := w.set
	s.mu.Lock()
	defer s.mu.Unlock()
	defer w.end() // not before: a writer that sees nothing active cuts nothing
	if at != nil {
		if w.backward && bytes.Compare(at, w.from) >= 0 {
			w.from = append(append(w.from[:0:0], at...), 0)
		} else if !w.backward {
			w.Cut(at)
		}
	}
	if w.to != nil && bytes.Compare(w.from, w.to) >= 0 {
		return
	}
	s.add(&Gap{From: w.from, To: w.to, Since: w.view, Weight: weight})
}

// add takes in a gap, joined with those that it overlaps or touches. REQUIRES: mu.
func (s *Set) add(g *Gap) {
	gaps := s.Gaps()
	// The first that does not end before g begins, and the first that begins after g ends.
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

// Clear forgets all gaps, and what is watched comes to nothing. It is for a writer that
// makes many keys visible at once, which would have to Cut each.
func (s *Set) Clear() {
	if !s.Active() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts.Add(1)
	for _, w := range s.watches {
		w.to = append([]byte{}, w.from...) // nothing is left of the range
	}
	gaps := s.Gaps()
	s.replace(gaps, 0, len(gaps))
}

// replace puts others in the place of gaps[i:j]. REQUIRES: mu.
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

// evict forgets those gaps that spare the least until there is room. REQUIRES: mu.
func (s *Set) evict() {
	for s.bytes > s.maxBytes {
		gaps := s.Gaps()
		i := lightest(gaps)
		s.replace(gaps, i, i+1)
	}
}
