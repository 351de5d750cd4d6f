// Package compat compares this repository's module github.com/syndtr/goleveldb with the real one
// from the Go module proxy. One binary cannot link both, so programs are built twice, in separate
// modules.
package compat

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// The versions of goleveldb that programs pin.
const (
	firstVersion = "v1.0.0"
	lastVersion  = "v1.0.1-0.20220721030215-126854af5e6d"
)

// newModule creates a module that requires goleveldb, the real one or this repository's.
func newModule(t testing.TB, version string, replaced bool) string {
	t.Helper()
	dir := t.TempDir()
	mod := "module example.com/program\n\ngo 1.26.0\n\nrequire github.com/syndtr/goleveldb " + version + "\n"
	if replaced {
		root, err := filepath.Abs("../..")
		if err != nil {
			t.Fatal(err)
		}
		mod += fmt.Sprintf("\nreplace github.com/syndtr/goleveldb => %s\n\nreplace github.com/siftdb/sift => %s\n",
			filepath.Join(root, "goleveldb"), root)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// goCommand returns a go command in a module, whose go.mod it may complete.
func goCommand(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	return cmd
}

// proxy skips the test if the real goleveldb cannot be downloaded.
func proxy(t testing.TB) {
	t.Helper()
	if out, err := proxyOnce(); err != nil {
		t.Skipf("the Go module proxy does not serve goleveldb: %v\n%s", err, out)
	}
}

var proxyOnce = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "mod", "download", "github.com/syndtr/goleveldb@"+firstVersion, "github.com/syndtr/goleveldb@"+lastVersion).CombinedOutput()
	return string(out), err
})

// build builds a program in testdata with the real goleveldb, or with the module. It returns the
// path of the binary.
func build(t testing.TB, program string, replaced bool) string {
	t.Helper()
	dir := newModule(t, lastVersion, replaced)
	src, err := os.ReadFile(filepath.Join("testdata", program, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), src, 0o644); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, program)
	if out, err := goCommand(dir, "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	deps, err := goCommand(dir, "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Contains(string(deps), "github.com/siftdb/sift\n"); got != replaced {
		t.Fatalf("linked with sift: %t", got)
	}
	return bin
}

// TestOldDependencies builds with the oldest golang.org/x/sys that a program of TestPrograms pins
// by a replace directive.
func TestOldDependencies(t *testing.T) {
	proxy(t)
	dir := newModule(t, lastVersion, true)
	edit(t, dir, "-replace", "golang.org/x/sys=golang.org/x/sys@v0.0.0-20190920190810-ef0ce1748380")
	program := "package main\n\nimport _ \"github.com/syndtr/goleveldb/leveldb\"\n\nfunc main() {}\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := goCommand(dir, "build", "-o", filepath.Join(dir, "program"), ".").CombinedOutput(); err != nil {
		t.Errorf("go build: %v\n%s", err, out)
	}
}
