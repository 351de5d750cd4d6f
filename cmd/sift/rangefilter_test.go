package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
)

// rangeFiltered returns the directory of a database whose tables have range filters.
func rangeFiltered(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "db")
	db, err := sift.Open(dir, &sift.Options{RangeFilter: filter.Range(12, 0)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		if err := db.Put(fmt.Appendf(nil, "key%08d", 1000*i), nil, sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCompactRangeFilters: with --range-filter, a compaction of a program's tables keeps range
// filters. Without it they are gone.
func TestCompactRangeFilters(t *testing.T) {
	dir := rangeFiltered(t)
	hasFilters := func() (has bool) {
		for line := range strings.Lines(mustSift(t, "", "tables", "--json", dir)) {
			path := decode(t, line)["path"].(string)
			has = strings.Contains(mustSift(t, "", "dump", path), "sift.range.policy")
		}
		return has
	}
	for _, flags := range [][]string{{"--range-filter", "12"}, nil} {
		mustSift(t, "key00000001\tv\nkey01999999\tv\n", "load", dir)
		mustSift(t, "", append(append([]string{"compact"}, flags...), dir)...)
		if has := hasFilters(); has != (flags != nil) {
			t.Errorf("compact %v: range filters %v", flags, has)
		}
	}
	if r := runSift(t, "", "compact", "--range-filter", "99", dir); r.status != statusUsage {
		t.Errorf("99 bits: %+v", r)
	}
}

// TestFilterPlanRanges: range filters count only with --ranges, and the tables add up to the total.
func TestFilterPlanRanges(t *testing.T) {
	dir := rangeFiltered(t)
	for _, flags := range [][]string{nil, {"--ranges"}} {
		plan := decode(t, mustSift(t, "", append([]string{"filter", "plan", "--json", "--memory", "1GiB", dir}, flags...)...))
		keys, ranges := 0.0, 0.0
		for _, table := range plan["tables"].([]any) {
			keys += table.(map[string]any)["filterBytes"].(float64)
			ranges += table.(map[string]any)["rangeBytes"].(float64)
		}
		if keys == 0 || plan["bytes"].(float64) != keys+ranges || (ranges > 0) != (flags != nil) {
			t.Errorf("%v: %v", flags, plan)
		}
	}
}

// TestFilterPlanSaves: more memory saves no more reads of lookups than they make. With --ranges,
// scans count, too.
func TestFilterPlanSaves(t *testing.T) {
	out := mustSift(t, "", "filter", "plan", "--ranges", "--memory", "2500", rangeFiltered(t))
	if !strings.Contains(out, "block reads per such lookup and scan of an empty range.") {
		t.Errorf("what more memory saves is not told:\n%s", out)
	}
}
