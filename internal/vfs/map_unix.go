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
// A page that cannot be had (the file was truncated, the disk fails) makes the
// read go to the file in the ordinary way, which tells the error; it does not end
// the process.
type mappedFile struct {
	*os.File
	data   []byte // the mapping
	closed atomic.Bool
}

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
	return m, true, nil
}

// ReadAt reads from the mapping if it can.
func (m *mappedFile) ReadAt(p []byte, off int64) (int, error) {
	if len(p) <= maxMappedRead && off >= 0 && off <= int64(len(m.data))-int64(len(p)) && m.copy(p, off) {
		return len(p), nil
	}
	return m.File.ReadAt(p, off)
}

// copy copies from the mapping, and reports whether all of it could be had.
func (m *mappedFile) copy(p []byte, off int64) (ok bool) {
	// Close unmaps when all have left that had come before closed was set.
	g := mappedReads.Enter()
	defer g.Exit()
	if m.closed.Load() {
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

// Close waits for the reads that are under way.
func (m *mappedFile) Close() error {
	if m.closed.Swap(true) {
		return m.File.Close()
	}
	mappedReads.Synchronize()
	return errors.Join(unix.Munmap(m.data), m.File.Close())
}
