package serve

import (
	cmdline "flag"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var (
	nodeDir = cmdline.String("node", "", "a directory whose node_modules has the libraries of testdata/clients/clients.mjs")
	python  = cmdline.String("python", "", "a Python that has the package redis")
)

// Typical uses of libraries for other languages work.
func TestClients(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	port := portOf(s.Addr().String())
	run := func(t *testing.T, dir, name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, append(args, port)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "passed:") {
			t.Fatalf("%v\n%s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			if row, ok := strings.CutPrefix(strings.TrimSpace(line), "row: "); ok {
				rowInDocs(t, row)
			} else {
				t.Log(strings.TrimSpace(line))
			}
		}
	}
	t.Run("node", func(t *testing.T) {
		if *nodeDir == "" {
			t.Skip("requires -node")
		}
		run(t, *nodeDir, "node", filepath.Join(*nodeDir, "clients.mjs"))
	})
	t.Run("python", func(t *testing.T) {
		if *python == "" {
			t.Skip("requires -python")
		}
		run(t, ".", *python, "testdata/clients/clients.py")
	})
}
