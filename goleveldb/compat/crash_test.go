package compat

import (
	"bufio"
	"context"
	"flag"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var kills = flag.Int("kills", 6, "the number of kills of TestKill")

// writeAndKill runs a writer and kills it once it has acknowledged this many more
// batches. It returns the number of the last one.
func writeAndKill(t *testing.T, bin, dir string, batches int) (acknowledged int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, dir, "write")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	killed := false
	for n := 1; lines.Scan(); n++ {
		a, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Errorf("%s: %s", filepath.Base(filepath.Dir(bin)), lines.Text())
			break
		}
		acknowledged = a
		if n == batches {
			killed = true
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // it was killed
	if !killed {
		t.Fatalf("the writer ended after %d", acknowledged)
	}
	return acknowledged
}

// TestKill checks that goleveldb and the module open each other's directories after a
// kill, and find all acknowledged batches, synced or not, each as a whole.
func TestKill(t *testing.T) {
	proxy(t)
	theirs, ours := build(t, "crash", false), build(t, "crash", true)
	dir := filepath.Join(t.TempDir(), "db")
	for i := range *kills {
		writer, reader := ours, theirs
		if i%4 == 3 { // the other direction
			writer, reader = theirs, ours
		}
		acknowledged := writeAndKill(t, writer, dir, 20+i*197%900)
		got := strings.TrimSpace(run(t, reader, dir, "check")[0])
		n, err := strconv.Atoi(got)
		// The batch that was in progress may be there, too.
		if err != nil || n < acknowledged || n > acknowledged+1 {
			t.Fatalf("kill %d: %d batches were acknowledged; found: %s", i, acknowledged, got)
		}
	}
}
