package vfs_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/siftdb/sift/internal/vfs"
)

// threeWays returns a new file of zeros: opened, opened with a mapping, and mapped by the test, to
// see which pages are in the page cache.
func threeWays(t *testing.T, size int) (plain *os.File, mapped vfs.File, data []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
	plain, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plain.Close() })
	mappings := new(vfs.Mappings)
	t.Cleanup(mappings.Wait)
	mapped, isMapped, err := vfs.OpenMapped(vfs.OS, path, mappings)
	if err != nil || !isMapped {
		t.Skip(err)
	}
	t.Cleanup(func() { mapped.Close() })
	data, err = unix.Mmap(int(plain.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { unix.Munmap(data) })
	return plain, mapped, data
}

// dropPages asks the system to drop the file's pages from the page cache.
func dropPages(t *testing.T, f *os.File) {
	t.Helper()
	if err := unix.Fsync(int(f.Fd())); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
}

// TestPrefetch checks that uncached pages are in the page cache soon after they are prefetched.
func TestPrefetch(t *testing.T) {
	const size, at, n = 1 << 20, 512 << 10, 64 << 10
	plain, mapped, data := threeWays(t, size)
	for _, f := range []vfs.File{plain, mapped} {
		dropPages(t, plain)
		cached := func() bool { return inCache(t, data[at:at+n]) }
		if cached() {
			t.Skip("pages stay in the cache here")
		}
		if !vfs.Prefetch(f, at, n) {
			t.Fatalf("Prefetch of a %T returns false", f)
		}
		for begin := time.Now(); !cached(); time.Sleep(time.Millisecond) {
			if time.Since(begin) > 30*time.Second {
				t.Fatalf("%T: not in the cache after 30 s", f)
			}
		}
		// Past the end of the file it does nothing.
		vfs.Prefetch(f, size, 4096)
	}
	if vfs.Prefetch(otherFile{}, 0, size) {
		t.Error("Prefetch of another file returns true")
	}
}

// otherFile is not a file of the host.
type otherFile struct{ vfs.File }

// inCache reports whether all pages of a mapped range are in the page cache.
func inCache(t *testing.T, data []byte) bool {
	t.Helper()
	pages := make([]byte, len(data)/os.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		t.Skip(errno)
	}
	for _, p := range pages {
		if p&1 == 0 {
			return false
		}
	}
	return true
}

// TestFirstReadInWindow checks that the first read of a mapped file brings the pages around it into
// the page cache, and no others.
func TestFirstReadInWindow(t *testing.T) {
	const size, window = 1 << 20, 64 << 10
	plain, mapped, data := threeWays(t, size)
	dropPages(t, plain)
	for i := range size / window {
		if inCache(t, data[i*window:i*window+4096]) {
			t.Skip("pages stay in the cache here")
		}
	}
	if _, err := mapped.ReadAt(make([]byte, 100), 5*window+9000); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); !inCache(t, data[5*window:6*window]); time.Sleep(time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			t.Fatal("the window is not in the cache after 30 s")
		}
	}
	for i := range size / window {
		if i != 5 && inCache(t, data[i*window:i*window+4096]) {
			t.Errorf("window %d is in the cache", i)
		}
	}
}
