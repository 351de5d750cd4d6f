package compat

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

var cuts = flag.Int("cuts", 40, "the number of power cuts of TestPowerCut")

// TestPowerCut checks that goleveldb opens what a power cut leaves of the module's database, and
// finds every synced batch, and no batch in part. Unsynced batches may be missing, even in the
// middle.
func TestPowerCut(t *testing.T) {
	proxy(t)
	reader := build(t, "crash", false)
	fs := vfstest.NewMem()
	synced := writeBatches(t, fs)
	r := rand.New(rand.NewPCG(1, 1))
	ends := 0
	for range *cuts {
		ops := r.IntN(fs.NumOps() + 1)
		seed := r.Uint64()
		want := 0
		for _, s := range synced {
			if s.ops <= ops {
				want = s.batch
			}
		}
		dir := t.TempDir()
		if !saveImage(t, fs.CrashImage(ops, vfstest.Survival(seed)), dir) {
			if want > 0 {
				t.Errorf("after %d operations, survival %#x: there is no database", ops, seed)
			}
			continue
		}
		got := strings.TrimSpace(run(t, reader, dir, "synced")[0])
		if n, err := strconv.Atoi(got); err != nil || n < want {
			t.Errorf("after %d operations, survival %#x: batch %d was synced; found: %s", ops, seed, want, got)
		}
		ends++
	}
	t.Logf("%d power cuts", ends)
	if ends == 0 {
		t.Error("nothing was checked")
	}
}

// ack records that a synced batch was acknowledged after a number of operations.
type ack struct{ batch, ops int }

// writeBatches writes the same batches as testdata/crash.
func writeBatches(t *testing.T, fs *vfstest.Mem) (synced []ack) {
	t.Helper()
	db, err := sift.Open("db", &sift.Options{FS: fs, MemtableBytes: 128 << 10, TableBytes: 64 << 10, LevelBaseBytes: 256 << 10, L0Tables: 8})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 400; n++ {
		var b sift.Batch
		for i := range 4 {
			size := 100 + n*37%900
			if n%7 == 0 {
				size += n * 131 % 20000
			}
			b.Put(fmt.Appendf(nil, "%08d/%d", n, i), bytes.Repeat(fmt.Appendf(nil, "%d.%d ", n, i), size/8))
			b.Delete(fmt.Appendf(nil, "%08d/%d", n-100, i))
		}
		o := sift.NoSync
		if n%16 == 0 {
			o = sift.Sync
		}
		if err := db.Write(&b, o); err != nil {
			t.Fatal(err)
		}
		if n%16 == 0 {
			synced = append(synced, ack{n, fs.NumOps()})
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return synced
}

// saveImage copies a database to the host's file system. It returns false if the image has no
// CURRENT.
func saveImage(t *testing.T, image *vfstest.Mem, dir string) bool {
	t.Helper()
	names, err := image.List("db")
	if err != nil {
		return false
	}
	found := false
	for _, name := range names {
		from := filepath.Join("db", name)
		size, err := image.Size(from)
		if err != nil {
			t.Fatal(err)
		}
		f, err := image.Open(from)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, size)
		if _, err := f.ReadAt(data, 0); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
		found = found || name == "CURRENT"
	}
	return found
}
