package main

import (
	"bytes"
	"encoding/binary"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/record"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/wal"
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

	path, _ = logFile(t, append(records[:3:3], batchRecord(5, 0, ""))...)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[30] ^= 1 // in the second record, which was on disk when the marker was written
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

// TestDumpEmptyManifest: a MANIFEST without an edit, which Open refuses, is damaged.
func TestDumpEmptyManifest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "MANIFEST-000003")
	for _, content := range []string{"", "garbage\n"} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if r := runSift(t, "", "dump", path); r.status != statusFailed || !strings.Contains(r.out, "there is no edit") {
			t.Errorf("%q: %+v", content, r)
		}
	}
}

// TestDumpLogInValue: a marker of an older log in the value of an unfinished batch proves nothing.
func TestDumpLogInValue(t *testing.T) {
	old, _ := logFile(t, batchRecord(5, 0, ""))
	value, err := os.ReadFile(old)
	if err != nil {
		t.Fatal(err)
	}
	header := batchRecord(100, 0, "")
	path, _ := logFile(t, header, batchRecord(100, 1, "\x01\x01a"+string(rune(len(value)))+string(value)))
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[2*record.HeaderLen+len(header)+12+2] ^= 1 // the key
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := runSift(t, "", "dump", path); r.status != statusOK || !strings.Contains(r.out, "  torn: checksum mismatch; the next valid fragment") {
		t.Errorf("%+v", r)
	}
}

// TestDumpMarkerOfPreviousLog: a marker that proves only that the previous log was on disk, number
// 5, is no proof for record 6. Open judges likewise.
func TestDumpMarkerOfPreviousLog(t *testing.T) {
	header, bad := batchRecord(1, 0, ""), batchRecord(6, 1, "\x01\x01a\x01x") // created ahead, at sequence 1
	path, _ := logFile(t, header, bad, batchRecord(5, 0, ""), batchRecord(7, 1, "\x01\x01b\x01y"))
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[2*record.HeaderLen+len(header)+len(bad)-1] ^= 1
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	r := wal.Recovery{
		Config:      wal.Config{FS: vfs.OS, Dir: filepath.Dir(path), Logger: slog.New(slog.DiscardHandler)},
		ManifestSeq: 5, LastSeq: 5, Apply: func([]byte) error { return nil },
	}
	if err := r.Replay(7); err != nil || len(r.Torn) != 1 {
		t.Fatalf("Open: %v, %v", err, r.Torn)
	}
	if r := runSift(t, "", "dump", path); r.status != statusOK || !strings.Contains(r.out, "  torn: checksum mismatch") {
		t.Errorf("%+v", r)
	}
}

// TestDumpLogTails: the end of a log is judged as when the database is opened. Only logs of sift,
// which begin with an empty batch, have preallocated space, and only in those a complete last
// record with a wrong checksum counts as torn, unless the log is too short for a write.
func TestDumpLogTails(t *testing.T) {
	header, first, last := batchRecord(1, 0, ""), batchRecord(1, 1, "\x01\x01a\x01x"), batchRecord(2, 1, "\x01\x01b\x01y")
	zero := func(b []byte) { clear(b) }
	flip := func(b []byte) { b[len(b)-1] ^= 1 }
	for _, c := range []struct {
		desc    string
		records [][]byte
		edit    func(record []byte) // the last one
		status  int
		kind    string // with --json
		want    string
	}{
		{"zeros", [][]byte{first, last}, zero, statusOK, "zeros", "torn: the last 24 bytes of the file are zeros"},
		{"zeros, sift", [][]byte{header, first, last}, zero, statusOK, "zeros", "clean: the last 24 bytes of the file are zeros"},
		{"flipped", [][]byte{first, last}, flip, statusFailed, "damaged", "damaged: no valid record in the last 24 bytes of the file: checksum mismatch"},
		{"flipped, sift", [][]byte{header, first, last}, flip, statusOK, "torn", "torn: no valid record in the last 24 bytes of the file: checksum mismatch"},
		{"a flipped marker, not at the beginning", [][]byte{first, header}, flip, statusFailed, "damaged", "damaged: no valid record"},
		{"a flipped header alone", [][]byte{header}, flip, statusOK, "torn", "torn: no valid record"},
	} {
		path, size := logFile(t, c.records...)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c.edit(data[size-int64(record.HeaderLen+len(c.records[len(c.records)-1])):])
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		r := runSift(t, "", "dump", path)
		if r.status != c.status || !strings.Contains(r.out, "  "+c.want) || strings.Contains(r.err, "damaged, see above") != (c.status == statusFailed) {
			t.Errorf("%s: %+v", c.desc, r)
		}
		r = runSift(t, "", "dump", "--json", path)
		if r.status != c.status || !strings.Contains(r.out, `{"type":"end","kind":"`+c.kind+`"`) {
			t.Errorf("%s, as JSON: %+v", c.desc, r)
		}
	}
}

