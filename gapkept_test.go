package sift

import (
	"context"
	"fmt"
	"testing"
)

// TestDeleteRangeLeavesGap: the first iterator after a DeleteRange walks over nothing,
// though keys of the range were deleted one by one.
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

// deletedKeys returns a database with a thousand deletions, of key00000 and so on, beside the keys
// that it holds, and an iterator over it.
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

// TestGapsAsLookedAt: a walk goes on with the gaps that it was begun for, though they have been
// cut since. With others it would begin where the iterator happens to stand.
func TestGapsAsLookedAt(t *testing.T) {
	d, it := deletedKeys(t, "first", "last")
	mid := []byte("key00500")
	for range 2 { // once to record the gap
		if !it.SeekGE([]byte("key")) || string(it.Key()) != "last" {
			t.Fatalf("the first key is %q, %v", it.Key(), it.Err())
		}
	}
	forward, backward := it.inGap(mid), it.gapBefore(mid)
	if forward == nil || backward == nil {
		t.Fatal("no gap")
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

// TestSeekLTNil: nil is the empty key, also where a gap reaches to the end of all keys.
func TestSeekLTNil(t *testing.T) {
	_, it := deletedKeys(t, "first")
	if it.SeekLT(nil) {
		t.Errorf("before there is a gap: %q", it.Key())
	}
	for range 2 {
		it.Last()
		if string(it.Key()) != "first" {
			t.Fatal("last")
		}
		it.SeekGE([]byte("key"))
	}
	if it.SeekLT([]byte{}) {
		t.Errorf("empty: %q", it.Key())
	}
	if it.SeekLT(nil) {
		t.Errorf("nil: %q is less than the empty key", it.Key())
	}
}

// TestSeekLTNilBounds: SeekLT(nil) stays within the bounds beside a gap.
func TestSeekLTNilBounds(t *testing.T) {
	d, all := deletedKeys(t, "a", "j")
	for range 2 {
		all.SeekGE([]byte("key")) // the gap is remembered
	}
	it, err := d.NewIter(&IterOptions{UpperBound: []byte("c")})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	if it.SeekLT(nil) {
		t.Errorf("nil, below c: %q", it.Key())
	}
}
