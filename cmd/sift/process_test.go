package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/siftdb/sift"
)

// program returns a command that runs in its own process.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), "SIFT_TEST_AS_PROGRAM=1")
	return cmd
}

// exitCode returns the exit status of a command.
func exitCode(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return exit.ExitCode()
}

// TestReaderLeaves: scan ends without an error when the reader of its output closes the pipe.
func TestReaderLeaves(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, lines(20000), "load", db)
	cmd := program(t, "scan", db)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first, err := bufio.NewReaderSize(out, 16).ReadString('\n')
	if err != nil || first != line(0) {
		t.Errorf("first line %q, %v", first, err)
	}
	out.Close()
	if status := exitCode(t, cmd.Wait()); status != 0 || stderr.Len() > 0 {
		t.Errorf("status %d, stderr %q", status, &stderr)
	}
}

// TestInterruptLoad: an interrupted load ends at once, although there is more input, and keeps what
// it has stored.
func TestInterruptLoad(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot interrupt another one here")
	}
	db := filepath.Join(t.TempDir(), "db")
	cmd := program(t, "load", db)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// More than a pipe buffers: once all is written, most of it has been read.
	if _, err := io.WriteString(in, lines(100000)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	status := exitCode(t, cmd.Wait())
	if status != statusFailed || !strings.HasPrefix(stderr.String(), "sift: interrupted after line ") {
		t.Errorf("status %d, stderr %q", status, &stderr)
	}
	if out := mustSift(t, "", "get", db, "key000042"); out != "value 42\n" {
		t.Errorf("key000042 has %q", out)
	}
	if r := runSift(t, "", "check", db); r.status != 0 {
		t.Errorf("check: %s%s", r.out, r.err)
	}
}

// failingWriter accepts room bytes and then fails.
type failingWriter struct {
	room int
	err  error
}

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.room -= len(p); w.room < 0 {
		return 0, w.err
	}
	return len(p), nil
}

func TestOutputFails(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, lines(20000), "load", db)
	for _, c := range []struct {
		args   []string
		err    error
		status int
	}{
		{[]string{"scan", db}, io.ErrClosedPipe, statusOK},
		{[]string{"scan", db}, errors.New("disk full"), statusFailed},
		{[]string{"get", db, "key000001"}, errors.New("disk full"), statusFailed},
		{[]string{"stats", db}, errors.New("disk full"), statusFailed},
		{[]string{"check", db}, errors.New("disk full"), statusFailed},
		{[]string{"--help"}, io.ErrClosedPipe, statusOK},
		{[]string{"scan", "--help"}, errors.New("disk full"), statusFailed},
		{[]string{"--version"}, io.ErrClosedPipe, statusOK},
		{[]string{"version"}, errors.New("disk full"), statusFailed},
	} {
		var stderr bytes.Buffer
		status := run(context.Background(), c.args, strings.NewReader(""), &failingWriter{err: c.err}, &stderr)
		if status != c.status || c.status == statusFailed != strings.Contains(stderr.String(), c.err.Error()) {
			t.Errorf("%q with output that fails with %q: status %d, stderr %q", c.args, c.err, status, &stderr)
		}
	}
}

// TestCanceled: commands that can take long end with an error when interrupted.
func TestCanceled(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, lines(5000), "load", "--filter", "none", db)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("TMP", tmp)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, args := range [][]string{
		{"scan", db},
		{"load", db},
		{"put", db, "key"},
		{"check", db},
		{"filter", "build", db},
		{"compact", db},
		{"delete", "--prefix", db, ""},
		{"demo", "--tree", "."},
	} {
		var stderr bytes.Buffer
		status := run(ctx, args, strings.NewReader(lines(5000)), io.Discard, &stderr)
		if status != statusFailed || !strings.Contains(stderr.String(), "interrupted") {
			t.Errorf("%q: status %d, stderr %q", args, status, &stderr)
		}
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("the demo left %v behind, %v", left, err)
	}
}

// countdown is a context that is canceled after its Err has been called some times.
type countdown struct {
	context.Context
	calls int
}

func (c *countdown) Err() error {
	if c.calls--; c.calls >= 0 {
		return nil
	}
	return context.Canceled
}

