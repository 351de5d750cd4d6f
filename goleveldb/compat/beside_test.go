package compat

import (
	"flag"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var beside = flag.Int("beside", 0, "measure goleveldb and the module alternately, this many times")

// TestBeside measures one program alternately with goleveldb and with the module, and
// prints the medians. It fails only if a program fails.
func TestBeside(t *testing.T) {
	if *beside == 0 {
		t.Skip("without -beside")
	}
	proxy(t)
	bins := [2]string{build(t, "bench", false), build(t, "bench", true)}
	values := [2]map[string][]float64{{}, {}}
	var names []string
	units := map[string]string{}
	for range *beside {
		for which, bin := range bins {
			dir := t.TempDir()
			for _, line := range run(t, bin, dir) {
				f := strings.Split(line, "\t")
				if len(f) != 3 {
					continue
				}
				v, err := strconv.ParseFloat(f[1], 64)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Contains(names, f[0]) {
					names = append(names, f[0])
				}
				units[f[0]] = f[2]
				values[which][f[0]] = append(values[which][f[0]], v)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	median := func(v []float64) float64 {
		slices.Sort(v)
		return v[len(v)/2]
	}
	t.Logf("%-45s %12s %12s", "", "goleveldb", "replaced")
	for _, name := range names {
		a, b := median(values[0][name]), median(values[1][name])
		t.Logf("%-45s %9.2f %-2s %9.2f %-2s  %.2f times", name, a, units[name], b, units[name], a/b)
	}
}
