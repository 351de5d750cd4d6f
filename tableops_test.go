package sift_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/sstable"
)

// writeTable writes a table; each entry is "key seq" to delete a key, or "key seq value".
func writeTable(t *testing.T, path string, entries ...string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := sstable.NewWriter(f, &sstable.WriterOptions{Filter: filter.Bloom(10)})
	for _, e := range entries {
		var key, value string
		var seq uint64
		kind := sstable.KindSet
		if n, _ := fmt.Sscan(e, &key, &seq, &value); n < 3 {
			kind = sstable.KindDelete
		}
		if err := w.Add([]byte(key), seq, kind, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestTableOps ingests tables that overlap, with several versions of a key, equal sequence numbers
// and tombstones, into a database that has some of the keys.
func TestTableOps(t *testing.T) {
	dir := t.TempDir()
	a, b, c := filepath.Join(dir, "a.ldb"), filepath.Join(dir, "b.sst"), filepath.Join(dir, "c.ldb")
	writeTable(t, a, "apple 9 new", "apple 3 old", "cherry 0 first", "fig 7")
	writeTable(t, b, "banana 1 yellow", "cherry 0 second", "date 5", "date 4 hidden", "fig 6 hidden")
	writeTable(t, c)
	db := mustOpen(t, t.TempDir(), nil)
	defer db.Close()
	for _, key := range []string{"date", "fig", "grape"} {
		if err := db.Put([]byte(key), []byte("before"), sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Ingest(context.Background(), sift.TableOps(a, b, c)); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"apple": "new", "banana": "yellow", "cherry": "first", "grape": "before"}
	if got := contents(t, db); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for op, err := range sift.TableOps(b, a) {
		if err != nil || string(op.Key) != "apple" {
			t.Errorf("%q, %v", op.Key, err)
		}
		break
	}
	for range sift.TableOps() {
		t.Error("no tables hold an operation")
	}
}

// TestTableOpsErrors: a file that is missing, no table or damaged is an error that names it, and
// nothing is ingested.
func TestTableOpsErrors(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.ldb"), filepath.Join(dir, "bad.ldb")
	writeTable(t, good, "a 1 x")
	writeTable(t, bad, "b 1 "+strings.Repeat("y", 5000), "c 1 z")
	b, err := os.ReadFile(bad)
	if err != nil {
		t.Fatal(err)
	}
	b[100] ^= 1
	db := mustOpen(t, t.TempDir(), nil)
	defer db.Close()
	for what, c := range map[string]struct {
		content []byte
		want    error
	}{
		"a damaged block": {b, sift.ErrCorruption},
		"no table":        {[]byte("text"), sift.ErrCorruption},
		"missing":         {nil, fs.ErrNotExist},
	} {
		if os.Remove(bad); c.content != nil {
			if err := os.WriteFile(bad, c.content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		err := db.Ingest(context.Background(), sift.TableOps(good, bad))
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), "bad.ldb") {
			t.Errorf("%s: %v", what, err)
		}
		if got := contents(t, db); len(got) > 0 {
			t.Errorf("%s: %v", what, got)
		}
	}
}
