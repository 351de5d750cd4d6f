package vfstest

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/vfs"
)

// eachFS runs a test on every implementation of FS, in an empty directory.
func eachFS(t *testing.T, test func(t *testing.T, fsys vfs.FS, dir string)) {
	t.Run("OS", func(t *testing.T) { test(t, vfs.OS, t.TempDir()) })
	t.Run("Mem", func(t *testing.T) { test(t, NewMem(), filepath.FromSlash("/")) })
	t.Run("RAM", func(t *testing.T) { test(t, vfs.NewRAM(), filepath.FromSlash("/")) })
	t.Run("Faulty", func(t *testing.T) {
		f := Inject(NewMem())
		test(t, f, "")
		if open := f.OpenFiles(); len(open) > 0 {
			t.Errorf("left open: %v", open)
		}
		if failed := f.Failed(); len(failed) > 0 || f.NumOps() == 0 {
			t.Errorf("%d operations, failed: %v", f.NumOps(), failed)
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put creates a file that holds s, and syncs it if sync is set.
func put(t testing.TB, fsys vfs.FS, name, s string, sync bool) {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	_, err = io.WriteString(f, s)
	must(t, err)
	if sync {
		must(t, f.Sync())
	}
	must(t, f.Close())
}

// get returns the contents of a file, or "-" if it is missing.
func get(t testing.TB, fsys vfs.FS, name string) string {
	t.Helper()
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "-"
	}
	must(t, err)
	defer f.Close()
	size, err := fsys.Size(name)
	must(t, err)
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n != len(b) || err != nil && err != io.EOF {
		t.Fatalf("%s: read %d of %d bytes: %v", name, n, size, err)
	}
	return string(b)
}

func TestFiles(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		a := filepath.Join(dir, "a")
		f, err := fsys.Create(a)
		must(t, err)
		for _, s := range []string{"hello", "", ", world"} {
			n, err := io.WriteString(f, s)
			if n != len(s) || err != nil {
				t.Fatalf("Write: %d, %v", n, err)
			}
		}
		b := make([]byte, 5)
		if n, err := f.ReadAt(b, 7); n != 5 || err != nil && err != io.EOF || string(b) != "world" {
			t.Fatalf("ReadAt of the file being written: %d, %v, %q", n, err, b)
		}
		must(t, f.Sync())
		must(t, f.Close())
		if _, err := f.Write([]byte("x")); !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("Write after Close: %v", err)
		}
		if err := f.Sync(); !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("Sync after Close: %v", err)
		}
		if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("Close after Close: %v", err)
		}

		f, err = fsys.Open(a)
		must(t, err)
		for _, tc := range []struct {
			off  int64
			n    int
			want string
			err  error
		}{
			{0, 12, "hello, world", nil},
			{0, 5, "hello", nil},
			{7, 10, "world", io.EOF},
			{12, 1, "", io.EOF},
			{100, 1, "", io.EOF},
		} {
			b := make([]byte, tc.n)
			n, err := f.ReadAt(b, tc.off)
			if string(b[:n]) != tc.want || err != tc.err && !(tc.err == nil && err == io.EOF) {
				t.Errorf("ReadAt %d+%d: %q, %v", tc.off, tc.n, b[:n], err)
			}
		}
		if _, err := f.ReadAt(b, -1); err == nil {
			t.Error("ReadAt of a negative offset succeeds")
		}
		if _, err := f.Write(b); err == nil {
			t.Error("Write to a file opened for reading succeeds")
		}
		must(t, f.Close())
		if _, err := f.ReadAt(b, 0); !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("ReadAt after Close: %v", err)
		}
		if n, err := fsys.Size(a); n != 12 || err != nil {
			t.Errorf("Size: %d, %v", n, err)
		}
	})
}

