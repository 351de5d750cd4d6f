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
	// While the version is referenced, its tables cannot be removed.
	version, err := d.flushedVersion(d.Flush)
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
	err = copied.newManifest(version)
	if err == nil {
		err = copied.manifest.Close()
	}
	return errors.Join(err, log.Close(), d.syncParents(dir))
}

// flushedVersion flushes, and returns a version, with a reference, that has the contents of the
// database at some moment since then. It flushes again if tables were dropped meanwhile: the version
// could lack writes that came after the flush, but before the deletion of the tables.
func (d *DB) flushedVersion(flush func() error) (*manifest.Version, error) {
	for {
		before := d.drops()
		if err := flush(); err != nil {
			return nil, err
		}
		version := d.refVersion()
		if version == nil {
			return nil, ErrClosed
		}
		if d.drops() == before {
			return version, nil
		}
		d.releaseVersion(version)
	}
}

// drops returns readState.drops, 0 if the database is closed.
func (d *DB) drops() uint64 {
	if s := d.state.Load(); s != nil {
		return s.drops
	}
	return 0
}
