package vfs

import (
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/windows"
)

// TestRenameBesideOthers checks that Rename succeeds if another program has one of the files open
// for a moment, and does not share its deletion.
func TestRenameBesideOthers(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "000007.dbtmp"), filepath.Join(dir, "CURRENT")
	for _, held := range []string{from, to} {
		put(t, OS, from, "new", true)
		put(t, OS, to, "old", true)
		name, err := windows.UTF16PtrFromString(held)
		must(t, err)
		h, err := windows.CreateFile(name, windows.GENERIC_READ, windows.FILE_SHARE_READ, nil, windows.OPEN_EXISTING, 0, 0)
		must(t, err)
		time.AfterFunc(50*time.Millisecond, func() { windows.CloseHandle(h) })
		if err := OS.Rename(from, to); err != nil {
			t.Errorf("with %s open: %v", filepath.Base(held), err)
		}
		time.Sleep(100 * time.Millisecond)
		if got := string(readFile(t, OS, to)); got != "new" {
			t.Errorf("with %s open: CURRENT holds %q", filepath.Base(held), got)
		}
	}
}
