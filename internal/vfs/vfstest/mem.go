// Package vfstest provides file systems for tests: Mem simulates power cuts, Faulty makes
// operations fail.
package vfstest

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/siftdb/sift/internal/vfs"
)

// Mem is an in-memory file system for tests. It records every operation that changes it; from
// these, CrashImage builds the disk as a power cut may leave it.
//
// Relative names are relative to the root, which always exists. Files only grow: Create makes a new
// file and does not affect an old one of the same name, which may be open or have other names. That
// is two operations, a remove and a create. Sync of a file that was opened for reading is an error,
// as it is on Windows.
type Mem struct {
	mu    sync.RWMutex
	nodes []*memNode // by number
	dirs  map[int]map[string]int
	locks map[int]int // by node: users of a shared lock, -1 for an exclusive one
	ops   []memOp
	crash crashLog
}

// Node numbers. 0 stands for none.
const rootNode = 1

// memNode is a file, or a directory, whose entries are in Mem.dirs.
type memNode struct {
	dir  bool
	log  bool   // made by CreateLog
	data []byte // only ever appended to, so that images can share it
}

// memOp is an operation and its effect on nodes and directory entries.
type memOp struct {
	op      Op
	node    int   // the file or directory
	size    int64 // of the file afterwards, for OpWrite
	changed change
}

// NewMem returns an empty file system.
func NewMem() *Mem {
	m := &Mem{
		nodes: []*memNode{nil, {dir: true}},
		dirs:  map[int]map[string]int{rootNode: {}},
	}
	m.crash.begin(m)
	return m
}

func pathError(kind OpKind, name string, err error) error {
	return &fs.PathError{Op: kind.String(), Path: name, Err: err}
}

// find returns the node of a name.
func (m *Mem) find(elems []string) (int, error) {
	node := rootNode
	for _, e := range elems {
		if !m.nodes[node].dir {
			return 0, vfs.ErrNotDirectory
		}
		if node = m.dirs[node][e]; node == 0 {
			return 0, fs.ErrNotExist
		}
	}
	return node, nil
}

// place returns the directory that a name is in, its last element, and the node
// it names, 0 if none.
func (m *Mem) place(name string) (dir int, elem string, node int, err error) {
	elems := vfs.Elements(name)
	if len(elems) == 0 {
		return 0, "", 0, vfs.ErrIsDirectory // the root
	}
	last := len(elems) - 1
	dir, err = m.find(elems[:last])
	if err == nil && !m.nodes[dir].dir {
		err = vfs.ErrNotDirectory
	}
	return dir, elems[last], m.dirs[dir][elems[last]], err
}

// file returns the node of an existing file.
func (m *Mem) file(name string) (int, error) {
	node, err := m.find(vfs.Elements(name))
	if err == nil && m.nodes[node].dir {
		err = vfs.ErrIsDirectory
	}
	return node, err
}

func (m *Mem) directory(name string) (int, error) {
	node, err := m.find(vfs.Elements(name))
	if err == nil && !m.nodes[node].dir {
		err = vfs.ErrNotDirectory
	}
	return node, err
}

// note records an operation and applies it to the entries.
func (m *Mem) note(o memOp) {
	o.op.Index = len(m.ops)
	m.ops = append(m.ops, o)
	o.changed.apply(m.dirs)
}

// make adds a node under an unused name.
func (m *Mem) make(kind OpKind, name string, dir int, elem string) int {
	node := len(m.nodes)
	m.nodes = append(m.nodes, &memNode{dir: kind == OpMkdirAll})
	if kind == OpMkdirAll {
		m.dirs[node] = map[string]int{}
	}
	m.note(memOp{op: Op{Kind: kind, Name: name}, node: node, changed: setEntry(dir, elem, node)})
	return node
}

