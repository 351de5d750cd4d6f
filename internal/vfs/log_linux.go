package vfs

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Window sizes of a log: the first is small, because many logs are small; each further one is four
// times as large, up to lastWindow.
const (
	firstWindow = 64 << 10
	lastWindow  = 1 << 20
	// maxCopy bounds what is written through the mapping. Longer writes use a system call, which
	// takes no page fault per page.
	maxCopy = 64 << 10
	// ahead is how many bytes of a window are made writable at a time, once that many have been
	// written since the last sync. Writes with a page fault for each page take 2.3 times as long
	// (BenchmarkLog, on a virtual machine). Logs that are synced more often would write these pages
	// twice.
	ahead = 64 << 10
	// populateWrite is MADV_POPULATE_WRITE, a name that old versions of x/sys lack.
	populateWrite = 23
)

// mappedLog writes a log through a shared mapping of a preallocated window. A write
// costs a copy and no system call, and it survives the end of this process, because the
// pages belong to the system. A sync of the window changes neither the length of the
// file nor, except for the first one in a page, its block map, so it writes less.
//
// Until its first sync the file is written by system calls and has no preallocated
// space: data that may not be on disk is never followed by zeros. System calls are also
// used for long writes, and if there can be no window (no space, or a file system
// without fallocate).
type mappedLog struct {
	f      *os.File
	off    int64  // the end of what was written
	from   int64  // the offset of the window
	window []byte // mapped; nil: none
	size   int64  // the length of the file, if more than off
	next   int64  // the size of the next window
	ready  int64  // the offset up to which the window's pages have been made writable ahead
	fresh  int64  // the number of bytes written since the last sync
	synced bool
	again  bool // synced more than once
	plain  bool // no more windows
	faults bool // the system does not make pages writable ahead
}

// CreateLog implements vfs.CreateLog.
func (o osFS) CreateLog(name string) (File, error) {
	f, err := o.Create(name)
	if err != nil {
		return nil, err
	}
	return &mappedLog{f: f.(*os.File), next: firstWindow}, nil
}

func (l *mappedLog) ReadAt(p []byte, off int64) (int, error) { return l.f.ReadAt(p, off) }

func (l *mappedLog) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		k := 0
		switch room := l.room(); {
		case len(p) > maxCopy || room == 0:
			k, err = l.f.WriteAt(p, l.off)
			l.size = max(l.size, l.off+int64(k))
		default:
			k = min(room, len(p))
			l.prepare(int64(k))
			err = l.copy(p[:k])
		}
		n += k
		l.off += int64(k)
		l.fresh += int64(k)
		p = p[k:]
	}
	return n, err
}

// room returns how many bytes are left in the window, and begins a new window if it is full. It
// returns 0 if there can be no window.
func (l *mappedLog) room() int {
	if end := l.from + int64(len(l.window)); l.window != nil && l.off < end {
		return int(end - l.off)
	}
	if l.plain || !l.synced {
		return 0
	}
	l.startWriting()
	if l.unmap() != nil || l.mapNext() != nil {
		l.plain = true
		return 0
	}
	return int(l.from + int64(len(l.window)) - l.off)
}

// mapNext allocates and maps the window at the end of the log.
func (l *mappedLog) mapNext() error {
	page := int64(os.Getpagesize())
	from := l.off - l.off%page
	length := max(l.next, 2*page)
	err := control(l.f, func(fd uintptr) error { return unix.Fallocate(int(fd), 0, from, length) })
	if err != nil {
		// Part of it may have been allocated, and the file may be longer now.
		if fi, serr := l.f.Stat(); serr == nil {
			l.size = max(l.size, fi.Size())
		}
		return err
	}
	l.size = max(l.size, from+length)
	err = control(l.f, func(fd uintptr) (err error) {
		l.window, err = unix.Mmap(int(fd), from, int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return err
	})
	if err != nil {
		return err
	}
	l.from = from
	l.next = min(4*l.next, lastWindow)
	return nil
}

// startWriting makes the system start writing a full window to the disk, so that the
// sync at the end of the log has less to wait for. It does nothing for a log that is not
// synced after its header: such a log may be removed before it must be on disk. It
// runs in the background, because it may wait for the disk, and may fail, because it
// guarantees nothing: the next sync reports errors of the disk. Close may come first.
func (l *mappedLog) startWriting() {
	if l.window == nil || !l.again {
		return
	}
	from, length := l.from, int64(len(l.window))
	go control(l.f, func(fd uintptr) error {
		return unix.SyncFileRange(int(fd), from, length, unix.SYNC_FILE_RANGE_WRITE)
	})
}

func (l *mappedLog) unmap() error {
	if l.window == nil {
		return nil
	}
	w := l.window
	l.window = nil
	return unix.Munmap(w)
}

// prepare makes the pages of the next n bytes writable, and some after them. If it fails, copy
// takes the page faults, and reports what is wrong with the file.
func (l *mappedLog) prepare(n int64) {
	if l.faults || l.fresh < ahead || l.off+n <= l.ready {
		return
	}
	begin := max(l.ready, l.off) - l.from
	begin -= begin % int64(os.Getpagesize())
	end := min(begin+ahead, int64(len(l.window)))
	if err := unix.Madvise(l.window[begin:end], populateWrite); err != nil { // before Linux 5.14
		l.faults = true
		return
	}
	l.ready = l.from + end
}

// copy copies p into the window. REQUIRES: p fits. If a page is not available, because
// another process has truncated the file or the disk fails, copy returns an error; the
// process does not crash.
func (l *mappedLog) copy(p []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			fault, ok := r.(interface{ Addr() uintptr })
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("write %s: page fault at address %#x: the file was truncated or cannot be read", l.f.Name(), fault.Addr())
		}
	}()
	copy(l.window[l.off-l.from:], p)
	return nil
}

// Sync waits for the data, and for the file's length if reading the data needs it.
// Linux counts pages that were written through a mapping among the file's dirty pages.
func (l *mappedLog) Sync() error {
	err := control(l.f, func(fd uintptr) error { return unix.Fdatasync(int(fd)) })
	if err != nil {
		return &os.PathError{Op: "fdatasync", Path: l.f.Name(), Err: err}
	}
	l.synced, l.again, l.fresh = true, l.synced, 0
	return nil
}

// Close frees the allocated space that was not written to, and closes the file.
func (l *mappedLog) Close() error {
	err := l.unmap()
	if l.size > l.off {
		err = errors.Join(err, l.f.Truncate(l.off))
	}
	l.plain, l.size = true, 0
	return errors.Join(err, l.f.Close())
}
