package sift

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// mappedTables returns how many tables of a directory the process has mapped, including removed
// ones.
func mappedTables(t *testing.T, dir string) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]bool{}
	for line := range strings.Lines(string(maps)) {
		if i := strings.Index(line, dir); i >= 0 && strings.Contains(line, ".ldb") {
			tables[line[i:]] = true
		}
	}
	return len(tables)
}

// openTables returns how many descriptors of a directory's tables are open.
func openTables(t *testing.T, dir string) (n int) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		// Some descriptors may have been closed.
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, dir) && strings.Contains(target, ".ldb") {
			n++
		}
	}
	return n
}

// TestMapBytes checks that tables are mapped while all of them together fit into MapBytes, and that
// none is mapped once they do not; removed tables no longer count.
func TestMapBytes(t *testing.T) {
	const limit = 1 << 20
	dir := t.TempDir()
	o := &Options{MapBytes: limit, CacheBytes: -1, TableBytes: 64 << 10, DisableCompression: true}
	db := mustOpen(t, dir, o)
	keys := 0
	check := func(want func(mapped int) bool) {
		t.Helper()
		if err := db.Compact(context.Background(), nil, nil); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for i := range keys {
				if v, err := db.Get(fmt.Appendf(nil, "%d", i)); err != nil || len(v) != 200 {
					t.Fatalf("Get: %d bytes, %v", len(v), err)
				}
			}
		}
		// Tables that are no longer read are closed in the background.
		deadline := time.Now().Add(10 * time.Second)
		for !want(mappedTables(t, dir)) || openTables(t, dir) > len(db.Tables()) {
			if time.Now().After(deadline) {
				t.Fatalf("of %d tables, %d are mapped and %d are open", len(db.Tables()), mappedTables(t, dir), openTables(t, dir))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	grow := func(n int) {
		t.Helper()
		for range n {
			if err := db.Put(fmt.Appendf(nil, "%d", keys), make([]byte, 200), NoSync); err != nil {
				t.Fatal(err)
			}
			keys++
		}
	}
	grow(1000)
	check(func(mapped int) bool { return mapped >= 2 && mapped == len(db.Tables()) })
	grow(9000)
	check(func(mapped int) bool { return mapped == 0 })
	mustClose(t, db)
	if mapped, open := mappedTables(t, dir), openTables(t, dir); mapped != 0 || open != 0 {
		t.Errorf("after Close, %d tables are mapped and %d are open", mapped, open)
	}
	o.MapBytes = 4 * limit
	db = mustOpen(t, dir, o)
	check(func(mapped int) bool { return mapped == len(db.Tables()) })
	mustClose(t, db)
}

// TestCloseUnmaps checks that no table is mapped when Close returns.
func TestCloseUnmaps(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		db := mustOpen(t, dir, &Options{MapBytes: 1 << 30, CacheBytes: -1, TableBytes: 64 << 10, DisableCompression: true})
		if i == 0 {
			for k := range 2000 {
				if err := db.Put(fmt.Appendf(nil, "%d", k), make([]byte, 200), NoSync); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Compact(context.Background(), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		for k := range 2000 {
			if _, err := db.Get(fmt.Appendf(nil, "%d", k)); err != nil {
				t.Fatal(err)
			}
		}
		before := mappedTables(t, dir)
		mustClose(t, db)
		if n := mappedTables(t, dir); before == 0 || n > 0 {
			t.Fatalf("round %d: %d tables are mapped before Close, %d after it", i, before, n)
		}
	}
}