// TestDumpLogDamageBefore: in a log of sift, only a durability marker after a bad record proves
// that the record was on disk.
func TestDumpLogDamageBefore(t *testing.T) {
	header, first, second := batchRecord(1, 0, ""), batchRecord(1, 1, "\x01\x01a\x01x"), batchRecord(2, 1, "\x01\x01b\x01y")
	for _, c := range []struct {
		last   []byte
		status int
		kind   string
	}{
		{second, statusOK, "torn"},
		{batchRecord(2, 0, ""), statusFailed, "damaged"},
	} {
		path, _ := logFile(t, header, first, c.last)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[2*record.HeaderLen+len(header)+len(first)-1] ^= 1
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		r := runSift(t, "", "dump", path)
		if r.status != c.status || !strings.Contains(r.out, "  "+c.kind+": checksum mismatch; the next valid fragment") {
			t.Errorf("want %s: %+v", c.kind, r)
		}
	}
}

// TestDumpDeepManifest: the tables of goleveldb's levels beyond those of LevelDB are shown, and
// tables that overlap once all edits are applied are reported.
func TestDumpDeepManifest(t *testing.T) {
	added := func(level, num byte, smallest, largest string) string {
		const trailer = "\x01\x01\x00\x00\x00\x00\x00\x00"
		return string([]byte{7, level, num, 100, 9}) + smallest + trailer + "\x09" + largest + trailer
	}
	edits := [][]byte{
		[]byte("\x02\x04\x03\x09\x04\x01" + added(7, 5, "a", "f")),
		[]byte("\x06\x07\x05" + added(8, 5, "a", "f")),
	}
	path, _ := logFile(t, edits...)
	out := mustSift(t, "", "dump", "--as", "manifest", path)
	if !strings.HasSuffix(out, "\n\n1 table\n  level 8 table 000005 100 bytes \"a\" #1 .. \"f\" #1\n") || strings.Contains(out, "bad edit") {
		t.Errorf("prints\n%s", out)
	}
	if out := mustSift(t, "", "dump", "--json", "--as", "manifest", path); typesOf(t, out)["table"] != 1 || !strings.Contains(out, `{"type":"table","level":8,"number":5,`) {
		t.Errorf("prints\n%s", out)
	}

	path, _ = logFile(t, append(edits, []byte(added(8, 6, "e", "k")))...)
	r := runSift(t, "", "dump", "--as", "manifest", path)
	if r.status != statusFailed || !strings.Contains(r.out, "bad edit: tables 000005 and 000006 of level 8 overlap\n") ||
		!strings.Contains(r.out, "\n\n2 tables\n  level 8 table 000005 ") {
		t.Errorf("tables that overlap: %+v", r)
	}
}

// TestDumpOnlyFiles: dump does not open a pipe or a socket, which could block.
func TestDumpOnlyFiles(t *testing.T) {
	path := socket(t)
	if r := runSift(t, "", "dump", path); r.status != statusFailed || !strings.Contains(r.err, path+" is not a regular file") {
		t.Errorf("%+v", r)
	}
}

// TestDumpDenseLog checks that a log of many tiny operations takes memory in proportion to its
// size.
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