func TestNames(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		at := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
		list := func(want ...string) {
			t.Helper()
			if got, err := fsys.List(dir); err != nil || !slices.Equal(got, want) {
				t.Fatalf("List: %q, %v, want %q", got, err, want)
			}
		}
		list()
		put(t, fsys, at("b"), "bee", true)
		put(t, fsys, at("a"), "ay", false)
		must(t, fsys.MkdirAll(at("d/e/f")))
		must(t, fsys.MkdirAll(at("d/e")))
		list("a", "b", "d")
		put(t, fsys, at("d/e/f/x"), "ex", true)

		must(t, fsys.Link(at("a"), at("d/a2")))
		must(t, fsys.Rename(at("a"), at("b")))
		list("b", "d")
		if s := get(t, fsys, at("b")); s != "ay" {
			t.Fatalf("renamed over: %q", s)
		}
		must(t, fsys.Rename(at("b"), at("b")))
		must(t, fsys.Rename(at("b"), at("d/a2"))) // two names of one file
		must(t, fsys.Remove(at("b")))
		if s := get(t, fsys, at("d/a2")); s != "ay" {
			t.Fatalf("the other name: %q", s)
		}
		must(t, fsys.Remove(at("d/e/f/x")))
		must(t, fsys.Remove(at("d/e/f")))
		must(t, fsys.SyncDir(at("d")))
		must(t, fsys.SyncDir(dir))
		list("d")

		for _, tc := range []struct {
			desc string
			err  error
			want error
		}{
			{"Remove of nothing", fsys.Remove(at("x")), fs.ErrNotExist},
			{"Remove of a directory that is not empty", fsys.Remove(at("d")), nil},
			{"Rename of nothing", fsys.Rename(at("x"), at("y")), fs.ErrNotExist},
			{"Rename into nothing", fsys.Rename(at("d/a2"), at("x/y")), fs.ErrNotExist},
			{"Rename over a directory", fsys.Rename(at("d/a2"), at("d/e")), nil},
			{"Link of nothing", fsys.Link(at("x"), at("y")), fs.ErrNotExist},
			{"Link to a name that is taken", fsys.Link(at("d/a2"), at("d/a2")), fs.ErrExist},
			{"Link to a directory", fsys.Link(at("d/a2"), at("d/e")), fs.ErrExist},
			{"MkdirAll through a file", fsys.MkdirAll(at("d/a2/z")), nil},
			{"SyncDir of nothing", fsys.SyncDir(at("x")), fs.ErrNotExist},
			{"Open of nothing", second(fsys.Open(at("x"))), fs.ErrNotExist},
			{"Open in nothing", second(fsys.Open(at("x/y"))), fs.ErrNotExist},
			{"Create in nothing", second(fsys.Create(at("x/y"))), fs.ErrNotExist},
			{"Create over an empty directory", second(fsys.Create(at("d/e"))), nil},
			{"Create over a directory", second(fsys.Create(at("d"))), nil},
			{"List of nothing", second(fsys.List(at("x"))), fs.ErrNotExist},
			{"List of a file", second(fsys.List(at("d/a2"))), nil},
			{"Size of nothing", second(fsys.Size(at("x"))), fs.ErrNotExist},
			{"Size of a directory", second(fsys.Size(at("d"))), nil},
			{"Lock in nothing", second(fsys.Lock(at("x/y"), true)), fs.ErrNotExist},
		} {
			if tc.err == nil || tc.want != nil && !errors.Is(tc.err, tc.want) {
				t.Errorf("%s: %v, want %v", tc.desc, tc.err, tc.want)
			}
			if tc.err != nil && dir != "" && !strings.Contains(tc.err.Error(), filepath.Base(dir)) {
				t.Errorf("%s: the error names no file: %v", tc.desc, tc.err)
			}
		}
		if s := get(t, fsys, at("d/a2")); s != "ay" {
			t.Fatalf("after the errors: %q", s)
		}
		list("d")
	})
}

func second[T any](_ T, err error) error { return err }

// TestCreateLeavesOthersAlone replaces a file that is open and has another name, such as one in a
// checkpoint: the open file and the other name must keep the old contents.
func TestCreateLeavesOthersAlone(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		put(t, fsys, a, "old", true)
		must(t, fsys.Link(a, b))
		old, err := fsys.Open(a)
		must(t, err)
		defer old.Close()
		if fsys == vfs.FS(vfs.OS) && runtime.GOOS == "windows" {
			for what, err := range map[string]error{"Create": second(fsys.Create(a)), "Remove": fsys.Remove(a)} {
				if err == nil {
					t.Errorf("%s of a file that is open", what)
				}
			}
			if got := get(t, fsys, a) + get(t, fsys, b); got != "oldold" {
				t.Errorf("files: %q", got)
			}
			must(t, old.Close())
			put(t, fsys, a, "newer", true)
			if got := get(t, fsys, b) + get(t, fsys, a); got != "oldnewer" {
				t.Errorf("files: %q", got)
			}
			return
		}
		put(t, fsys, a, "newer", true)
		buf := make([]byte, 3)
		if _, err := old.ReadAt(buf, 0); err != nil && err != io.EOF || string(buf) != "old" {
			t.Errorf("open file: %q, %v", buf, err)
		}
		if got := get(t, fsys, b) + get(t, fsys, a); got != "oldnewer" {
			t.Errorf("files: %q", got)
		}
	})
}

func TestLockInProcess(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "LOCK")
		lock := func(exclusive bool) io.Closer {
			t.Helper()
			l, err := fsys.Lock(name, exclusive)
			must(t, err)
			return l
		}
		refused := func(name string, exclusive bool) {
			t.Helper()
			_, err := fsys.Lock(name, exclusive)
			var locked *vfs.LockedError
			if !errors.As(err, &locked) || locked.PID == 0 || locked.Name != name {
				t.Fatalf("Lock: %v, want a vfs.LockedError with this process", err)
			}
		}
		l := lock(true)
		refused(name, true)
		refused(name, false)
		must(t, fsys.Link(name, name+"2"))
		refused(name+"2", true)
		must(t, l.Close())
		must(t, l.Close()) // has no effect

		a, b := lock(false), lock(false)
		refused(name, true)
		must(t, a.Close())
		must(t, a.Close())
		refused(name, true)
		must(t, b.Close())
		must(t, lock(true).Close())
		if names, err := fsys.List(dir); err != nil || len(names) != 2 {
			t.Fatalf("lock files: %v, %v", names, err)
		}
	})
}
