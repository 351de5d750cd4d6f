// Package goredis builds go-redis' own tests and runs them against a server that stands in for
// Redis. The tests come from the module cache; they are not part of this repository.
package goredis

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// ErrModules is returned by Build if the modules that the tests need cannot be downloaded.
var ErrModules = errors.New("cannot download the modules of go-redis' tests")

// Edit replaces From with To in a file of go-redis, in which From must occur Count times.
type Edit struct {
	File, From, To string
	Count          int
}

// Build copies the version of go-redis that the module in the working directory requires to dir,
// applies the edits, and returns the path of the compiled test binary.
func Build(dir string, edits []Edit) (program string, err error) {
	module, err := command(".", "list", "-m", "-f", "{{.Dir}}", "github.com/redis/go-redis/v9")
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, os.DirFS(string(bytes.TrimSpace(module)))); err != nil {
		return "", err
	}
	for _, e := range edits {
		path := filepath.Join(dir, e.File)
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		if n := bytes.Count(text, []byte(e.From)); n != e.Count {
			return "", fmt.Errorf("%s has %q %d times", e.File, e.From, n)
		}
		if err := os.WriteFile(path, bytes.ReplaceAll(text, []byte(e.From), []byte(e.To)), 0o644); err != nil {
			return "", err
		}
	}
	if _, err := command(dir, "mod", "download"); err != nil {
		return "", fmt.Errorf("%w: %w", ErrModules, err)
	}
	program = filepath.Join(dir, "suite.test")
	_, err = command(dir, "test", "-vet=off", "-trimpath", "-c", "-o", program, ".")
	return program, err
}

func command(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return out, err
}

// Skipped reads a list of tests, each line of the form "name | reason", and returns a pattern for
// each name. Lines that begin with # are comments.
func Skipped(file string) (patterns []string, err error) {
	list, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(list)) {
		if name, _, ok := strings.Cut(line, " | "); ok && line[0] != '#' {
			patterns = append(patterns, regexp.QuoteMeta(name)+`( \[|$)`)
		}
	}
	return patterns, nil
}

// Run runs the tests of a binary that Build has returned: those that match focus and no pattern in
// skip. It returns the names of those that passed, also if others failed. env is added to the
// environment.
func Run(ctx context.Context, program string, env []string, focus string, skip []string) (passed []string, err error) {
	report := program + ".json"
	cmd := exec.CommandContext(ctx, program, "-test.run", "TestGinkgoSuite", "-ginkgo.no-color", "-ginkgo.focus", focus,
		"-ginkgo.skip", strings.Join(skip, "|"), "-ginkgo.json-report", report)
	cmd.Dir, cmd.Env = filepath.Dir(program), append(os.Environ(), env...)
	if out, failed := cmd.CombinedOutput(); failed != nil {
		err = fmt.Errorf("%w\n%s", failed, out)
	}
	data, readErr := os.ReadFile(report)
	if readErr != nil {
		return nil, errors.Join(err, readErr)
	}
	var suites []struct {
		SpecReports []struct {
			LeafNodeType, State, LeafNodeText string
			ContainerHierarchyTexts           []string
		}
	}
	if readErr := json.Unmarshal(data, &suites); readErr != nil {
		return nil, errors.Join(err, readErr)
	}
	for _, s := range suites {
		for _, spec := range s.SpecReports {
			if spec.LeafNodeType == "It" && spec.State == "passed" {
				passed = append(passed, strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " "))
			}
		}
	}
	return passed, err
}
