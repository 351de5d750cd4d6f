package sift

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs/vfstest"
	"github.com/siftdb/sift/sstable"
)

// TestDamagedTable checks that one unreadable table makes only the reads that need it and Compact
// fail; everything else works, including BuildFilters.
func TestDamagedTable(t *testing.T) {
	const n = 12000
	fs := vfstest.NewMem()
	o := keyedOptions(fs)
	o.KeyedFilters, o.Filter = false, filter.Bloom(10)
	db := mustOpen(t, "db", o)
	loadKeys(t, db, n)
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	tables := 0
	var victim *manifest.TableMeta
	for _, level := range db.state.Load().version.Levels {
		for _, meta := range level {
			victim = meta
			tables++
		}
	}
	if tables < 3 {
		t.Fatalf("only %d tables", tables)
	}
	mustClose(t, db)
	path := filepath.Join("db", manifest.MakeName(manifest.KindTable, victim.Num))
	f, err := fs.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, victim.Size)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	o.Filter = filter.Bloom(12)
	db = mustOpen(t, "db", o)
	rewritten, err := db.BuildFilters(context.Background())
	if err != nil || rewritten != tables-1 {
		t.Errorf("%d of %d tables got another filter, %v", rewritten, tables, err)
	}
	key := base.UserKey(victim.Smallest)
	if err := db.Put(append(key[:len(key):len(key)], "+"...), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Compact(context.Background(), nil, nil); !errors.Is(err, ErrCorruption) {
		t.Errorf("Compact: %v", err)
	}
	lost := 0
	for i := range n {
		v, err := db.Get(fmt.Appendf(nil, "key%06d", i))
		switch {
		case errors.Is(err, ErrCorruption):
			lost++
		case err != nil || string(v) != fmt.Sprint("value", i):
			t.Fatalf("key %d is %q, %v", i, v, err)
		}
	}
	if lost == 0 || lost > 2*n/tables {
		t.Errorf("%d of %d keys cannot be read", lost, n)
	}
	mustClose(t, db)
}

