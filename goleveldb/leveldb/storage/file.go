package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/siftdb/sift"
)

// maxLogBytes is the size at which the file LOG is renamed to LOG.old.
const maxLogBytes = 1 << 20

var errReadOnly = errors.New("leveldb/storage: storage is read-only")

// fileStorage is a Storage in a directory. A database on it uses the directory
// directly, under the storage's lock; see SiftDir.
type fileStorage struct {
	path     string
	readOnly bool

	mu     sync.Mutex
	lock   *sift.DirLock // nil once it is closed
	locked *fileStorageLock
	log    *os.File // nil if there is none
	logged int64
}

// OpenFile returns a Storage in a directory, which it creates unless readOnly is set. The directory
// is locked, also against other processes, until the storage is closed: another OpenFile returns an
// error, on Unix syscall.EAGAIN, unless both are read-only. If a database that can write is open,
// or the lock of Lock is held, when the storage is closed, the directory stays locked until that
// ends.
func OpenFile(path string, readOnly bool) (Storage, error) {
	fi, err := os.Stat(path)
	switch {
	case err == nil && !fi.IsDir():
		return nil, fmt.Errorf("leveldb/storage: open %s: not a directory", path)
	case os.IsNotExist(err) && !readOnly:
	case err != nil:
		return nil, err
	}
	lock, err := sift.LockDirectory(path, !readOnly)
	if errors.Is(err, sift.ErrLocked) {
		return nil, errHeld
	} else if err != nil {
		return nil, err
	}
	s := &fileStorage{path: path, readOnly: readOnly, lock: lock}
	runtime.SetFinalizer(s, (*fileStorage).Close)
	return s, nil
}

// SiftDir returns the directory and the lock on it, nil after Close.
func (s *fileStorage) SiftDir() (string, *sift.DirLock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.path, s.lock
}

type fileStorageLock struct {
	s   *fileStorage
	dir *sift.DirLock // the storage's, which Unlock releases if the storage has been closed; else nil
}

// Unlock implements Locker.
func (l *fileStorageLock) Unlock() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.s.locked == l {
		l.s.locked = nil
	}
	if l.dir != nil {
		l.dir.Close()
		l.dir = nil
	}
}

// Lock implements Storage. A read-only storage can be locked several times.
func (s *fileStorage) Lock() (Locker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.lock == nil:
		return nil, ErrClosed
	case s.readOnly:
		return &fileStorageLock{s: s}, nil
	case s.locked != nil:
		return nil, ErrLocked
	}
	s.locked = &fileStorageLock{s: s}
	return s.locked, nil
}

