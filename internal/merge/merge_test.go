package merge

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/siftdb/sift/internal/base"
)

type entry struct{ ikey, value []byte }

// sliceIter iterates over sorted entries. It overwrites its key buffer on each
// move, as block iterators do, and fails when it would move to entry failAt.
type sliceIter struct {
	entries []entry
	i       int
	key     []byte
	failAt  int
	err     error
	closed  *int
}

var errDisk = errors.New("disk failure")

func newSliceIter(entries []entry) *sliceIter { return &sliceIter{entries: entries, i: -1, failAt: -1} }

func (s *sliceIter) to(i int) bool {
	for j := range s.key {
		s.key[j] = 0xee
	}
	s.i, s.err = i, nil
	if i >= 0 && i < len(s.entries) {
		if i == s.failAt {
			s.i, s.err = -1, errDisk
			return false
		}
		s.key = append(s.key[:0], s.entries[i].ikey...)
		return true
	}
	return false
}

func (s *sliceIter) search(ikey []byte) int {
	i, _ := slices.BinarySearchFunc(s.entries, ikey, func(e entry, k []byte) int { return base.CompareInternal(e.ikey, k) })
	return i
}

func (s *sliceIter) First() bool             { return s.to(0) }
func (s *sliceIter) Last() bool              { return s.to(len(s.entries) - 1) }
func (s *sliceIter) SeekGE(ikey []byte) bool { return s.to(s.search(ikey)) }
func (s *sliceIter) SeekLT(ikey []byte) bool { return s.to(s.search(ikey) - 1) }
func (s *sliceIter) Next() bool              { s.must(); return s.to(s.i + 1) }
func (s *sliceIter) Prev() bool              { s.must(); return s.to(s.i - 1) }
func (s *sliceIter) Valid() bool             { return s.err == nil && s.i >= 0 && s.i < len(s.entries) }
func (s *sliceIter) Key() []byte             { s.must(); return s.key }
func (s *sliceIter) Value() []byte           { s.must(); return s.entries[s.i].value }
func (s *sliceIter) Err() error              { return s.err }
func (s *sliceIter) Close() error {
	s.i = -1
	if s.closed != nil {
		*s.closed++
		return errDisk
	}
	return nil
}

func (s *sliceIter) must() {
	if !s.Valid() {
		panic("used without a current entry")
	}
}

func randomKey(r *rand.Rand) []byte {
	k := make([]byte, r.IntN(4))
	for i := range k {
		k[i] = []byte{0, 'a', 0xff}[r.IntN(3)]
	}
	if r.IntN(3) == 0 {
		k = append([]byte("longprefix"), k...)
	}
	return base.AppendInternalKey(nil, k, uint64(r.IntN(5)), base.Kind(r.IntN(2)))
}

// build distributes n entries over children. Two children may have equal internal keys.
func build(r *rand.Rand, n, children int) (merged []entry, parts [][]entry) {
	parts = make([][]entry, children)
	for i := range n {
		c := r.IntN(children)
		e := entry{randomKey(r), fmt.Appendf(nil, "%d from %d", i, c)}
		at, dup := slices.BinarySearchFunc(parts[c], e.ikey, func(e entry, k []byte) int { return base.CompareInternal(e.ikey, k) })
		if !dup {
			parts[c] = slices.Insert(parts[c], at, e)
		}
	}
	for _, p := range parts {
		merged = append(merged, p...)
	}
	slices.SortStableFunc(merged, func(a, b entry) int { return base.CompareInternal(a.ikey, b.ikey) })
	return merged, parts
}

func check(t *testing.T, it base.Iterator, ok bool, model []entry, i int) {
	t.Helper()
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	if want := i >= 0 && i < len(model); ok != want || it.Valid() != want {
		t.Fatalf("at %d of %d: moved %v, valid %v", i, len(model), ok, it.Valid())
	} else if want && (!bytes.Equal(it.Key(), model[i].ikey) || !bytes.Equal(it.Value(), model[i].value)) {
		t.Fatalf("at %d: %q=%q, want %q=%q", i, it.Key(), it.Value(), model[i].ikey, model[i].value)
	}
}