// TestBuildFiltersBelowDamage checks that an unreadable table in level 0 does not keep BuildFilters
// from rewriting the tables of the other levels, even if another table of level 0 needs a filter.
func TestBuildFiltersBelowDamage(t *testing.T) {
	fs := vfstest.NewMem()
	o := keyedOptions(fs)
	o.KeyedFilters, o.Filter, o.DisableAutoCompaction = false, filter.Bloom(10), true
	db := mustOpen(t, "db", o)
	loadKeys(t, db, 12000)
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	below := len(db.Tables())
	for i := range 2 {
		if err := db.Put([]byte("key000000"), []byte{byte(i)}, nil); err != nil {
			t.Fatal(err)
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	upper := db.state.Load().version.Levels[0]
	if len(upper) != 2 {
		t.Fatalf("%d tables in level 0", len(upper))
	}
	victim := upper[0]
	mustClose(t, db)
	f, err := fs.Create(filepath.Join("db", manifest.MakeName(manifest.KindTable, victim.Num)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, victim.Size)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	o.Filter = filter.Bloom(12)
	db = mustOpen(t, "db", o)
	defer mustClose(t, db)
	for range 2 {
		rewritten, err := db.BuildFilters(context.Background())
		if !errors.Is(err, ErrCorruption) || rewritten != below {
			t.Errorf("%d of %d tables got another filter, %v", rewritten, below, err)
		}
		below = 0
	}
}

// TestRepairMissing checks that Repair uses the files that are there if one that the MANIFEST names
// is missing.
func TestRepairMissing(t *testing.T) {
	const n = 4000
	for _, ext := range []string{".ldb", ".log"} {
		fs := vfstest.NewMem()
		o := keyedOptions(fs)
		o.KeyedFilters = false
		db := mustOpen(t, "db", o)
		loadKeys(t, db, n)
		mustClose(t, db)
		names, err := fs.List("db")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if filepath.Ext(name) == ext {
				if err := fs.Remove(filepath.Join("db", name)); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		if db, err := Open("db", o); err == nil {
			t.Errorf("Open succeeds without a %s file", ext)
			mustClose(t, db)
		}
		report, err := Repair("db", o)
		if err != nil || report.FromManifest || len(report.Dropped) == 0 {
			t.Errorf("Repair without a %s file: %+v, %v", ext, report, err)
		}
		if ext == ".log" && report.Entries != n || report.Entries == 0 {
			t.Errorf("Repair without a %s file: %d entries", ext, report.Entries)
		}
		mustCheck(t, "db", o)
	}
}

// TestOptionsOfTools checks that Check and Repair reject invalid options, as Open does.
func TestOptionsOfTools(t *testing.T) {
	o := &Options{BlockBytes: -1, FS: vfstest.NewMem()}
	_, cerr := Check(context.Background(), "db", o, func(err error) { t.Error(err) })
	_, rerr := Repair("db", o)
	for _, err := range []error{cerr, rerr} {
		if err == nil || !strings.Contains(err.Error(), "BlockBytes") {
			t.Errorf("invalid BlockBytes: %v", err)
		}
	}
}

// TestRepairDisk fails each disk operation of a Repair in turn, on a database whose log has entries
// that are in no table: Repair must return an error or lose nothing, and after an error it must
// succeed when called again.
func TestRepairDisk(t *testing.T) {
	const n = 60
	mem := vfstest.NewMem()
	o := keyedOptions(mem)
	o.KeyedFilters = false
	db := mustOpen(t, "db", o)
	for i := range n {
		if i == n/2 {
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Put(fmt.Appendf(nil, "key%06d", i), fmt.Appendf(nil, "value%d", i), Sync); err != nil {
			t.Fatal(err)
		}
	}
	ops := mem.NumOps()
	mustClose(t, db)
	for at := 0; ; at++ {
		img := mem.CrashImage(ops, vfstest.KeepUnsynced)
		faulty := vfstest.Inject(img)
		faulty.SetFaults(vfstest.Fault{Index: at})
		o.FS = faulty
		report, err := Repair("db", o)
		failed := faulty.Failed()
		if err == nil && report.Entries != n {
			t.Fatalf("%v fails: %d entries of %d, and no error", failed, report.Entries, n)
		}
		if len(failed) == 0 {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if len(faulty.OpenFiles()) > 0 {
			t.Errorf("%v fails: left open: %v", failed, faulty.OpenFiles())
		}
		o.FS = img
		if err != nil {
			if _, err := Repair("db", o); err != nil {
				t.Fatalf("%v failed, and then Repair: %v", failed, err)
			}
		}
		db := mustOpen(t, "db", o)
		wantKeys(t, db, n)
		mustClose(t, db)
	}
}

// firstBlock returns the first data block of a table.
func firstBlock(t *testing.T, table []byte) sstable.DataBlockInfo {
	t.Helper()
	r, err := sstable.NewReader(bytes.NewReader(table), int64(len(table)), &sstable.ReaderOptions{IgnoreFilter: true})
	if err != nil {
		t.Fatal(err)
	}
	info, err := r.DataBlock(0)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// misplaced returns options for a database of one table with the keys a, b and c, of which b has
// become another one, with a right checksum.
func misplaced(t *testing.T, b byte) *Options {
	t.Helper()
	mem := vfstest.NewMem()
	o := uncached(mem)
	o.DisableCompression = true
	db := mustOpen(t, "db", o)
	for _, k := range []string{"a", "b", "c"} {
		if err := db.Put([]byte(k), []byte("value"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	path := db.state.Load().version.Levels[0][0].Handle.(*table).path
	mustClose(t, db)
	data := readFile(t, mem, path)
	info := firstBlock(t, data)
	end := info.Offset + info.Length
	data[bytes.IndexByte(data[:end], 'b')] = b
	binary.LittleEndian.PutUint32(data[end+1:], base.Checksum(data[info.Offset:end], data[end:end+1]))
	writeFile(t, mem, path, data)
	return o
}

// TestRepairKeyOrder checks that Repair skips the rest of a block with a key that is out of order,
// or beyond the block, although its checksum is right.
func TestRepairKeyOrder(t *testing.T) {
	for _, b := range []byte("Az") {
		o := misplaced(t, b)
		report, err := Repair("db", o)
		if err != nil || report.Entries != 1 || len(report.Dropped) != 1 || !errors.Is(report.Dropped[0], ErrCorruption) {
			t.Fatalf("%c: %+v, %v", b, report, err)
		}
		db := mustOpen(t, "db", o)
		if v, err := db.Get([]byte("a")); string(v) != "value" || err != nil {
			t.Errorf("%c: %q, %v", b, v, err)
		}
		mustClose(t, db)
	}
}

// TestCompactKeyOrder checks that a compaction of such a table names the file and the offset.
func TestCompactKeyOrder(t *testing.T) {
	for _, b := range []byte("Az") {
		db := mustOpen(t, "db", misplaced(t, b))
		if err := db.Put([]byte("b"), nil, nil); err != nil { // no trivial move
			t.Fatal(err)
		}
		err := db.Compact(context.Background(), nil, nil)
		if !errors.Is(err, ErrCorruption) || !strings.Contains(err.Error(), ".ldb") || !strings.Contains(err.Error(), "offset") {
			t.Errorf("%c: %v", b, err)
		}
		mustClose(t, db)
	}
}

// TestIterUnknownKind checks that an iterator returns no older value in place of an entry of an
// unknown kind, even if that is the last entry of a block.
func TestIterUnknownKind(t *testing.T) {
	mem := vfstest.NewMem()
	o := uncached(mem)
	o.DisableCompression = true
	db := mustOpen(t, "db", o)
	put := func(k, v string) {
		if err := db.Put([]byte(k), []byte(v), nil); err != nil {
			t.Fatal(err)
		}
	}
	put("l", "")
	put("k", "old")
	s := db.Snapshot()
	put("k", string(make([]byte, 8<<10))) // a block of its own
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	path := db.state.Load().version.Levels[0][0].Handle.(*table).path
	s.Close()
	mustClose(t, db)
	data := readFile(t, mem, path)
	c := base.NewCursor(data[len(data)-48:])
	c.Uvarint()
	c.Uvarint()
	blocks := [][2]uint64{{0, 0}, {c.Uvarint(), c.Uvarint()}}
	info := firstBlock(t, data)
	blocks[0] = [2]uint64{info.Offset, info.Length}
	for _, b := range blocks {
		end := b[0] + b[1]
		i := bytes.Index(data[b[0]:end], []byte("k\x01\x03\x00"))
		data[int(b[0])+i+1] = 7
		binary.LittleEndian.PutUint32(data[end+1:], base.Checksum(data[b[0]:end], data[end:end+1]))
	}
	writeFile(t, mem, path, data)
	db = mustOpen(t, "db", o)
	defer mustClose(t, db)
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	if it.SeekGE([]byte("k")) || !errors.Is(it.Err(), ErrUnsupported) {
		t.Errorf("%q, %v", it.Value(), it.Err())
	}
}

// TestBuildFiltersBesideDamage checks that an unreadable table in level 0 does not keep
// BuildFilters from compacting tables there that do not overlap it.
func TestBuildFiltersBesideDamage(t *testing.T) {
	fs := vfstest.NewMem()
	o := uncached(fs)
	o.Filter = filter.Bloom(10)
	db := mustOpen(t, "db", o)
	for _, key := range []string{"a", "z"} {
		if err := errors.Join(db.Put([]byte(key), nil, nil), db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	upper := db.state.Load().version.Levels[0]
	if len(upper) != 2 {
		t.Fatalf("%d tables in level 0", len(upper))
	}
	victim := upper[0]
	mustClose(t, db)
	writeFile(t, fs, victim.Handle.(*table).path, make([]byte, victim.Size))

	o.Filter = filter.Bloom(12)
	db = mustOpen(t, "db", o)
	defer mustClose(t, db)
	if rewritten, err := db.BuildFilters(context.Background()); err != nil || rewritten != 1 {
		t.Errorf("%d tables got another filter, %v", rewritten, err)
	}
	a, err := db.Has([]byte("a"))
	z, err2 := db.Has([]byte("z"))
	if (err == nil) == (err2 == nil) || !a && !z {
		t.Errorf("a: %t, %v; z: %t, %v", a, err, z, err2)
	}
}

// TestBuildFiltersWork checks that BuildFilters compacts tables of level 0 together, as far as they
// can be read, although one there is unreadable.
func TestBuildFiltersWork(t *testing.T) {
	fs := vfstest.NewMem()
	o := uncached(fs)
	o.Filter = filter.Bloom(10)
	o.DisableAutoCompaction = true
	db := mustOpen(t, "db", o)
	key := func(i int) []byte { return fmt.Appendf(nil, "key%05d", i) }
	for i := range 2000 {
		if err := db.Put(key(i), make([]byte, 100), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(db.Flush(), db.Compact(context.Background(), nil, nil)); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if err := errors.Join(db.Put(key(50*i), nil, nil), db.Put(key(50*i+20), nil, nil), db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(db.Put([]byte("z"), nil, nil), db.Flush()); err != nil {
		t.Fatal(err)
	}
	victim := db.state.Load().version.Levels[0][0]
	v := db.state.Load().version
	mustClose(t, db)
	writeFile(t, fs, victim.Handle.(*table).path, make([]byte, victim.Size))
	o.Filter = filter.Bloom(12)
	db = mustOpen(t, "db", o)
	defer mustClose(t, db)
	if _, err := db.BuildFilters(context.Background()); err != nil {
		t.Error(err)
	}
	if w := db.stats.compactWriteBytes.Load(); w > 10*v.Size(1) {
		t.Errorf("BuildFilters writes %d bytes", w)
	}
}
