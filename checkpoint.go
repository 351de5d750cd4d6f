package sift

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/wal"
)

// checkpoint implements Checkpoint.
func (d *DB) checkpoint(dir string) (err error) {
	switch {
	case d.opts.ReadOnly:
		return ErrReadOnly
	case d.closed.Load():
		return ErrClosed
	}
	dir = cleanDir(dir)
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
	// While the version is referenced, its tables cannot be removed.
	version, err := d.flushedVersion()
	if err != nil {
		return err
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
	_, err = copied.newManifest(version)
	if err == nil {
		err = copied.manifest.Close()
	}
	return errors.Join(err, log.Close(), d.syncParents(dir))
}

// flushedVersion flushes, and returns a version, with a reference, that has the contents of the
// database at some moment since then. DeleteRange drops no tables meanwhile: the version would
// reflect the drop, but could lack writes made between the flush and the drop.
func (d *DB) flushedVersion() (*manifest.Version, error) {
	d.snapshots.keepTables(1)
	defer d.snapshots.keepTables(-1)
	if err := d.Flush(); err != nil {
		return nil, err
	}
	version := d.refVersion()
	if version == nil {
		return nil, ErrClosed
	}
	return version, nil
}
