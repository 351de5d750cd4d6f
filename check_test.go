package sift

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// faultsOf checks a database and returns the report and the faults.
func faultsOf(t *testing.T, o *Options) (CheckReport, []error) {
	t.Helper()
	var faults []error
	report, err := Check(context.Background(), "db", o, func(err error) { faults = append(faults, err) })
	if err != nil || report.Faults != len(faults) {
		t.Errorf("Check counts %d faults and reports %d: %v", report.Faults, len(faults), err)
	}
	return report, faults
}

// TestCheckCounts checks that Check counts each entry and each key that a reader sees, including
// the empty key.
func TestCheckCounts(t *testing.T) {
	mem := vfstest.NewMem()
	o := uncached(mem)
	db := mustOpen(t, "db", o)
	for round := range 2 {
		for i := range 1500 {
			key := fmt.Appendf(nil, "key%04d", i)
			if i == 0 {
				key = nil
			}
			if err := db.Put(key, fmt.Append(nil, round), NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(db.Delete([]byte("key0007"), NoSync), db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, db)
	report, faults := faultsOf(t, o)
	// Neither table has an entry of the deleted key.
	if len(faults) != 0 || report.Entries != 2998 || report.Keys != 1499 || report.Tables != 2 || report.Filters != 2 || report.FilterlessBytes != 0 {
		t.Errorf("Check: %+v, %v", report, faults)
	}
}

// TestCheckLevels checks that Check reports each key of which an older value hides a newer one, so
// that a lookup does not find what a scan finds.
func TestCheckLevels(t *testing.T) {
	mem := vfstest.NewMem()
	deepDatabase(t, mem, []int{1, 2})
	if _, faults := faultsOf(t, uncached(mem)); len(faults) < 20 {
		t.Errorf("%d faults, want at least 20: %v", len(faults), faults)
	}
	mem = vfstest.NewMem()
	deepDatabase(t, mem, []int{2, 1})
	if _, faults := faultsOf(t, uncached(mem)); len(faults) != 0 {
		t.Error(faults)
	}
	// Values alone, without tombstones.
	mem = vfstest.NewMem()
	db := mustOpen(t, "db", uncached(mem))
	for i := range 2 {
		if err := errors.Join(db.Put([]byte("k"), fmt.Append(nil, i), NoSync), db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	newest := db.state.Load().version.Levels[0][0]
	edit := &manifest.Edit{
		Deleted: []manifest.DeletedTable{{Level: 0, Num: newest.Num}},
		Added:   []manifest.AddedTable{{Level: 2, Table: newest}},
	}
	if err := db.applyEdit(edit, nil, 0); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	if _, faults := faultsOf(t, uncached(mem)); len(faults) != 1 || !errors.Is(faults[0], ErrCorruption) {
		t.Errorf("an older value above a newer one: %v", faults)
	}
}

// TestCheckReportsOnce checks that a damaged block is one fault, and that lookups do not report it
// again.
func TestCheckReportsOnce(t *testing.T) {
	mem := vfstest.NewMem()
	o := uncached(mem)
	o.DisableCompression = true
	db := mustOpen(t, "db", o)
	for _, key := range []string{"a", "b", "c"} {
		if err := db.Put([]byte(key), []byte("value"), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	path := db.state.Load().version.Levels[0][0].Handle.(*table).path
	mustClose(t, db)
	b := readFile(t, mem, path)
	b[1] ^= 1
	writeFile(t, mem, path, b)
	if report, faults := faultsOf(t, o); len(faults) != 1 || report.Keys != 0 {
		t.Errorf("Check: %+v, %v", report, faults)
	}
}

// TestCheckWithoutManifest checks that a MANIFEST that is damaged, or names another comparator, is
// one fault, and that each table is then checked by itself.
func TestCheckWithoutManifest(t *testing.T) {
	for _, want := range []error{ErrCorruption, ErrUnsupported} {
		mem := vfstest.NewMem()
		o := uncached(mem)
		db := mustOpen(t, "db", o)
		loadKeys(t, db, 100)
		manifestPath := filepath.Join("db", manifest.MakeName(manifest.KindManifest, db.manifest.Num()))
		tables := db.Tables()
		if want == ErrUnsupported {
			comparator := "another"
			if err := db.manifest.Append(&manifest.Edit{Comparator: &comparator}); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, db)
		if want == ErrCorruption {
			b := readFile(t, mem, manifestPath)
			b[0] ^= 1
			writeFile(t, mem, manifestPath, b)
		}
		path := tables[0].Path
		if err := mem.Rename(path, strings.TrimSuffix(path, ".ldb")+".sst"); err != nil { // LevelDB's older name
			t.Fatal(err)
		}
		report, faults := faultsOf(t, o)
		if len(faults) != 1 || !errors.Is(faults[0], want) || report.Tables != len(tables) {
			t.Errorf("%v: %d of %d tables, %v", want, report.Tables, len(tables), faults)
		}
	}
}

// TestCheckOrphans checks that Check notes the tables and unfinished files that nothing refers to,
// and no other files.
func TestCheckOrphans(t *testing.T) {
	mem := vfstest.NewMem()
	o := uncached(mem)
	db := mustOpen(t, "db", o)
	loadKeys(t, db, 100)
	mustClose(t, db)
	orphans := []string{"000901.ldb", "000902.sst", "000903.dbtmp"}
	for _, name := range append(slices.Clone(orphans), "notes.txt") {
		writeFile(t, mem, filepath.Join("db", name), []byte("x"))
	}
	report, faults := faultsOf(t, o)
	if len(faults) != 0 || len(report.Notes) != len(orphans) {
		t.Fatalf("notes %q, faults %v", report.Notes, faults)
	}
	slices.Sort(report.Notes)
	for i, name := range orphans {
		if !strings.HasPrefix(report.Notes[i], filepath.Join("db", name)+":") {
			t.Errorf("the note about %s is %q", name, report.Notes[i])
		}
	}
}

// TestCheckKeyedNotes checks that Check notes keyed filters whose secret is missing, but no other
// filters that it cannot read.
func TestCheckKeyedNotes(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		mem := vfstest.NewMem()
		o := uncached(mem)
		o.KeyedFilters = keyed
		if !keyed {
			o.Filter = orderPolicy{filter.Bloom(10), new(callList)}
			o.LevelFilters = []filter.Policy{o.Filter}
		}
		db := mustOpen(t, "db", o)
		loadKeys(t, db, 100)
		mustClose(t, db)
		if keyed {
			if err := mem.Remove(filepath.Join("db", "FILTERKEY")); err != nil {
				t.Fatal(err)
			}
		}
		report, _ := faultsOf(t, uncached(mem))
		if report.Filters != 0 || report.FilterlessBytes != report.Bytes {
			t.Errorf("keyed %t: %+v", keyed, report)
		}
		if noted := len(report.Notes) == report.Tables; noted != keyed || !keyed && len(report.Notes) != 0 {
			t.Errorf("keyed %t: notes %q", keyed, report.Notes)
		}
	}
}

// TestCheckKeepsLock checks that Check holds the lock while it reads the files of a database that
// cannot be opened.
func TestCheckKeepsLock(t *testing.T) {
	mem := vfstest.NewMem()
	o := uncached(mem)
	db := mustOpen(t, "db", o)
	loadKeys(t, db, 100)
	mustClose(t, db)
	writeFile(t, mem, filepath.Join("db", "CURRENT"), []byte("x"))
	tried := false
	_, err := Check(context.Background(), "db", o, func(error) {
		if tried {
			return
		}
		tried = true
		if _, err := Repair("db", o); !errors.Is(err, ErrLocked) {
			t.Errorf("Repair during Check: %v", err)
		}
	})
	if err != nil || !tried {
		t.Error(tried, err)
	}
	if report, err := Repair("db", o); err != nil || report.Entries != 100 {
		t.Errorf("Repair after Check: %+v, %v", report, err)
	}
}