// Log implements Storage: it appends a line to the file LOG. Errors are ignored.
func (s *fileStorage) Log(str string) {
	if s.readOnly {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		return
	}
	if s.log != nil && s.logged > maxLogBytes {
		s.log.Close()
		s.log = nil
		os.Rename(filepath.Join(s.path, "LOG"), filepath.Join(s.path, "LOG.old"))
	}
	if s.log == nil {
		f, err := os.OpenFile(filepath.Join(s.path, "LOG"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		if err != nil {
			return
		}
		s.log, s.logged = f, 0
		if fi, err := f.Stat(); err == nil {
			s.logged = fi.Size()
		}
	}
	n, _ := s.log.WriteString(time.Now().Format("2006-01-02 15:04:05.000000 ") + str + "\n")
	s.logged += int64(n)
}

// check returns why the files cannot be used, nil if they can.
func (s *fileStorage) check(write bool, fds ...FileDesc) error {
	for _, fd := range fds {
		if !FileDescOk(fd) {
			return ErrInvalidFile
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case write && s.readOnly:
		return errReadOnly
	case s.lock == nil:
		return ErrClosed
	}
	return nil
}

func (s *fileStorage) name(fd FileDesc) string { return filepath.Join(s.path, fd.String()) }

// oldName returns the path of a table with the extension that LevelDB used to write.
func (s *fileStorage) oldName(fd FileDesc) string {
	return strings.TrimSuffix(s.name(fd), ".ldb") + ".sst"
}

// SetMeta implements Storage: it writes the file CURRENT.
func (s *fileStorage) SetMeta(fd FileDesc) (err error) {
	if err := s.check(true, fd); err != nil {
		return err
	}
	tmp := filepath.Join(s.path, fmt.Sprintf("CURRENT.%d", fd.Num))
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteString(fd.String() + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(tmp, filepath.Join(s.path, "CURRENT"))
	}
	if err != nil {
		os.Remove(tmp)
		return err
	}
	return syncDir(s.path)
}

// GetMeta implements Storage: it reads the file CURRENT.
func (s *fileStorage) GetMeta() (FileDesc, error) {
	if err := s.check(false); err != nil {
		return FileDesc{}, err
	}
	b, err := os.ReadFile(filepath.Join(s.path, "CURRENT"))
	if os.IsNotExist(err) {
		return FileDesc{}, os.ErrNotExist
	} else if err != nil {
		return FileDesc{}, err
	}
	name, whole := strings.CutSuffix(string(b), "\n")
	fd, ok := parseName(name)
	if !ok || !whole || fd.Type != TypeManifest {
		return FileDesc{}, &ErrCorrupted{Err: fmt.Errorf("leveldb/storage: CURRENT holds %q", b)}
	}
	if _, err := os.Stat(s.name(fd)); os.IsNotExist(err) {
		return FileDesc{}, os.ErrNotExist
	} else if err != nil {
		return FileDesc{}, err
	}
	return fd, nil
}

// List implements Storage.
func (s *fileStorage) List(ft FileType) (fds []FileDesc, err error) {
	if err := s.check(false); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.path)
	for _, e := range entries {
		if fd, ok := parseName(e.Name()); ok && fd.Type&ft != 0 {
			fds = append(fds, fd)
		}
	}
	return fds, err
}

// Open implements Storage.
func (s *fileStorage) Open(fd FileDesc) (Reader, error) {
	if err := s.check(false, fd); err != nil {
		return nil, err
	}
	f, err := os.Open(s.name(fd))
	if os.IsNotExist(err) && fd.Type == TypeTable {
		f, err = os.Open(s.oldName(fd))
	}
	if os.IsNotExist(err) {
		return nil, os.ErrNotExist
	} else if err != nil {
		return nil, err
	}
	return f, nil
}

// dirFile is a file that is open for writing. Sync also makes its name durable.
type dirFile struct {
	*os.File
	dir string
}

// Sync implements Writer.
func (f dirFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return err
	}
	return syncDir(f.dir)
}

// Create implements Storage.
func (s *fileStorage) Create(fd FileDesc) (Writer, error) {
	if err := s.check(true, fd); err != nil {
		return nil, err
	}
	f, err := os.Create(s.name(fd))
	if err != nil {
		return nil, err
	}
	return dirFile{f, s.path}, nil
}

// Remove implements Storage.
func (s *fileStorage) Remove(fd FileDesc) error {
	if err := s.check(true, fd); err != nil {
		return err
	}
	err := os.Remove(s.name(fd))
	if os.IsNotExist(err) && fd.Type == TypeTable {
		err = os.Remove(s.oldName(fd))
	}
	return err
}

// Rename implements Storage.
func (s *fileStorage) Rename(oldfd, newfd FileDesc) error {
	if err := s.check(true, oldfd, newfd); err != nil {
		return err
	}
	if oldfd == newfd {
		return nil
	}
	return os.Rename(s.name(oldfd), s.name(newfd))
}

// Close implements Storage.
func (s *fileStorage) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		return ErrClosed
	}
	runtime.SetFinalizer(s, nil)
	if s.log != nil {
		s.log.Close()
	}
	lock := s.lock
	s.lock = nil
	if s.locked != nil { // a database is open
		s.locked.dir = lock
		return nil
	}
	return lock.Close()
}
