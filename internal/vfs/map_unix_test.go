//go:build linux || darwin

package vfs

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// newMapped maps a file of n bytes.
func newMapped(t *testing.T, n int) (f File, name string, content []byte) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	content = make([]byte, n)
	for i := range content {
		content[i] = byte(rng.Uint32())
	}
	name = filepath.Join(t.TempDir(), "table")
	must(t, os.WriteFile(name, content, 0o600))
	f, mapped, err := OpenMapped(OS, name)
	must(t, err)
	if !mapped {
		f.Close()
		t.Skip("files cannot be mapped here")
	}
	return f, name, content
}

// TestMappedReads checks that a mapped file reads like any other, even at its end.
func TestMappedReads(t *testing.T) {
	f, name, content := newMapped(t, 300_000)
	plain, err := OS.Open(name)
	must(t, err)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		off := rng.IntN(len(content)+200) - 100
		p, q := make([]byte, rng.IntN(1<<rng.IntN(18))), []byte(nil)
		q = make([]byte, len(p))
		n, err := f.ReadAt(p, int64(off))
		m, perr := plain.ReadAt(q, int64(off))
		if n != m || (err == nil) != (perr == nil) || errors.Is(err, io.EOF) != errors.Is(perr, io.EOF) || !bytes.Equal(p, q) {
			t.Fatalf("%d bytes at %d: %d, %v; without the mapping %d, %v", len(p), off, n, err, m, perr)
		}
	}
	must(t, plain.Close())
	must(t, f.Close())
	if n, err := f.ReadAt(make([]byte, 10), 0); n != 0 || !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %d, %v", n, err)
	}
	if err := f.Close(); err == nil {
		t.Error("a second Close returns no error")
	}
}

// TestMappedTruncated checks that a read of a file that another process has truncated ends where a
// system call would, and does not crash the process.
func TestMappedTruncated(t *testing.T) {
	f, name, content := newMapped(t, 300_000)
	half := int64(len(content)/2) &^ int64(os.Getpagesize()-1)
	must(t, os.Truncate(name, half))
	p := make([]byte, 1000)
	n, err := f.ReadAt(p, half-1000)
	must(t, err)
	if n != len(p) || !bytes.Equal(p, content[half-1000:half]) {
		t.Error("bytes before the cut have changed")
	}
	if n, err := f.ReadAt(p, half-100); n != 100 || !errors.Is(err, io.EOF) {
		t.Errorf("across the cut: %d, %v", n, err)
	}
	if n, err := f.ReadAt(p, half+100_000); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("past the cut: %d, %v", n, err)
	}
	must(t, f.Close())
}

// TestMappedClose checks that reads in progress when the file is closed return the right bytes or
// fail.
func TestMappedClose(t *testing.T) {
	for range 20 {
		f, _, content := newMapped(t, 100_000)
		var readers sync.WaitGroup
		began := make(chan struct{}, 3)
		for g := range 3 {
			readers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 5))
				p := make([]byte, 2000)
				for i := 0; ; i++ {
					off := rng.IntN(len(content) - len(p))
					_, err := f.ReadAt(p, int64(off))
					if i == 10 {
						began <- struct{}{}
					}
					if err != nil {
						if !errors.Is(err, os.ErrClosed) {
							t.Error(err)
						}
						return
					}
					if !bytes.Equal(p, content[off:off+len(p)]) {
						t.Error("read wrong bytes")
						return
					}
				}
			})
		}
		for range 3 {
			<-began
		}
		must(t, f.Close())
		readers.Wait()
	}
}

// TestMappedFirstRead checks that the mapping serves only pages that have been read before; the
// first read of a page is a system call.
func TestMappedFirstRead(t *testing.T) {
	f, _, content := newMapped(t, 300_000)
	m := f.(*mappedFile)
	p := make([]byte, 3000)
	for _, off := range []int64{0, 100, mappedPage - 1, 290_000, 297_000} {
		if m.wasRead(off, len(p)) {
			t.Errorf("%d was read before", off)
		}
		for range 2 {
			n, err := f.ReadAt(p, off)
			must(t, err)
			if n != len(p) || !bytes.Equal(p, content[off:off+3000]) {
				t.Errorf("%d: wrong bytes", off)
			}
		}
		if !m.wasRead(off, len(p)) {
			t.Errorf("%d does not count as read", off)
		}
		clear(m.read[:])
	}
	must(t, f.Close())
}

// TestUnmap checks that a file can be unmapped while it is read, and can be read afterwards.
func TestUnmap(t *testing.T) {
	f, _, content := newMapped(t, 100_000)
	var readers sync.WaitGroup
	for g := range 3 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 6))
			p := make([]byte, 2000)
			for range 2000 {
				off := rng.IntN(len(content) - len(p))
				if _, err := f.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p, content[off:off+len(p)]) {
					t.Errorf("at %d: %v, or wrong bytes", off, err)
					return
				}
			}
		})
	}
	must(t, Unmap(f))
	must(t, Unmap(f))
	readers.Wait()
	p := make([]byte, 100)
	_, err := f.ReadAt(p, 5)
	must(t, err)
	must(t, f.Close())
}
