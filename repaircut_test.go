package sift

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// noLinks returns fs without hard links.
func noLinks(fs vfs.FS) vfs.FS {
	faulty := vfstest.Inject(fs)
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Err: syscall.EPERM, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpLink }})
	return faulty
}

// oldFiles returns the files that Repair must not destroy, by name: all but CURRENT and
// LOCK.
func oldFiles(t *testing.T, fs vfs.FS) map[string]string {
	t.Helper()
	names, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, name := range names {
		switch kind, _, ok := manifest.ParseName(name); {
		case !ok || kind == manifest.KindCurrent || kind == manifest.KindLock:
		default:
			files[name] = string(readFile(t, fs, filepath.Join("db", name)))
		}
	}
	return files
}

// missingFiles returns the names of the files that are neither in the database's directory nor in
// lost with their old contents.
func missingFiles(t *testing.T, fs vfs.FS, want map[string]string) (missing []string) {
	t.Helper()
	var places []string
	for _, dir := range []string{"db", filepath.Join("db", lostDir)} {
		names, _ := fs.List(dir)
		for _, name := range names {
			places = append(places, filepath.Join(dir, name))
		}
	}
	for name, b := range want {
		if !slices.ContainsFunc(places, func(path string) bool {
			at := filepath.Base(path)
			return (at == name || strings.HasPrefix(at, name+".")) && string(readFile(t, fs, path)) == b
		}) {
			missing = append(missing, name)
		}
	}
	return missing
}

// TestRepairCuts checks that Repair destroys nothing, whenever the power is cut: each old file is
// in the directory or in lost, even after the Open or second Repair that follows, and everything
// readable is recovered. If CURRENT were switched before the old files are linked, an Open after a
// crash in between would remove them.
func TestRepairCuts(t *testing.T) {
	const n = 150
	for _, links := range []bool{true, false} {
		mem := vfstest.NewMem()
		db := mustOpen(t, "db", uncached(mem))
		loadKeys(t, db, n)
		mustClose(t, db)
		// An unreadable block, which will be only in lost, and an unreadable MANIFEST.
		editFile(t, mem, manifest.KindTable, func(b []byte) []byte { b[5] ^= 1; return b })
		editFile(t, mem, manifest.KindManifest, func(b []byte) []byte { b[9] ^= 1; return b })
		old := oldFiles(t, mem)
		img := mem.CrashImage(mem.NumOps(), vfstest.KeepUnsynced)
		begun := img.NumOps()
		fs := vfs.FS(img)
		if !links {
			fs = noLinks(img)
		}
		report, err := Repair("db", uncached(fs))
		if err != nil || len(report.Dropped) < 2 {
			t.Fatalf("Repair: %v, dropped %v", err, report.Dropped)
		}
		ended := img.NumOps()
		if ended-begun < 20 {
			t.Fatalf("Repair made only %d disk operations", ended-begun)
		}
		opened := 0
		for ops := begun; ops <= ended; ops++ {
			for _, s := range []vfstest.Survival{vfstest.LoseUnsynced, vfstest.KeepUnsynced, vfstest.TearUnsynced(uint64(ops)), vfstest.TearUnsynced(uint64(ops) << 20)} {
				what := fmt.Sprintf("links %v, a power cut after %d operations of %d, survival %d", links, ops-begun, ended-begun, s)
				cut := img.CrashImage(ops, s)
				if m := missingFiles(t, cut, old); len(m) > 0 {
					t.Fatalf("%s: neither in the directory nor in lost: %v", what, m)
				}
				o := uncached(cut)
				o.ErrorIfMissing = true
				db, err := Open("db", o)
				if err == nil {
					opened++
				} else if !errors.Is(err, ErrCorruption) || ops == ended {
					t.Fatalf("%s: %v", what, err)
				} else {
					if again, err := Repair("db", uncached(cut)); err != nil || again.Entries != report.Entries {
						t.Fatalf("%s: Repair: %v, %d entries", what, err, again.Entries)
					}
					db = mustOpen(t, "db", o)
				}
				if got := countKeys(t, db); uint64(got) != report.Entries {
					t.Errorf("%s: %d keys, want %d", what, got, report.Entries)
				}
				mustClose(t, db)
				if m := missingFiles(t, cut, old); len(m) > 0 {
					t.Fatalf("%s, after an Open: neither in the directory nor in lost: %v", what, m)
				}
			}
		}
		if opened < 8 {
			t.Errorf("links %v: only %d images opened", links, opened)
		}
	}
}

