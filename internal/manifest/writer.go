package manifest

import (
	"fmt"
	"path/filepath"

	"github.com/siftdb/sift/internal/record"
	"github.com/siftdb/sift/internal/vfs"
)

// Writer appends edits to the current MANIFEST. It must not be used concurrently.
type Writer struct {
	num  uint64
	path string
	file vfs.File
	log  *record.Writer
	base int64 // the size of the state that it began with
	err  error
}

// Create writes a new MANIFEST that holds the state, and makes CURRENT name it. num is a new
// file number, below s.NextFile; s.Num and s.Dropped are ignored. Everything is durable when
// Create returns. Removing the previous MANIFEST is up to the caller.
//
// After an error, switched is false if the previous MANIFEST is still current, as if nothing
// had happened. If it is true, a crash may leave either one current: no more edits may be
// written to the previous one, and no file that either names may be removed, until another
// Create succeeds.
func Create(fsys vfs.FS, dir string, num uint64, s *State) (w *Writer, switched bool, err error) {
	path := filepath.Join(dir, MakeName(KindManifest, num))
	file, err := fsys.Create(path)
	if err != nil {
		return nil, false, err
	}
	w = &Writer{num: num, path: path, file: file, log: record.NewWriter(file)}
	err = w.Append(s.snapshot())
	w.base = w.Size()
	if err == nil {
		// The name must be durable before CURRENT refers to it.
		err = fsys.SyncDir(dir)
	}
	if err == nil {
		switched, err = SetCurrent(fsys, dir, num)
	}
	if err != nil {
		_ = file.Close() // nothing in the file was acknowledged
		if !switched {
			_ = fsys.Remove(path) // an unused MANIFEST is harmless
		}
		return nil, switched, fmt.Errorf("creating a MANIFEST: %w", err)
	}
	return w, true, nil
}

// Append writes an edit durably. After an error the edit may or may not be in the MANIFEST,
// and all later calls return the same error: the caller must create a new MANIFEST or accept
// no more writes.
func (w *Writer) Append(e *Edit) error {
	if w.err != nil {
		return w.err
	}
	err := w.log.Append(e.appendTo(nil))
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

// Base returns the part of Size that is the state that the MANIFEST began with.
func (w *Writer) Base() int64 { return w.base }

// Close closes the file. All edits are durable already.
func (w *Writer) Close() error { return w.file.Close() }
