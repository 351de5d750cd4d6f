package sift

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestTableSearch checks which tables a search looks at: those that overlap its range, each once in
// each level, and again those that were wanted.
func TestTableSearch(t *testing.T) {
	at := func(level int, num uint64, smallest, largest string) manifest.AddedTable {
		key := func(s string) []byte { return base.AppendInternalKey(nil, []byte(s), num, base.KindSet) }
		return manifest.AddedTable{Level: level, Table: &manifest.TableMeta{Num: num, Size: 1, Smallest: key(smallest), Largest: key(largest), Handle: &table{}}}
	}
	version := func(tables ...manifest.AddedTable) *manifest.Version {
		v, err := (*manifest.Version)(nil).Apply(&manifest.Edit{Added: tables})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	before := version(at(0, 9, "a", "z"), at(1, 1, "a", "b"), at(1, 2, "c", "d"), at(2, 3, "a", "b"), at(2, 4, "x", "z"))
	moved := version(at(0, 9, "a", "z"), at(1, 1, "a", "b"), at(2, 2, "c", "d"), at(2, 3, "a", "b"), at(2, 4, "x", "z"))
	s := tableSearch{from: []byte("a"), to: []byte("m")}
	for i, c := range []struct {
		version *manifest.Version
		level   int    // where the search begins
		wanted  uint64 // number of the table
		seen    []uint64
	}{
		{before, 1, 2, []uint64{1, 2}},
		{before, 1, 2, []uint64{2}},
		{before, 0, 3, []uint64{9, 2, 3}},
		{before, 0, 0, []uint64{3}},
		{before, 0, 0, nil},
		{moved, 0, 0, []uint64{2}},
		{moved, 0, 0, nil},
	} {
		var seen []uint64
		level, meta, more, err := s.next(context.Background(), c.version, c.level, func(level int, meta *manifest.TableMeta) (bool, error) {
			if !slices.Contains(c.version.Levels[level], meta) {
				t.Errorf("search %d: table %d is not in level %d", i, meta.Num, level)
			}
			seen = append(seen, meta.Num)
			return meta.Num == c.wanted, nil
		})
		if more || err != nil || !slices.Equal(seen, c.seen) || (meta != nil) != (c.wanted > 0) {
			t.Errorf("search %d looks at tables %v and finds %v; more %t, %v; want %v", i, seen, meta, more, err, c.seen)
		}
		if meta != nil && (meta.Num != c.wanted || !slices.Contains(c.version.Levels[level], meta)) {
			t.Errorf("search %d finds table %d in level %d", i, meta.Num, level)
		}
	}
}

// slowContext is a context that takes longer to ask than a step of a search may take.
type slowContext struct{ context.Context }

func (c slowContext) Err() error {
	time.Sleep(searchTime + 20*time.Millisecond)
	return c.Context.Err()
}

// TestTableSearchProgresses checks that each step looks at one table at least.
func TestTableSearchProgresses(t *testing.T) {
	edit := &manifest.Edit{}
	for i := range 3 {
		k := base.AppendInternalKey(nil, []byte{byte('a' + i)}, 1, base.KindSet)
		edit.Added = append(edit.Added, manifest.AddedTable{Level: 1, Table: &manifest.TableMeta{Num: uint64(i + 1), Size: 1, Smallest: k, Largest: k, Handle: &table{}}})
	}
	v, err := (*manifest.Version)(nil).Apply(edit)
	if err != nil {
		t.Fatal(err)
	}
	var s tableSearch
	seen := 0
	for range 4 {
		_, _, more, err := s.next(slowContext{context.Background()}, v, 0, func(int, *manifest.TableMeta) (bool, error) { seen++; return false, nil })
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
	}
	if seen != 3 {
		t.Errorf("looked at %d of 3 tables", seen)
	}
}

// TestBuildFiltersAfterReadError checks that a table that could not be read for a moment gets its
// filter in a later step.
func TestBuildFiltersAfterReadError(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	manyTables(t, "db", faulty, 500)
	o := uncached(faulty)
	o.loadLate, o.Filter = true, filter.Bloom(12)
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	tables := db.state.Load().version.NumTables()
	faulty.SetFaults(vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpReadAt && onTable(op) }}) // the first read only
	n, err := db.BuildFilters(context.Background())
	if err != nil || n != tables || len(faulty.Failed()) != 1 {
		t.Errorf("%d of %d tables rewritten, %v; failed: %v", n, tables, err, faulty.Failed())
	}
}
