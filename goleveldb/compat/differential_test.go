package compat

import (
	"context"
	"flag"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	rounds = flag.Int("differential.rounds", 4, "the number of scripts of TestDifferential")
	ops    = flag.Int("differential.ops", 2000, "the number of operations in each part of a script")
	seed   = flag.Int("differential.seed", 1, "the first seed")
)

// run runs a program to its end, and returns the lines that it has printed.
func run(t *testing.T, bin, dir string, args ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, bin, append([]string{dir}, args...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(filepath.Dir(bin)), args, err, stderr.String())
	}
	return strings.Split(string(out), "\n")
}

// compare reports the first line that differs.
func compare(t *testing.T, what string, want, got []string) {
	t.Helper()
	for i := range max(len(want), len(got)) {
		line := func(lines []string) string {
			if i < len(lines) {
				return lines[i]
			}
			return "(nothing)"
		}
		if line(want) != line(got) {
			t.Fatalf("%s, answer %d: %s\ngoleveldb: %s\nanswers before: %s", what, i, line(got), line(want), strings.Join(want[max(0, i-5):min(i, len(want))], "\n        "))
		}
	}
}

// TestDifferential checks that programs get the same results from the module as from goleveldb,
// errors included, and that each of the two opens the other's directories.
func TestDifferential(t *testing.T) {
	proxy(t)
	theirs, ours := build(t, "driver", false), build(t, "driver", true)
	answers := 0
	for round := range *rounds {
		a, b := filepath.Join(t.TempDir(), "db"), filepath.Join(t.TempDir(), "db")
		for part := range 4 {
			s := strconv.Itoa((*seed+round)*100 + part)
			want, got := run(t, theirs, a, s, strconv.Itoa(*ops)), run(t, ours, b, s, strconv.Itoa(*ops))
			compare(t, "seed "+s, want, got)
			answers += len(want)
			a, b = b, a // each continues with the other's directory
		}
		compare(t, "all keys", run(t, theirs, a, "dump"), run(t, ours, b, "dump"))
		compare(t, "all keys, of one directory", run(t, theirs, a, "dump"), run(t, ours, a, "dump"))
	}
	t.Logf("%d answers compared", answers)
}
