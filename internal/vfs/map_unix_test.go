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
	"time"

	"golang.org/x/sys/unix"
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
	mappings := new(Mappings)
	t.Cleanup(mappings.Wait)
	f, mapped, err := OpenMapped(OS, name, mappings)
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
	Unmap(f)
	Unmap(f)
	readers.Wait()
	p := make([]byte, 100)
	_, err := f.ReadAt(p, 5)
	must(t, err)
	must(t, f.Close())
}

// TestUnmapWaitsForNoRead checks that neither Close nor Unmap waits for a read in progress, whose
// page fault may hang, and that the mapping stays until it has ended. Wait waits for it.
func TestUnmapWaitsForNoRead(t *testing.T) {
	for what, end := range map[string]func(f File) error{
		"Close": File.Close,
		"Unmap": func(f File) error { Unmap(f); return nil },
	} {
		f, _, content := newMapped(t, 100_000)
		m := f.(*mappedFile)
		g := m.mappings.reads.Enter() // as a read
		ended := make(chan error)
		go func() { ended <- end(f) }()
		select {
		case err := <-ended:
			must(t, err)
		case <-time.After(10 * time.Second):
			g.Exit()
			t.Fatalf("%s waits for a read", what)
		}
		removed := make(chan struct{})
		go func() { m.mappings.Wait(); close(removed) }()
		select {
		case <-removed:
			t.Fatalf("after %s, the mapping of a read in progress is removed", what)
		case <-time.After(20 * time.Millisecond):
		}
		if !bytes.Equal(m.data, content) {
			t.Errorf("after %s, a read in progress reads wrong bytes", what)
		}
		g.Exit()
		<-removed
		if err := unix.Munmap(m.data); err == nil {
			t.Errorf("after %s, the file stays mapped", what)
		}
		if what == "Unmap" {
			must(t, f.Close())
		}
		m.mappings.Wait() // does not hang when there is nothing to wait for
	}
}

// TestMaxMapped checks that files are not mapped when the process has too many mappings, and that
// removed mappings no longer count.
func TestMaxMapped(t *testing.T) {
	before := numMapped.Load()
	f, name, _ := newMapped(t, 100_000)
	numMapped.Add(maxMapped)
	open := func() bool {
		plain, mapped, err := OpenMapped(OS, name, new(Mappings))
		must(t, err)
		must(t, plain.Close())
		if m, ok := plain.(*mappedFile); ok {
			m.mappings.Wait()
		}
		return mapped
	}
	if open() {
		t.Error("a file is mapped beyond the bound")
	}
	numMapped.Add(-maxMapped)
	if !open() {
		t.Error("a file is not mapped below the bound")
	}
	must(t, f.Close())
	f.(*mappedFile).mappings.Wait()
	if n := numMapped.Load(); n != before {
		t.Errorf("%d mappings are counted, %d before", n, before)
	}
}
