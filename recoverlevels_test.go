package sift

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
	"github.com/siftdb/sift/sstable"
)

// deepDatabase creates a database with a table in each of the levels, which must not ascend: the
// first table is the oldest. Each table sets or deletes half of the keys, so the contents, which
// are returned, depend on all of them.
func deepDatabase(t *testing.T, fs vfs.FS, levels []int) map[string]string {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(len(levels)), 3))
	o := uncached(fs)
	o.DisableAutoCompaction, o.cleanNow = true, true
	db := mustOpen(t, "db", o)
	want := map[string]string{}
	for i := range levels {
		for k := range 120 {
			key, value := fmt.Sprintf("key%03d", k), fmt.Sprintf("value %d of table %d", k, i)
			var err error
			switch rng.IntN(8) {
			case 0, 1, 2:
				err = db.Put([]byte(key), []byte(value), NoSync)
				want[key] = value
			case 3:
				err = db.Delete([]byte(key), NoSync)
				delete(want, key)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	tables := slices.Clone(db.state.Load().version.Levels[0])
	slices.Reverse(tables)
	if len(tables) != len(levels) {
		t.Fatalf("%d tables for %d levels", len(tables), len(levels))
	}
	mustClose(t, db)
	s := &manifest.State{Version: new(manifest.Version), LogNumber: db.logNumber, NextFile: db.nextFile.Load() + 1, LastSeq: db.flushedSeq}
	w, _, err := manifest.Create(fs, "db", db.nextFile.Load(), s)
	if err != nil {
		t.Fatal(err)
	}
	for i, level := range levels {
		if err := w.Append(&manifest.Edit{Added: []manifest.AddedTable{{Level: level, Table: tables[i]}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return want
}

// wantContents compares a database with what it should hold, by a scan and by lookups.
func wantContents(t *testing.T, what string, db *DB, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for e, err := range db.Scan(nil) {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		got[string(e.Key)] = string(e.Value)
	}
	if !maps.Equal(got, want) {
		t.Fatalf("%s: a scan finds %d keys, want %d: %v", what, len(got), len(want), got)
	}
	var keys [][]byte
	for k := range 120 {
		keys = append(keys, fmt.Appendf(nil, "key%03d", k))
	}
	many, err := db.GetMany(keys)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for i, key := range keys {
		value, there := want[string(key)]
		v, err := db.Get(key)
		if string(v) != value || there != (err == nil) || !there && !errors.Is(err, ErrNotFound) {
			t.Fatalf("%s: Get(%s) is %q, %v; want %q", what, key, v, err, value)
		}
		if string(many[i]) != value || there != (many[i] != nil) {
			t.Fatalf("%s: GetMany gives %q for %s, want %q", what, many[i], key, value)
		}
	}
}

// TestDeepLevels checks that a database with tables in levels deeper than LevelDB's, as goleveldb
// creates them, can be read, and that an Open for writing reduces the levels, whenever the power is
// cut meanwhile.
func TestDeepLevels(t *testing.T) {
	for _, levels := range [][]int{
		{7}, {9, 3, 0}, {8, 6, 5, 4, 3, 2, 0, 0}, {7, 6, 5, 4, 3, 2, 1, 0}, {13, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0},
	} {
		t.Run(strings.Trim(fmt.Sprint(levels), "[]"), func(t *testing.T) {
			mem := vfstest.NewMem()
			want := deepDatabase(t, mem, levels)
			disk := func() *vfstest.Mem { return mem.CrashImage(mem.NumOps(), vfstest.KeepUnsynced) }
			o := uncached(disk())
			o.ReadOnly = true
			db := mustOpen(t, "db", o)
			wantContents(t, "read-only", db, want)
			mustClose(t, db)
			mustCheck(t, "db", uncached(disk()))

			recovers := func(what string, fs vfs.FS) {
				t.Helper()
				mustCheck(t, "db", uncached(fs))
				state, err := manifest.Load(fs, "db")
				if err != nil || state.Deep != nil {
					t.Fatalf("%s: there are still too many levels: %v, %v", what, state, err)
				}
				names, err := fs.List("db")
				if err != nil {
					t.Fatal(err)
				}
				files := 0
				for _, name := range names {
					if filepath.Ext(name) == ".ldb" {
						files++
					}
				}
				if files != state.Version.NumTables() {
					t.Errorf("%s: the MANIFEST names %d tables, and the files are %v", what, state.Version.NumTables(), names)
				}
			}
			img := disk()
			begun := img.NumOps()
			o = uncached(img)
			o.DisableAutoCompaction, o.cleanNow = true, true
			db = mustOpen(t, "db", o)
			ended := img.NumOps()
			wantContents(t, "opened", db, want)
			if err := db.Compact(context.Background(), nil, nil); err != nil {
				t.Fatal(err)
			}
			wantContents(t, "compacted", db, want)
			mustClose(t, db)
			recovers("opened", img)

			step := 1
			if testing.Short() {
				step = 5
			}
			for ops := begun; ops <= ended; ops += step {
				for _, s := range []vfstest.Survival{vfstest.LoseUnsynced, vfstest.KeepUnsynced, vfstest.TearUnsynced(uint64(ops))} {
					what := fmt.Sprintf("a power cut after %d operations of %d, survival %d", ops-begun, ended-begun, s)
					cut := img.CrashImage(ops, s)
					db, err := Open("db", uncached(cut))
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					wantContents(t, what, db, want)
					mustClose(t, db)
					recovers(what, cut)
				}
			}
			img = disk()
			report, err := Repair("db", uncached(img))
			if err != nil || len(report.Dropped) > 0 {
				t.Fatalf("Repair: %v, %v", err, report.Dropped)
			}
			db = mustOpen(t, "db", uncached(img))
			wantContents(t, "repaired", db, want)
			mustClose(t, db)
		})
	}
}

// TestDeepDamaged opens a tree that is too deep and has unreadable tables: two other levels must be
// merged; if there are none, the error must say why.
func TestDeepDamaged(t *testing.T) {
	for _, c := range []struct {
		damaged []int // indices of tables, oldest first
		opens   bool
	}{{[]int{6}, true}, {[]int{6, 4, 2, 0}, false}} {
		mem := vfstest.NewMem()
		deepDatabase(t, mem, []int{7, 6, 5, 4, 3, 2, 1})
		state, err := manifest.Load(mem, "db")
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range c.damaged {
			meta := state.Deep[len(state.Deep)-1-i].Tables[0]
			writeFile(t, mem, filepath.Join("db", manifest.MakeName(manifest.KindTable, meta.Num)), make([]byte, meta.Size))
		}
		faulty := vfstest.Inject(mem)
		db, err := Open("db", uncached(faulty))
		if c.opens {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Get([]byte("key000")); !errors.Is(err, ErrCorruption) {
				t.Errorf("a lookup past a damaged table: %v", err)
			}
			mustClose(t, db)
		} else if !errors.Is(err, ErrCorruption) {
			t.Errorf("Open when no two levels can be merged: %v", err)
		}
		if open := faulty.OpenFiles(); len(open) > 0 {
			t.Errorf("left open: %v", open)
		}
	}
}

// TestDeepLevelsLeaveNothingOpen checks that merged tables are closed, even those that are merged
// again, as happens when twenty levels become six.
func TestDeepLevelsLeaveNothingOpen(t *testing.T) {
	mem := vfstest.NewMem()
	var levels []int
	for level := range 20 {
		levels = append(levels, 20-level)
	}
	want := deepDatabase(t, mem, levels)
	faulty := vfstest.Inject(mem)
	db := mustOpen(t, "db", uncached(faulty))
	wantContents(t, "opened", db, want)
	names, err := faulty.List("db")
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return filepath.Ext(name) != ".ldb" })
	if n := db.state.Load().version.NumTables(); len(names) != n {
		t.Errorf("%d tables, but files %q", n, names)
	}
	mustClose(t, db)
	if open := faulty.OpenFiles(); len(open) > 0 {
		t.Errorf("left open: %v", open)
	}
}

// TestSmallestPair checks that, of the pairs of adjacent levels whose tables can all be read, the
// first of those with the fewest bytes is chosen.
func TestSmallestPair(t *testing.T) {
	readable := new(table)
	readable.reader.Store(new(sstable.Reader))
	damaged := &table{err: ErrCorruption}
	for _, c := range []struct {
		sizes   []uint64
		damaged int // the level with a damaged table; -1: none
		want    int
	}{
		{[]uint64{5, 5, 5}, -1, 0}, {[]uint64{1, 2, 3, 4}, -1, 0}, {[]uint64{4, 3, 2, 1}, -1, 2}, {[]uint64{4, 1, 2, 9}, -1, 1},
		{[]uint64{1, 2, 3, 4}, 0, 1}, {[]uint64{1, 2, 3, 4}, 1, 2}, {[]uint64{4, 3, 2, 1}, 3, 1}, {[]uint64{4, 3, 1, 1}, 3, 1}, {[]uint64{1, 1, 1}, 1, -1},
	} {
		var levels []manifest.DeepLevel
		for i, size := range c.sizes {
			handle := readable
			if i == c.damaged {
				handle = damaged
			}
			levels = append(levels, manifest.DeepLevel{Level: i + 1, Tables: []*manifest.TableMeta{{Size: size, Handle: handle}}})
		}
		got, err := smallestPair(levels)
		if (err == nil) != (c.want >= 0) || err == nil && got != c.want {
			t.Errorf("sizes %v, level %d is damaged: %d, %v; want %d", c.sizes, c.damaged, got, err, c.want)
		}
		if err != nil && (!errors.Is(err, ErrCorruption) || !strings.Contains(err.Error(), fmt.Sprintf("%d levels, more than %d", len(levels)+1, manifest.NumLevels))) {
			t.Errorf("%v: %v", c.sizes, err)
		}
	}
}
