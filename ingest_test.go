package sift_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/testhook"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// opsOf returns operations that set the keys of m; an empty value deletes.
func opsOf(m map[string]string) iter.Seq2[sift.Op, error] {
	return func(yield func(sift.Op, error) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(sift.Op{Delete: m[k] == "", Key: []byte(k), Value: []byte(m[k])}, nil) {
				return
			}
		}
	}
}

func ingest(t *testing.T, db *sift.DB, m map[string]string) {
	t.Helper()
	if err := db.Ingest(context.Background(), opsOf(m)); err != nil {
		t.Fatal(err)
	}
}

// allOf returns all keys and values that an iterator finds.
func allOf(t *testing.T, it *sift.Iter, err error) map[string]string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for it.Next() {
		m[string(it.Key())] = string(it.Value())
	}
	mustClose(t, it)
	return m
}

// numbered returns every step-th of the keys from to to-1, all with the same value.
func numbered(from, to, step int, value string) map[string]string {
	m := map[string]string{}
	for i := from; i < to; i += step {
		m[fmt.Sprintf("key%05d", i)] = value
	}
	return m
}

// TestIngest ingests over, between and after keys in memory, in level 0 and in deeper levels, and
// checks all reads that could see too much or too little.
func TestIngest(t *testing.T) {
	prepare := map[string]func(t *testing.T, db *sift.DB){
		"empty":     func(t *testing.T, db *sift.DB) {},
		"in memory": func(t *testing.T, db *sift.DB) { fill(t, db, 300, "key%05d") },
		"in level 0": func(t *testing.T, db *sift.DB) {
			fill(t, db, 300, "key%05d")
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
			fill(t, db, 100, "key%05d")
		},
		"compacted": func(t *testing.T, db *sift.DB) {
			fill(t, db, 2000, "key%05d")
			if err := db.Compact(context.Background(), nil, nil); err != nil {
				t.Fatal(err)
			}
			fill(t, db, 10, "key00%03d")
		},
	}
	for name, prepare := range prepare {
		t.Run(name, func(t *testing.T) {
			fs := vfstest.NewMem()
			o := &sift.Options{MemtableBytes: 16 << 10, TableBytes: 8 << 10, LevelBaseBytes: 32 << 10, BlockBytes: 256, DisableAutoCompaction: true}
			testhook.Apply(o, testhook.Settings{FS: fs})
			db := mustOpen(t, "/db", o)
			prepare(t, db)
			scan := func(db *sift.DB) map[string]string {
				it, err := db.NewIter(nil)
				return allOf(t, it, err)
			}
			want := scan(db)
			for round, m := range []map[string]string{
				numbered(50, 250, 1, ""),             // deletions
				numbered(0, 3000, 7, "every 7th"),    // between and over
				numbered(5000, 9000, 1, "behind"),    // many tables
				numbered(4000, 4001, 1, "one"),       // one key
				numbered(20000, 20010, 1, ""),        // deletions of absent keys
				numbered(100, 200, 1, "once more"),   // over deletions
				{},                                   // nothing
				numbered(0, 30000, 1000, "all over"), // wide
			} {
				before, snap := maps.Clone(want), db.Snapshot()
				old, err := db.NewIter(nil)
				if err != nil {
					t.Fatal(err)
				}
				ingest(t, db, m)
				for k, v := range m {
					if want[k] = v; v == "" {
						delete(want, k)
					}
				}
				if got := scan(db); !maps.Equal(got, want) {
					t.Fatalf("round %d: %d keys, want %d", round, len(got), len(want))
				}
				if got := allOf(t, old, nil); !maps.Equal(got, before) {
					t.Fatalf("round %d: an older iterator sees %d keys, want %d", round, len(got), len(before))
				}
				it, err := snap.NewIter(nil)
				if got := allOf(t, it, err); !maps.Equal(got, before) {
					t.Fatalf("round %d: a snapshot sees %d keys, want %d", round, len(got), len(before))
				}
				for k, v := range m {
					got, err := db.Get([]byte(k))
					if v == "" && !errors.Is(err, sift.ErrNotFound) || v != "" && (err != nil || string(got) != v) {
						t.Fatalf("round %d: %s is %q, %v", round, k, got, err)
					}
					got, err = snap.Get([]byte(k))
					if b, ok := before[k]; string(got) != b || ok != (err == nil) {
						t.Fatalf("round %d: %s in the snapshot is %q, %v", round, k, got, err)
					}
				}
				mustClose(t, snap)
				key := fmt.Sprintf("key%05d", 150+round)
				if err := db.Put([]byte(key), []byte("later"), sift.Sync); err != nil {
					t.Fatal(err)
				}
				want[key] = "later"
				if round%3 == 2 {
					if err := db.Compact(context.Background(), nil, nil); err != nil {
						t.Fatal(err)
					}
				}
				if round%2 == 1 {
					mustClose(t, db)
					db = mustOpen(t, "/db", o)
				}
				if got := scan(db); !maps.Equal(got, want) {
					t.Fatalf("round %d, after a Put: %d keys, want %d", round, len(got), len(want))
				}
			}
			mustClose(t, db)
			if report, err := sift.Check(context.Background(), "/db", o, func(err error) { t.Error(err) }); err != nil {
				t.Fatal(report, err)
			}
		})
	}
}

