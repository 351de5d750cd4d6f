package storage

import (
	"bytes"
	"errors"
	"os"
	"sync"
)

// memStorage is a Storage in memory.
type memStorage struct {
	mu     sync.Mutex
	locked *memLock
	files  map[FileDesc]*memFile
	meta   FileDesc
}

// memFile is a file.
type memFile struct {
	s    *memStorage
	open bool // guarded by s.mu
	data []byte
}

var errFileOpen = errors.New("leveldb/storage: file still open")

// NewMemStorage returns an empty Storage in memory. It keeps its files when it is
// closed, and can be used again. A file cannot be open twice.
func NewMemStorage() Storage { return &memStorage{files: map[FileDesc]*memFile{}} }

type memLock struct{ s *memStorage }

// Unlock implements Locker.
func (l *memLock) Unlock() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.s.locked == l {
		l.s.locked = nil
	}
}

// Lock implements Storage.
func (s *memStorage) Lock() (Locker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locked != nil {
		return nil, ErrLocked
	}
	s.locked = &memLock{s}
	return s.locked, nil
}

// Log implements Storage; it does nothing.
func (*memStorage) Log(string) {}

// SetMeta implements Storage.
func (s *memStorage) SetMeta(fd FileDesc) error {
	if !FileDescOk(fd) {
		return ErrInvalidFile
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meta = fd
	return nil
}

// GetMeta implements Storage.
func (s *memStorage) GetMeta() (FileDesc, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.meta.Zero() {
		return FileDesc{}, os.ErrNotExist
	}
	return s.meta, nil
}

// List implements Storage.
func (s *memStorage) List(ft FileType) ([]FileDesc, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var fds []FileDesc
	for fd := range s.files {
		if fd.Type&ft != 0 {
			fds = append(fds, fd)
		}
	}
	return fds, nil
}

// Open implements Storage.
func (s *memStorage) Open(fd FileDesc) (Reader, error) {
	if !FileDescOk(fd) {
		return nil, ErrInvalidFile
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[fd]
	if f == nil {
		return nil, os.ErrNotExist
	}
	if f.open {
		return nil, errFileOpen
	}
	f.open = true
	return &memReader{bytes.NewReader(f.data), memHandle{file: f}}, nil
}

// Create implements Storage.
func (s *memStorage) Create(fd FileDesc) (Writer, error) {
	if !FileDescOk(fd) {
		return nil, ErrInvalidFile
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[fd]
	switch {
	case f == nil:
		f = &memFile{s: s}
		s.files[fd] = f
	case f.open:
		return nil, errFileOpen
	}
	f.open, f.data = true, nil
	return &memWriter{memHandle{file: f}}, nil
}

// Remove implements Storage.
func (s *memStorage) Remove(fd FileDesc) error {
	if !FileDescOk(fd) {
		return ErrInvalidFile
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[fd] == nil {
		return os.ErrNotExist
	}
	delete(s.files, fd)
	return nil
}

// Rename implements Storage.
func (s *memStorage) Rename(oldfd, newfd FileDesc) error {
	if !FileDescOk(oldfd) || !FileDescOk(newfd) {
		return ErrInvalidFile
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[oldfd]
	if f == nil {
		return os.ErrNotExist
	}
	delete(s.files, oldfd)
	s.files[newfd] = f
	return nil
}

// Close implements Storage.
func (*memStorage) Close() error { return nil }

// memReader reads a file.
type memReader struct {
	*bytes.Reader
	memHandle
}

// memWriter appends to a file.
type memWriter struct{ memHandle }

// Write implements Writer.
func (w *memWriter) Write(p []byte) (int, error) {
	w.file.s.mu.Lock()
	defer w.file.s.mu.Unlock()
	w.file.data = append(w.file.data, p...)
	return len(p), nil
}

// Sync implements Writer.
func (*memWriter) Sync() error { return nil }

// memHandle is an open file.
type memHandle struct {
	file   *memFile
	closed bool // guarded by file.s.mu
}

// Close closes the file. A second Close returns ErrClosed.
func (h *memHandle) Close() error {
	h.file.s.mu.Lock()
	defer h.file.s.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	h.closed, h.file.open = true, false
	return nil
}
