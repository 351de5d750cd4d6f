package cluster

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestOpenDuringInstall: opening a directory in which another FSM installs a snapshot removes
// nothing that is in use.
func TestOpenDuringInstall(t *testing.T) {
	a, store := openFSM(t, t.TempDir()), newStore(t, t.TempDir())
	applyTo(t, a, 1, 50)
	id := takeSnapshot(t, a, store, 50)

	dir := t.TempDir()
	f := openFSM(t, dir)
	applyTo(t, f, 1, 3)
	if err := os.Mkdir(filepath.Join(dir, statePrefix+"2"), 0o755); err != nil { // the installation has begun
		t.Fatal(err)
	}
	// The second FSM reads CURRENT before the installation ends, and locks the database afterwards.
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Skip(err)
	}
	if err := os.Rename(pipe, filepath.Join(dir, currentName)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		other, err := OpenFSM(dir, appendApply, small())
		if err == nil {
			other.Close()
		}
		done <- err
	}()
	w, err := os.OpenFile(filepath.Join(dir, currentName), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if err := restore(f, store, id); err != nil {
		t.Fatal(err)
	}
	w.WriteString(statePrefix + "1\n")
	w.Close()
	if err := <-done; err == nil {
		t.Error("the second FSM opens a database that was replaced")
	}
	if _, err := os.Stat(filepath.Join(dir, statePrefix+"2", "CURRENT")); err != nil {
		t.Errorf("the database in use is gone: %v", err)
	}
}
