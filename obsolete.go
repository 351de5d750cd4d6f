package sift

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/siftdb/sift/internal/manifest"
)

// removeLogsBefore removes the logs whose contents are in tables.
func (d *DB) removeLogsBefore(num uint64) {
	d.removeMatching(func(kind manifest.FileKind, n uint64) bool {
		return kind == manifest.KindLog && n < num
	})
}

// removeMatching removes the database's files for which obsolete returns true.
func (d *DB) removeMatching(obsolete func(kind manifest.FileKind, num uint64) bool) {
	names, err := d.fs.List(d.dir)
	if err != nil {
		d.opts.Logger.Warn("listing the directory failed", "err", err)
		return
	}
	for _, name := range names {
		kind, num, ok := manifest.ParseName(name)
		if !ok || !obsolete(kind, num) {
			continue
		}
		d.cleaner.do(func() { d.removeObsolete(filepath.Join(d.dir, name)) })
	}
}

// removeObsolete removes a file that is no longer needed.
func (d *DB) removeObsolete(path string) {
	if err := d.fs.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.opts.Logger.Warn("removing an obsolete file failed", "path", path, "err", err)
	}
}

// awaitRemoval waits until the files of tables that the current version does not have are removed,
// except those that iterators still use. It returns early when ctx ends or Close begins.
func (d *DB) awaitRemoval(ctx context.Context) {
	removed := make(chan struct{})
	d.retired.do(func() { d.cleaner.do(func() { close(removed) }) })
	select {
	case <-removed:
	case <-ctx.Done():
	case <-d.bg.closed.Done():
	}
}

// removeOrphans removes files that a crash has left: tables that the version does not have,
// flushed logs, old MANIFESTs and unfinished files. REQUIRES: all files that the MANIFEST names
// have been found.
func (d *DB) removeOrphans(version *manifest.Version) {
	named := map[uint64]bool{}
	for _, metas := range version.Levels {
		for _, meta := range metas {
			named[meta.Num] = true
		}
	}
	d.removeMatching(func(kind manifest.FileKind, num uint64) bool {
		switch kind {
		case manifest.KindTable, manifest.KindTableSST:
			return !named[num]
		case manifest.KindLog:
			return num != d.commit.log.Num()
		case manifest.KindManifest:
			return num != d.manifest.Num()
		case manifest.KindTemp:
			return true
		}
		return false
	})
}