// TestCanceledBatch: a script with ranges that is interrupted at any moment writes nothing.
func TestCanceledBatch(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, lines(5000), "load", db)
	script := "delete-range\t\t\n" + strings.Repeat("put\tk\tv\n", 3000)
	times := 0
	for ; ; times++ {
		ctx := &countdown{context.Background(), times}
		var stderr bytes.Buffer
		if status := run(ctx, []string{"batch", db}, strings.NewReader(script), io.Discard, &stderr); status == statusOK {
			break
		} else if status != statusFailed || !strings.HasPrefix(stderr.String(), "sift: interrupted") {
			t.Fatalf("call %d: status %d, stderr %q", times, status, &stderr)
		}
		if got := mustSift(t, "", "scan", "--count", db); got != "5000\n" {
			t.Fatalf("call %d: %s keys are left", times, got)
		}
	}
	if times < 7 {
		t.Errorf("interrupted %d times", times)
	}
	if got := mustSift(t, "", "scan", "--count", db); got != "1\n" {
		t.Errorf("%s keys are left", got)
	}
}

// TestCanceledBatchOfRanges: a script of many ranges without keys can be interrupted, too.
func TestCanceledBatchOfRanges(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, "x1\t1\n", "load", db)
	script := strings.Repeat("delete-range\tx\ty\n", 1000) + "put\tk\tv\n"
	var stderr bytes.Buffer
	status := run(&countdown{context.Background(), 20}, []string{"batch", db}, strings.NewReader(script), io.Discard, &stderr)
	if status != statusFailed || !strings.HasPrefix(stderr.String(), "sift: interrupted") {
		t.Errorf("status %d, stderr %q", status, &stderr)
	}
	if got := mustSift(t, "", "scan", db); got != "x1\t1\n" {
		t.Errorf("scan prints %q", got)
	}
}

// TestBatchOfOtherInput: an error shows only the beginning of a long line.
func TestBatchOfOtherInput(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	r := runSift(t, strings.Repeat("{\"a\": 1}, ", 100_000), "batch", db)
	if r.status != statusFailed || len(r.err) > 300 || !strings.Contains(r.err, "tabs separate the fields") {
		t.Errorf("status %d, %d bytes: %.300s", r.status, len(r.err), r.err)
	}
}

// TestPutTooLarge: put does not read input of any length into memory.
func TestPutTooLarge(t *testing.T) {
	defer func(most int64) { maxValueBytes = most }(maxValueBytes)
	maxValueBytes = 1000
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, strings.Repeat("v", 1000), "put", db, "largest")
	r := runSift(t, strings.Repeat("v", 1001), "put", db, "larger")
	if want := "sift: the value has more than 1000B\n"; r.status != statusFailed || r.err != want {
		t.Errorf("%+v, want %q", r, want)
	}
	if out := mustSift(t, "", "scan", "--keys", db); out != "largest\n" {
		t.Errorf("scan prints %q", out)
	}
}

// TestBatchOfManyRanges checks that batch does not read any number of ranges into memory.
func TestBatchOfManyRanges(t *testing.T) {
	defer func(most int) { maxRangeBytes = most }(maxRangeBytes)
	maxRangeBytes = 1000
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, "key\tvalue\n", "load", db)
	const put, deleteRange = "put\tnew\t1\n", "delete-range\ta\tz\n"
	r := runSift(t, put+strings.Repeat(deleteRange, 100), "batch", db)
	if r.status != statusFailed || !strings.Contains(r.err, sift.ErrBatchTooLarge.Error()) || !strings.HasPrefix(r.err, "sift: line ") {
		t.Errorf("100 ranges: %+v", r)
	}
	if out := mustSift(t, "", "scan", db); out != "key\tvalue\n" {
		t.Errorf("after 100 ranges, scan prints %q", out)
	}
	mustSift(t, put+strings.Repeat(deleteRange, 3), "batch", db)
	if out := mustSift(t, "", "scan", db); out != "" {
		t.Errorf("after three ranges, scan prints %q", out)
	}
}

// TestCanceledCheckJSON checks that an interrupted check prints the faults found so far as JSON,
// too.
func TestCanceledCheckJSON(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, lines(5000), "load", db)
	path := filepath.Join(db, "000005.ldb")
	table, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	table[10] ^= 1
	if err := os.WriteFile(path, table, 0o644); err != nil {
		t.Fatal(err)
	}
	found := 0
	for times := 0; ; times++ {
		check := func(args ...string) (out, stderr string) {
			var o, e bytes.Buffer
			run(&countdown{context.Background(), times}, append([]string{"check", db}, args...), strings.NewReader(""), &o, &e)
			return o.String(), e.String()
		}
		text, stderr := check()
		if !strings.Contains(stderr, "interrupted") {
			break
		}
		if strings.Contains(text, "checksum mismatch") {
			found++
			if out, _ := check("--json"); !strings.Contains(out, "checksum mismatch") {
				t.Fatalf("after %d calls: --json prints %q, text mode %q", times, out, text)
			}
		}
	}
	if found == 0 {
		t.Error("never interrupted after the fault")
	}
}
