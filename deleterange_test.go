package sift_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/testhook"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

func deleteRange(t testing.TB, db *sift.DB, from, to string) {
	t.Helper()
	bound := func(s string) []byte {
		if s == "" {
			return nil
		}
		return []byte(s)
	}
	if err := db.DeleteRange(context.Background(), bound(from), bound(to)); err != nil {
		t.Fatal(err)
	}
}

// contents returns all keys and values.
func contents(t testing.TB, db interface {
	NewIter(*sift.IterOptions) (*sift.Iter, error)
}) map[string]string {
	t.Helper()
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for ok := it.First(); ok; ok = it.Next() {
		got[string(it.Key())] = string(it.Value())
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestDeleteRangeModel compares writes, range deletions and compactions with a map while snapshots
// and iterators are open: no older value of a key may come back, even after reopening.
func TestDeleteRangeModel(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			mem := vfstest.NewMem()
			open := func() *sift.DB {
				o := &sift.Options{MemtableBytes: 4 << 10, TableBytes: 2 << 10, LevelBaseBytes: 8 << 10, LevelMultiplier: 3, BlockBytes: 256}
				testhook.Apply(o, testhook.Settings{FS: mem, CleanNow: true})
				return mustOpen(t, "/db", o)
			}
			db := open()
			rng := rand.New(rand.NewPCG(seed, 21))
			name := func() string { return fmt.Sprintf("key%03d", rng.IntN(600)) }
			want := map[string]string{}
			type view struct {
				snap *sift.Snapshot
				it   *sift.Iter
				want map[string]string
			}
			var views []view
			check := func(v *view) {
				if v.snap != nil {
					if got := contents(t, v.snap); !maps.Equal(got, v.want) {
						t.Fatalf("a snapshot has %d keys, and had %d", len(got), len(v.want))
					}
					return
				}
				got := map[string]string{}
				for ok := v.it.First(); ok; ok = v.it.Next() {
					got[string(v.it.Key())] = string(v.it.Value())
				}
				if v.it.Err() != nil || !maps.Equal(got, v.want) {
					t.Fatalf("an iterator has %d keys, and had %d; %v", len(got), len(v.want), v.it.Err())
				}
			}
			for op := range 1500 {
				switch n := rng.IntN(100); {
				case n < 70:
					k := name()
					if rng.IntN(4) == 0 {
						delete(want, k)
						if err := db.Delete([]byte(k), sift.NoSync); err != nil {
							t.Fatal(err)
						}
						break
					}
					want[k] = fmt.Sprint(op, "-", string(make([]byte, rng.IntN(60))))
					if err := db.Put([]byte(k), []byte(want[k]), sift.NoSync); err != nil {
						t.Fatal(err)
					}
				case n < 76:
					from, to := name(), name()
					switch rng.IntN(6) {
					case 0:
						from = ""
					case 1:
						to = ""
					}
					deleteRange(t, db, from, to)
					maps.DeleteFunc(want, func(k, _ string) bool { return k >= from && (to == "" || k < to) })
				case n < 80 && len(views) < 3:
					v := view{want: maps.Clone(want)}
					if rng.IntN(2) == 0 {
						v.snap = db.Snapshot()
					} else {
						var err error
						if v.it, err = db.NewIter(nil); err != nil {
							t.Fatal(err)
						}
					}
					views = append(views, v)
				case n < 86 && len(views) > 0:
					check(&views[rng.IntN(len(views))])
				case n < 92 && len(views) > 0:
					v := views[0]
					views = views[1:]
					check(&v)
					if v.snap != nil {
						v.snap.Close()
					} else if err := v.it.Close(); err != nil {
						t.Fatal(err)
					}
				case n < 93:
					if err := db.Compact(context.Background(), nil, nil); err != nil {
						t.Fatal(err)
					}
				case n < 96:
					if got := contents(t, db); !maps.Equal(got, want) {
						t.Fatalf("operation %d: %d keys, want %d", op, len(got), len(want))
					}
				}
			}
			for _, v := range views {
				check(&v)
				if v.snap != nil {
					v.snap.Close()
				} else if err := v.it.Close(); err != nil {
					t.Fatal(err)
				}
			}
			mustClose(t, db)
			db = open()
			if got := contents(t, db); !maps.Equal(got, want) {
				t.Fatalf("after reopening: %d keys, want %d", len(got), len(want))
			}
			mustClose(t, db)
		})
	}
}