// TestRepairClosesFirst checks that Repair neither renames nor removes a file that it holds open,
// which Windows refuses.
func TestRepairClosesFirst(t *testing.T) {
	mem := crashedDisk(t, vfstest.NewMem())
	faulty := vfstest.Inject(mem)
	faulty.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpRemove || op.Kind == vfstest.OpRename {
			if slices.Contains(faulty.OpenFiles(), op.Name) {
				return fmt.Errorf("%s is open", op.Name)
			}
		}
		return nil
	})
	if _, err := Repair("db", uncached(faulty)); err != nil {
		t.Fatal(err)
	}
	if len(faulty.Failed()) > 0 {
		t.Errorf("renames or removals of open files: %v", faulty.Failed())
	}
	names, err := mem.List("db")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) > 7 { // more than CURRENT, LOCK, lost, a MANIFEST, a log and the tables
		t.Errorf("old files are left: %v", names)
	}
}

// TestRepairRemovesWhatItWrote checks that a Repair that fails leaves no new tables and logs, which
// the next one would read and keep in lost.
func TestRepairRemovesWhatItWrote(t *testing.T) {
	mem := vfstest.NewMem()
	db := mustOpen(t, "db", uncached(mem))
	loadKeys(t, db, 150)
	mustClose(t, db)
	old, err := mem.List("db")
	if err != nil {
		t.Fatal(err)
	}
	faulty := vfstest.Inject(mem)
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool {
		inLost := filepath.Base(filepath.Dir(op.Name)) == lostDir
		return op.Kind == vfstest.OpLink || op.Kind == vfstest.OpCreate && inLost
	}})
	if _, err := Repair("db", uncached(faulty)); !errors.Is(err, syscall.EIO) {
		t.Errorf("Repair when old files can be neither linked nor copied: %v", err)
	}
	names, err := mem.List("db")
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == lostDir })
	if !slices.Equal(names, old) {
		t.Errorf("files after Repair: %q; before: %q", names, old)
	}
	if open := faulty.OpenFiles(); len(open) > 0 {
		t.Errorf("left open: %v", open)
	}
}

