package sift

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// hookedPrefix is a Prefixer that calls a function once, before it looks at a key.
type hookedPrefix struct {
	Prefixer
	hook atomic.Pointer[func()]
}

func (p *hookedPrefix) PrefixLen(key []byte) int {
	if fn := p.hook.Swap(nil); fn != nil {
		(*fn)()
	}
	return p.Prefixer.PrefixLen(key)
}

// TestSnapshotClosedMeanwhile checks that a read of a snapshot that is closed meanwhile fails. It
// must not miss a key that a compaction has dropped since.
func TestSnapshotClosedMeanwhile(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	prefix := &hookedPrefix{Prefixer: FixedPrefix(1)}
	o := uncached(faulty)
	o.Prefix = prefix
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	key := []byte("key")
	within := &IterOptions{Prefix: []byte("k")}
	for _, c := range []struct {
		name string
		// early: the snapshot is closed, and the database compacted, before the read begins to
		// look at the database; otherwise the snapshot is closed while the read waits for the disk.
		early bool
		read  func(s *Snapshot, it *Iter) error
	}{
		{"NewIter", true, func(s *Snapshot, _ *Iter) error {
			it, err := s.NewIter(within)
			if err == nil {
				it.Close()
			}
			return err
		}},
		{"Reset", true, func(_ *Snapshot, it *Iter) error { return it.Reset(within) }},
		{"HasPrefix", true, func(s *Snapshot, _ *Iter) error { _, err := s.HasPrefix([]byte("k")); return err }},
		{"HasRange", true, func(s *Snapshot, _ *Iter) error { _, err := s.HasRange([]byte("k"), []byte("l")); return err }},
		{"HasRanges", false, func(s *Snapshot, _ *Iter) error {
			_, err := s.HasRanges([]KeyRange{{[]byte("k"), []byte("l")}})
			return err
		}},
		{"Get", false, func(s *Snapshot, _ *Iter) error { _, err := s.Get(key); return err }},
		{"Has", false, func(s *Snapshot, _ *Iter) error { _, err := s.Has(key); return err }},
		{"GetMany", false, func(s *Snapshot, _ *Iter) error { _, err := s.GetMany([][]byte{key}); return err }},
		{"View", false, func(s *Snapshot, _ *Iter) error {
			return s.View(key, func([]byte) error { return errors.New("there is a value") })
		}},
	} {
		if err := errors.Join(db.Put(key, []byte("value"), NoSync), db.Flush()); err != nil {
			t.Fatal(err)
		}
		s := db.Snapshot()
		it, err := s.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Delete(key, NoSync); err != nil {
			t.Fatal(err)
		}
		if c.early {
			hook := func() {
				s.Close()
				if err := db.Compact(context.Background(), nil, nil); err != nil {
					t.Error(err)
				}
			}
			prefix.hook.Store(&hook)
		} else {
			faulty.SetHook(func(op vfstest.Op) error {
				if onTable(op) && op.Kind == vfstest.OpReadAt {
					s.Close()
				}
				return nil
			})
		}
		err = c.read(s, it)
		faulty.SetHook(nil)
		if !s.closed.Load() {
			t.Fatalf("%s: the snapshot was not closed", c.name)
		}
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", c.name, err)
		}
		it.Close() // returns the error of Reset
	}
}

// TestSnapshotSequence checks that the sequence number of a snapshot is that of the last write
// before it.
func TestSnapshotSequence(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	var b Batch
	for range 3 {
		before := db.Metrics().LastSequence
		b.Put([]byte("key"), nil)
		if err := db.Write(&b, NoSync); err != nil {
			t.Fatal(err)
		}
		s := db.Snapshot()
		if n := s.Sequence(); n != before+uint64(b.Len()) || n != db.Metrics().LastSequence {
			t.Errorf("a snapshot after %d operations at sequence number %d has the number %d", b.Len(), before, n)
		}
		s.Close()
	}
}

// TestSnapshotClose checks that a second Close does nothing, even if another snapshot has the same
// sequence number. Reads of a closed snapshot fail, and its iterators continue.
func TestSnapshotClose(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	key := []byte("key")
	if err := db.Put(key, []byte("old"), NoSync); err != nil {
		t.Fatal(err)
	}
	first, second := db.Snapshot(), db.Snapshot()
	for range 2 {
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := db.Metrics().Snapshots; n != 1 {
		t.Errorf("%d snapshots are open, want 1", n)
	}
	if err := errors.Join(db.Put(key, []byte("new"), NoSync), db.Compact(context.Background(), nil, nil)); err != nil {
		t.Fatal(err)
	}
	if v, err := second.Get(key); string(v) != "old" || err != nil {
		t.Errorf("the other snapshot has %q, %v", v, err)
	}
	it, err := second.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if !it.First() || string(it.Value()) != "old" || it.Next() || it.Err() != nil {
		t.Errorf("an iterator of a closed snapshot is at %q, %v", it.Value(), it.Err())
	}
	if err := it.Close(); err != nil {
		t.Error(err)
	}
	_, getErr := second.Get(key)
	_, hasErr := second.Has(key)
	_, manyErr := second.GetMany([][]byte{key})
	_, iterErr := second.NewIter(nil)
	_, rangeErr := second.HasRange(nil, nil)
	for name, err := range map[string]error{"Get": getErr, "Has": hasErr, "GetMany": manyErr, "NewIter": iterErr, "HasRange": rangeErr} {
		if err != ErrClosed {
			t.Errorf("%s of a closed snapshot: %v", name, err)
		}
	}
}