// TestIngestLevels checks that keys after all others go directly to the deepest level, bypassing
// level 0.
func TestIngestLevels(t *testing.T) {
	o := &sift.Options{MemtableBytes: 64 << 10, TableBytes: 16 << 10, DisableAutoCompaction: true}
	testhook.Apply(o, testhook.Settings{FS: vfstest.NewMem()})
	db := mustOpen(t, "/db", o)
	defer db.Close()
	fill(t, db, 1000, "key%05d")
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	ingest(t, db, numbered(1000, 9000, 1, strings.Repeat("behind", 20)))
	tables := db.Tables()
	for _, table := range tables {
		if table.Level == 0 {
			t.Errorf("%+v is in level 0", table)
		}
	}
	if len(tables) < 5 {
		t.Errorf("only %d tables", len(tables))
	}
}

// TestIngestTableSizes checks that a large Ingest writes larger tables into deeper levels, and that
// all of its keys are found.
func TestIngestTableSizes(t *testing.T) {
	const tableBytes = 2 << 10
	o := &sift.Options{MemtableBytes: 8 << 10, TableBytes: tableBytes, LevelBaseBytes: 8 << 10, LevelMultiplier: 4, BlockBytes: 256, DisableCompression: true, DisableAutoCompaction: true}
	testhook.Apply(o, testhook.Settings{FS: vfstest.NewMem()})
	db := mustOpen(t, "/db", o)
	defer mustClose(t, db)
	const keys = 3000 // some 380 KiB; level 3 may have 128 KiB, and level 4 may have 512
	want := numbered(0, keys, 1, strings.Repeat("v", 100))
	ingest(t, db, want)
	tables := db.Tables()
	for i, table := range tables[:len(tables)-1] {
		least := uint64(tableBytes)
		if i > len(tables)/2 {
			least = 4 * tableBytes // level 4
		}
		if table.Size < least || table.Size > 8*tableBytes {
			t.Errorf("table %d of %d has %d bytes, want %d or more", i, len(tables), table.Size, least)
		}
	}
	it, err := db.NewIter(nil)
	if got := allOf(t, it, err); !maps.Equal(got, want) {
		t.Errorf("%d keys, want %d", len(got), keys)
	}
}