// Create implements FS.
func (m *Mem) Create(name string) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, elem, old, err := m.place(name)
	if err == nil && old != 0 && m.nodes[old].dir {
		err = vfs.ErrIsDirectory
	}
	if err != nil {
		return nil, pathError(OpCreate, name, err)
	}
	if old != 0 {
		m.note(memOp{op: Op{Kind: OpRemove, Name: name}, node: old, changed: setEntry(dir, elem, 0)})
	}
	node := m.make(OpCreate, name, dir, elem)
	return &memFile{m: m, name: name, node: node, writable: true}, nil
}

// CreateLog is Create; a power cut may leave the file with a tail of zeros.
func (m *Mem) CreateLog(name string) (vfs.File, error) {
	f, err := m.Create(name)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[f.(*memFile).node].log = true
	return f, nil
}

// Open implements FS.
func (m *Mem) Open(name string) (vfs.File, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	node, err := m.file(name)
	if err != nil {
		return nil, pathError(OpOpen, name, err)
	}
	return &memFile{m: m, name: name, node: node}, nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, elem, node, err := m.place(name)
	switch {
	case err != nil:
	case node == 0:
		err = fs.ErrNotExist
	case len(m.dirs[node]) > 0:
		err = vfs.ErrNotEmpty
	}
	if err != nil {
		return pathError(OpRemove, name, err)
	}
	m.note(memOp{op: Op{Kind: OpRemove, Name: name}, node: node, changed: setEntry(dir, elem, 0)})
	return nil
}

// Rename implements FS. A directory cannot be renamed.
func (m *Mem) Rename(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	fromDir, fromElem, _, err := m.place(oldname)
	var node int
	if err == nil {
		node, err = m.file(oldname)
	}
	if err != nil {
		return pathError(OpRename, oldname, err)
	}
	dir, elem, old, err := m.place(newname)
	if err == nil && old != 0 && m.nodes[old].dir {
		err = vfs.ErrIsDirectory
	}
	if err != nil {
		return pathError(OpRename, newname, err)
	}
	if old == node {
		return nil // two names of one file: both stay, as POSIX requires
	}
	changed := setEntry(dir, elem, node)
	changed.cells = append(changed.cells, cell{place{fromDir, fromElem}, 0})
	m.note(memOp{op: Op{Kind: OpRename, Name: oldname, To: newname}, node: node, changed: changed})
	return nil
}

// Link implements FS.
func (m *Mem) Link(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.file(oldname)
	if err != nil {
		return pathError(OpLink, oldname, err)
	}
	dir, elem, old, err := m.place(newname)
	if err == nil && old != 0 {
		err = fs.ErrExist
	}
	if err != nil {
		return pathError(OpLink, newname, err)
	}
	m.note(memOp{op: Op{Kind: OpLink, Name: oldname, To: newname}, node: node, changed: setEntry(dir, elem, node)})
	return nil
}

// MkdirAll implements FS. Each directory that it creates is one operation, and is
// durable after SyncDir of its parent.
func (m *Mem) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir := rootNode
	path := ""
	for _, e := range vfs.Elements(name) {
		path += string(filepath.Separator) + e
		node := m.dirs[dir][e]
		if node == 0 {
			node = m.make(OpMkdirAll, path, dir, e)
		}
		if !m.nodes[node].dir {
			return pathError(OpMkdirAll, path, vfs.ErrNotDirectory)
		}
		dir = node
	}
	return nil
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	node, err := m.directory(dir)
	if err != nil {
		return nil, pathError(OpList, dir, err)
	}
	return slices.Sorted(maps.Keys(m.dirs[node])), nil
}

// Size implements FS.
func (m *Mem) Size(name string) (int64, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	node, err := m.file(name)
	if err != nil {
		return 0, pathError(OpSize, name, err)
	}
	return int64(len(m.nodes[node].data)), nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.directory(dir)
	if err != nil {
		return pathError(OpSyncDir, dir, err)
	}
	m.note(memOp{op: Op{Kind: OpSyncDir, Name: dir}, node: node})
	return nil
}

