package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestFaultsApply checks the list against the code: every snippet must occur exactly once,
// and its replacement must compile. Bugs that change different text are compiled together.
func TestFaultsApply(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command")
	}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range faults {
		if names[f.name] || f.origin == "" || f.was == "" || len(f.edits) == 0 || len(f.tests) == 0 {
			t.Errorf("%q is incomplete or a duplicate", f.name)
		}
		names[f.name] = true
		if _, err := overlay(root, t.TempDir(), f.edits); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
	}
	if t.Failed() {
		return
	}
	for _, group := range together(root, t.TempDir()) {
		path, err := overlay(root, t.TempDir(), group)
		if err != nil {
			t.Fatal(err)
		}
		build := exec.Command("go", "build", "-overlay", path, "-o", os.DevNull, ".", "./sstable")
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// together puts the edits of all bugs into as few groups as possible, such that no edit changes
// text that another edit of its group looks for.
func together(root, dir string) (groups [][]edit) {
	for _, f := range faults {
		added := false
		for i, g := range groups {
			if all := slices.Concat(g, f.edits); fits(root, dir, all) {
				groups[i], added = all, true
				break
			}
		}
		if !added {
			groups = append(groups, f.edits)
		}
	}
	return groups
}

func fits(root, dir string, edits []edit) bool {
	for i, a := range edits {
		for _, b := range edits[:i] {
			if a.file == b.file && (strings.Contains(a.new, b.old) || strings.Contains(b.new, a.old)) {
				return false
			}
		}
	}
	_, err := overlay(root, dir, edits)
	return err == nil
}

func TestFailedTest(t *testing.T) {
	s := suite{"internal/merge", "TestX"}
	for _, tc := range []struct{ out, want string }{
		{"--- FAIL: TestA (0.10s)\n    --- FAIL: TestA/b (0.00s)\n        x_test.go:1: no\nFAIL\n", "internal/merge TestA/b"},
		{"panic: test timed out after 1s\n", "internal/merge TestX (it hangs)"},
		{"panic: index out of range\n", "internal/merge TestX (it panics)"},
		{"PASS\ngoleak: Errors on successful test run: found unexpected goroutines\n", "internal/merge TestX (it leaves goroutines)"},
		{"flag provided but not defined: -x\n", ""},
	} {
		if got := failedTest(s, []byte(tc.out)); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.out, got, tc.want)
		}
	}
	if got := failedTest(suite{".", "TestX"}, []byte("--- FAIL: TestA (0.10s)\n")); got != "TestA" {
		t.Error(got)
	}
}
