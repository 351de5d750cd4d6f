package main

import (
	"bytes"
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/record"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares what a command printed with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// batchRecord returns a log record with the given operations, already encoded.
func batchRecord(seq uint64, count uint32, ops string) []byte {
	b := binary.LittleEndian.AppendUint64(nil, seq)
	return append(binary.LittleEndian.AppendUint32(b, count), ops...)
}

// logFile writes a log of these records and returns its path and size.
func logFile(t *testing.T, records ...[]byte) (path string, size int64) {
	t.Helper()
	var b bytes.Buffer
	w := record.NewWriter(&b)
	for _, r := range records {
		if err := w.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	path = filepath.Join(t.TempDir(), "000007.log")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path, int64(b.Len())
}

func TestDumpLog(t *testing.T) {
	records := [][]byte{
		batchRecord(1, 0, ""),
		batchRecord(1, 1, "\x01\x01a\x02xy"),
		batchRecord(2, 3, "\x01\x01b\x00\x00\x01a\x00\x00"),
		batchRecord(5, 1, "\x00\x02\xff\t"),
		[]byte("no batch"),
		batchRecord(6, 2, "\x01\x01a\x00"),
		batchRecord(6, 1, "\x07\x01a"),
		batchRecord(6, 1, "\x00\x7fa"),
	}
	path, _ := logFile(t, records...)
	r := runSift(t, "", "dump", "--entries", path)
	golden(t, "log.txt", strings.ReplaceAll(r.out, path, "000007.log"))
	if r.status != statusFailed || !strings.Contains(r.err, "damaged, see above") {
		t.Errorf("status %d, stderr %q", r.status, r.err)
	}

	path, size := logFile(t, records[:4]...)
	if err := os.Truncate(path, size-1); err != nil {
		t.Fatal(err)
	}
	golden(t, "log-torn.txt", strings.ReplaceAll(mustSift(t, "", "dump", "--entries", "--hex", path), path, "000007.log"))

	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[30] ^= 1 // in the second record
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	r = runSift(t, "", "dump", path)
	golden(t, "log-damaged.txt", strings.ReplaceAll(r.out, path, "000007.log"))
	if r.status != statusFailed {
		t.Errorf("status %d, stderr %q", r.status, r.err)
	}
}

func TestDumpManifest(t *testing.T) {
	// A file of goleveldb, which lists one table twice in an edit.
	path := filepath.Join("testdata", "MANIFEST-000009")
	golden(t, "manifest.txt", filepath.ToSlash(mustSift(t, "", "dump", path)))

	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := record.NewWriter(&b)
	for _, r := range [][]byte{data[record.HeaderLen:], []byte("\x06\x00\x63"), []byte("\x0f")} {
		if err := w.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	path = filepath.Join(t.TempDir(), "some-name")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	r := runSift(t, "", "dump", "--as", "manifest", path)
	golden(t, "manifest-bad.txt", strings.ReplaceAll(r.out, path, "some-name"))
	if r.status != statusFailed {
		t.Errorf("status %d, stderr %q", r.status, r.err)
	}
	r = runSift(t, "", "dump", path)
	if r.status != statusUsage || !strings.Contains(r.err, "use --as") {
		t.Errorf("a file of an unknown kind: status %d, stderr %q", r.status, r.err)
	}
}

// TestDumpOnlyFiles: dump does not open a pipe or a socket, which could block.
func TestDumpOnlyFiles(t *testing.T) {
	path := socket(t)
	if r := runSift(t, "", "dump", path); r.status != statusFailed || !strings.Contains(r.err, path+" is not a regular file") {
		t.Errorf("%+v", r)
	}
}

// TestDumpDenseLog checks that a log of many tiny operations takes memory in proportion to its size.
func TestDumpDenseLog(t *testing.T) {
	const n = 4 << 20
	path, size := logFile(t, batchRecord(1, n, strings.Repeat("\x00\x00", n)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out := mustSift(t, "", "dump", path)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > uint64(size)+64<<20 {
		t.Errorf("a log of %d bytes took %d MiB", size, took>>20)
	}
	if !strings.Contains(out, "4,194,304 deletes") {
		t.Errorf("prints\n%s", out)
	}
}
