package serve

import (
	"context"
	cmdline "flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var tclDir = cmdline.String("tcl", "", "a source tree of Redis, whose tests TestRedisTcl runs; it changes files there")

// tclOwnUnits start their own servers, with tclServer in place of redis-server.
var tclOwnUnits = []string{"auth", "limits"}

// tclServer starts this program as a server with the settings that Redis' tests write to
// redis.conf.
const tclServer = `#!/bin/sh
echo " PID: $$"
echo "Ready to accept connections"
setting() { sed -n "s/^$1 //p" "$conf"; }
conf=$1
SIFT_SERVE_CHILD=$(setting dir)/store SIFT_SERVE_ADDR=127.0.0.1:$(setting port) SIFT_SERVE_FSYNC=no
SIFT_SERVE_PASSWORD=$(setting requirepass) SIFT_SERVE_CLIENTS=$(setting maxclients)
export SIFT_SERVE_CHILD SIFT_SERVE_ADDR SIFT_SERVE_FSYNC SIFT_SERVE_PASSWORD SIFT_SERVE_CLIENTS
exec "PROGRAM"
`

// tclUnits need only what is in scope, except for the tests in testdata/redis-tcl.txt.
var tclUnits = []string{"type/string", "type/incr", "expire", "keyspace", "scan", "protocol", "multi", "bitops", "dump", "introspection",
	"quit", "slowlog", "querybuf", "info-command", "other"}

// Redis' own tests pass against the server.
func TestRedisTcl(t *testing.T) {
	if *tclDir == "" {
		t.Skip("requires -tcl")
	}
	tclsh, err := exec.LookPath("tclsh")
	if err != nil {
		t.Skip("no tclsh here")
	}
	// Before each file, one line of the harness calls a command that is out of scope.
	harness := filepath.Join(*tclDir, "tests/support/server.tcl")
	text, err := os.ReadFile(harness)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^    r function flush`).ReplaceAll(text, []byte("    catch {r function flush}"))
	if err := os.WriteFile(harness, text, 0o644); err != nil {
		t.Fatal(err)
	}
	names := skippedTests(t, "testdata/redis-tcl.txt")
	skip := filepath.Join(t.TempDir(), "skip")
	if err := os.WriteFile(skip, []byte(strings.Join(names, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo, MaxBulkBytes: 512 << 20, RequestBytes: 2 << 30})
	color := regexp.MustCompile(`\x1b\[[0-9;]*m`)
	passed, ignored := 0, 0
	var units []string
	program := strings.ReplaceAll(tclServer, "PROGRAM", os.Args[0])
	if err := os.WriteFile(filepath.Join(*tclDir, "src/redis-server"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	external := []string{"--host", "127.0.0.1", "--port", portOf(s.Addr().String()), "--ignore-digest", "--ignore-encoding"}
	for _, unit := range append(tclOwnUnits, tclUnits...) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		args := []string{"tests/test_helper.tcl", "--durable", "--skipfile", skip, "--tags", "-needs:repl -needs:debug -needs:save -large-memory -cluster", "--single", "unit/" + unit}
		if !slices.Contains(tclOwnUnits, unit) {
			args = append(args, external...)
		}
		cmd := exec.CommandContext(ctx, tclsh, args...)
		cmd.Dir = *tclDir
		out, err := cmd.CombinedOutput()
		cancel()
		text := color.ReplaceAllString(string(out), "")
		ok := strings.Count(text, "\n[ok]:")
		if err != nil || strings.Contains(text, "\n[err]:") || strings.Contains(text, "[exception]") || !strings.Contains(text, "All tests passed") {
			t.Errorf("unit %s: %v\n%s", unit, err, text)
		}
		t.Logf("%s: %d passed, %d skipped, %d not for an external server or without DEBUG", unit, ok, strings.Count(text, "\n[skip]:"), strings.Count(text, "\n[ignore]:"))
		passed += ok
		if ok > 0 {
			units = append(units, unit)
		}
		ignored += strings.Count(text, "\n[ignore]:")
	}
	t.Logf("%d of Redis' own tests passed, %d ignored", passed, ignored)
	if passed < 330 {
		t.Errorf("only %d tests ran", passed)
	}
	rowInDocs(t, fmt.Sprintf("| Redis' own tests, in Tcl | %s |", strings.Join(units, ", ")))
}

// skippedTests returns the names in a list of "name | reason".
func skippedTests(t *testing.T, file string) (names []string) {
	t.Helper()
	list, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		if name, _, ok := strings.Cut(line, " | "); ok && line[0] != '#' {
			names = append(names, name)
		}
	}
	return names
}