// Lock implements FS. A crash image has no locks.
func (m *Mem) Lock(name string, exclusive bool) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, elem, node, err := m.place(name)
	if err == nil && node != 0 && m.nodes[node].dir {
		err = vfs.ErrIsDirectory
	}
	if err != nil {
		return nil, pathError(OpLock, name, err)
	}
	if node == 0 {
		node = m.make(OpCreate, name, dir, elem)
	}
	users := m.locks[node]
	if users < 0 || users > 0 && exclusive {
		return nil, &vfs.LockedError{Name: name, PID: os.Getpid()}
	}
	if m.locks == nil {
		m.locks = map[int]int{}
	}
	if exclusive {
		m.locks[node] = -1
	} else {
		m.locks[node]++
	}
	return &memLock{m: m, node: node}, nil
}

type memLock struct {
	m    *Mem
	node int
	once sync.Once
}

func (l *memLock) Close() error {
	l.once.Do(func() {
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		if l.m.locks[l.node]--; l.m.locks[l.node] <= 0 {
			delete(l.m.locks, l.node)
		}
	})
	return nil
}

// memFile is an open file.
type memFile struct {
	m        *Mem
	name     string
	node     int
	writable bool
	closed   atomic.Bool
}

// check returns an error if the file cannot be used.
func (f *memFile) check(kind OpKind) error {
	if f.closed.Load() {
		return pathError(kind, f.name, fs.ErrClosed)
	}
	if !f.writable && kind != OpReadAt {
		return pathError(kind, f.name, vfs.ErrReadOnly)
	}
	return nil
}

func (f *memFile) Write(p []byte) (int, error) {
	if err := f.check(OpWrite); err != nil {
		return 0, err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	n := f.m.nodes[f.node]
	off := int64(len(n.data))
	n.data = append(n.data, p...)
	f.m.note(memOp{op: Op{Kind: OpWrite, Name: f.name, Off: off, Len: len(p)}, node: f.node, size: int64(len(n.data))})
	return len(p), nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check(OpReadAt); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError(OpReadAt, f.name, vfs.ErrNegative)
	}
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	data := f.m.nodes[f.node].data
	n := copy(p, data[min(off, int64(len(data))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) Sync() error { return f.sync(OpSync) }

// dropUnsynced is a Sync that fails as it does on Linux: the data written since
// the last Sync is not on disk and never will be, but the next Sync succeeds.
// As with a page cache, the data can be read until the power cut: only crash
// images lack it.
func (f *memFile) dropUnsynced() error { return f.sync(OpSyncLost) }

func (f *memFile) sync(kind OpKind) error {
	if err := f.check(OpSync); err != nil {
		return err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.note(memOp{op: Op{Kind: kind, Name: f.name}, node: f.node})
	return nil
}

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return pathError(OpClose, f.name, fs.ErrClosed)
	}
	return nil
}

// NumOps returns the number of operations so far that changed the file system.
func (m *Mem) NumOps() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.ops)
}

// Ops lists the operations whose index is at least from and below to.
func (m *Mem) Ops(from, to int) []Op {
	m.mu.RLock()
	defer m.mu.RUnlock()
	list := make([]Op, 0, max(0, to-from))
	for _, o := range m.ops[max(0, from):min(to, len(m.ops))] {
		list = append(list, o.op)
	}
	return list
}

// String describes all files, one per line, for test messages.
func (m *Mem) String() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var b strings.Builder
	var walk func(dir int, path string)
	walk = func(dir int, path string) {
		for _, e := range slices.Sorted(maps.Keys(m.dirs[dir])) {
			node := m.dirs[dir][e]
			if m.nodes[node].dir {
				fmt.Fprintf(&b, "%s/%s/\n", path, e)
				walk(node, path+"/"+e)
			} else {
				fmt.Fprintf(&b, "%s/%s %d bytes\n", path, e, len(m.nodes[node].data))
			}
		}
	}
	walk(rootNode, "")
	return b.String()
}
