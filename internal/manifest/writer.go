package manifest

import (
	"fmt"
	"path/filepath"

	"github.com/siftdb/sift/internal/record"
	"github.com/siftdb/sift/internal/vfs"
)

// Writer appends edits to the MANIFEST in use. It is used by one goroutine at a
// time.
type Writer struct {
	num  uint64
	path string
	file vfs.File
	log  *record.Writer
	buf  []byte
	err  error
}

// Create writes a new MANIFEST that holds the state and makes CURRENT name it.
// num is a new file number, below s.NextFile; s.Num and s.Dropped do not count.
// All is durable when Create returns; the MANIFEST that was in use is left for
// the caller to remove.
//
// After an error switched says how things stand. false: the MANIFEST before is
// in use as if nothing had happened. true: after a crash either may be found in
// use, so no more edits may be written to the other one, and no file may be
// removed that either names; another Create settles it.
func Create(fsys vfs.FS, dir string, num uint64, s *State) (w *Writer, switched bool, err error) {
	path := filepath.Join(dir, MakeName(KindManifest, num))
	file, err := fsys.Create(path)
	if err != nil {
		return nil, false, err
	}
	w = &Writer{num: num, path: path, file: file, log: record.NewWriter(file)}
	err = w.Append(s.snapshot())
	if err == nil {
		// The name must be durable before CURRENT speaks of it.
		err = fsys.SyncDir(dir)
	}
	if err == nil {
		switched, err = SetCurrent(fsys, dir, num)
	}
	if err != nil {
		_ = file.Close() // nothing was acknowledged that the file holds
		if !switched {
			_ = fsys.Remove(path) // an unused MANIFEST does no harm
		}
		return nil, switched, fmt.Errorf("creating a MANIFEST: %w", err)
	}
	return w, true, nil
}

// Append writes an edit durably. After an error the edit may be in the MANIFEST
// or not, and every later call returns the same error: the caller makes a new
// MANIFEST with Create or accepts no more writes.
func (w *Writer) Append(e *Edit) error {
	if w.err != nil {
		return w.err
	}
	w.buf = e.appendTo(w.buf[:0])
	err := w.log.Append(w.buf)
	if err == nil {
		err = w.file.Sync()
	}
	if err != nil {
		w.err = fmt.Errorf("%s: %w", w.path, err)
	}
	return w.err
}

// Num returns the MANIFEST's file number.
func (w *Writer) Num() uint64 { return w.num }

// Size returns the MANIFEST's length in bytes.
func (w *Writer) Size() int64 { return w.log.Offset() }

// Close closes the file. It has nothing left to write.
func (w *Writer) Close() error { return w.file.Close() }
