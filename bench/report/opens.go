package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/siftdb/sift/bench/memory"
	"github.com/siftdb/sift/bench/result"
)

// openTotals returns the time that opening and the first lookups take together, from a table of
// the workload Open: a row for each store, a column for each number of keys, and the shortest and
// longest time of a cell's runs.
func openTotals(t *result.Table) (*Table, error) {
	columns := [4]int{} // of the store, and those below
	for i, name := range []string{"", "keys", "ops/s", "open ms"} {
		if columns[i] = slices.Index(t.Header, name); columns[i] < 0 {
			return nil, fmt.Errorf("table %q has no column %q", t.Name, name)
		}
	}
	times := map[[2]string][]float64{} // by store and keys, in ms
	var stores, sizes []string
	for _, row := range t.Rows {
		store, keys := row[columns[0]], row[columns[1]]
		perSecond, err1 := number(row[columns[2]])
		open, err2 := number(row[columns[3]])
		if err1 != nil || err2 != nil {
			continue // killed
		}
		if !slices.Contains(stores, store) {
			stores = append(stores, store)
		}
		if !slices.Contains(sizes, keys) {
			sizes = append(sizes, keys)
		}
		at := [2]string{store, keys}
		times[at] = append(times[at], open+1e3*memory.FirstLookups/perSecond)
	}
	out := &Table{Name: "open-total", Header: []string{"Open and the first 1,000 lookups, ms"}}
	for _, keys := range sizes {
		out.Header = append(out.Header, keys+" keys")
	}
	for _, store := range stores {
		row := []string{store}
		for _, keys := range sizes {
			cell := "–"
			if all := times[[2]string{store, keys}]; all != nil {
				if cell = fmt.Sprintf("%.0f", slices.Min(all)); len(all) > 1 {
					cell += fmt.Sprintf(" to %.0f", slices.Max(all))
				}
			}
			row = append(row, cell)
		}
		out.Rows = append(out.Rows, row)
	}
	return out, nil
}

// number parses a figure of a table, such as 1,234.5.
func number(s string) (float64, error) {
	return strconv.ParseFloat(strings.ReplaceAll(s, ",", ""), 64)
}
