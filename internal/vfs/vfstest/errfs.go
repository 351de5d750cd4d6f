package vfstest

import (
	"cmp"
	"io"
	"io/fs"
	"slices"
	"sync"
	"syscall"

	"github.com/siftdb/sift/internal/vfs"
)

// Fault says which operations of a Faulty fail, and how.
type Fault struct {
	// Index and Match select operations: those with this index, or any if Index is negative, for
	// which Match, if set, returns true. Only the first of them fails. With Sticky all operations
	// fail that Match selects from that index on.
	Index  int
	Match  func(Op) bool
	Sticky bool

	// Err is the cause of the error that the operation returns, EIO if nil.
	Err error
	// Short writes half of the bytes of a Write before it fails.
	Short bool
	// After executes the operation and then fails, as can happen over a network.
	After bool
	// DropPages makes a Sync of a Mem's file lose what was written since the
	// last Sync. Later Syncs succeed, but do not restore it.
	DropPages bool
}

// Faulty is a file system that counts the operations on another one and makes
// some of them fail. It knows which files and locks are open. An operation is a
// call of a method of FS or File, or the release of a lock. Close and the
// release of a lock are always executed, even if they fail.
type Faulty struct {
	fs vfs.FS

	mu     sync.Mutex
	hook   func(Op) error
	numOps int
	faults []fault
	failed []Op
	full   bool  // whether space is bounded
	space  int64 // bytes that can still be written if full
	open   map[io.Closer]string
}

type fault struct {
	Fault
	fired bool
}

// Inject returns fsys with no faults.
func Inject(fsys vfs.FS) *Faulty { return &Faulty{fs: fsys, open: map[io.Closer]string{}} }

// SetFaults replaces the faults.
func (f *Faulty) SetFaults(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = f.faults[:0:0]
	for _, x := range faults {
		f.faults = append(f.faults, fault{Fault: x})
	}
}

// SetHook sets a function that is called before each operation, on the caller's goroutine. fn may
// delay the operation; if it returns an error, the operation fails with it. nil removes the hook.
func (f *Faulty) SetHook(fn func(Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = fn
}

// SetSpace bounds the bytes that can be written from now on. The Write that exceeds them writes
// what fits and fails with ENOSPC. Removing files frees nothing; a negative number removes the
// bound.
func (f *Faulty) SetSpace(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full, f.space = bytes >= 0, bytes
}

// NumOps returns the number of operations so far.
func (f *Faulty) NumOps() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.numOps
}

// Failed lists the operations that were made to fail.
func (f *Faulty) Failed() []Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.failed)
}

