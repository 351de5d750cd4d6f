package sift

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/record"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// filesIn returns the contents of the database's files, by name.
func filesIn(t *testing.T, fs vfs.FS) map[string]string {
	t.Helper()
	names, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, name := range names {
		files[name] = ""
		if isDatabaseFile(name) {
			files[name] = string(readFile(t, fs, filepath.Join("db", name)))
		}
	}
	return files
}

// TestRepairOtherPrograms checks that Repair changes nothing in a database whose MANIFEST another
// program has written, or that has another comparator, and that it goes without the MANIFEST once
// that has been removed.
func TestRepairOtherPrograms(t *testing.T) {
	const n = 40
	newTable := []byte{103, 0} // a field of RocksDB and pebble
	for _, c := range []struct {
		what    string
		edit    []byte // the last edit of the MANIFEST
		current string // "": unchanged
	}{
		{"another comparator", []byte("\x01\x07another"), ""},
		{"RocksDB", newTable, ""},
		{"pebble before version 2", newTable, "MANIFEST-000000\n"},
		{"pebble", newTable, "-"}, // no CURRENT
	} {
		mem := vfstest.NewMem()
		db := mustOpen(t, "db", uncached(mem))
		loadKeys(t, db, n)
		mustClose(t, db)
		editFile(t, mem, manifest.KindManifest, func(b []byte) []byte {
			whole := bytes.NewBuffer(b)
			if err := record.NewWriter(whole).Append(c.edit); err != nil {
				t.Fatal(err)
			}
			return whole.Bytes()
		})
		current := filepath.Join("db", manifest.MakeName(manifest.KindCurrent, 0))
		if c.current == "-" {
			if err := mem.Remove(current); err != nil {
				t.Fatal(err)
			}
		} else if c.current != "" {
			writeFile(t, mem, current, []byte(c.current))
		}
		before := filesIn(t, mem)
		o := keyedOptions(mem) // with these, a secret would be created
		if report, err := Repair("db", o); !errors.Is(err, ErrUnsupported) || len(report.Dropped) > 0 {
			t.Errorf("%s: Repair: %v, %+v", c.what, err, report)
		}
		if db, err := Open("db", o); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: Open: %v", c.what, err)
			if err == nil {
				mustClose(t, db)
			}
		}
		if after := filesIn(t, mem); !maps.Equal(before, after) {
			t.Errorf("%s: the files were %q\nand are %q", c.what, before, after)
			continue
		}
		for name := range before {
			if kind, _, _ := manifest.ParseName(name); kind == manifest.KindManifest {
				if err := mem.Remove(filepath.Join("db", name)); err != nil {
					t.Fatal(err)
				}
			}
		}
		report, err := Repair("db", uncached(mem))
		if err != nil || report.FromManifest || report.Entries != n {
			t.Fatalf("%s, without the MANIFEST: %v, %+v", c.what, err, report)
		}
		db = mustOpen(t, "db", uncached(mem))
		wantKeys(t, db, n)
		mustClose(t, db)
	}
}

// TestRepairUnreadableManifest checks that Repair changes nothing if the disk cannot read the
// MANIFEST or CURRENT. Without the MANIFEST, it would read tables whose removal has failed, and
// bring deleted keys back.
func TestRepairUnreadableManifest(t *testing.T) {
	const n = 40
	mem := vfstest.NewMem()
	db := mustOpen(t, "db", uncached(mem))
	loadKeys(t, db, n)
	obsolete := map[string][]byte{}
	for _, table := range db.Tables() {
		obsolete[table.Path] = readFile(t, mem, table.Path)
	}
	for i := range n {
		if err := db.Delete(fmt.Appendf(nil, "key%06d", i), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	for path, b := range obsolete {
		writeFile(t, mem, path, b)
	}
	before := filesIn(t, mem)
	for _, c := range []struct {
		kind vfstest.OpKind
		name string
	}{
		{vfstest.OpOpen, "CURRENT"}, {vfstest.OpReadAt, "CURRENT"},
		{vfstest.OpOpen, "MANIFEST-"}, {vfstest.OpSize, "MANIFEST-"}, {vfstest.OpReadAt, "MANIFEST-"},
	} {
		faulty := vfstest.Inject(mem)
		faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool {
			return op.Kind == c.kind && strings.HasPrefix(filepath.Base(op.Name), c.name)
		}})
		if report, err := Repair("db", uncached(faulty)); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "move it elsewhere") {
			t.Fatalf("%v of %s fails, and Repair: %v, %+v", c.kind, c.name, err, report)
		}
		if after := filesIn(t, mem); !maps.Equal(before, after) {
			t.Errorf("%v of %s fails: the files were %q\nand are %q", c.kind, c.name, before, after)
		}
	}
	report, err := Repair("db", uncached(mem))
	if err != nil || !report.FromManifest || report.Entries != 0 {
		t.Errorf("once the disk works again: %v, %+v", err, report)
	}
}
