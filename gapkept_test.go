package sift

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestDeleteRangeLeavesGap checks that DeleteRange leaves a gap, so that the next iterator does not
// walk over the keys that were deleted one by one.
func TestDeleteRangeLeavesGap(t *testing.T) {
	d, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	key := func(i int) []byte { return fmt.Appendf(nil, "key%05d", i) }
	for i := range 3000 {
		if err := d.Put(key(i), nil, NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.DeleteRange(context.Background(), key(1000), key(2000)); err != nil {
		t.Fatal(err)
	}
	gaps := d.gaps.Gaps()
	if len(gaps) != 1 || string(gaps[0].From) > string(key(1000)) || string(gaps[0].To) < string(key(2000)) {
		t.Errorf("the gaps are %v", gaps)
	}
}

// deletedKeys returns a database with the given keys and tombstones of key00000 to key00999, and an
// iterator over it.
func deletedKeys(t *testing.T, held ...string) (*DB, *Iter) {
	t.Helper()
	d := mustOpen(t, t.TempDir(), nil)
	t.Cleanup(func() { mustClose(t, d) })
	var b Batch
	for _, key := range held {
		b.Put([]byte(key), nil)
	}
	for i := range 1000 {
		b.Delete(fmt.Appendf(nil, "key%05d", i))
	}
	if err := d.Write(&b, NoSync); err != nil {
		t.Fatal(err)
	}
	it, err := d.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { it.Close() })
	return d, it
}

// TestWalkUsesGapsOfItsStart checks that a walk uses the gap with which it was started, even if the
// gaps have been cleared since. Without it, the walk would begin wherever the iterator happens to
// be.
func TestWalkUsesGapsOfItsStart(t *testing.T) {
	d, it := deletedKeys(t, "first", "last")
	mid := []byte("key00500")
	for range 2 { // once to record the gap
		if !it.SeekGE([]byte("key")) || string(it.Key()) != "last" {
			t.Fatalf("SeekGE is at %q, %v", it.Key(), it.Err())
		}
	}
	forward, backward := it.inGap(mid), it.gapBefore(mid)
	if forward == nil || backward == nil {
		t.Fatal("no gap was recorded")
	}
	d.gaps.Clear()
	it.in.First()
	if !it.walkForward(it.startWalk(forward, mid, false)) || string(it.Key()) != "last" {
		t.Errorf("forward: %q, %v", it.Key(), it.Err())
	}
	it.in.Last()
	if !it.walkBackward(it.startWalk(backward, mid, true)) || string(it.Key()) != "first" {
		t.Errorf("backward: %q, %v", it.Key(), it.Err())
	}
}

// TestSeekLTNil checks that SeekLT treats nil as the empty key, even if a gap extends to the end of
// all keys.
func TestSeekLTNil(t *testing.T) {
	_, it := deletedKeys(t, "first")
	if it.SeekLT(nil) {
		t.Errorf("SeekLT(nil) before there is a gap: at %q", it.Key())
	}
	for range 2 {
		it.Last()
		if string(it.Key()) != "first" {
			t.Fatalf("Last is at %q", it.Key())
		}
		it.SeekGE([]byte("key"))
	}
	if it.SeekLT([]byte{}) {
		t.Errorf("SeekLT of the empty key: at %q", it.Key())
	}
	if it.SeekLT(nil) {
		t.Errorf("SeekLT(nil): at %q", it.Key())
	}
}

// TestSeekLTNilBounds checks that SeekLT(nil) stays within the bounds next to a gap.
func TestSeekLTNilBounds(t *testing.T) {
	d, all := deletedKeys(t, "a", "j")
	for range 2 {
		all.SeekGE([]byte("key")) // records the gap
	}
	it, err := d.NewIter(&IterOptions{UpperBound: []byte("c")})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	if it.SeekLT(nil) {
		t.Errorf("SeekLT(nil) with the upper bound c: at %q", it.Key())
	}
}

// TestGapsAtTheirEnds compares all ranges and seeks that begin or end in, at or next to a gap with
// a list of the keys, first while gaps are being recorded within bounds, and then when all are
// known.
func TestGapsAtTheirEnds(t *testing.T) {
	const all = 251
	key := func(i int) []byte { return []byte{byte(i)} }
	only := func(keys ...int) (live []bool) {
		live = make([]bool, all)
		for _, i := range keys {
			live[i] = true
		}
		return live
	}
	for _, flush := range []bool{false, true} {
		d := mustOpen(t, t.TempDir(), &Options{DisableAutoCompaction: true})
		var b Batch
		everything := make([]bool, all)
		for i := range all {
			everything[i] = true
			b.Put(key(i), nil)
		}
		if err := d.Write(&b, NoSync); err != nil {
			t.Fatal(err)
		}
		before := d.Snapshot()
		b.Reset()
		now := only(80, 161, 165, 167)
		for i, live := range now {
			if !live {
				b.Delete(key(i))
			}
		}
		if err := d.Write(&b, NoSync); err != nil {
			t.Fatal(err)
		}
		if flush {
			if err := d.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		tx, err := d.Begin(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(tx.Put(key(3), nil), tx.Put(key(120), nil), tx.Delete(key(165))); err != nil {
			t.Fatal(err)
		}
		views := []struct {
			name string
			open func(*IterOptions) (*Iter, error)
			live []bool
		}{
			{"the database", d.NewIter, now},
			{"a snapshot from before the deletions", before.NewIter, everything},
			{"a transaction with writes", tx.NewIter, only(3, 80, 120, 161, 167)},
		}
		at := []int{0, 1, 40, 79, 80, 81, 120, 160, 161, 162, 164, 165, 166, 167, 168, 169, 200, 250}
		// check seeks to each position within a range; below 0 there is no bound.
		check := func(name string, open func(*IterOptions) (*Iter, error), live []bool, lower, upper int) {
			o := new(IterOptions)
			first, end := max(lower, 0), all
			if lower >= 0 {
				o.LowerBound = key(lower)
			}
			if upper >= 0 {
				o.UpperBound, end = key(upper), upper
			}
			next := func(i int) int { // the first key at or after i, or end
				for i = max(i, first); i < end && !live[i]; i++ {
				}
				return min(i, end)
			}
			prev := func(i int) int { // the last key at or before i, or first-1
				for i = min(i, end-1); i >= first && !live[i]; i-- {
				}
				return max(i, first-1)
			}
			it, err := open(o)
			if err != nil {
				t.Fatal(err)
			}
			defer it.Close()
			see := func(move string, ok bool, want int) {
				in := want >= first && want < end
				if ok != in || ok && it.Key()[0] != byte(want) || it.Err() != nil {
					t.Fatalf("%s, from %d to %d, flushed %v: %s: %v, at %v, %v; want %d", name, lower, upper, flush, move, ok, it.Key(), it.Err(), want)
				}
			}
			walk := func(move string, ok bool, want int) {
				see(move, ok, want)
				if want < end {
					see(move+", Next", it.Next(), next(want+1))
					see(move+", Next, Prev", it.Prev(), prev(next(want+1)-1))
					see(move+", Next, Prev, Prev", it.Prev(), prev(prev(next(want+1)-1)-1))
				}
			}
			walk("First", it.First(), next(first))
			walk("Last", it.Last(), prev(end-1))
			for _, i := range at {
				walk(fmt.Sprint("SeekGE ", i), it.SeekGE(key(i)), next(i))
				walk(fmt.Sprint("SeekLT ", i), it.SeekLT(key(i)), prev(i-1))
			}
		}
		for _, known := range []bool{false, true} {
			for _, v := range views {
				for _, lower := range append(at, -1) {
					for _, upper := range append(at, -1) {
						if upper >= 0 && upper <= lower {
							continue
						}
						if !known {
							d.gaps.Clear()
						}
						check(v.name, v.open, v.live, lower, upper)
						check("the database afterwards", d.NewIter, now, -1, -1)
					}
				}
			}
		}
		tx.Discard()
		before.Close()
		mustClose(t, d)
	}
}

// TestGapGrows checks that an iterator that begins at a gap extends it over the few tombstones
// after it, unless a key that the iterator does not see may have been put there.
func TestGapGrows(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(d *DB) error // called before the iterator is created
		after  func(d *DB) error // called after it is created
		want   string            // where the gap ends then
	}{
		{"nothing else is written", nil, nil, "p"},
		{"a key is put", nil, func(d *DB) error { return d.Put([]byte("n"), nil, nil) }, "last"},
		{"the key at the end of the gap is put", nil, func(d *DB) error { return d.Put([]byte("last"), nil, nil) }, "last"},
		{"a key is put into another memtable", nil, func(d *DB) error {
			return errors.Join(d.Flush(), d.Put([]byte("n"), nil, nil))
		}, "last"},
		{"a key is put into a memtable that was empty", (*DB).Flush, func(d *DB) error { return d.Put([]byte("n"), nil, nil) }, "last"},
	} {
		d, all := deletedKeys(t, "last", "m", "n", "p", "q")
		for range 2 { // the second time the range is watched
			all.SeekGE([]byte("key"))
		}
		all.Close()
		for _, key := range []string{"last", "m", "n"} {
			if err := d.Delete([]byte(key), NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if c.before != nil {
			if err := c.before(d); err != nil {
				t.Fatal(err)
			}
		}
		it, err := d.NewIter(&IterOptions{LowerBound: []byte("key00100")})
		if err != nil {
			t.Fatal(err)
		}
		defer it.Close()
		if c.after != nil {
			if err := c.after(d); err != nil {
				t.Fatal(err)
			}
			it.near.cuts = d.gaps.Cuts() // as if it had been put right before they were counted
		}
		if !it.First() || string(it.Key()) != "p" || !it.Next() || string(it.Key()) != "q" {
			t.Errorf("%s: at %q, %v", c.name, it.Key(), it.Err())
		}
		if gaps := d.gaps.Gaps(); len(gaps) != 1 || string(gaps[0].To) != c.want {
			t.Errorf("%s: the gap ends at %q; want %q", c.name, gaps[0].To, c.want)
		}
	}
}

// TestOldIteratorsAddNoGap checks that an iterator's walk over deleted keys hides no key that was
// put among them after the iterator was created.
func TestOldIteratorsAddNoGap(t *testing.T) {
	for _, before := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			for _, move := range []func(*Iter) bool{(*Iter).First, (*Iter).Last} {
				d, _ := deletedKeys(t)
				var put, del Batch
				for i := range 100 {
					put.Put(fmt.Appendf(nil, "key%05d", 450+i), nil)
					del.Delete(fmt.Appendf(nil, "key%05d", 450+i))
				}
				if err := d.Write(&put, NoSync); err != nil {
					t.Fatal(err)
				}
				defer d.Snapshot().Close() // so that flushes keep the deletions
				if err := d.Write(&del, NoSync); err != nil {
					t.Fatal(err)
				}
				flush := func(really bool) {
					if !really {
						return
					}
					if err := d.Flush(); err != nil {
						t.Fatal(err)
					}
				}
				flush(before)
				it, err := d.NewIter(nil)
				if err != nil {
					t.Fatal(err)
				}
				defer it.Close()
				flush(after)
				if err := d.Put([]byte("key00500"), nil, NoSync); err != nil {
					t.Fatal(err)
				}
				if move(it) {
					t.Errorf("an old iterator is at %q", it.Key())
				}
				now, err := d.NewIter(nil)
				if err != nil {
					t.Fatal(err)
				}
				defer now.Close()
				if !now.First() || !now.Last() || string(now.Key()) != "key00500" {
					t.Errorf("flushed before the old iterator was created: %v, and after: %v; a new one is at %q, %v", before, after, now.Key(), now.Err())
				}
			}
		}
	}
}

// TestDeleteRangeEndsBeforeGap checks that DeleteRange does not walk over the range once it is
// deleted if ctx has ended: the walk may read much, and only saves time.
func TestDeleteRangeEndsBeforeGap(t *testing.T) {
	fs := vfstest.Inject(vfstest.NewMem())
	db := mustOpen(t, "db", uncached(fs))
	defer mustClose(t, db)
	from, to := []byte("key"), []byte("kez")
	for round := range 2 { // values, then tombstones above them
		var b Batch
		for i := range 200 {
			if key := fmt.Appendf(nil, "key%03d", i); round == 0 {
				b.Put(key, nil)
			} else {
				b.Delete(key)
			}
		}
		if err := errors.Join(db.Write(&b, NoSync), db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	s := db.Snapshot() // no table is dropped
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	fs.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpReadAt && onTable(op) {
			cancel() // during the only step: it is too short to notice
		}
		return nil
	})
	err := db.DeleteRange(ctx, from, to)
	fs.SetHook(nil)
	if gaps := db.gaps.Gaps(); err != nil || ctx.Err() == nil || len(gaps) != 0 {
		t.Errorf("%v, ctx: %v, gaps: %v", err, ctx.Err(), gaps)
	}
	if err := db.DeleteRange(context.Background(), from, to); err != nil || len(db.gaps.Gaps()) != 1 {
		t.Errorf("%v, gaps: %v", err, db.gaps.Gaps())
	}
}

// TestExtendedGapWeighsAll checks that a gap which walks extend weighs as much as all tombstones in
// it: it would be evicted, and dropped when it is cut, as one of the lightest otherwise.
func TestExtendedGapWeighsAll(t *testing.T) {
	o := uncached(vfstest.NewMem())
	o.MemtableBytes = 1 << 20
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	key := func(i int) []byte { return fmt.Appendf(nil, "key%05d", i) }
	var all Batch
	for i := range 401 {
		all.Put(key(i), nil)
	}
	if err := db.Write(&all, NoSync); err != nil {
		t.Fatal(err)
	}
	for from := 0; from < 400; from += 100 {
		var b Batch
		for i := range 100 {
			b.Delete(key(from + i))
		}
		if err := db.Write(&b, NoSync); err != nil {
			t.Fatal(err)
		}
		if has, err := db.HasRange(nil, nil); !has || err != nil {
			t.Fatal(has, err)
		}
	}
	if gaps := db.gaps.Gaps(); len(gaps) != 1 || gaps[0].Weight < 400 {
		t.Errorf("of 400 tombstones: %d gaps, the first weighs %d", len(gaps), gaps[0].Weight)
	}
}

// TestRangeBecomesOneGap checks that DeleteRange leaves one gap that weighs as much as all its
// tombstones, though it walks over them in several rounds.
func TestRangeBecomesOneGap(t *testing.T) {
	o := uncached(vfstest.NewMem())
	o.MemtableBytes = 1 << 20
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	const n = 3*gapStep + 100
	var all Batch
	for i := range n {
		all.Put(fmt.Appendf(nil, "key%05d", i), nil)
	}
	if err := db.Write(&all, NoSync); err != nil {
		t.Fatal(err)
	}
	s := db.Snapshot() // no table is dropped
	defer s.Close()
	if err := db.DeleteRange(context.Background(), []byte("key"), []byte("kez")); err != nil {
		t.Fatal(err)
	}
	if gaps := db.gaps.Gaps(); len(gaps) != 1 || gaps[0].Weight < n {
		t.Errorf("of %d tombstones: %d gaps, the first weighs %d", n, len(gaps), gaps[0].Weight)
	}
	if has, err := db.HasRange([]byte("key"), []byte("kez")); has || err != nil {
		t.Error(has, err)
	}
}

func TestGapCountedOnce(t *testing.T) {
	o := uncached(vfstest.NewMem())
	o.MemtableBytes = 1 << 20
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	key := func(i int) []byte { return fmt.Appendf(nil, "key%05d", i) }
	var b Batch
	for i := range 1001 {
		b.Put(key(i), nil)
	}
	for i := range 100 {
		b.Delete(key(i))
	}
	if err := db.Write(&b, NoSync); err != nil {
		t.Fatal(err)
	}
	if has, err := db.HasRange(nil, nil); !has || err != nil {
		t.Fatal(has, err)
	}
	b.Reset()
	for i := 100; i < 1000; i++ {
		b.Delete(key(i))
	}
	db.ahead.ns.Store(int64(time.Hour)) // no walk by the writer
	if err := db.Write(&b, NoSync); err != nil {
		t.Fatal(err)
	}
	if g := db.gaps.Gaps(); len(g) != 1 || g[0].Weight > 110 {
		t.Fatalf("%+v", g[0])
	}
	// Two iterators start at the end of the gap; the first one ends in the middle.
	var its [10]*Iter
	for i := range its {
		it, err := db.NewIter(&IterOptions{UpperBound: key(190 + 90*i)})
		if err != nil {
			t.Fatal(err)
		}
		defer it.Close()
		its[i] = it
	}
	for _, it := range its {
		it.First()
		g := db.gaps.Gaps()
		t.Logf("%q..%q: %d", g[0].From, g[0].To, g[0].Weight)
	}
	if g := db.gaps.Gaps(); len(g) != 1 || g[0].Weight > 1100 {
		t.Errorf("a gap of 1000 tombstones weighs %d", g[0].Weight)
	}
}
