package serve

import (
	"context"
	cmdline "flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var tclDir = cmdline.String("tcl", "", "the source of Redis, whose own tests TestRedisTcl runs; they are changed")

// Units that need only what is in scope, but for the tests in testdata/redis-tcl.txt. Those
// of auth, info and limits start a redis-server of their own and cannot be run here.
var tclUnits = []string{"type/string", "type/incr", "expire", "keyspace", "scan", "protocol", "multi", "bitops", "dump", "introspection",
	"quit", "slowlog", "querybuf", "info-command", "other"}

// Redis' own tests pass against the server.
func TestRedisTcl(t *testing.T) {
	if *tclDir == "" {
		t.Skip("-tcl does not say where the source of Redis is")
	}
	tclsh, err := exec.LookPath("tclsh")
	if err != nil {
		t.Skip("no tclsh here")
	}
	// One line of the harness calls what is out of scope before each file.
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
	for _, unit := range tclUnits {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		cmd := exec.CommandContext(ctx, tclsh, "tests/test_helper.tcl", "--host", "127.0.0.1", "--port", portOf(s.Addr().String()), "--durable",
			"--ignore-digest", "--ignore-encoding", "--skipfile", skip, "--tags", "-needs:repl -needs:debug -needs:save -large-memory -cluster", "--single", "unit/"+unit)
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
		ignored += strings.Count(text, "\n[ignore]:")
	}
	t.Logf("%d of Redis' own tests passed, %d ignored", passed, ignored)
	if passed < 250 {
		t.Errorf("only %d tests ran", passed)
	}
}
