//go:build linux || darwin

package vfs

import (
	"errors"
	"math"
	"os"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/siftdb/sift/internal/epoch"
)

// maxMappedRead bounds what is copied from a mapping. What is longer is worth a
// system call, which takes it without a page fault for each page.
const maxMappedRead = 64 << 10

// mappedFile reads a file through a shared mapping: a read is a copy and no
// system call. The bytes are copied before anybody looks at them, so what is
// checked is what is used, whatever becomes of the file.
//
// While a page of a mapping comes from the disk, the goroutine holds up a
// processor. So the first read of a page goes to the file in the ordinary way; the
// mapping serves those that follow, which find the page in memory unless the system
// has taken it back since. And it is told to read no further than what is asked for.
//
// A page that cannot be had (the file was truncated, the disk fails) makes the
// read go to the file in the ordinary way, which tells the error; it does not end
// the process.
type mappedFile struct {
	*os.File
	data     []byte          // the mapping
	read     []atomic.Uint64 // a bit for each page that has been read
	unmapped atomic.Bool
}

// mappedPage is what a bit of mappedFile.read stands for: pages, or parts of larger ones.
const mappedPage = 4 << 10

// mappedReads are the reads that are under way in any mapping.
var mappedReads epoch.Domain

func (osFS) openMapped(name string) (file File, mapped bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, false, err
	}
	m := &mappedFile{File: f}
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() || fi.Size() == 0 || fi.Size() > math.MaxInt {
		return f, false, nil
	}
	err = control(f, func(fd uintptr) (err error) {
		m.data, err = unix.Mmap(int(fd), 0, int(fi.Size()), unix.PROT_READ, unix.MAP_SHARED)
		return err
	})
	if err != nil {
		return f, false, nil // no room for it, or a file system that maps nothing
	}
	_ = unix.Madvise(m.data, unix.MADV_RANDOM)
	m.read = make([]atomic.Uint64, len(m.data)/(64*mappedPage)+1)
	return m, true, nil
}

// ReadAt reads from the mapping if it can.
func (m *mappedFile) ReadAt(p []byte, off int64) (int, error) {
	if len(p) > maxMappedRead || len(p) == 0 || off < 0 || off > int64(len(m.data))-int64(len(p)) {
		return m.File.ReadAt(p, off)
	}
	if m.wasRead(off, len(p)) && m.copy(p, off) {
		return len(p), nil
	}
	n, err := m.File.ReadAt(p, off)
	if n == len(p) {
		m.noteRead(off, n)
	}
	return n, err
}

// wasRead reports whether all pages of a part of the file have been read.
func (m *mappedFile) wasRead(off int64, n int) bool {
	for page := off / mappedPage; page <= (off+int64(n)-1)/mappedPage; page++ {
		if m.read[page/64].Load()&(1<<(page%64)) == 0 {
			return false
		}
	}
	return true
}

func (m *mappedFile) noteRead(off int64, n int) {
	for page := off / mappedPage; page <= (off+int64(n)-1)/mappedPage; page++ {
		m.read[page/64].Or(1 << (page % 64))
	}
}

// copy copies from the mapping, and reports whether all of it could be had.
func (m *mappedFile) copy(p []byte, off int64) (ok bool) {
	// unmap waits for all that have come before unmapped was set.
	g := mappedReads.Enter()
	defer g.Exit()
	if m.unmapped.Load() {
		return false
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if _, fault := r.(interface{ Addr() uintptr }); !fault {
				panic(r)
			}
			ok = false
		}
	}()
	copy(p, m.data[off:])
	return true
}

func (m *mappedFile) isMapped() bool { return !m.unmapped.Load() }

// unmap ends the mapping once the reads that are under way in it have ended. Reads go
// to the file from then on.
func (m *mappedFile) unmap() error {
	if m.unmapped.Swap(true) {
		return nil
	}
	mappedReads.Synchronize()
	return unix.Munmap(m.data)
}

// Close waits for the reads that are under way.
func (m *mappedFile) Close() error { return errors.Join(m.unmap(), m.File.Close()) }
