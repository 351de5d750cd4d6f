package sift

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestOpenMemory checks that a database in memory touches no disk, and that one in a
// file system in memory can be reopened.
func TestOpenMemory(t *testing.T) {
	t.Chdir(t.TempDir())
	o := &Options{FS: NewMemFS(), MemtableBytes: 64 << 10}
	fill := func(db *DB) {
		t.Helper()
		for i := range 20_000 {
			if err := db.Put(fmt.Appendf(nil, "key%05d", i), fmt.Appendf(nil, "value%d", i), Sync); err != nil {
				t.Fatal(err)
			}
		}
		if v, err := db.Get([]byte("key01234")); string(v) != "value1234" || err != nil {
			t.Fatalf("Get: %q, %v", v, err)
		}
	}
	db, err := OpenMemory(o)
	if err != nil {
		t.Fatal(err)
	}
	fill(db)
	if m := db.Metrics(); m.Flushes == 0 {
		t.Error("nothing was flushed")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if names, err := o.FS.List("/"); len(names) != 0 || err != nil {
		t.Errorf("OpenMemory used Options.FS: %v, %v", names, err)
	}

	if db, err = Open("data", o); err != nil {
		t.Fatal(err)
	}
	fill(db)
	if _, err := Open("data", o); !errors.Is(err, ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = Open("data", o); err != nil {
		t.Fatal(err)
	}
	if v, err := db.Get([]byte("key19999")); string(v) != "value19999" || err != nil {
		t.Errorf("after reopening: %q, %v", v, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if names, err := os.ReadDir("."); len(names) != 0 || err != nil {
		t.Errorf("files on disk: %v, %v", names, err)
	}
}

// TestDirLock checks that the caller's lock keeps others out before Open and after Close, and lets
// the caller's own database in.
func TestDirLock(t *testing.T) {
	dir := t.TempDir()
	lock, err := LockDirectory(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, nil); !errors.Is(err, ErrLocked) {
		t.Fatalf("Open without the lock: %v", err)
	}
	if _, err := Open(t.TempDir(), &Options{Lock: lock}); err == nil {
		t.Fatal("the lock of one directory opens another")
	}
	for range 2 {
		db, err := Open(dir, &Options{Lock: lock})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := LockDirectory(dir, false); !errors.Is(err, ErrLocked) {
			t.Fatalf("Close released the caller's lock: %v", err)
		}
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLockMissingDirectory checks that an exclusive lock creates its directory, that a shared one
// does not, and that a lock may be closed twice.
func TestLockMissingDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if _, err := LockDirectory(dir, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a shared lock: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after a shared lock the directory exists: %v", err)
	}
	lock, err := LockDirectory(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := lock.Close(); err != nil {
			t.Error(err)
		}
	}
	other, err := LockDirectory(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil { // must not release the other lock
		t.Error(err)
	}
	if _, err := LockDirectory(dir, true); !errors.Is(err, ErrLocked) {
		t.Errorf("an exclusive lock beside a shared one: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}

// TestDirectoryThroughLink checks that a name such as link/../db, where link is a symbolic link,
// stands for one directory, in which the files are, whether it existed before or not.
func TestDirectoryThroughLink(t *testing.T) {
	for _, exists := range []bool{false, true} {
		root := t.TempDir()
		target := filepath.Join(root, "elsewhere", "below")
		if err := os.MkdirAll(target, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(root, "link")); err != nil {
			t.Skip("symbolic links cannot be made: ", err)
		}
		through := func(name string) string { return filepath.Join(root, "link") + filepath.FromSlash("/../"+name) }
		if exists {
			for _, name := range []string{"db", "copy"} {
				if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
					t.Fatal(err)
				}
			}
		}
		keys := 0
		use := func(o *Options) {
			t.Helper()
			db, err := Open(through("db"), o)
			if err != nil {
				t.Fatalf("exists %t, after %d keys: %v", exists, keys, err)
			}
			defer mustClose(t, db)
			wantKeys(t, db, keys)
			loadKeys(t, db, keys+10)
			keys += 10
			if o != nil {
				if err := db.Checkpoint(through("copy")); err != nil {
					t.Fatal(err)
				}
			}
		}
		use(nil)
		use(nil)
		lock, err := LockDirectory(through("db"), true)
		if err != nil {
			t.Fatal(err)
		}
		use(&Options{Lock: lock})
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
		if report := mustCheck(t, through("db"), nil); report.Keys != uint64(keys) {
			t.Errorf("Check finds %d keys of %d", report.Keys, keys)
		}
		if report, err := Repair(through("db"), nil); err != nil || report.Entries != uint64(keys) {
			t.Errorf("Repair: %v, %+v", err, report)
		}
		if lock, err = LockDirectory(through("new"), true); err != nil {
			t.Fatal(err)
		}
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"db", "copy"} {
			db := mustOpen(t, filepath.Join(root, name), nil)
			wantKeys(t, db, keys)
			mustClose(t, db)
		}
		for dir, want := range map[string]int{"elsewhere": 1, filepath.Join("elsewhere", "below"): 0, "new": 1} {
			if entries, err := os.ReadDir(filepath.Join(root, dir)); len(entries) != want || err != nil {
				t.Errorf("exists %t: in %s are %v, %v", exists, dir, entries, err)
			}
		}
	}
}

// TestSharedDirLock checks that a database is not opened for writing under a lock that others may
// share.
func TestSharedDirLock(t *testing.T) {
	dir := t.TempDir()
	db, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	lock, err := LockDirectory(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if db, err := Open(dir, &Options{Lock: lock}); err == nil {
		t.Error("Open for writing accepts a shared lock")
		db.Close()
	}
	if _, err := Repair(dir, &Options{Lock: lock}); err == nil {
		t.Error("Repair accepts a shared lock")
	}
	if db, err = Open(dir, &Options{Lock: lock, ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLockNoDirectory checks that an empty name does not lock the working directory.
func TestLockNoDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, exclusive := range []bool{false, true} {
		if l, err := LockDirectory("", exclusive); err == nil {
			t.Errorf("exclusive %t: locked", exclusive)
			l.Close()
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("exclusive %t: %v", exclusive, err)
		}
	}
	if _, err := os.Stat("LOCK"); err == nil {
		t.Error("LOCK was created in the working directory")
	}
}