// walk compares an iterator with sorted entries, by full scans, and by random seeks and steps in
// their direction.
func walk(t *testing.T, r *rand.Rand, it base.Iterator, model []entry) {
	t.Helper()
	if it.Valid() {
		t.Fatal("a new iterator is at an entry")
	}
	i := 0
	for ok := it.First(); ; ok, i = it.Next(), i+1 {
		if check(t, it, ok, model, i); !ok {
			break
		}
	}
	i = len(model) - 1
	for ok := it.Last(); ; ok, i = it.Prev(), i-1 {
		if check(t, it, ok, model, i); !ok {
			break
		}
	}
	for range 300 {
		k := randomKey(r)
		i, _ := slices.BinarySearchFunc(model, k, func(e entry, k []byte) int { return base.CompareInternal(e.ikey, k) })
		forward := r.IntN(2) == 0
		if forward {
			check(t, it, it.SeekGE(k), model, i)
		} else {
			i--
			check(t, it, it.SeekLT(k), model, i)
		}
		for it.Valid() && r.IntN(10) != 0 {
			if forward {
				i++
				check(t, it, it.Next(), model, i)
			} else {
				i--
				check(t, it, it.Prev(), model, i)
			}
		}
	}
}

func TestMergeAgainstModel(t *testing.T) {
	for _, children := range []int{0, 1, 2, 3, 4, 9} {
		for _, n := range []int{0, 1, 5, 100} {
			t.Run(fmt.Sprintf("%d children/%d entries", children, n), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(children), uint64(n)))
				var merged []entry
				var parts [][]entry
				if children > 0 {
					merged, parts = build(r, n, children)
				}
				var its []base.Iterator
				for _, p := range parts {
					its = append(its, newSliceIter(p))
				}
				walk(t, r, New(its...), merged)
			})
		}
	}
}

// TestMergeOfRuns merges long runs of entries from one child, during which the runner-up is known.
func TestMergeOfRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	var model []entry
	parts := make([][]entry, 3)
	c := 0
	for i := range 500 {
		if r.IntN(20) == 0 {
			c = r.IntN(3)
		}
		e := entry{base.AppendInternalKey(nil, fmt.Appendf(nil, "%06d", i), 1, base.KindSet), fmt.Append(nil, i)}
		model, parts[c] = append(model, e), append(parts[c], e)
	}
	walk(t, r, New(newSliceIter(parts[0]), newSliceIter(parts[1]), newSliceIter(parts[2])), model)
}

// TestErrors makes every entry of every child fail, for each kind of move: the entries before it
// are right, the move reports the error, the error sticks until an absolute move, and no entry is
// skipped.
func TestErrors(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	merged, parts := build(r, 40, 3)
	for c := range parts {
		for bad := range parts[c] {
			for _, level := range []bool{false, true} {
				for _, back := range []bool{false, true} {
					var its []base.Iterator
					for i, p := range parts {
						s := newSliceIter(p)
						if i == c {
							s.failAt = bad
						}
						if level {
							its = append(its, oneTableLevel(p, s))
						} else {
							its = append(its, s)
						}
					}
					m := New(its...)
					first, next, i, step := m.First, m.Next, 0, 1
					if back {
						first, next, i, step = m.Last, m.Prev, len(merged)-1, -1
					}
					for ok := first(); ok; ok = next() {
						check(t, m, ok, merged, i)
						i += step
					}
					if !errors.Is(m.Err(), errDisk) || m.Valid() {
						t.Fatalf("child %d entry %d: stopped at %d with %v", c, bad, i, m.Err())
					}
					if m.Next() || m.Prev() || !errors.Is(m.Err(), errDisk) {
						t.Fatal("the error does not stick")
					}
					// First does not meet an entry that is not its child's first.
					if !back && bad > 0 && (!m.First() || m.Err() != nil) {
						t.Fatalf("after an error: %v", m.Err())
					}
					// Every seek either meets the bad entry or is right.
					for range 10 {
						k := randomKey(r)
						i, _ := slices.BinarySearchFunc(merged, k, func(e entry, k []byte) int { return base.CompareInternal(e.ikey, k) })
						if ok := m.SeekGE(k); m.Err() == nil {
							check(t, m, ok, merged, i)
						} else if ok || m.Valid() {
							t.Fatal("an error and an entry")
						}
						if ok := m.SeekLT(k); m.Err() == nil {
							check(t, m, ok, merged, i-1)
						} else if ok || m.Valid() {
							t.Fatal("an error and an entry before a key")
						}
					}
				}
			}
		}
	}
}

