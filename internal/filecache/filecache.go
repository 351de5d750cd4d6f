// Package filecache keeps a bounded number of a database's files open. A file is opened
// when it is read; when there are too many, files that were not read lately are closed,
// by the clock algorithm. Files that are being read stay open, so that there may be more
// than the bound for as long as more are read at once.
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

// Cache is a set of files, of which so many are open at once. It is safe for
// concurrent use.
type Cache struct {
	fs       vfs.FS
	max      int   // that are open; 0: no bound but the process'
	mapBytes int64 // that all files may have for them to be mapped

	mu    sync.Mutex // guards what follows
	hand  *File      // the next to be looked at in the ring of open files; nil: none
	open  int        // files in the ring, and those that are being opened
	bytes int64      // of all files, whether they are open or not
}

// File is a file that nobody changes. It is an io.ReaderAt.
type File struct {
	cache *Cache
	path  string
	size  int64

	used   atomic.Bool // since the hand came by
	closed atomic.Bool

	opening sync.Mutex   // held while the file is opened
	mu      sync.RWMutex // held for reading while the file is read; locked only when it is not open, or nobody reads
	file    vfs.File     // nil: it is not open; guarded by mu

	next, prev *File // in the ring; guarded by cache.mu
}

// processFiles is the number of files that all caches of the process have open.
var processFiles atomic.Int64

// maxProcessFiles is how many may be: half of the descriptors that the process may have.
var maxProcessFiles = sync.OnceValue(func() int64 { return int64(vfs.MaxFiles() / 2) })

// New returns a cache without files. At most max files are open at once, 0 for no other
// bound than that of all caches together, which is half of the descriptors that the
// process may have. Files are mapped while all of them, open or not, have at most
// mapBytes bytes.
func New(fsys vfs.FS, max int, mapBytes int64) *Cache {
	return &Cache{fs: fsys, max: max, mapBytes: mapBytes}
}

// NumOpen returns the number of files that are open.
func (c *Cache) NumOpen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// Bytes returns how many bytes all files have that were added and not closed.
func (c *Cache) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// NumMapped returns the number of files that are mapped.
func (c *Cache) NumMapped() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.each(func(f vfs.File) {
		if vfs.IsMapped(f) {
			n++
		}
	})
	return n
}

// each calls fn for each open file. REQUIRES: mu.
func (c *Cache) each(fn func(vfs.File)) {
	if c.hand == nil {
		return
	}
	for f := c.hand; ; {
		f.mu.RLock()
		if f.file != nil {
			fn(f.file)
		}
		f.mu.RUnlock()
		if f = f.next; f == c.hand {
			return
		}
	}
}

// Add adds the file of the given path and size. It is opened when it is read.
func (c *Cache) Add(path string, size int64) *File {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += size
	if c.bytes > c.mapBytes && c.bytes-size <= c.mapBytes {
		c.unmap()
	}
	return &File{cache: c, path: path, size: size}
}

// unmap makes ordinary files of those that are mapped. REQUIRES: mu.
func (c *Cache) unmap() {
	c.each(func(f vfs.File) { _ = vfs.Unmap(f) }) // a mapping that stays is not used
}

// ReadAt reads from the file, which it opens if need be.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	for {
		f.mu.RLock()
		if f.file != nil {
			if !f.used.Load() {
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

// open opens the file, if nobody else has.
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
		f.mu.Lock() // not for long: nobody reads what is not open
		if f.closed.Load() {
			err = errors.Join(fmt.Errorf("%s: %w", f.path, fs.ErrClosed), file.Close())
		} else {
			f.file = file
		}
		f.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.closed.Load() { // Close may not have found it in the ring
		err = fmt.Errorf("%s: %w", f.path, fs.ErrClosed)
	}
	if err != nil {
		c.release()
		return err
	}
	f.used.Store(true)
	c.link(f)
	if mapped && c.bytes > c.mapBytes {
		c.unmap() // tables have come meanwhile
	}
	return nil
}

// reserve makes room for one more open file, and reports whether it may be mapped.
func (c *Cache) reserve() (mapped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.max > 0 && c.open >= c.max && c.closeOne() {
	}
	if processFiles.Load() >= maxProcessFiles() {
		c.closeOne() // one for one: other databases may have the rest
	}
	c.open++
	processFiles.Add(1)
	return c.bytes <= c.mapBytes
}

// release gives up what reserve has taken. REQUIRES: mu.
func (c *Cache) release() {
	c.open--
	processFiles.Add(-1)
}

// openFile opens a file. If the process has no descriptor left, it closes others.
func (c *Cache) openFile(path string, mapped bool) (file vfs.File, err error) {
	for {
		if mapped {
			file, _, err = vfs.OpenMapped(c.fs, path)
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

// closeOne closes a file that nobody reads, one that was not read since the hand came by
// if there is one. It reports false if all are being read. REQUIRES: mu.
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
			file = nil // Close does it
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

// Close takes the file out of the cache and closes it, whether it is being read or not:
// reads that are under way may fail, and later ones do. Closing again does nothing.
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
	c.mu.Unlock()
	if file == nil {
		return nil
	}
	return file.Close()
}

// link puts a file where the hand will come last. REQUIRES: mu.
func (c *Cache) link(f *File) {
	if c.hand == nil {
		f.next, f.prev = f, f
		c.hand = f
		return
	}
	f.prev, f.next = c.hand.prev, c.hand
	f.prev.next, f.next.prev = f, f
}

// unlink takes a file out of the ring. REQUIRES: mu, and that it is in the ring.
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
