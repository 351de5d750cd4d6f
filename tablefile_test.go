package sift

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs/vfstest"
	"github.com/siftdb/sift/sstable"
)

// TestTwoNames checks that, if a table has a file under each of its two names, the file with the
// size in the MANIFEST is used.
func TestTwoNames(t *testing.T) {
	const ldb, sst = "000007.ldb", "000007.sst"
	for _, c := range []struct {
		names     string
		ldb, sst  int // sizes in bytes
		unsizable string
		want      string
		err       error
	}{
		{names: ldb, ldb: 10, want: ldb},
		{names: ldb, ldb: 11, want: ldb}, // of the wrong size, but the only file
		{names: sst, sst: 10, want: sst},
		{names: ldb + sst, ldb: 10, sst: 11, want: ldb},
		{names: ldb + sst, ldb: 11, sst: 10, want: sst},
		{names: ldb + sst, ldb: 10, sst: 10, want: ldb},
		{names: ldb + sst, ldb: 11, sst: 12, want: ldb},
		{names: ldb + sst, ldb: 11, sst: 10, unsizable: ldb, err: syscall.EIO},
		{names: ldb + sst, ldb: 11, sst: 10, unsizable: sst, err: syscall.EIO},
		{names: ldb + sst, ldb: 10, sst: 10, unsizable: sst, want: ldb},
		{names: "", err: ErrCorruption},
	} {
		mem := vfstest.NewMem()
		if err := mem.MkdirAll("db"); err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for name, size := range map[string]int{ldb: c.ldb, sst: c.sst} {
			if strings.Contains(c.names, name) {
				there[name] = true
				writeFile(t, mem, filepath.Join("db", name), make([]byte, size))
			}
		}
		faulty := vfstest.Inject(mem)
		faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool {
			return op.Kind == vfstest.OpSize && filepath.Base(op.Name) == c.unsizable
		}})
		o := tableOpener{fs: faulty, dir: "db"}
		path, err := o.find(there, &manifest.TableMeta{Num: 7, Size: 10})
		if !errors.Is(err, c.err) || err == nil && path != filepath.Join("db", c.want) || err != nil && path != "" {
			t.Errorf("%+v: found %q, %v", c, path, err)
		}
	}
}

// TestTableOfAnother checks that a table counts as damaged if its number, size or keys are not
// those in the MANIFEST, or if it is empty.
func TestTableOfAnother(t *testing.T) {
	mem := vfstest.NewMem()
	db := mustOpen(t, "db", uncached(mem))
	defer mustClose(t, db)
	loadKeys(t, db, 100)
	at := db.state.Load().version.Levels[0][0]
	empty := filepath.Join("db", "empty")
	var buf bytes.Buffer
	if _, err := sstable.NewWriter(&buf, &sstable.WriterOptions{}).Finish(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, mem, empty, buf.Bytes())
	whole := at.Handle.(*table).path
	longer := append(bytes.Clone(at.Smallest[:len(at.Smallest)-8]), append([]byte("x"), at.Smallest[len(at.Smallest)-8:]...)...)
	for _, c := range []struct {
		path string
		meta *manifest.TableMeta
		want string // "": the table is valid
	}{
		{whole, &manifest.TableMeta{Num: at.Num, Size: at.Size, Smallest: at.Smallest, Largest: at.Largest}, ""},
		{whole, &manifest.TableMeta{Num: at.Num + 1, Size: at.Size, Smallest: at.Smallest, Largest: at.Largest}, "was written as table"},
		{whole, &manifest.TableMeta{Num: at.Num, Size: at.Size + 1, Smallest: at.Smallest, Largest: at.Largest}, "the MANIFEST says"},
		{whole, &manifest.TableMeta{Num: at.Num, Size: at.Size, Smallest: longer, Largest: at.Largest}, "the MANIFEST says"},
		{whole, &manifest.TableMeta{Num: at.Num, Size: at.Size, Smallest: at.Smallest, Largest: longer}, "the MANIFEST says"},
		{empty, &manifest.TableMeta{Num: at.Num, Size: uint64(buf.Len()), Smallest: at.Smallest, Largest: at.Largest}, "holds no entry"},
	} {
		x := db.opener.place(c.meta, c.path)
		_, err := x.load()
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrCorruption) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.meta, err)
		}
		if err := x.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestUnnamedPolicy checks that a filter counts as one of an unknown policy if the table's
// properties do not name its policy, so that BuildFilters rewrites the table.
func TestUnnamedPolicy(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	loadKeys(t, db, 100)
	for _, metas := range db.state.Load().version.Levels {
		for _, meta := range metas {
			meta.Handle.(*table).reader.Load().Properties().FilterPolicy = ""
		}
	}
	wantPolicies(t, db, "unknown")
	if err := buildFilters(db, nil); err != nil {
		t.Fatal(err)
	}
	wantPolicies(t, db, db.opts.LevelFilters[1].Name())
	wantKeys(t, db, 100)
}
