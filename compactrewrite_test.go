package sift_test

import (
	"context"
	"errors"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
)

// TestCompactRewritesOnce checks that Compact does not rewrite what it has written, even where a
// snapshot keeps several entries of a key.
func TestCompactRewritesOnce(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &sift.Options{DisableAutoCompaction: true})
	defer mustClose(t, db)
	fill(t, db, 1000, "key%04d")
	s := db.Snapshot()
	defer s.Close()
	fill(t, db, 1000, "key%04d")
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if n := db.Metrics().Compactions; n != 1 {
		t.Errorf("%d compactions, want 1", n)
	}
}

// TestRewriteKeepsTables checks that a table whose filter is rebuilt stays one table, whatever
// TableBytes is now.
func TestRewriteKeepsTables(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, &sift.Options{Filter: filter.None(), TableBytes: 1 << 20})
	fill(t, db, 5000, "key%04d")
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	before := len(db.Tables())
	mustClose(t, db)
	db = mustOpen(t, dir, &sift.Options{DisableAutoCompaction: true, TableBytes: 8 << 10})
	defer mustClose(t, db)
	if n, err := db.BuildFilters(context.Background()); n != before || err != nil || len(db.Tables()) != before {
		t.Errorf("%d of %d tables were rewritten, and now there are %d: %v", n, before, len(db.Tables()), err)
	}
}

// TestFilterThatCannotBeBuilt checks that BuildFilters rewrites each table only once, even if its
// filter cannot be built.
func TestFilterThatCannotBeBuilt(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &sift.Options{DisableAutoCompaction: true, Filter: unbuildable{filter.Bloom(10)}})
	defer mustClose(t, db)
	fill(t, db, 1000, "key%04d")
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // in level 0, and then in the level to which that moves the table
		if n, err := db.BuildFilters(context.Background()); n != 1 || err != nil {
			t.Errorf("%d tables were rewritten, want 1: %v", n, err)
		}
	}
}

// unbuildable is a policy whose filters cannot be built.
type unbuildable struct{ filter.Policy }

func (p unbuildable) Name() string             { return "unbuildable" }
func (p unbuildable) NewWriter() filter.Writer { return unbuildableWriter{p.Policy.NewWriter()} }

type unbuildableWriter struct{ filter.Writer }

func (unbuildableWriter) Finish() ([][]byte, error) { return nil, errors.New("unbuildable") }
