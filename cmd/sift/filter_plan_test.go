package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestFilterPlanReadsPerLookup: filter plan prints block reads per lookup, which exceed 1 if a
// lookup reads several tables.
func TestFilterPlanReadsPerLookup(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	for part := range 2 {
		var pairs strings.Builder
		for i := range 20_000 {
			fmt.Fprintf(&pairs, "key%06d\tv\n", 2*i+part)
		}
		mustSift(t, pairs.String(), "load", dir)
	}
	out := mustSift(t, "", "filter", "plan", "--memory", "20KiB", dir)
	var with, without float64
	_, text, _ := strings.Cut(out, "\n\n")
	if _, err := fmt.Sscanf(text, "A lookup of an absent key reads %g blocks on average; without filters it would read %g.", &with, &without); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	if without != 2 || with <= 0 || with >= 2 {
		t.Errorf("%g block reads, %g without filters; want 2 without, for two tables, and fewer with", with, without)
	}
	for n, want := range map[float64]string{0: "0", 0.00001: "< 0.0001", 0.0002534: "0.0003", 0.0316: "0.0316", 0.526: "0.526", 2: "2.00", 12.34: "12.3", 1234.5: "1234"} {
		if got := reads(n); got != want {
			t.Errorf("reads(%g) = %s, want %s", n, got, want)
		}
	}
}
