package sift

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/siftdb/sift/internal/wal"
)

// checkpoint implements Checkpoint.
func (d *DB) checkpoint(dir string) (err error) {
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

	// lastSeq must not be less than any sequence number in the tables. visible may be: tables of an
	// Ingest are in the version before their sequence number is visible.
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
