package vfs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// newLog returns a log that has a window. It skips the test if none is possible.
func newLog(t *testing.T, name string) *mappedLog {
	t.Helper()
	f, err := OS.CreateLog(name)
	must(t, err)
	l := f.(*mappedLog)
	_, err = l.Write([]byte("mark"))
	must(t, err)
	must(t, l.Sync())
	_, err = l.Write([]byte("record"))
	must(t, err)
	if l.window == nil {
		l.Close()
		t.Skip("a log can have no window on this file system")
	}
	return l
}

// TestLogTruncatedByOthers checks that truncating the file under the mapping causes an error, not a
// crash.
func TestLogTruncatedByOthers(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	l := newLog(t, name)
	must(t, os.Truncate(name, 0))
	_, err := l.Write(bytes.Repeat([]byte{1}, 10_000))
	if err == nil || !strings.Contains(err.Error(), "page fault") || !strings.Contains(err.Error(), name) {
		t.Errorf("write to a file that was truncated: %v", err)
	}
	must(t, l.Close())
}

// TestLogWindows checks that windows grow, and that Close frees the space that was not used.
func TestLogWindows(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	l := newLog(t, name)
	seen := map[int]bool{}
	for range 3 << 10 {
		_, err := l.Write(bytes.Repeat([]byte{7}, 1<<10))
		must(t, err)
		seen[len(l.window)] = true
	}
	for _, n := range []int{firstWindow, 4 * firstWindow, lastWindow} {
		if !seen[n] {
			t.Errorf("no window of %d bytes: %v", n, seen)
		}
	}
	if len(seen) != 3 || l.plain {
		t.Errorf("windows %v, plain %v", seen, l.plain)
	}
	blocks := func() int64 {
		var st unix.Stat_t
		must(t, unix.Stat(name, &st))
		return st.Blocks * 512
	}
	before := blocks()
	must(t, l.Close())
	if after := blocks(); after > before || after > 4<<20 {
		t.Errorf("%d bytes allocated before Close and %d after", before, after)
	}
}

// TestLogWithoutRoom checks that a log without a window is written like any file, and that a full
// disk is an error.
func TestLogWithoutRoom(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	f, err := OS.CreateLog(name)
	must(t, err)
	l := f.(*mappedLog)
	_, err = l.Write([]byte("mark"))
	must(t, err)
	must(t, l.Sync())
	l.next = 1 << 60 // more than any file may have
	_, err = l.Write([]byte("record"))
	must(t, err)
	if !l.plain || l.window != nil {
		t.Errorf("a window of %d bytes", len(l.window))
	}
	must(t, l.Close())
	if b := readFile(t, OS, name); string(b) != "markrecord" {
		t.Errorf("%q", b)
	}

	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	l = &mappedLog{f: full, next: firstWindow, synced: true}
	if n, err := l.Write([]byte("record")); n != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("on a full disk: %d, %v", n, err)
	}
	full.Close()
}

// TestLogFails checks that system errors are returned where they matter, and that a log that cannot
// have a window continues without one.
func TestLogFails(t *testing.T) {
	dir := t.TempDir()
	if f, err := OS.CreateLog(filepath.Join(dir, "none", "log")); err == nil || f != nil {
		t.Errorf("in a missing directory: %v, %v", f, err)
	}

	// A window that is larger than a file can be.
	name := filepath.Join(dir, "log")
	l := newLog(t, name)
	must(t, l.unmap())
	size, end := l.size, l.off
	l.next = 1 << 62
	if err := l.mapNext(); err == nil || l.window != nil || l.size != size || l.off != end {
		t.Errorf("with too large a window: %v, %d bytes mapped, size %d", err, len(l.window), l.size)
	}
	l.next = firstWindow
	must(t, l.Close())
	if err := l.Sync(); err == nil {
		t.Error("Sync of a closed log succeeds")
	}

	// A descriptor that cannot be mapped.
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	l = &mappedLog{f: f, next: firstWindow, synced: true}
	if err := l.mapNext(); err == nil || l.window != nil {
		t.Errorf("mapping a file that is open only for writing: %v", err)
	}
	_, err = l.Write([]byte("record"))
	must(t, err)
	must(t, l.Close())
	if b, err := os.ReadFile(name); err != nil || string(b) != "record" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestLogAhead checks that pages are made writable ahead only in a log that is rarely synced; the
// contents are the same either way.
func TestLogAhead(t *testing.T) {
	for _, tc := range []struct {
		name   string
		faults bool // as on an old system
		each   int  // writes between syncs
		ahead  bool
	}{{"seldom", false, 1 << 20, true}, {"often", false, 10, false}, {"old", true, 1 << 20, false}} {
		t.Run(tc.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "log")
			l := newLog(t, name)
			l.faults = tc.faults
			want := []byte("markrecord")
			var most int64 // bytes that were ready ahead of the end
			for i := range 3000 {
				p := bytes.Repeat([]byte{byte(i)}, 1+i%2000)
				_, err := l.Write(p)
				must(t, err)
				want = append(want, p...)
				most = max(most, l.ready-l.off)
				if i%tc.each == tc.each-1 {
					must(t, l.Sync())
				}
			}
			if l.faults && !tc.faults {
				t.Skip("this system makes no pages writable ahead")
			}
			if most > ahead || (most > 0) != tc.ahead {
				t.Errorf("%d bytes were ready ahead of the end", most)
			}
			must(t, l.Close())
			if b := readFile(t, OS, name); !bytes.Equal(b, want) {
				t.Errorf("%d bytes, want %d", len(b), len(want))
			}
		})
	}
}

// BenchmarkLog writes records of 360 bytes, with pages that are made writable ahead and without.
func BenchmarkLog(b *testing.B) {
	for _, faults := range []bool{true, false} {
		b.Run(map[bool]string{true: "faults", false: "ahead"}[faults], func(b *testing.B) {
			f, err := OS.CreateLog(filepath.Join(b.TempDir(), "log"))
			must(b, err)
			l := f.(*mappedLog)
			defer l.Close()
			record := bytes.Repeat([]byte{7}, 360)
			_, err = l.Write(record)
			must(b, err)
			must(b, l.Sync())
			l.faults = faults
			b.SetBytes(int64(len(record)))
			for b.Loop() {
				if _, err := l.Write(record); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
