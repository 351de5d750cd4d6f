package live

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/siftdb/sift/filter/live/internal/funnel"
	"github.com/siftdb/sift/internal/vfs"
)

// ReadOptions are the parameters of readers of saved filters.
type ReadOptions[T any] struct {
	// MaxBytes is the maximum memory of the filter in bytes. A larger filter gives ErrTooLarge. A
	// Generations is measured with all the filters that it will have. If MaxBytes is zero, memory
	// is bounded only by the size of the input and by what the system can address: a header that
	// claims more than follows does not make the reader allocate it.
	MaxBytes int64
	// Funnel must append the same bytes as the writer's. It may be nil for strings,
	// byte slices and integers.
	Funnel func(dst []byte, v T) []byte
}

// source is where a saved filter is read from.
type source struct {
	r        io.Reader
	n        int64 // bytes read
	left     int64 // bytes of memory that may still be allocated
	elements funnel.Kind
	peeked   *record          // a header that was read ahead
	now      func() time.Time // the clock of a Generations that has none; nil: time.Now
}

func newSource(r io.Reader, maxBytes int64, elements funnel.Kind) *source {
	if maxBytes == 0 {
		maxBytes = maxMemory
	}
	return &source{r: r, left: min(maxBytes, maxMemory), elements: elements}
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.n += int64(n)
	return n, err
}

// take accounts for the memory of so many words.
func (s *source) take(words uint64) error {
	if s.left < 0 || words > uint64(s.left)/8 {
		return tooLarge(words, s.left)
	}
	s.left -= int64(words) * 8
	return nil
}

// saved is implemented by each kind. The exported readers and writers are based on it.
type saved interface {
	io.WriterTo
	// read replaces the filter with a saved one. After an error it is unchanged.
	read(s *source) error
	// elementKind returns the kind of elements. It makes a zero value ready to read.
	elementKind() (funnel.Kind, error)
}

// readFrom is the ReadFrom of a kind.
func readFrom(f saved, r io.Reader) (int64, error) {
	kind, err := f.elementKind()
	if err != nil {
		return 0, err
	}
	s := newSource(r, 0, kind)
	err = f.read(s)
	return s.n, err
}

// marshal is the MarshalBinary of a kind.
func marshal(f io.WriterTo) ([]byte, error) {
	var b bytes.Buffer
	_, err := f.WriteTo(&b)
	return b.Bytes(), err
}

// unmarshal is the UnmarshalBinary of a filter.
func unmarshal(f io.ReaderFrom, data []byte) error {
	r := bytes.NewReader(data)
	if _, err := f.ReadFrom(r); err != nil {
		return err
	}
	if r.Len() > 0 {
		// The filter is valid, but other bytes follow it.
		return formatError("%d bytes after the filter", r.Len())
	}
	return nil
}

// elementKind returns the kind of elements of a key. It initializes a zero key.
func elementKind[T any](k *funnel.Key[T]) (funnel.Kind, error) {
	if err := k.Ready(); err != nil {
		return 0, optionError("Funnel", "is missing: %v", err)
	}
	return k.Kind(), nil
}

// WriteFile writes a filter to a file and replaces an existing one atomically: it writes
// name + ".tmp", syncs and renames it. A crash leaves the old file or the new one, and perhaps
// name + ".tmp". The new file is durable when WriteFile returns nil. Only one WriteFile at a time
// may write a name. On Windows it fails while the old file is open.
func WriteFile(name string, f io.WriterTo) (err error) {
	tmp := name + ".tmp"
	file, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			file.Close() // a second Close does nothing
			os.Remove(tmp)
		}
	}()
	if _, err := f.WriteTo(file); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := vfs.OS.Rename(tmp, name); err != nil {
		return err
	}
	return vfs.OS.SyncDir(filepath.Dir(name))
}

// ReadFile replaces f with the filter in a file that WriteFile wrote. After an error f is
// unchanged, with one exception: if other bytes follow the filter in the file, ReadFile replaces f,
// and returns an error. Damage causes a *fs.PathError that matches ErrFormat and names the part of
// the file in which it was found.
func ReadFile(name string, f io.ReaderFrom) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if n, err := f.ReadFrom(file); err != nil {
		if errors.Is(err, ErrFormat) {
			err = fmt.Errorf("%w, in the first %d bytes", err, n)
		}
		return &os.PathError{Op: "read filter", Path: name, Err: err}
	}
	if n, err := file.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return &os.PathError{Op: "read filter", Path: name, Err: errors.Join(formatError("bytes after the filter"), ignoreEOF(err))}
	}
	return nil
}

func ignoreEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}
