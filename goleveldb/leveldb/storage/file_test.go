package storage

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFailedSetMeta checks that SetMeta leaves no temporary file if it fails.
func TestFailedSetMeta(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenFile(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.Mkdir(filepath.Join(dir, "CURRENT"), 0o755); err != nil { // cannot be replaced by a file
		t.Fatal(err)
	}
	if err := s.SetMeta(FileDesc{TypeManifest, 7}); err == nil {
		t.Fatal("SetMeta replaced a directory")
	}
	if _, err := os.Stat(filepath.Join(dir, "CURRENT.7")); !os.IsNotExist(err) {
		t.Errorf("CURRENT.7 is left: %v", err)
	}
}
