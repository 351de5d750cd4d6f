package vfs

import (
	"io"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put creates a file that holds s, and syncs it if sync is set.
func put(t testing.TB, fsys FS, name, s string, sync bool) {
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

// readFile returns the contents of a file.
func readFile(t *testing.T, fsys FS, name string) []byte {
	t.Helper()
	n, err := fsys.Size(name)
	must(t, err)
	f, err := fsys.Open(name)
	must(t, err)
	defer f.Close()
	b := make([]byte, n)
	if got, err := f.ReadAt(b, 0); got < len(b) {
		t.Fatalf("read %d of %d bytes: %v", got, n, err)
	}
	return b
}
