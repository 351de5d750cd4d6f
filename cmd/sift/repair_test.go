package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/record"
)

// filesIn returns the contents of the files in a directory, by name.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(b)
	}
	return files
}

// TestRepairOtherComparator: repair changes nothing in a database whose MANIFEST names another
// comparator, until the MANIFEST has been removed.
func TestRepairOtherComparator(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, "key\tvalue\n", "load", db)
	manifests, err := filepath.Glob(filepath.Join(db, "MANIFEST-*"))
	if err != nil || len(manifests) != 1 {
		t.Fatal(manifests, err)
	}
	content, err := os.ReadFile(manifests[0])
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.NewBuffer(content)
	if err := record.NewWriter(b).Append([]byte("\x01\x07another")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(manifests[0], b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	before := filesIn(t, db)
	r := runSift(t, "", "repair", db)
	if r.status != statusFailed || r.out != "" || !strings.Contains(r.err, `comparator "another"`) || !strings.Contains(r.err, "\nnothing was changed") {
		t.Errorf("%+v", r)
	}
	if after := filesIn(t, db); !maps.Equal(before, after) {
		t.Errorf("before %q\nafter %q", before, after)
	}
	if err := os.Remove(manifests[0]); err != nil {
		t.Fatal(err)
	}
	if out := mustSift(t, "", "repair", db); !strings.Contains(out, "1 key from") {
		t.Errorf("without the MANIFEST, repair prints\n%s", out)
	}
	if out := mustSift(t, "", "scan", db); out != "key\tvalue\n" {
		t.Errorf("scan prints %q", out)
	}
}
