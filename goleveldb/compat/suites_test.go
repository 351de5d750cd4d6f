package compat

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// theirTests lists goleveldb's tests that need only its API, among them the key-value
// tests of its package testutil (external_test.go).
var theirTests = []string{
	"external_test.go", "testutil_test.go", "leveldb_suite_test.go",
	"filter/bloom_test.go",
	"iterator/array_iter_test.go", "iterator/indexed_iter_test.go", "iterator/merged_iter_test.go", "iterator/iter_suite_test.go",
	"journal/journal_test.go",
	"storage/mem_storage_test.go",
	"util/buffer_test.go", "util/hash_test.go",
}

// TestTheirTests runs goleveldb's tests, taken from the module cache, on the module.
func TestTheirTests(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	proxy(t)
	out, err := exec.Command("go", "mod", "download", "-json", "github.com/syndtr/goleveldb@"+lastVersion).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(out), `"Dir": "`)
	theirs, _, ok := strings.Cut(rest, `"`)
	if !ok {
		t.Fatalf("go mod download: %s", out)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "leveldb"), os.DirFS("../leveldb")); err != nil {
		t.Fatal(err)
	}
	helpers, err := filepath.Glob(filepath.Join(theirs, "leveldb", "testutil", "*.go"))
	if err != nil || len(helpers) == 0 {
		t.Fatalf("testutil: %v, %v", helpers, err)
	}
	files := append([]string(nil), theirTests...)
	for _, h := range helpers {
		files = append(files, filepath.Join("testutil", filepath.Base(h)))
	}
	if err := os.Mkdir(filepath.Join(dir, "leveldb", "testutil"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(filepath.Join(theirs, "leveldb", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "leveldb", name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mod := `module github.com/syndtr/goleveldb

go 1.26.0

require (
	github.com/golang/snappy v1.0.0
	github.com/onsi/ginkgo v1.16.5
	github.com/onsi/gomega v1.19.0
	github.com/siftdb/sift v0.0.0
	github.com/stretchr/testify v1.7.2
)

replace github.com/siftdb/sift => ` + root + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "-v", "-timeout", "8m"}
	seen := map[string]bool{}
	for _, name := range theirTests {
		if pkg := "./" + filepath.Join("leveldb", filepath.Dir(name)); !seen[pkg] {
			seen[pkg] = true
			args = append(args, pkg)
		}
	}
	cmd := goCommand(dir, args...)
	cmd.Env = append(cmd.Env, "ACK_GINKGO_DEPRECATIONS=1.16.5")
	log, err := cmd.CombinedOutput()
	passed := strings.Count(string(log), "--- PASS: ")
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, " Passed") || strings.Contains(line, "--- FAIL") {
			t.Log(strings.TrimSpace(line))
		}
	}
	if err != nil || passed == 0 {
		t.Fatalf("%v\n%s", err, log)
	}
	t.Logf("%d tests passed", passed)
}
