package interop

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestDeleteRange cuts the power at several points of a DeleteRange, and has another engine
// open and compact what is left: no older value of a key comes back. Then sift opens the
// directory and deletes the range again.
func TestDeleteRange(t *testing.T) {
	mem := vfstest.NewMem()
	options := func(fs sift.FS) *sift.Options {
		return &sift.Options{FS: fs, MemtableBytes: 64 << 10, TableBytes: 4 << 10, BlockBytes: 512, DisableAutoCompaction: true}
	}
	key := func(i int) []byte { return fmt.Appendf(nil, "key%04d", i) }
	const keys, from, to = 600, 105, 503
	db, err := sift.Open("db", options(mem))
	if err != nil {
		t.Fatal(err)
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{}
	for round := range 4 { // several versions of most keys, in different tables and levels
		for i := 0; i < keys; i += round + 1 {
			if round == 2 {
				delete(want, string(key(i)))
				do(db.Delete(key(i), sift.NoSync))
				continue
			}
			want[string(key(i))] = fmt.Sprintf("%d of round %d", i, round)
			do(db.Put(key(i), []byte(want[string(key(i))]), sift.NoSync))
		}
		do(db.Flush())
		switch round {
		case 0:
			do(db.Compact(context.Background(), nil, nil))
		case 1:
			do(db.Compact(context.Background(), key(50), key(300)))
		}
	}
	before := mem.NumOps()
	do(db.DeleteRange(context.Background(), key(from), key(to)))
	after := mem.NumOps()
	do(db.Close())
	within := func(k string) bool { return k >= string(key(from)) && k < string(key(to)) }
	left := maps.Clone(want) // without the range
	maps.DeleteFunc(left, func(k, _ string) bool { return within(k) })

	const cuts = 24
	for engine, scan := range engines {
		for n := range cuts {
			at := before + (after-before)*n/(cuts-1)
			survival := []vfstest.Survival{vfstest.LoseUnsynced, vfstest.KeepUnsynced}[n%2]
			dir := dump(t, mem.CrashImage(at, survival))
			got := map[string]string{}
			err := scan(dir, true, func(k, v []byte) { got[string(k)] = string(v) })
			if err != nil {
				t.Fatalf("%s, after operation %d of %d..%d: %v", engine, at, before, after, err)
			}
			for k, v := range want {
				if g, ok := got[k]; ok && g != v || !ok && !within(k) || ok && within(k) && at == after {
					t.Fatalf("%s, after operation %d of %d..%d: %s is %q, was %q", engine, at, before, after, k, g, v)
				}
			}
			for k := range got {
				if _, ok := want[k]; !ok {
					t.Fatalf("%s, after operation %d of %d..%d: %s came back", engine, at, before, after, k)
				}
			}
			db, err := sift.Open(dir, options(nil))
			do(err)
			do(db.DeleteRange(context.Background(), key(from), key(to)))
			do(db.Close())
			compare(t, dir, left)
		}
	}
}

// dump writes the database on an in-memory disk to a directory.
func dump(t *testing.T, disk *vfstest.Mem) string {
	t.Helper()
	dir := t.TempDir()
	names, err := disk.List("db")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := filepath.Join("db", name)
		size, err := disk.Size(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := disk.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(io.NewSectionReader(f, 0, size))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
