package leveldb

import (
	"bytes"
	stderrors "errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/siftdb/sift"

	"github.com/syndtr/goleveldb/leveldb/storage"
)

var fdNone storage.FileDesc

// parseName returns the FileDesc that a file name stands for.
func parseName(path string) (fd storage.FileDesc, ok bool) {
	name := filepath.Base(path)
	digits, isManifest := strings.CutPrefix(name, "MANIFEST-")
	if isManifest {
		fd.Type = storage.TypeManifest
	} else {
		var ext string
		digits, ext, _ = strings.Cut(name, ".")
		switch ext {
		case "log":
			fd.Type = storage.TypeJournal
		case "ldb", "sst":
			fd.Type = storage.TypeTable
		default:
			return fdNone, false
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return fdNone, false
	}
	fd.Num = int64(n)
	return fd, true
}

// currentName is the name of the file whose contents a storage keeps as its meta.
const (
	currentName = "CURRENT"
)

// storageFS is the file system of a database in a Storage: a single directory. Files that a
// Storage cannot name, such as CURRENT before it is renamed, are held in memory.
type storageFS struct {
	stor storage.Storage

	mu      sync.Mutex
	other   map[string]*otherFile
	read    map[storage.FileDesc]*sharedReader // files that are open for reading
	written map[storage.FileDesc]*writtenFile
}

func newStorageFS(stor storage.Storage) *storageFS {
	return &storageFS{
		stor: stor, other: map[string]*otherFile{},
		read: map[storage.FileDesc]*sharedReader{}, written: map[storage.FileDesc]*writtenFile{},
	}
}

// file returns the file of the storage that a path stands for. Tables have the extension .ldb only.
func (s *storageFS) file(name string) (storage.FileDesc, bool) {
	fd, ok := parseName(name)
	return fd, ok && filepath.Ext(name) != ".sst"
}

// Create implements sift.FS.
func (s *storageFS) Create(name string) (sift.File, error) {
	if fd, ok := s.file(name); ok {
		w, err := s.stor.Create(fd)
		if err != nil {
			return nil, err
		}
		f := &writtenFile{Writer: w, fs: s, fd: fd}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.written[fd] = f
		return f, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &otherFile{}
	s.other[filepath.Base(name)] = f
	return f, nil
}

// Open implements sift.FS.
func (s *storageFS) Open(name string) (sift.File, error) {
	if fd, ok := s.file(name); ok {
		return s.open(fd)
	}
	if filepath.Base(name) == currentName {
		content, err := s.current()
		if err != nil {
			return nil, err
		}
		return &otherFile{data: content}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.other[filepath.Base(name)]; f != nil {
		return f, nil
	}
	return nil, os.ErrNotExist
}

// open opens a file for reading. All users share one Reader, since a Storage may refuse to open
// a file twice.
func (s *storageFS) open(fd storage.FileDesc) (*readFile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shared := s.read[fd]
	if shared == nil {
		r, err := s.stor.Open(fd)
		if err != nil {
			return nil, err
		}
		size, err := r.Seek(0, io.SeekEnd)
		if err != nil {
			return nil, stderrors.Join(err, r.Close())
		}
		shared = &sharedReader{Reader: r, size: size}
		s.read[fd] = shared
	}
	shared.users++
	return &readFile{shared: shared, fs: s, fd: fd}, nil
}

// current returns the contents of CURRENT.
func (s *storageFS) current() ([]byte, error) {
	fd, err := s.stor.GetMeta()
	if damage := (*storage.ErrCorrupted)(nil); stderrors.As(err, &damage) {
		return nil, &sift.CorruptionError{Path: currentName, Offset: -1, What: currentName, Err: err}
	} else if err != nil {
		return nil, err
	}
	return []byte(fd.String() + "\n"), nil
}

// Remove implements sift.FS.
func (s *storageFS) Remove(name string) error {
	if fd, ok := s.file(name); ok {
		return s.stor.Remove(fd)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.other[filepath.Base(name)] == nil {
		return os.ErrNotExist
	}
	delete(s.other, filepath.Base(name))
	return nil
}

// Rename implements sift.FS. Renaming a file to CURRENT sets the meta. A file that is moved to
// another directory, as Repair does with old files, is removed, since a storage has only one.
func (s *storageFS) Rename(oldname, newname string) error {
	if fd, ok := s.file(oldname); ok {
		if filepath.Dir(oldname) != filepath.Dir(newname) {
			return s.stor.Remove(fd)
		}
		to, ok := s.file(newname)
		if !ok {
			return fmt.Errorf("leveldb: cannot rename %s to %s in this storage", oldname, newname)
		}
		return s.stor.Rename(fd, to)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.other[filepath.Base(oldname)]
	if f == nil {
		return os.ErrNotExist
	}
	if filepath.Base(newname) == currentName {
		fd, ok := parseName(strings.TrimSuffix(string(f.bytes()), "\n"))
		if !ok {
			return fmt.Errorf("leveldb: CURRENT would hold %q", f.bytes())
		}
		if err := s.stor.SetMeta(fd); err != nil {
			return err
		}
	} else if filepath.Dir(oldname) == filepath.Dir(newname) {
		s.other[filepath.Base(newname)] = f
	}
	delete(s.other, filepath.Base(oldname))
	return nil
}

// Link implements sift.FS. Repair links old files into another directory before it removes them; a
// storage has only one directory, so they are just removed. Checkpoints are not part of this API.
func (s *storageFS) Link(oldname, newname string) error {
	if filepath.Dir(oldname) != filepath.Dir(newname) {
		return nil
	}
	return stderrors.ErrUnsupported
}

// MkdirAll implements sift.FS.
func (s *storageFS) MkdirAll(string) error { return nil }

// List implements sift.FS.
func (s *storageFS) List(string) ([]string, error) {
	fds, err := s.stor.List(storage.TypeManifest | storage.TypeJournal | storage.TypeTable)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, fd := range fds {
		names = append(names, fd.String())
	}
	if _, err := s.stor.GetMeta(); err == nil {
		names = append(names, currentName)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.other {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Size implements sift.FS.
func (s *storageFS) Size(name string) (int64, error) {
	if fd, ok := s.file(name); ok {
		s.mu.Lock()
		w := s.written[fd]
		s.mu.Unlock()
		if w != nil {
			return w.size.Load(), nil
		}
	}
	f, err := s.Open(name)
	if err != nil {
		return 0, err
	}
	if r, ok := f.(*readFile); ok {
		return r.shared.size, r.Close()
	}
	return int64(len(f.(*otherFile).bytes())), nil
}

// SyncDir implements sift.FS. It does nothing: a Storage syncs names with their files.
func (s *storageFS) SyncDir(string) error { return nil }

// Lock implements sift.FS.
func (s *storageFS) Lock(string, bool) (io.Closer, error) {
	l, err := s.stor.Lock()
	if err != nil {
		return nil, err
	}
	return unlocker{l}, nil
}

type unlocker struct{ storage.Locker }

// Close releases the lock.
func (u unlocker) Close() error {
	u.Unlock()
	return nil
}

// sharedReader is a file that is open for reading.
type sharedReader struct {
	storage.Reader
	size  int64
	users int // guarded by storageFS.mu
}

// readFile is one user of a sharedReader.
type readFile struct {
	fs     *storageFS
	fd     storage.FileDesc
	shared *sharedReader
	closed atomic.Bool
}

// ReadAt implements sift.File.
func (f *readFile) ReadAt(p []byte, off int64) (int, error) {
	if f.closed.Load() {
		return 0, os.ErrClosed
	}
	return f.shared.ReadAt(p, off)
}

// Close implements sift.File. The last user closes the file.
func (f *readFile) Close() error {
	if !f.closed.CompareAndSwap(false, true) {
		return os.ErrClosed
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.shared.users--; f.shared.users > 0 {
		return nil
	}
	delete(f.fs.read, f.fd)
	return f.shared.Close()
}

func (*readFile) Write([]byte) (int, error) { return 0, stderrors.ErrUnsupported }
func (*readFile) Sync() error               { return stderrors.ErrUnsupported }

// writtenFile is a file that is open for writing.
type writtenFile struct {
	storage.Writer
	fs   *storageFS
	fd   storage.FileDesc
	size atomic.Int64
}

// Write implements sift.File.
func (f *writtenFile) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	f.size.Add(int64(n))
	return n, err
}

// Close implements sift.File.
func (f *writtenFile) Close() error {
	f.fs.mu.Lock()
	if f.fs.written[f.fd] == f {
		delete(f.fs.written, f.fd)
	}
	f.fs.mu.Unlock()
	return f.Writer.Close()
}

func (*writtenFile) ReadAt([]byte, int64) (int, error) { return 0, stderrors.ErrUnsupported }

// otherFile is a file in memory, for names that a Storage cannot represent.
type otherFile struct {
	mu   sync.Mutex
	data []byte
}

func (f *otherFile) bytes() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.data
}

func (f *otherFile) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.data = append(f.data, p...)
	return len(p), nil
}

func (f *otherFile) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(f.bytes()).ReadAt(p, off)
}

func (*otherFile) Sync() error  { return nil }
func (*otherFile) Close() error { return nil }
