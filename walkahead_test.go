package sift

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/gap"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestWalkAhead deletes the keys after a gap one by one and checks that the gap follows, up to the
// first live key, as long as there is an iterator now and then.
func TestWalkAhead(t *testing.T) {
	d, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const keys = 100_000
	key := func(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }
	var b Batch
	for i := range keys {
		if b.Put(key(i), nil); b.Len() == 1000 || i == keys-1 {
			if err := d.Write(&b, NoSync); err != nil {
				t.Fatal(err)
			}
			b.Reset()
		}
	}
	head := 0
	remove := func(n int) {
		t.Helper()
		for range n {
			if err := d.Delete(key(head), NoSync); err != nil {
				t.Fatal(err)
			}
			head++
		}
	}
	first := func() {
		t.Helper()
		it, err := d.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !it.First() || string(it.Key()) != string(key(head)) {
			t.Fatalf("First is %x (%v), want %x", it.Key(), it.Err(), key(head))
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
	}
	end := func() int {
		gaps := d.gaps.Gaps()
		if len(gaps) == 0 {
			return 0
		}
		return int(binary.BigEndian.Uint32(gaps[0].To))
	}
	begin := time.Now()
	remove(1000)
	if n := end(); n != 0 {
		t.Errorf("there is a gap up to %d before the first iterator", n)
	}
	first()
	remove(10_000)
	if n := end(); n > head || n <= head-aheadEvery {
		t.Errorf("%d keys are deleted, but the gap ends at %d", head, n)
	}
	remove(1000)
	if n := end(); n > head || n <= head-aheadEvery {
		t.Errorf("%d keys are deleted, but the gap ends at %d", head, n)
	}
	took := d.ahead.ns.Load()
	if took <= 0 || took > int64(time.Since(begin)) {
		t.Errorf("the walks took %v of %v", time.Duration(took), time.Since(begin))
	}
	d.ahead.ns.Store(int64(aheadUnused) + 1)
	at := end()
	remove(1000)
	if n := end(); n != at {
		t.Errorf("without iterators, the gap grew from %d to %d", at, n)
	}
	first()
	if n := end(); n != head || d.ahead.ns.Load() != 0 {
		t.Errorf("an iterator found %d, but the gap ends at %d, after walks of %d ns", head, n, d.ahead.ns.Load())
	}
	remove(1000)
	if n := end(); n > head || n <= head-aheadEvery {
		t.Errorf("after an iterator, %d keys are deleted, but the gap ends at %d", head, n)
	}
	first()
	head++ // this key stays
	at = end()
	remove(1000)
	if n := end(); n != at {
		t.Errorf("the gap ends at %d, after the live key %d", n, at)
	}
	head = at
	first()
}

// TestWalkAheadBatches checks that the gap follows batches of deletions, however large they are.
func TestWalkAheadBatches(t *testing.T) {
	for _, size := range []int{1, aheadEvery - 1, aheadEvery + 1, 1000, 20_000} {
		d, err := Open(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		key := func(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }
		const head = 100
		var b Batch
		for i := range head + 5*max(size, aheadEvery) + 1 {
			b.Put(key(i), nil)
		}
		if err := d.Write(&b, NoSync); err != nil {
			t.Fatal(err)
		}
		remove := func(from, to int) {
			t.Helper()
			b.Reset()
			for i := from; i < to; i++ {
				b.Delete(key(i))
			}
			if err := d.Write(&b, NoSync); err != nil {
				t.Fatal(err)
			}
		}
		remove(0, head)
		if has, err := d.HasRange(nil, nil); !has || err != nil { // leaves a gap
			t.Fatal(has, err)
		}
		at := head
		for ; at < head+4*max(size, aheadEvery); at += size {
			remove(at, at+size)
		}
		gaps := d.gaps.Gaps()
		if len(gaps) != 1 {
			t.Fatalf("batches of %d: the gaps are %v", size, gaps)
		}
		if n := int(binary.BigEndian.Uint32(gaps[0].To)); n > at || n <= at-aheadEvery-size {
			t.Errorf("batches of %d: %d keys are deleted, but the gap ends at %d", size, at, n)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWalkAheadEnds checks that, if many tombstones lie between a gap and a run of deletions, no
// single write walks over all of them.
func TestWalkAheadEnds(t *testing.T) {
	d, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	key := func(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }
	const most = aheadMost * aheadEvery
	const keys = 20 * most
	remove := func(i int) {
		t.Helper()
		if err := d.Delete(key(i), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		remove(i)
	}
	if err := d.Put(key(100), nil, NoSync); err != nil {
		t.Fatal(err)
	}
	if err := d.Put(key(keys+aheadEvery), nil, NoSync); err != nil {
		t.Fatal(err)
	}
	if has, err := d.HasRange(nil, nil); !has || err != nil { // leaves a gap
		t.Fatal(has, err)
	}
	for i := keys - 1; i >= 100; i-- {
		remove(i)
	}
	if gaps := d.gaps.Gaps(); len(gaps) != 1 || string(gaps[0].To) != string(key(100)) {
		t.Fatalf("the gaps are %v", gaps)
	}
	for i := range aheadEvery {
		remove(keys + i)
	}
	gaps := d.gaps.Gaps()
	if len(gaps) != 1 {
		t.Fatalf("after the run, the gaps are %v", gaps)
	}
	if n := int(binary.BigEndian.Uint32(gaps[0].To)); n < 100+most/2 || n > 100+2*most {
		t.Errorf("the gap grew from 100 to %d in one write", n)
	}
}

// TestDeletedRun checks that a run consists of ascending deletions, equal keys included, that a
// lower key begins a new one, and that a run is taken once it has enough deletions.
func TestDeletedRun(t *testing.T) {
	var r deletedRun
	for _, c := range []struct {
		key, from string
		n         int
	}{{"b", "b", 1}, {"c", "b", 2}, {"c", "b", 3}, {"d", "b", 4}, {"a", "a", 1}, {"a", "a", 2}, {"z", "a", 3}} {
		if r.add([]byte(c.key)); string(r.from) != c.from || string(r.to) != c.key || r.n != c.n {
			t.Errorf("after %s: %d from %s to %s; want %d from %s", c.key, r.n, r.from, r.to, c.n, c.from)
		}
	}
	for r.n < aheadEvery-1 {
		r.add([]byte("z"))
	}
	if run := r.take(); run.n != 0 {
		t.Errorf("a run of %d is taken too early", run.n)
	}
	r.add([]byte("z"))
	if run := r.take(); run.n != aheadEvery || string(run.from) != "a" || r.n != 0 {
		t.Errorf("a run of %d is not taken: %d are left", aheadEvery, r.n)
	}
	if r.add([]byte("m")); r.n != 1 || string(r.from) != "m" {
		t.Errorf("the next run has %d, from %s", r.n, r.from)
	}
}

// TestWalkAheadOrNot checks that a run is walked over if a gap ends at or before its end and
// iterators have used gaps lately, even where there are no keys at all.
func TestWalkAheadOrNot(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to string // the gap
		keys     int    // tombstones in the memtable from k00100 on
		unused   int64
		walked   bool
		end      string // where the gap ends then
	}{
		{name: "no gap", keys: 130},
		{name: "a gap behind the run", from: "k00300", to: "k00400", keys: 130, end: "k00400"},
		{name: "a gap before the run", from: "k00000", to: "k00100", keys: 130, walked: true, end: "k00229\x00"},
		{name: "a gap up to the end of the run", from: "k00000", to: "k00229", keys: 130, walked: true, end: "k00229"},
		{name: "a gap beyond the run", from: "k00000", to: "k00229x", keys: 130, end: "k00229x"},
		{name: "an empty database", from: "k00000", to: "k00100", end: "k00100"},
		{name: "used just recently enough", from: "k00000", to: "k00100", keys: 130, unused: int64(aheadUnused), walked: true, end: "k00229\x00"},
		{name: "not used for too long", from: "k00000", to: "k00100", keys: 130, unused: int64(aheadUnused) + 1, end: "k00100"},
	} {
		d := mustOpen(t, "db", uncached(vfstest.NewMem()))
		for i := range c.keys {
			if err := d.Delete(fmt.Appendf(nil, "k%05d", 100+i), NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if c.keys > 0 {
			if err := d.Put([]byte("k00230"), nil, NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if c.from != "" {
			w := d.gaps.Watch([]byte(c.from), []byte(c.to), gap.View{Seq: d.visible.Load()}, false)
			w.Done([]byte(c.to), 100)
		}
		d.ahead.ns.Store(c.unused)
		d.walkAhead(deletedRun{from: []byte("k00100"), to: []byte("k00229"), n: 130})
		end := ""
		if gaps := d.gaps.Gaps(); len(gaps) > 0 {
			end = string(gaps[len(gaps)-1].To)
		}
		if walked := d.ahead.ns.Load() > c.unused; walked != c.walked || end != c.end {
			t.Errorf("%s: walked %t, the gap ends at %q; want %t, %q", c.name, walked, end, c.walked, c.end)
		}
		mustClose(t, d)
	}
}
