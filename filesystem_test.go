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