// TestDeleteRangePowerCuts cuts the power at each disk operation of a DeleteRange over keys that
// have older values in deeper levels: after each cut, every key in the range must have its newest
// value or none, and the others must be unchanged.
func TestDeleteRangePowerCuts(t *testing.T) {
	options := func(fs sift.FS) *sift.Options {
		o := &sift.Options{MemtableBytes: 64 << 10, TableBytes: 4 << 10, BlockBytes: 512, DisableAutoCompaction: true}
		testhook.Apply(o, testhook.Settings{FS: fs, CleanNow: true})
		return o
	}
	key := func(i int) []byte { return fmt.Appendf(nil, "key%04d", i) }
	const keys, from, to = 900, 205, 703
	mem := vfstest.NewMem()
	db := mustOpen(t, "/db", options(mem))
	want := map[string]string{}
	for round := range 4 {
		for i := range keys {
			if i%(round+1) != 0 {
				continue
			}
			if round == 2 {
				delete(want, string(key(i)))
				if err := db.Delete(key(i), sift.NoSync); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want[string(key(i))] = fmt.Sprintf("%d of round %d", i, round)
			if err := db.Put(key(i), []byte(want[string(key(i))]), sift.NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			if err := db.Compact(context.Background(), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		if round == 1 {
			if err := db.Compact(context.Background(), key(100), key(400)); err != nil {
				t.Fatal(err)
			}
		}
	}
	cutDeleteRange(t, mem, db, options, want, string(key(from)), string(key(to)))
}

// TestDeleteRangeNewerTable checks a table within the range that hides older values, and values of
// deleted keys, in a table that extends beyond the range. When the newer table is dropped, none of
// them may come back, whenever the power is cut.
func TestDeleteRangeNewerTable(t *testing.T) {
	options := func(fs sift.FS) *sift.Options {
		o := &sift.Options{DisableAutoCompaction: true}
		testhook.Apply(o, testhook.Settings{FS: fs, CleanNow: true})
		return o
	}
	key := func(i int) []byte { return fmt.Appendf(nil, "key%04d", i) }
	mem := vfstest.NewMem()
	db := mustOpen(t, "/db", options(mem))
	want := map[string]string{}
	for i := range 300 {
		want[string(key(i))] = "old"
		if err := db.Put(key(i), []byte("old"), sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	for i := 110; i < 190; i++ {
		var err error
		if i%3 == 0 {
			delete(want, string(key(i)))
			err = db.Delete(key(i), sift.NoSync)
		} else {
			want[string(key(i))] = "new"
			err = db.Put(key(i), []byte("new"), sift.NoSync)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := len(db.Tables()); n != 2 {
		t.Fatalf("%d tables; want one above another", n)
	}
	cutDeleteRange(t, mem, db, options, want, string(key(100)), string(key(200)))
}

// cutDeleteRange deletes a range of a database that holds want, and cuts the power after each
// operation: each key then has its old value or, within the range, none.
func cutDeleteRange(t *testing.T, mem *vfstest.Mem, db *sift.DB, options func(sift.FS) *sift.Options, want map[string]string, from, to string) {
	t.Helper()
	before := mem.NumOps()
	if err := db.DeleteRange(context.Background(), []byte(from), []byte(to)); err != nil {
		t.Fatal(err)
	}
	after := mem.NumOps()
	mustClose(t, db)
	states := 0
	for at := before; at <= after; at++ {
		for _, survival := range []vfstest.Survival{vfstest.LoseUnsynced, vfstest.KeepUnsynced, vfstest.TearUnsynced(uint64(at))} {
			disk := mem.CrashImage(at, survival)
			states++
			db, err := sift.Open("/db", options(disk))
			if err != nil {
				t.Fatalf("a cut after operation %d: %v", at, err)
			}
			got := contents(t, db)
			mustClose(t, db)
			for k, v := range want {
				in := k >= from && k < to
				if g, ok := got[k]; ok && g != v || !ok && !in || in && ok && at == after {
					t.Fatalf("a cut after operation %d of %d..%d: %s is %q, was %q", at, before, after, k, g, v)
				}
			}
			for k := range got {
				if _, ok := want[k]; !ok {
					t.Fatalf("a cut after operation %d: %s came back", at, k)
				}
			}
		}
	}
	if states < 10 {
		t.Errorf("only %d states after a power cut were checked", states)
	}
}

// TestDeleteRangeAtTables checks that DeleteRange drops a table that lies within the range, from
// its first key to its last, and no other: the keys of other tables are deleted one by one.
func TestDeleteRangeAtTables(t *testing.T) {
	for _, c := range []struct {
		from, to string // "": no bound
		left     int
		dropped  bool
	}{
		{"a", "c", 1, false},
		{"a", "c\x00", 0, true},
		{"a", "", 0, true},
		{"", "d", 0, true},
		{"a\x00", "", 1, false},
		{"c", "", 2, false},
	} {
		db := mustOpen(t, t.TempDir(), &sift.Options{DisableAutoCompaction: true})
		for _, k := range []string{"a", "b", "c"} {
			if err := db.Put([]byte(k), nil, sift.NoSync); err != nil {
				t.Fatal(err)
			}
		}
		var to []byte
		if c.to != "" {
			to = []byte(c.to)
		}
		if err := db.DeleteRange(context.Background(), []byte(c.from), to); err != nil {
			t.Fatal(err)
		}
		if got, seq := contents(t, db), db.Metrics().LastSequence; len(got) != c.left || (seq == 3) != c.dropped {
			t.Errorf("[%q, %q): %d keys are left, at sequence number %d", c.from, c.to, len(got), seq)
		}
		mustClose(t, db)
	}
}

func TestDeleteRangeDropsTables(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &sift.Options{TableBytes: 64 << 10, MemtableBytes: 128 << 10, DisableAutoCompaction: true})
	defer mustClose(t, db)
	key := func(i int) []byte { return fmt.Appendf(nil, "key%06d", i) }
	for i := range 50_000 {
		if err := db.Put(key(i), key(i), sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	files := map[string]bool{}
	for _, table := range db.Tables() {
		files[table.Path] = true
	}
	before := db.Metrics()
	if err := db.DeleteRange(context.Background(), key(1000), key(49_000)); err != nil {
		t.Fatal(err)
	}
	after := db.Metrics()
	if n := after.LastSequence - before.LastSequence; n > 48_000/4 {
		t.Errorf("%d keys were deleted one by one", n)
	}
	for _, table := range db.Tables() {
		delete(files, table.Path)
	}
	for path := range files {
		if exists(path) {
			t.Errorf("the file %s of a dropped table is still there", path)
		}
	}
	if len(files) < 3 {
		t.Errorf("%d tables have been dropped", len(files))
	}
	if got := contents(t, db); len(got) != 2000 {
		t.Errorf("%d keys are left", len(got))
	}
	if err := db.DeleteRange(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if n := len(db.Tables()); n != 0 {
		t.Errorf("%d tables are left of an empty database", n)
	}
}

func TestDeleteRangeErrors(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, nil)
	if err := db.Put([]byte("k"), []byte("v"), sift.Sync); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := db.DeleteRange(ctx, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	deleteRange(t, db, "z", "a")
	if has, err := db.Has([]byte("k")); !has || err != nil {
		t.Errorf("an empty range deleted a key: %v, %v", has, err)
	}
	// A transaction that has read in the range conflicts.
	tx, err := db.Begin(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Get([]byte("k")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Put([]byte("other"), nil); err != nil {
		t.Fatal(err)
	}
	deleteRange(t, db, "a", "z")
	if err := tx.Commit(); !errors.Is(err, sift.ErrConflict) {
		t.Errorf("a transaction that has read a deleted key: %v", err)
	}
	mustClose(t, db)
	if err := db.DeleteRange(context.Background(), nil, nil); !errors.Is(err, sift.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	ro := mustOpen(t, dir, &sift.Options{ReadOnly: true})
	defer mustClose(t, ro)
	if err := ro.DeleteRange(context.Background(), nil, nil); !errors.Is(err, sift.ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
}

// TestDeleteRangeEnds checks that DeleteRange returns although writers keep putting keys into the
// range.
func TestDeleteRangeEnds(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	defer mustClose(t, db)
	putKeys(t, db, "a", "k", "m0-00000", "z")
	var stop atomic.Bool
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; !stop.Load(); i++ {
				if err := db.Put(fmt.Appendf(nil, "m%d-%05d", w, i%5000), nil, sift.NoSync); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := db.DeleteRange(ctx, []byte("b"), []byte("y"))
	stop.Store(true)
	writers.Wait()
	if err != nil {
		t.Error(err)
	}
	for key, want := range map[string]bool{"a": true, "k": false, "z": true} {
		if has, err := db.Has([]byte(key)); has != want || err != nil {
			t.Errorf("Has(%s) is %v, %v", key, has, err)
		}
	}
}
