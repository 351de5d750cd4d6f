package manifest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/vfs"
)

// opFS records the operations that change something, and fails one of them.
type opFS struct {
	vfs.FS
	ops    []string
	failAt int // the index of the operation that fails, and of all after it if sticky; -1: none
	sticky bool
	short  bool // a failing write writes half
}

var errDisk = errors.New("disk failure")

func (f *opFS) op(name string, path ...string) error {
	for _, p := range path {
		name += " " + filepath.Base(p)
	}
	f.ops = append(f.ops, name)
	if i := len(f.ops) - 1; f.failAt >= 0 && (i == f.failAt || f.sticky && i > f.failAt) {
		return errDisk
	}
	return nil
}

func (f *opFS) Create(name string) (vfs.File, error) {
	if err := f.op("create", name); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name)
	return &opFile{file, f, name}, err
}

func (f *opFS) Remove(name string) error {
	if err := f.op("remove", name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *opFS) Rename(from, to string) error {
	if err := f.op("rename", from, to); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f *opFS) SyncDir(dir string) error {
	if err := f.op("syncdir"); err != nil {
		return err
	}
	return f.FS.SyncDir(dir)
}

type opFile struct {
	vfs.File
	fs   *opFS
	name string
}

func (f *opFile) Write(b []byte) (int, error) {
	if err := f.fs.op("write", f.name); err != nil {
		n := 0
		if f.fs.short {
			n, _ = f.File.Write(b[:len(b)/2])
		}
		return n, err
	}
	return f.File.Write(b)
}

func (f *opFile) Sync() error {
	if err := f.fs.op("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *opFile) Close() error {
	err := f.fs.op("close", f.name)
	return errors.Join(err, f.File.Close())
}

func someState(t testing.TB) *State {
	s := NewState()
	s.Version = mustApply(t, nil, add(0, meta(4, key("a", 1), key("b", 1))), add(3, meta(5, key("c", 1), key("d", 1))))
	s.LogNumber, s.NextFile, s.LastSeq = 6, 12, 77
	s.Pointers[3] = key("c", 1)
	return s
}

func TestCreateAppendLoad(t *testing.T) {
	fsys := &opFS{FS: vfs.OS, failAt: -1}
	dir := t.TempDir()
	want := someState(t)
	w, switched, err := Create(fsys, dir, 11, want)
	if err != nil || !switched || w.Num() != 11 {
		t.Fatalf("%v, %v", switched, err)
	}
	// Everything that CURRENT refers to is durable before CURRENT names it.
	order := []string{
		"create MANIFEST-000011", "write MANIFEST-000011", "sync MANIFEST-000011", "syncdir",
		"create 000011.dbtmp", "write 000011.dbtmp", "sync 000011.dbtmp", "close 000011.dbtmp",
		"rename 000011.dbtmp CURRENT", "syncdir",
	}
	if !slices.Equal(fsys.ops, order) {
		t.Errorf("operations:\n%s", strings.Join(fsys.ops, "\n"))
	}
	check := func(want *State) {
		t.Helper()
		got, err := Load(vfs.OS, dir)
		if err != nil || describe(got) != describe(want) || got.Num != 11 || got.Dropped != nil {
			t.Fatalf("%v\n%s\nwant\n%s", err, describe(got), describe(want))
		}
	}
	check(want)

	e := add(2, meta(10, key("x", 1), key("y", 1)))
	e.Deleted, e.LastSeq = []DeletedTable{{0, 4}}, ptr(uint64(90))
	fsys.ops = nil
	if err := w.Append(e); err != nil {
		t.Fatal(err)
	}
	if want := []string{"write MANIFEST-000011", "sync MANIFEST-000011"}; !slices.Equal(fsys.ops, want) {
		t.Errorf("operations of Append: %v", fsys.ops)
	}
	want.Version, want.LastSeq = mustApply(t, want.Version, e), 90
	check(want)
	info, err := os.Stat(filepath.Join(dir, "MANIFEST-000011"))
	if err != nil || info.Size() != w.Size() {
		t.Errorf("Size %d, the file has %v", w.Size(), info.Size())
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCreateFails fails each operation: before the rename, the old MANIFEST stays in use and
// nothing is left over; from the rename on, both exist.
func TestCreateFails(t *testing.T) {
	for failAt := range 10 {
		for _, sticky := range []bool{false, true} {
			for _, short := range []bool{false, true} {
				desc := fmt.Sprintf("operation %d, sticky %v, short %v", failAt, sticky, short)
				dir := t.TempDir()
				old := someState(t)
				w, _, err := Create(vfs.OS, dir, 11, old)
				if err != nil {
					t.Fatal(err)
				}
				fsys := &opFS{FS: vfs.OS, failAt: failAt, sticky: sticky, short: short}
				next := someState(t)
				next.LastSeq = 1000
				next.NextFile = 13
				_, switched, err := Create(fsys, dir, 12, next)
				if !errors.Is(err, errDisk) || switched != (failAt >= 8) {
					t.Errorf("%s: %v, switched %v", desc, err, switched)
				}
				got, err := Load(vfs.OS, dir)
				if err != nil {
					t.Errorf("%s: then %v", desc, err)
					continue
				}
				if switched {
					if d := describe(got); d != describe(old) && d != describe(next) {
						t.Errorf("%s: loads\n%s", desc, d)
					}
					for _, name := range []string{"MANIFEST-000011", "MANIFEST-000012"} {
						if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
							t.Errorf("%s: %v", desc, err)
						}
					}
				} else {
					if describe(got) != describe(old) {
						t.Errorf("%s: loads\n%s", desc, describe(got))
					}
					if names, _ := vfs.OS.List(dir); !sticky && !slices.Equal(names, []string{"CURRENT", "MANIFEST-000011"}) {
						t.Errorf("%s: left %v", desc, names)
					}
					if err := w.Append(&Edit{LastSeq: ptr(uint64(5))}); err != nil {
						t.Errorf("%s: Append to the old MANIFEST: %v", desc, err)
					}
				}
				w.Close()
			}
		}
	}
}

// A Writer does not keep the state that it has written: with long keys it is large.
func TestCreateKeepsNoMemory(t *testing.T) {
	long := strings.Repeat("k", 1<<20)
	v := new(Version)
	for i := range 16 {
		smallest := key(fmt.Sprintf("%02d%s", i, long), 1)
		v.Levels[1] = append(v.Levels[1], meta(uint64(i+2), smallest, smallest))
	}
	before := heapBytes()
	w, _, err := Create(vfs.OS, t.TempDir(), 100, &State{Version: v, NextFile: 101})
	if err != nil {
		t.Fatal(err)
	}
	if kept := heapBytes() - before; kept > 8<<20 {
		t.Errorf("%d bytes in memory after a state of %d bytes", kept, w.Base())
	}
	runtime.KeepAlive(v)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// heapBytes returns the size of the live heap.
func heapBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestAppendFailureSticks(t *testing.T) {
	for _, failing := range []string{"write", "sync"} {
		for _, short := range []bool{false, true} {
			dir := t.TempDir()
			fsys := &opFS{FS: vfs.OS, failAt: -1, short: short}
			state := someState(t)
			w, _, err := Create(fsys, dir, 11, state)
			if err != nil {
				t.Fatal(err)
			}
			fsys.failAt = len(fsys.ops)
			if failing == "sync" {
				fsys.failAt++
			}
			first := w.Append(&Edit{LastSeq: ptr(uint64(99))})
			if !errors.Is(first, errDisk) || !strings.Contains(first.Error(), "MANIFEST-000011") {
				t.Errorf("%s: %v", failing, first)
			}
			fsys.ops = nil
			if err := w.Append(&Edit{LastSeq: ptr(uint64(100))}); err != first || len(fsys.ops) != 0 {
				t.Errorf("%s: after the failure %v, %v", failing, err, fsys.ops)
			}
			// A new MANIFEST makes the state certain again.
			state.NextFile = 14
			next, switched, err := Create(vfs.OS, dir, 13, state)
			if err != nil || !switched {
				t.Fatal(err)
			}
			if got, err := Load(vfs.OS, dir); err != nil || describe(got) != describe(state) {
				t.Errorf("%s: %v", failing, err)
			}
			next.Close()
			w.Close()
		}
	}
}