// TestIngestConflicts checks that transactions conflict with what was ingested since they began,
// wherever it is by then. That includes transactions that began while it was being written to
// tables.
func TestIngestConflicts(t *testing.T) {
	for _, compact := range []bool{false, true} {
		x := newTxs(t, &sift.Options{DisableAutoCompaction: true})
		for i := range 20 {
			x.set(fmt.Sprintf("key%05d", i), "old")
		}
		read := func(tx *sift.Tx) {
			if _, err := tx.Get([]byte("key00003")); err != nil {
				t.Fatal(err)
			}
		}
		scan := func(tx *sift.Tx) {
			it, err := tx.NewIter(&sift.IterOptions{LowerBound: []byte("key00030"), UpperBound: []byte("key00040")})
			if n := len(allOf(t, it, err)); n != 0 {
				t.Fatalf("a scan of an empty range finds %d keys", n)
			}
		}
		elsewhere := func(tx *sift.Tx) {
			if _, err := tx.Get([]byte("key00004")); err != nil {
				t.Fatal(err)
			}
		}
		var txs []*sift.Tx
		var want []error
		begin := func(conflicts error, f func(*sift.Tx)) {
			tx := x.begin()
			f(tx)
			x.put(tx, fmt.Sprintf("written by %d", len(txs)), "x")
			txs, want = append(txs, tx), append(want, conflicts)
		}
		all := func() {
			begin(sift.ErrConflict, read)
			begin(sift.ErrConflict, scan)
			begin(nil, elsewhere)
		}
		all()
		ops := func(yield func(sift.Op, error) bool) {
			all()
			for _, key := range []string{"key00003", "key00033"} {
				if !yield(sift.Op{Key: []byte(key), Value: []byte("new")}, nil) {
					return
				}
			}
			all()
		}
		if err := x.db.Ingest(context.Background(), ops); err != nil {
			t.Fatal(err)
		}
		if compact {
			if err := x.db.Compact(context.Background(), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		for i, tx := range txs {
			if err := tx.Commit(); !errors.Is(err, want[i]) || want[i] == nil && err != nil {
				t.Errorf("transaction %d, compacted %t: %v, want %v", i, compact, err, want[i])
			}
		}
		tx := x.begin()
		read(tx)
		x.put(tx, "later", "x")
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
	}
}

// TestIngestGaps checks that iterators do not skip keys ingested into empty ranges, whether these
// ranges were recorded as gaps before or an older iterator walks over them afterwards.
func TestIngestGaps(t *testing.T) {
	for _, walk := range []string{"before", "after", "both", "after, flushed"} {
		o := &sift.Options{DisableAutoCompaction: true}
		testhook.Apply(o, testhook.Settings{FS: vfstest.NewMem()})
		db := mustOpen(t, "/db", o)
		fill(t, db, 1000, "key%05d")
		if err := db.Flush(); err != nil { // so that flushes keep the tombstones
			t.Fatal(err)
		}
		for i := range 990 {
			if err := db.Delete(fmt.Appendf(nil, "key%05d", i), sift.NoSync); err != nil {
				t.Fatal(err)
			}
		}
		count := func(it *sift.Iter, want int) {
			t.Helper()
			n := 0
			for ok := it.First(); ok; ok = it.Next() {
				n++
			}
			back := 0
			for ok := it.Last(); ok; ok = it.Prev() {
				back++
			}
			if n != want || back != want || it.Err() != nil {
				t.Errorf("walk %s: %d keys, %d backward, want %d: %v", walk, n, back, want, it.Err())
			}
		}
		open := func() *sift.Iter {
			it, err := db.NewIter(nil)
			if err != nil {
				t.Fatal(err)
			}
			return it
		}
		if walk == "after, flushed" {
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
		} else if walk != "after" {
			it := open()
			count(it, 10)
			mustClose(t, it)
		}
		old := open()
		ingest(t, db, map[string]string{"key00500": "new"})
		if walk != "before" {
			count(old, 10)
		}
		it := open()
		count(it, 11)
		mustClose(t, it)
		mustClose(t, old)
		mustClose(t, db)
	}
}

// TestIngestFails checks that a failed Ingest has no effect.
func TestIngestFails(t *testing.T) {
	errStop := errors.New("stop")
	pair := func(key string, err error) func(yield func(sift.Op, error) bool) bool {
		return func(yield func(sift.Op, error) bool) bool { return yield(sift.Op{Key: []byte(key)}, err) }
	}
	seq := func(pairs ...func(func(sift.Op, error) bool) bool) iter.Seq2[sift.Op, error] {
		return func(yield func(sift.Op, error) bool) {
			for _, p := range pairs {
				if !p(yield) {
					return
				}
			}
		}
	}
	fs := vfstest.NewMem()
	o := &sift.Options{}
	testhook.Apply(o, testhook.Settings{FS: fs})
	db := mustOpen(t, "/db", o)
	fill(t, db, 10, "key%05d")
	ctx := context.Background()
	ended, end := context.WithCancel(ctx)
	ends := func(yield func(sift.Op, error) bool) bool { end(); return yield(sift.Op{Key: []byte("b")}, nil) }
	many := func(yield func(sift.Op, error) bool) bool {
		for i := range 2000 {
			if !yield(sift.Op{Key: fmt.Appendf(nil, "c%05d", i)}, nil) {
				return false
			}
		}
		return true
	}
	for name, c := range map[string]struct {
		ctx  context.Context
		ops  iter.Seq2[sift.Op, error]
		want string
	}{
		"descending": {ctx, seq(pair("b", nil), pair("a", nil)), `key "a" does not come after "b"`},
		"twice":      {ctx, seq(pair("b", nil), pair("b", nil)), `key "b" does not come after "b"`},
		"an error":   {ctx, seq(pair("a", nil), pair("", errStop)), errStop.Error()},
		"at once":    {ctx, seq(pair("", errStop)), errStop.Error()},
		"ended":      {ended, seq(pair("a", nil), ends, many), context.Canceled.Error()},
	} {
		if err := db.Ingest(c.ctx, c.ops); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	func() {
		defer func() {
			if p := recover(); p != errStop {
				t.Errorf("Ingest panics with %v", p)
			}
		}()
		db.Ingest(ctx, seq(pair("a", nil), func(func(sift.Op, error) bool) bool { panic(errStop) }))
	}()
	func() { // a panic after yield has returned false
		defer func() {
			if p := recover(); p != errStop {
				t.Errorf("Ingest panics with %v", p)
			}
		}()
		db.Ingest(ctx, func(yield func(sift.Op, error) bool) {
			defer func() { panic(errStop) }()
			seq(pair("b", nil), pair("a", nil))(yield)
		})
	}()
	var wg sync.WaitGroup
	wg.Go(func() {
		db.Ingest(ctx, seq(pair("a", nil), func(func(sift.Op, error) bool) bool { runtime.Goexit(); return false }))
	})
	wg.Wait()
	if n := countAll(t, db); n != 10 {
		t.Errorf("%d keys, want 10", n)
	}
	names, err := fs.List("/db")
	if err != nil {
		t.Fatal(err)
	}
	tables := db.Tables()
	if n := strings.Count(strings.Join(names, " "), ".ldb"); n != len(tables) {
		t.Errorf("%d table files, but %d tables: %q", n, len(tables), names)
	}

	// Close ends an Ingest, and waits for it.
	started, closed := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	go func() {
		<-started
		closed <- db.Close()
	}()
	err = db.Ingest(ctx, func(yield func(sift.Op, error) bool) {
		for i := 0; ; i++ {
			once.Do(func() { close(started) })
			if !yield(sift.Op{Key: fmt.Appendf(nil, "d%012d", i)}, nil) {
				return
			}
		}
	})
	if !errors.Is(err, sift.ErrClosed) {
		t.Errorf("Ingest while Close is called: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := db.Ingest(ctx, seq()); !errors.Is(err, sift.ErrClosed) {
		t.Errorf("Ingest after Close: %v", err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := mustOpen(t, "/other", o).Ingest(canceled, seq()); !errors.Is(err, context.Canceled) {
		t.Errorf("Ingest of nothing with a canceled context: %v", err)
	}
	o.ReadOnly = true
	db = mustOpen(t, "/db", o)
	defer db.Close()
	if err := db.Ingest(ctx, seq()); !errors.Is(err, sift.ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
	if n := countAll(t, db); n != 10 {
		t.Errorf("%d keys after a reopen, want 10", n)
	}
}

func countAll(t *testing.T, db *sift.DB) int {
	it, err := db.NewIter(nil)
	return len(allOf(t, it, err))
}

// TestIngestBesideOthers ingests generations of keys while others write, read and run transactions:
// no reader may see two generations at once, and no update may be lost.
func TestIngestBesideOthers(t *testing.T) {
	o := &sift.Options{MemtableBytes: 16 << 10, TableBytes: 8 << 10, LevelBaseBytes: 32 << 10}
	testhook.Apply(o, testhook.Settings{FS: vfstest.NewMem()})
	db := mustOpen(t, "/db", o)
	defer db.Close()
	const keys, generations = 200, 40
	generation := func(g int) map[string]string {
		m := numbered(0, keys, 1, fmt.Sprint(g))
		m["counter"] = fmt.Sprintf("%d+0", g)
		return m
	}
	ingest(t, db, generation(0))
	ctx, done := context.WithCancel(context.Background())
	defer done()
	var wg sync.WaitGroup
	until := func(f func(i int) error) {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := f(i); err != nil {
					t.Error(err)
					done()
				}
			}
		})
	}
	oneGeneration := func(it *sift.Iter, err error) error {
		if err != nil {
			return err
		}
		first, n := "", 0
		for ok := it.SeekGE([]byte("key")); ok; ok = it.Next() {
			if n++; first == "" {
				first = string(it.Value())
			} else if string(it.Value()) != first {
				return fmt.Errorf("generations %s and %s", first, it.Value())
			}
		}
		if err := it.Close(); err != nil || n != keys {
			return fmt.Errorf("a scan finds %d keys, %v", n, err)
		}
		return nil
	}
	until(func(i int) error {
		if i%2 == 0 {
			return oneGeneration(db.NewIter(nil))
		}
		s := db.Snapshot()
		defer s.Close()
		runtime.Gosched()
		return oneGeneration(s.NewIter(nil))
	})
	until(func(i int) error { return db.Put(fmt.Appendf(nil, "another%d", i%500), make([]byte, 100), sift.NoSync) })
	// The counter belongs to the generation of the keys: a transaction that adds to it must have
	// seen the newest one.
	until(func(i int) error {
		err := db.Transact(ctx, func(tx *sift.Tx) error {
			g, err := tx.Get([]byte("key00000"))
			if err != nil {
				return err
			}
			v, err := tx.Get([]byte("counter"))
			if err != nil {
				return err
			}
			var of, n int
			if _, err := fmt.Sscanf(string(v), "%d+%d", &of, &n); err != nil {
				return err
			}
			if fmt.Sprint(of) != string(g) {
				return fmt.Errorf("counter %s in generation %s", v, g)
			}
			return tx.Put([]byte("counter"), fmt.Appendf(nil, "%d+%d", of, n+1))
		})
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
	for g := 1; g <= generations && ctx.Err() == nil; g++ {
		ingest(t, db, generation(g))
		if v, err := db.Get([]byte("counter")); err != nil || !strings.HasPrefix(string(v), fmt.Sprintf("%d+", g)) {
			t.Errorf("generation %d: counter %s, %v", g, v, err)
		}
	}
	done()
	wg.Wait()
}

// TestIngestEndsAtNextOp checks that an Ingest whose context ends requests no further operations.
func TestIngestEndsAtNextOp(t *testing.T) {
	db, err := sift.OpenMemory(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	err = db.Ingest(ctx, func(yield func(sift.Op, error) bool) {
		for n = 1; n <= 200; n++ {
			if n == 2 {
				cancel()
			}
			if !yield(sift.Op{Key: fmt.Appendf(nil, "%03d", n)}, nil) {
				return
			}
		}
	})
	if !errors.Is(err, context.Canceled) || n > 2 {
		t.Errorf("%d operations, %v", n, err)
	}
}

// TestIngestTooLong checks the limit of Ingest.
func TestIngestTooLong(t *testing.T) {
	if testing.Short() {
		t.Skip("it allocates 1 GiB")
	}
	db, err := sift.OpenMemory(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	value := make([]byte, 1<<30-23) // with the key one byte too many; its pages are never touched
	err = db.Ingest(context.Background(), func(yield func(sift.Op, error) bool) { yield(sift.Op{Key: []byte("k"), Value: value}, nil) })
	if err == nil {
		t.Error("an operation that fits no batch was ingested")
	}
}
