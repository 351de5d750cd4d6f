// Package filecache is the table cache: it keeps a bounded number of a database's files open.
// A file is opened when it is read; when too many are open, files that were not read recently
// are closed, by the clock algorithm. A file is never closed while it is read, so if more files
// than the bound are read at once, all of them are open.
package filecache

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/siftdb/sift/internal/vfs"
)

// Cache is a set of files with a bound on how many are open. It is safe for concurrent use.
type Cache struct {
	fs       vfs.FS
	max      int   // maximum number of open files; 0: only the process-wide bound
	mapBytes int64 // files are mapped while their total size is at most this
	mappings vfs.Mappings

	mu    sync.Mutex // guards the fields below
	hand  *File      // the hand: next in the ring of open files; nil: none
	open  int        // files in the ring and files being opened
	bytes int64      // total size of all files, open or not

	unmapped bool // files may be open without a mapping because bytes was too large
}

// File is an immutable file. It is an io.ReaderAt.
type File struct {
	cache *Cache
	path  string
	size  int64

	used   atomic.Bool // read since the hand last passed
	closed atomic.Bool

	opening sync.Mutex   // held while the file is opened
	mu      sync.RWMutex // held for reading during reads; locked only if the file is not open or not being read
	file    vfs.File     // nil: not open; guarded by mu

	next, prev *File // in the ring; guarded by cache.mu
}

// processFiles is the number of files that are open in all caches of the process.
var processFiles atomic.Int64

// maxProcessFiles is the maximum of processFiles: half of the process's descriptors.
var maxProcessFiles = sync.OnceValue(func() int64 { return int64(vfs.MaxFiles() / 2) })

// New returns an empty cache. At most max files are open at once, unless more are being read; 0
// leaves only the bound on all caches together, half of the process's file descriptors. Files are
// mapped as long as the total size of all of them, open or not, is at most mapBytes.
func New(fsys vfs.FS, max int, mapBytes int64) *Cache {
	return &Cache{fs: fsys, max: max, mapBytes: mapBytes}
}

// each calls fn for each open file. REQUIRES: mu, without which no file of the ring is closed.
func (c *Cache) each(fn func(vfs.File)) {
	if c.hand == nil {
		return
	}
	for f := c.hand; ; {
		fn(f.file)
		if f = f.next; f == c.hand {
			return
		}
	}
}

// Add adds a file. It is opened on its first read.
func (c *Cache) Add(path string, size int64) *File {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += size
	if c.bytes > c.mapBytes && c.bytes-size <= c.mapBytes {
		c.unmap()
	}
	return &File{cache: c, path: path, size: size}
}

// WaitUnmapped waits until no closed file is mapped. A file stays mapped while it is being read.
func (c *Cache) WaitUnmapped() { c.mappings.Wait() }

// unmap turns mapped files into ordinary ones. REQUIRES: mu.
func (c *Cache) unmap() {
	c.unmapped = true
	c.each(vfs.Unmap)
}

// remap closes the files that nobody reads, so that their next reads map them, once all files
// together fit with some room to spare. REQUIRES: mu.
func (c *Cache) remap() {
	if !c.unmapped || c.bytes > c.mapBytes-c.mapBytes/8 {
		return
	}
	c.unmapped = false
	for c.closeOne() {
	}
}

// ReadAt reads from the file, and opens it if necessary.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	for {
		f.mu.RLock()
		if f.file != nil {
			if !f.used.Load() { // concurrent readers share the cache line until one writes to it
				f.used.Store(true)
			}
			n, err = f.file.ReadAt(p, off)
			f.mu.RUnlock()
			return n, err
		}
		f.mu.RUnlock()
		if err := f.open(); err != nil {
			return 0, err
		}
	}
}

// Prefetch asks the system to read n bytes of the file ahead, and does not wait for them. It
// returns false if the system cannot do that or the file is not open.
func (f *File) Prefetch(off, n int64) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.file != nil && vfs.Prefetch(f.file, off, n)
}