func TestEmpty(t *testing.T) {
	var it base.Iterator = Empty{}
	key := base.AppendInternalKey(nil, []byte("a"), 1, base.KindSet)
	if it.First() || it.Last() || it.SeekGE(key) || it.SeekLT(key) || it.Next() || it.Prev() || it.Valid() {
		t.Error("Empty has an entry")
	}
	if it.Key() != nil || it.Value() != nil || it.Err() != nil || it.Close() != nil {
		t.Error("Empty has a key, a value or an error")
	}
}

func TestCloseClosesAll(t *testing.T) {
	n := 0
	a, b := newSliceIter(nil), newSliceIter(nil)
	a.closed, b.closed = &n, &n
	m := New(a, b)
	if err := m.Close(); !errors.Is(err, errDisk) || n != 2 || m.Valid() {
		t.Fatalf("Close: %v, %d closed", err, n)
	}
}

// oneTableLevel is a level of the one table that s iterates over.
func oneTableLevel(p []entry, s base.Iterator) base.Iterator {
	n := min(1, len(p))
	return NewLevel(n,
		func(int) []byte { return p[len(p)-1].ikey },
		func(int) []byte { return p[0].ikey },
		func(int) (base.Iterator, error) { return s, nil })
}

// tables cuts entries into tables and counts which are open.
type tables struct {
	parts  [][]entry
	open   int
	opened int
	bad    int // the table that does not open
}

func (ts *tables) level() *Level {
	return NewLevel(len(ts.parts),
		func(i int) []byte { p := ts.parts[i]; return p[len(p)-1].ikey },
		func(i int) []byte { return ts.parts[i][0].ikey },
		func(i int) (base.Iterator, error) {
			if i == ts.bad {
				return nil, errDisk
			}
			ts.open++
			ts.opened++
			return &countingIter{newSliceIter(ts.parts[i]), ts}, nil
		})
}

type countingIter struct {
	*sliceIter
	ts *tables
}

func (c *countingIter) Close() error {
	c.ts.open--
	return c.sliceIter.Close()
}

func cut(r *rand.Rand, entries []entry) *tables {
	ts := &tables{bad: -1}
	for len(entries) > 0 {
		n := 1 + r.IntN(min(7, len(entries)))
		ts.parts = append(ts.parts, entries[:n])
		entries = entries[n:]
	}
	return ts
}

func TestLevelAgainstModel(t *testing.T) {
	for _, n := range []int{0, 1, 2, 100} {
		r := rand.New(rand.NewPCG(8, uint64(n)))
		var model []entry
		if n > 0 {
			model, _ = build(r, n, 1)
		}
		ts := cut(r, model)
		l := ts.level()
		walk(t, r, l, model)
		if ts.open > 1 {
			t.Fatalf("%d tables open at once", ts.open)
		}
		for range 2 {
			if err := l.Close(); err != nil || ts.open != 0 || l.Valid() {
				t.Fatalf("Close: %v, %d tables open", err, ts.open)
			}
		}
	}
}