// TestRepairLeavesNoCopies checks that a Repair that fails removes the links or copies of old files
// that it has made in lost, unless CURRENT may name the new MANIFEST, and nothing that an earlier
// Repair has left there.
func TestRepairLeavesNoCopies(t *testing.T) {
	const n = 150
	for _, links := range []bool{true, false} {
		for _, c := range []struct {
			what  string
			fault func(op vfstest.Op) bool
			kept  bool
		}{
			{"lost cannot be synced", func(op vfstest.Op) bool { return op.Kind == vfstest.OpSyncDir && filepath.Base(op.Name) == lostDir }, false},
			{"there is no new MANIFEST", func(op vfstest.Op) bool {
				return op.Kind == vfstest.OpCreate && strings.HasPrefix(filepath.Base(op.Name), "MANIFEST-")
			}, false},
			{"CURRENT cannot be replaced", func(op vfstest.Op) bool { return op.Kind == vfstest.OpRename && filepath.Base(op.To) == "CURRENT" }, true},
		} {
			what := fmt.Sprintf("links %v, %s", links, c.what)
			mem := vfstest.NewMem()
			db := mustOpen(t, "db", uncached(mem))
			loadKeys(t, db, n)
			// An earlier Repair has used the name of a table.
			name := filepath.Base(db.Tables()[0].Path)
			mustClose(t, db)
			lost := filepath.Join("db", lostDir)
			if err := mem.MkdirAll(lost); err != nil {
				t.Fatal(err)
			}
			writeFile(t, mem, filepath.Join(lost, name), []byte("of an earlier repair"))
			old := oldFiles(t, mem)
			faulty := vfstest.Inject(mem)
			copied := false
			faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool {
				copied = copied || op.Kind == vfstest.OpCreate && filepath.Dir(op.Name) == lost
				return c.fault(op)
			}})
			var fs vfs.FS = faulty
			if !links {
				fs = noLinks(fs)
			}
			for range 3 {
				if _, err := Repair("db", uncached(fs)); !errors.Is(err, syscall.EIO) || copied == links {
					t.Errorf("%s: Repair: %v, copied: %t", what, err, copied)
				}
			}
			names, err := mem.List(lost)
			if err != nil || !c.kept && !slices.Equal(names, []string{name}) || c.kept && len(names) < 3*len(old) {
				t.Errorf("%s: in lost are %q, %v", what, names, err)
			}
			if got := string(readFile(t, mem, filepath.Join(lost, name))); got != "of an earlier repair" {
				t.Errorf("%s: the file of an earlier repair is now %.30q", what, got)
			}
			if m := missingFiles(t, mem, old); len(m) > 0 {
				t.Errorf("%s: neither in the directory nor in lost: %v", what, m)
			}
			db = mustOpen(t, "db", uncached(mem))
			wantKeys(t, db, n)
			mustClose(t, db)
			if report, err := Repair("db", uncached(mem)); err != nil || report.Entries != n {
				t.Errorf("%s: Repair, once the disk works again: %v, %d entries", what, err, report.Entries)
			}
		}
	}
}

// TestRepairDamagedManifest checks that Repair finds all entries, whichever byte of the MANIFEST is
// damaged, and wherever it is cut off: an edit that is lost may have added a table.
func TestRepairDamagedManifest(t *testing.T) {
	const n = 40
	mem := vfstest.NewMem()
	for _, keys := range []int{n / 2, n} { // the last edits in the MANIFEST add tables with new keys
		db := mustOpen(t, "db", uncached(mem))
		loadKeys(t, db, keys)
		mustClose(t, db)
	}
	size := 0
	editFile(t, mem, manifest.KindManifest, func(b []byte) []byte { size = len(b); return b })
	for at := range size {
		for what, edit := range map[string]func(b []byte) []byte{
			"a changed byte": func(b []byte) []byte { b[at] ^= 1; return b },
			"cut off":        func(b []byte) []byte { return b[:at] },
		} {
			img := mem.CrashImage(mem.NumOps(), vfstest.KeepUnsynced)
			editFile(t, img, manifest.KindManifest, edit)
			report, err := Repair("db", uncached(img))
			if err != nil || report.Entries != n || len(report.Dropped) == 0 {
				t.Fatalf("%s at %d of %d: %v, %d entries, dropped %v", what, at, size, err, report.Entries, report.Dropped)
			}
			if report.FromManifest {
				t.Errorf("%s at %d of %d: the MANIFEST counts as intact", what, at, size)
			}
			db := mustOpen(t, "db", uncached(img))
			wantKeys(t, db, n)
			mustClose(t, db)
		}
	}
}

// TestRepairAppendedTable checks that bytes after the end of a table do not hide it, and are
// reported.
func TestRepairAppendedTable(t *testing.T) {
	const n = 40
	mem := vfstest.NewMem()
	db := mustOpen(t, "db", uncached(mem))
	loadKeys(t, db, n)
	mustClose(t, db)
	editFile(t, mem, manifest.KindTable, func(b []byte) []byte { return append(b, make([]byte, 20)...) })
	report, err := Repair("db", uncached(mem))
	if err != nil || report.Entries != n || len(report.Dropped) != 1 || !errors.Is(report.Dropped[0], ErrCorruption) {
		t.Fatalf("%v, %d entries, dropped %v", err, report.Entries, report.Dropped)
	}
	db = mustOpen(t, "db", uncached(mem))
	wantKeys(t, db, n)
	mustClose(t, db)
}