// open opens the file, unless it is open.
func (f *File) open() error {
	f.opening.Lock()
	defer f.opening.Unlock()
	f.mu.RLock()
	isOpen := f.file != nil
	f.mu.RUnlock()
	if isOpen {
		return nil
	}
	if f.closed.Load() {
		return fmt.Errorf("%s: %w", f.path, fs.ErrClosed)
	}
	c := f.cache
	mapped := c.reserve()
	file, err := c.openFile(f.path, mapped)
	if err == nil {
		f.mu.Lock() // short: a file that is not open has no readers
		if f.closed.Load() {
			err = errors.Join(fmt.Errorf("%s: %w", f.path, fs.ErrClosed), file.Close())
		} else {
			f.file = file
		}
		f.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.closed.Load() { // Close may have missed it in the ring
		err = fmt.Errorf("%s: %w", f.path, fs.ErrClosed)
	}
	if err != nil {
		c.release()
		return err
	}
	f.used.Store(true)
	c.unmapped = c.unmapped || !mapped
	c.link(f)
	if mapped && c.bytes > c.mapBytes {
		c.unmap() // files were added meanwhile
	}
	return nil
}

// reserve makes room for one more open file, and reports whether the file may be mapped.
func (c *Cache) reserve() (mapped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.max > 0 && c.open >= c.max && c.closeOne() {
	}
	if processFiles.Load() >= maxProcessFiles() {
		c.closeOne() // just one: the other open files may belong to other databases
	}
	c.open++
	processFiles.Add(1)
	return c.bytes <= c.mapBytes
}

// release undoes reserve. REQUIRES: mu.
func (c *Cache) release() {
	c.open--
	processFiles.Add(-1)
}

// openFile opens a file. If the process is out of descriptors, it closes others.
func (c *Cache) openFile(path string, mapped bool) (file vfs.File, err error) {
	for {
		if mapped {
			file, _, err = vfs.OpenMapped(c.fs, path, &c.mappings)
		} else {
			file, err = c.fs.Open(path)
		}
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
			return file, err
		}
		c.mu.Lock()
		closed := c.closeOne()
		c.mu.Unlock()
		if !closed {
			return nil, err
		}
	}
}

// closeOne closes a file that nobody is reading, preferably one not read since the hand last
// passed. It returns false if all are being read. REQUIRES: mu.
func (c *Cache) closeOne() bool {
	for range 2 * c.open {
		f := c.hand
		if f == nil {
			return false
		}
		c.hand = f.next
		if f.used.Swap(false) || !f.mu.TryLock() {
			continue
		}
		file := f.file
		if f.closed.Load() {
			file = nil // File.Close closes it
		}
		if file != nil {
			f.file = nil
		}
		f.mu.Unlock()
		if file != nil {
			c.unlink(f)
			c.release()
			_ = file.Close() // nothing was written to it
			return true
		}
	}
	return false
}

// Close removes the file from the cache and closes it. Concurrent reads may fail; later ones do.
// Further calls do nothing.
func (f *File) Close() error {
	if f.closed.Swap(true) {
		return nil
	}
	c := f.cache
	f.mu.RLock()
	file := f.file
	f.mu.RUnlock()
	c.mu.Lock()
	c.bytes -= f.size
	if f.next != nil {
		c.unlink(f)
		c.release()
	}
	c.remap()
	c.mu.Unlock()
	if file == nil {
		return nil
	}
	return file.Close()
}

// link inserts a file just behind the hand, so that the hand reaches it last. REQUIRES: mu.
func (c *Cache) link(f *File) {
	if c.hand == nil {
		f.next, f.prev = f, f
		c.hand = f
		return
	}
	f.prev, f.next = c.hand.prev, c.hand
	f.prev.next, f.next.prev = f, f
}

// unlink removes a file from the ring. REQUIRES: mu, and that it is in the ring.
func (c *Cache) unlink(f *File) {
	if f.next == f {
		c.hand = nil
	} else {
		f.prev.next, f.next.prev = f.next, f.prev
		if c.hand == f {
			c.hand = f.next
		}
	}
	f.next, f.prev = nil, nil
}
