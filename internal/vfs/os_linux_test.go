package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// unprivileged runs fn with the file permissions of an ordinary user. The thread
// is not used again.
func unprivileged(t *testing.T, fn func() error) error {
	t.Helper()
	if os.Getuid() != 0 {
		return fn()
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock
		if _, err := unix.SetfsuidRetUid(65534); err != nil {
			result <- fmt.Errorf("setfsuid: %w", err)
			return
		}
		result <- fn()
	}()
	return <-result
}

func TestSharedLockWhereNothingCanBeWritten(t *testing.T) {
	dir := t.TempDir()
	for d := dir; d != filepath.Dir(os.TempDir()) && d != "/"; d = filepath.Dir(d) {
		if d != os.TempDir() {
			must(t, os.Chmod(d, 0o755))
		}
	}
	name := filepath.Join(dir, "LOCK")
	lock := func(exclusive bool) error {
		l, err := OS.Lock(name, exclusive)
		if err != nil {
			return err
		}
		return l.Close()
	}
	check := func(desc string) {
		t.Helper()
		if err := unprivileged(t, func() error { return lock(false) }); err != nil {
			t.Errorf("%s, shared: %v", desc, err)
		}
		if err := unprivileged(t, func() error { return lock(true) }); !os.IsPermission(err) {
			t.Errorf("%s, exclusive: %v", desc, err)
		}
	}
	must(t, os.Chmod(dir, 0o555))
	check("no lock file")
	if os.Getuid() != 0 {
		must(t, os.Chmod(dir, 0o755))
	}
	put(t, OS, name, "", false)
	must(t, os.Chmod(name, 0o444))
	must(t, os.Chmod(dir, 0o555))
	check("a lock file that cannot be written")

	// Such a lock conflicts with others.
	_, said, stop := otherProcess(t, "exclusive", name)
	if os.Getuid() == 0 && said == "got" {
		var locked *LockedError
		if err := unprivileged(t, func() error { return lock(false) }); !errors.As(err, &locked) {
			t.Errorf("shared, while another process holds it: %v", err)
		}
	}
	stop()
	must(t, os.Chmod(dir, 0o755))
}

// TestCreateWhereNothingCanBeRemoved checks that Create returns the reason why it cannot replace a
// file.
func TestCreateWhereNothingCanBeRemoved(t *testing.T) {
	dir := t.TempDir()
	for d := dir; d != filepath.Dir(os.TempDir()) && d != "/"; d = filepath.Dir(d) {
		if d != os.TempDir() {
			must(t, os.Chmod(d, 0o755))
		}
	}
	name := filepath.Join(dir, "000005.log")
	put(t, OS, name, "old", false)
	must(t, os.Chmod(dir, 0o555))
	err := unprivileged(t, func() error {
		f, err := OS.Create(name)
		if err == nil {
			f.Close()
		}
		return err
	})
	must(t, os.Chmod(dir, 0o755))
	if !os.IsPermission(err) {
		t.Errorf("%v", err)
	}
}
