package vfs

import (
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// RAM is an in-memory file system, for databases that need not outlive the process. A removed file
// is freed when it is no longer open.
//
// Relative names are relative to the root, which always exists. Create replaces an existing
// file; other names of the old file and open handles to it are not affected. Sync of a file
// that was opened for reading is an error, as on Windows.
type RAM struct {
	mu   sync.RWMutex // guards the tree and the locks
	root *ramNode
}

// ramNode is a file or a directory.
type ramNode struct {
	entries map[string]*ramNode // entries of a directory; nil: a file
	locked  int                 // number of shared locks, or -1: an exclusive one

	mu   sync.RWMutex // guards data
	data []byte
}

func newRAMDir() *ramNode { return &ramNode{entries: map[string]*ramNode{}} }

// NewRAM returns an empty file system.
func NewRAM() *RAM { return &RAM{root: newRAMDir()} }

// find returns the node with a name.
func (r *RAM) find(elems []string) (*ramNode, error) {
	node := r.root
	for _, e := range elems {
		if node.entries == nil {
			return nil, ErrNotDirectory
		}
		if node = node.entries[e]; node == nil {
			return nil, fs.ErrNotExist
		}
	}
	return node, nil
}

// place returns the directory of a name, its last element, and the node that it names, or nil.
func (r *RAM) place(name string) (dir *ramNode, elem string, node *ramNode, err error) {
	elems := Elements(name)
	if len(elems) == 0 {
		return nil, "", nil, ErrIsDirectory // the root
	}
	last := len(elems) - 1
	dir, err = r.find(elems[:last])
	if err == nil && dir.entries == nil {
		err = ErrNotDirectory
	}
	if err != nil {
		return nil, "", nil, err
	}
	return dir, elems[last], dir.entries[elems[last]], nil
}

// file returns the node of an existing file.
func (r *RAM) file(name string) (*ramNode, error) {
	node, err := r.find(Elements(name))
	if err == nil && node.entries != nil {
		err = ErrIsDirectory
	}
	return node, err
}

// Create implements FS.
func (r *RAM) Create(name string) (File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	dir, elem, old, err := r.place(name)
	if err == nil && old != nil && old.entries != nil {
		err = ErrIsDirectory
	}
	if err != nil {
		return nil, pathError("create", name, err)
	}
	node := &ramNode{}
	dir.entries[elem] = node
	return &ramFile{name: name, node: node, writable: true}, nil
}

// Open implements FS.
func (r *RAM) Open(name string) (File, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	node, err := r.file(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return &ramFile{name: name, node: node}, nil
}

// Remove implements FS.
func (r *RAM) Remove(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	dir, elem, node, err := r.place(name)
	switch {
	case err != nil:
	case node == nil:
		err = fs.ErrNotExist
	case len(node.entries) > 0:
		err = ErrNotEmpty
	}
	if err != nil {
		return pathError("remove", name, err)
	}
	delete(dir.entries, elem)
	return nil
}

// Rename implements FS. A directory cannot be renamed.
func (r *RAM) Rename(oldname, newname string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	from, oldElem, _, err := r.place(oldname)
	var node *ramNode
	if err == nil {
		node, err = r.file(oldname)
	}
	if err != nil {
		return pathError("rename", oldname, err)
	}
	to, newElem, old, err := r.place(newname)
	if err == nil && old != nil && old.entries != nil {
		err = ErrIsDirectory
	}
	if err != nil {
		return pathError("rename", newname, err)
	}
	if old == node {
		return nil // two names of one file: both stay, as POSIX requires
	}
	delete(from.entries, oldElem)
	to.entries[newElem] = node
	return nil
}

// Link implements FS.
func (r *RAM) Link(oldname, newname string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	node, err := r.file(oldname)
	if err != nil {
		return pathError("link", oldname, err)
	}
	dir, elem, old, err := r.place(newname)
	if err == nil && old != nil {
		err = fs.ErrExist
	}
	if err != nil {
		return pathError("link", newname, err)
	}
	dir.entries[elem] = node
	return nil
}

// MkdirAll implements FS.
func (r *RAM) MkdirAll(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	node := r.root
	for _, e := range Elements(name) {
		next := node.entries[e]
		if next == nil {
			next = newRAMDir()
			node.entries[e] = next
		}
		if node = next; node.entries == nil {
			return pathError("mkdir", name, ErrNotDirectory)
		}
	}
	return nil
}

// List implements FS.
func (r *RAM) List(dir string) ([]string, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	node, err := r.find(Elements(dir))
	if err == nil && node.entries == nil {
		err = ErrNotDirectory
	}
	if err != nil {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: err}
	}
	return slices.Sorted(maps.Keys(node.entries)), nil
}

// Size implements FS.
func (r *RAM) Size(name string) (int64, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	node, err := r.file(name)
	if err != nil {
		return 0, &fs.PathError{Op: "size", Path: name, Err: err}
	}
	node.mu.RLock()
	defer node.mu.RUnlock()
	return int64(len(node.data)), nil
}

// SyncDir implements FS.
func (r *RAM) SyncDir(dir string) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	node, err := r.find(Elements(dir))
	if err == nil && node.entries == nil {
		err = ErrNotDirectory
	}
	if err != nil {
		return pathError("sync-dir", dir, err)
	}
	return nil
}

// Lock implements FS.
func (r *RAM) Lock(name string, exclusive bool) (io.Closer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	dir, elem, node, err := r.place(name)
	if err == nil && node != nil && node.entries != nil {
		err = ErrIsDirectory
	}
	if err != nil {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	if node == nil {
		node = &ramNode{}
		dir.entries[elem] = node
	}
	if node.locked < 0 || exclusive && node.locked > 0 {
		return nil, &LockedError{Name: filepath.Clean(name), PID: os.Getpid()}
	}
	if node.locked++; exclusive {
		node.locked = -1
	}
	return &ramLock{fs: r, node: node}, nil
}

// ramLock is one use of a lock.
type ramLock struct {
	fs   *RAM
	node *ramNode // nil once it is released
}

// Close releases the lock. Closing again does nothing.
func (l *ramLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	if l.node == nil {
		return nil
	}
	if l.node.locked < 0 {
		l.node.locked = 0
	} else {
		l.node.locked--
	}
	l.node = nil
	return nil
}

// ramFile is an open file.
type ramFile struct {
	name     string
	node     *ramNode
	writable bool

	mu     sync.RWMutex // held while the file is used
	closed bool
}

func (f *ramFile) check(op string) error {
	if f.closed {
		return pathError(op, f.name, fs.ErrClosed)
	}
	if !f.writable {
		return pathError(op, f.name, ErrReadOnly)
	}
	return nil
}

// Write implements File.
func (f *ramFile) Write(p []byte) (int, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if err := f.check("write"); err != nil {
		return 0, err
	}
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	f.node.data = append(f.node.data, p...)
	return len(p), nil
}

// ReadAt implements File.
func (f *ramFile) ReadAt(p []byte, off int64) (int, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrClosed}
	}
	if off < 0 {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: ErrNegative}
	}
	f.node.mu.RLock()
	defer f.node.mu.RUnlock()
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Sync implements File.
func (f *ramFile) Sync() error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.check("sync")
}

// Close implements File.
func (f *ramFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	f.closed = true
	return nil
}
