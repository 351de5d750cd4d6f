package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestLeftoversFillDisk: a node opens although what a crash has left behind fills the disk.
func TestLeftoversFillDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=32m"); err != nil {
		t.Skip(err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	f := openFSM(t, dir)
	applyTo(t, f, 1, 3)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, statePrefix+"2")
	if err := os.Mkdir(left, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "000005.ldb"), make([]byte, 64<<20), 0o644); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	f, err := OpenFSM(dir, appendApply, small())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
