package sift

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/siftdb/sift/internal/wal"
)

// Checkpoint creates a second database in dir, which must be missing or empty, with the
// contents of this one at some moment during the call, including writes that had not been
// flushed or synced. It is durable when Checkpoint returns nil. Tables are hard links, so
// Checkpoint is fast and takes no space until the two diverge; dir must be on the same file
// system. After an error dir may hold files, and must not be used. Errors are those of
// Flush and of the file system, and ErrExists if dir is not empty.
func (d *DB) Checkpoint(dir string) (err error) {
	if d.opts.ReadOnly {
		return ErrReadOnly
	}
	if err := d.fs.MkdirAll(dir); err != nil {
		return err
	}
	names, err := d.fs.List(dir)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("%w: %s is not empty", ErrExists, dir)
	}
	if err := d.Flush(); err != nil {
		return err
	}
	// While the version is referenced, its tables cannot be removed.
	version := d.refVersion()
	if version == nil {
		return ErrClosed
	}
	defer d.releaseVersion(version)

	// What flushes have written was visible before. An ingestion, whose entries share one sequence
	// number, is in the version a moment before it is visible.
	lastSeq := maxSequence(d.visible.Load(), version)
	for _, metas := range version.Levels {
		for _, meta := range metas {
			path := meta.Handle.(*table).path
			if err := d.fs.Link(path, filepath.Join(dir, filepath.Base(path))); err != nil {
				return err
			}
		}
	}
	if d.secret != nil {
		if err := writeFilterKey(d.fs, dir, *d.secret); err != nil {
			return err
		}
	}
	opts := d.opts
	opts.cacheGrows = false // the cache is d's
	copied := newDB(dir, opts)
	copied.nextFile.Store(d.nextFile.Load())
	copied.flushedSeq = lastSeq
	log, err := wal.Create(&copied.logs, lastSeq+1)
	if err != nil {
		return err
	}
	copied.logNumber = log.Num()
	err = copied.newManifest(version)
	if err == nil {
		err = copied.manifest.Close()
	}
	return errors.Join(err, log.Close(), d.syncParents(dir))
}
