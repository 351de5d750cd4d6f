package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/siftdb/sift/internal/torture/plant"
)

// fault is a bug of another store, transferred to sift.
type fault struct {
	name   string
	origin string // where it is described: repository and number of an issue or a pull request
	was    string // what was wrong there
	edits  []edit
	tests  []suite  // one of these must find it; they are tried in order
	args   []string // for the tests
}

// edit is a plant.Edit.
type edit struct{ file, old, new string }

// overlay is plant.Overlay.
func overlay(root, dir string, edits []edit) (string, error) {
	all := make([]plant.Edit, len(edits))
	for i, e := range edits {
		all[i] = plant.Edit{File: e.file, Old: e.old, New: e.new}
	}
	return plant.Overlay(root, dir, all)
}

// suite is some tests of a package.
type suite struct {
	pkg string // directory below the module's root
	run string // as for go test -run
}

// caught says what found a bug; the zero value is a survivor.
type caught struct {
	test string
	took time.Duration
}

func (c caught) String() string {
	if c.test == "" {
		return "SURVIVED"
	}
	return fmt.Sprintf("%s, %.1f s", c.test, c.took.Seconds())
}

// maxTest bounds one run of tests: a bug may make them hang.
const maxTest = 4 * time.Minute

// plant builds the tests with the bug and runs them until one finds it. The time does not
// include the build.
func (f *fault) plant(root, work string) (caught, error) {
	path, err := overlay(root, work, f.edits)
	if err != nil {
		return caught{}, err
	}
	for _, s := range f.tests {
		bin := filepath.Join(work, "test")
		build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-w", "-overlay", path, "-o", bin, ".")
		build.Dir = filepath.Join(root, filepath.FromSlash(s.pkg)) // which may be of another module
		if out, err := build.CombinedOutput(); err != nil {
			return caught{}, fmt.Errorf("building %s: %w\n%s", s.pkg, err, out)
		}
		args := append([]string{"-test.failfast", "-test.timeout", maxTest.String(), "-test.run", s.run}, f.args...)
		test := exec.Command(bin, args...)
		test.Dir = build.Dir
		start := time.Now()
		out, err := test.CombinedOutput()
		if err == nil {
			continue
		}
		took := time.Since(start)
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return caught{}, err
		}
		name := failedTest(s, out)
		if name == "" {
			return caught{}, fmt.Errorf("testing %s: %w\n%s", s.pkg, err, out)
		}
		return caught{name, took}, nil
	}
	return caught{}, nil
}

var failedLine = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// failedTest names the test that failed, or all that ran if the process crashed. It returns "" if
// the process ended for another reason.
func failedTest(s suite, out []byte) string {
	name := s.run
	if all := failedLine.FindAllSubmatch(out, -1); len(all) > 0 {
		name = string(all[len(all)-1][1]) // a subtest is listed after its parent
	} else if bytes.Contains(out, []byte("panic: test timed out")) {
		name += " (it hangs)"
	} else if bytes.Contains(out, []byte("panic: ")) || bytes.Contains(out, []byte("fatal error: ")) {
		name += " (it panics)"
	} else if bytes.Contains(out, []byte("goleak: Errors on")) {
		name += " (it leaves goroutines)"
	} else {
		return ""
	}
	if s.pkg == "." {
		return name
	}
	return s.pkg + " " + name
}