func TestLevelOpensWhatItNeeds(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	model, _ := build(r, 100, 1)
	ts := cut(r, model)
	for i, p := range ts.parts {
		// A new iterator opens only the table that a seek ends in, and keeps it open for another
		// seek there.
		l := ts.level()
		ts.opened = 0
		if !l.SeekGE(p[0].ikey) || !l.SeekGE(p[len(p)-1].ikey) || ts.opened != 1 {
			t.Fatalf("table %d: seeks within it opened %d tables", i, ts.opened)
		}
		if len(p) > 1 && (!l.SeekLT(p[len(p)-1].ikey) || ts.opened != 1) {
			t.Fatalf("table %d: a seek back opened %d tables", i, ts.opened)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLevelOpenFails(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	model, _ := build(r, 60, 1)
	ts := cut(r, model)
	for bad := range ts.parts {
		ts.bad = bad
		before := 0
		for _, p := range ts.parts[:bad] {
			before += len(p)
		}
		after := before + len(ts.parts[bad]) - 1
		l := ts.level()
		i := 0
		for ok := l.First(); ok; ok = l.Next() {
			check(t, l, ok, model, i)
			i++
		}
		if i != before || !errors.Is(l.Err(), errDisk) || l.Valid() || l.Next() || l.Prev() {
			t.Fatalf("forward: at %d with %v, want %d", i, l.Err(), before)
		}
		i = len(model) - 1
		for ok := l.Last(); ok; ok = l.Prev() {
			check(t, l, ok, model, i)
			i--
		}
		if i != after || !errors.Is(l.Err(), errDisk) {
			t.Fatalf("backward: at %d with %v, want %d", i, l.Err(), after)
		}
		if bad > 0 && (!l.First() || l.Err() != nil) {
			t.Fatal("First fails after an error")
		}
		if l.Close(); ts.open != 0 {
			t.Fatal("left open")
		}
	}
}

func BenchmarkNext(b *testing.B) {
	for _, children := range []int{1, 2, 5, 10} {
		for _, run := range []int{1, 50} {
			b.Run(fmt.Sprintf("children=%d/run=%d", children, run), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 1))
				parts := make([][]entry, children)
				c := 0
				for i := range 100_000 {
					if i%run == 0 {
						c = r.IntN(children)
					}
					parts[c] = append(parts[c], entry{base.AppendInternalKey(nil, fmt.Appendf(nil, "user%012d", i), 1, base.KindSet), nil})
				}
				var its []base.Iterator
				for _, p := range parts {
					its = append(its, newSliceIter(p))
				}
				m := New(its...)
				for b.Loop() {
					if !m.Valid() {
						m.First()
					} else {
						m.Next()
					}
				}
			})
		}
	}
}

// prefetchIter records its moves and the calls that prepare them.
type prefetchIter struct {
	*sliceIter
	moves *[]string
}

func (p prefetchIter) PrefetchFirst()    { *p.moves = append(*p.moves, "prepare First") }
func (p prefetchIter) PrefetchGE([]byte) { *p.moves = append(*p.moves, "prepare SeekGE") }

func (p prefetchIter) First() bool {
	*p.moves = append(*p.moves, "First")
	return p.sliceIter.First()
}

func (p prefetchIter) SeekGE(key []byte) bool {
	*p.moves = append(*p.moves, "SeekGE")
	return p.sliceIter.SeekGE(key)
}

// TestPrefetch checks that all children, including those in levels, start their reads before the
// first one moves. A single child does not prefetch.
func TestPrefetch(t *testing.T) {
	var moves []string
	key := func(s string) []byte { return base.AppendInternalKey(nil, []byte(s), 1, base.KindSet) }
	entries := []entry{{ikey: key("a")}, {ikey: key("b")}}
	child := func() base.Iterator { return prefetchIter{newSliceIter(entries), &moves} }
	m := New(child(), oneTableLevel(entries, child()))
	for _, move := range []struct {
		name string
		do   func() bool
	}{{"First", m.First}, {"SeekGE", func() bool { return m.SeekGE(key("b")) }}} {
		moves = nil
		if !move.do() {
			t.Fatal(m.Err())
		}
		if want := []string{"prepare " + move.name, "prepare " + move.name, move.name, move.name}; !slices.Equal(moves, want) {
			t.Errorf("%s: %q, want %q", move.name, moves, want)
		}
	}
	if moves = nil; !New(child()).First() || !slices.Equal(moves, []string{"First"}) {
		t.Errorf("one child: %q", moves)
	}
}