// OpenFiles lists the names of open files, and those of held locks after "lock ".
func (f *Faulty) OpenFiles() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := make([]string, 0, len(f.open))
	for _, name := range f.open {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// begin counts an operation and returns the fault that applies to it, or nil.
func (f *Faulty) begin(op Op) *Fault {
	f.mu.Lock()
	op.Index = f.numOps
	f.numOps++
	var struck *Fault
	for i := range f.faults {
		x := &f.faults[i]
		due := x.Index < 0 || op.Index == x.Index || x.Sticky && op.Index > x.Index
		if due && (x.Sticky || !x.fired) && (x.Match == nil || x.Match(op)) {
			x.fired = true
			copied := x.Fault
			struck = &copied
			break
		}
	}
	hook := f.hook
	f.mu.Unlock()
	if hook != nil {
		if err := hook(op); err != nil {
			struck = &Fault{Err: err}
		}
	}
	if struck == nil {
		return nil
	}
	struck.Err = &fs.PathError{Op: op.Kind.String(), Path: op.Name, Err: cmp.Or[error](struck.Err, syscall.EIO)}
	op.Err = struck.Err
	f.note(op)
	return struck
}

func (f *Faulty) note(failed Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = append(f.failed, failed)
}

// do executes an operation, unless it must fail before that.
func (f *Faulty) do(op Op, call func() error) error {
	x := f.begin(op)
	if x == nil {
		return call()
	}
	if x.After {
		_ = call()
	}
	return x.Err
}

// Remove implements FS.
func (f *Faulty) Remove(name string) error {
	return f.do(Op{Kind: OpRemove, Name: name}, func() error { return f.fs.Remove(name) })
}

// Rename implements FS.
func (f *Faulty) Rename(oldname, newname string) error {
	return f.do(Op{Kind: OpRename, Name: oldname, To: newname}, func() error { return f.fs.Rename(oldname, newname) })
}

// Link implements FS.
func (f *Faulty) Link(oldname, newname string) error {
	return f.do(Op{Kind: OpLink, Name: oldname, To: newname}, func() error { return f.fs.Link(oldname, newname) })
}

// MkdirAll implements FS.
func (f *Faulty) MkdirAll(dir string) error {
	return f.do(Op{Kind: OpMkdirAll, Name: dir}, func() error { return f.fs.MkdirAll(dir) })
}

// SyncDir implements FS.
func (f *Faulty) SyncDir(dir string) error {
	return f.do(Op{Kind: OpSyncDir, Name: dir}, func() error { return f.fs.SyncDir(dir) })
}

// List implements FS.
func (f *Faulty) List(dir string) (names []string, err error) {
	err = f.do(Op{Kind: OpList, Name: dir}, func() (err error) {
		names, err = f.fs.List(dir)
		return err
	})
	if err != nil {
		return nil, err
	}
	return names, nil
}

// Size implements FS.
func (f *Faulty) Size(name string) (size int64, err error) {
	err = f.do(Op{Kind: OpSize, Name: name}, func() (err error) {
		size, err = f.fs.Size(name)
		return err
	})
	if err != nil {
		return 0, err
	}
	return size, nil
}

// Create implements FS.
func (f *Faulty) Create(name string) (vfs.File, error) {
	return f.openFile(Op{Kind: OpCreate, Name: name}, f.fs.Create)
}

// Open implements FS.
func (f *Faulty) Open(name string) (vfs.File, error) {
	return f.openFile(Op{Kind: OpOpen, Name: name}, f.fs.Open)
}

// CreateLog creates a log. Faults and hooks see an OpCreate.
func (f *Faulty) CreateLog(name string) (vfs.File, error) {
	return f.openFile(Op{Kind: OpCreate, Name: name}, func(name string) (vfs.File, error) { return vfs.CreateLog(f.fs, name) })
}

func (f *Faulty) openFile(op Op, call func(string) (vfs.File, error)) (vfs.File, error) {
	x := f.begin(op)
	if x != nil && !x.After {
		return nil, x.Err
	}
	inner, err := call(op.Name)
	if err != nil {
		return nil, err
	}
	if x != nil {
		_ = inner.Close()
		return nil, x.Err
	}
	file := &faultyFile{f: f, name: op.Name, inner: inner}
	f.opened(file, op.Name)
	return file, nil
}

// Lock implements FS.
func (f *Faulty) Lock(name string, exclusive bool) (io.Closer, error) {
	x := f.begin(Op{Kind: OpLock, Name: name})
	if x != nil {
		return nil, x.Err
	}
	inner, err := f.fs.Lock(name, exclusive)
	if err != nil {
		return nil, err
	}
	l := &faultyLock{f: f, name: name, inner: inner}
	f.opened(l, "lock "+name)
	return l, nil
}

func (f *Faulty) opened(c io.Closer, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open[c] = name
}

// close closes inner, which self wraps.
func (f *Faulty) close(op Op, self, inner io.Closer) error {
	x := f.begin(op)
	err := inner.Close()
	f.mu.Lock()
	delete(f.open, self)
	f.mu.Unlock()
	if x != nil {
		return x.Err
	}
	return err
}

type faultyLock struct {
	f     *Faulty
	name  string
	inner io.Closer
}

func (l *faultyLock) Close() error { return l.f.close(Op{Kind: OpUnlock, Name: l.name}, l, l.inner) }

type faultyFile struct {
	f     *Faulty
	name  string
	inner vfs.File

	mu      sync.Mutex
	written int64
}

func (w *faultyFile) Write(p []byte) (int, error) {
	w.mu.Lock()
	off := w.written
	w.mu.Unlock()
	op := Op{Kind: OpWrite, Name: w.name, Off: off, Len: len(p)}
	x := w.f.begin(op)
	fits := len(p)
	switch {
	case x != nil && x.Short:
		fits = len(p) / 2
	case x != nil && !x.After:
		fits = 0
	}
	if x == nil || fits > 0 {
		if granted := w.f.take(fits); granted < fits {
			fits = granted
			if x == nil {
				w.f.note(op)
				x = &Fault{Err: &fs.PathError{Op: op.Kind.String(), Path: w.name, Err: syscall.ENOSPC}}
			}
		}
	}
	if x != nil && fits == 0 {
		return 0, x.Err
	}
	n, err := w.inner.Write(p[:fits])
	w.mu.Lock()
	w.written += int64(n)
	w.mu.Unlock()
	if x != nil {
		err = x.Err
	}
	return n, err
}

// take uses up space for n bytes, or for as many as fit, and returns their number.
func (f *Faulty) take(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.full {
		return n
	}
	n = int(min(int64(n), f.space))
	f.space -= int64(n)
	return n
}

func (w *faultyFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = w.f.do(Op{Kind: OpReadAt, Name: w.name, Off: off, Len: len(p)}, func() (err error) {
		n, err = w.inner.ReadAt(p, off)
		return err
	})
	if err != nil && err != io.EOF {
		n = 0
	}
	return n, err
}

func (w *faultyFile) Sync() error {
	x := w.f.begin(Op{Kind: OpSync, Name: w.name})
	if x == nil {
		return w.inner.Sync()
	}
	if d, ok := w.inner.(interface{ dropUnsynced() error }); ok && x.DropPages {
		_ = d.dropUnsynced()
	} else if x.After {
		_ = w.inner.Sync()
	}
	return x.Err
}

func (w *faultyFile) Close() error {
	return w.f.close(Op{Kind: OpClose, Name: w.name}, w, w.inner)
}
