package sift

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/memtable"
)

// applyEdit records an edit in the MANIFEST and installs the resulting version. added are the new
// tables of the edit: on an error applyEdit closes them. flushed is the number of oldest memtables
// whose entries are now in tables; applyEdit drops these memtables. The files of tables that the
// edit drops are removed when their last reader has left (I3); applyEdit does not wait for that.
func (d *DB) applyEdit(edit *manifest.Edit, added []*manifest.TableMeta, flushed int) error {
	return d.applyEditTo(edit, added, func(s *readState) {
		left := len(s.imms) - flushed
		s.imms = append([]*memtable.Memtable(nil), s.imms[:left]...) // a copy, since the array keeps flushed memtables alive
	})
}

// applyEditTo is applyEdit with a function that modifies the memtables of the new read state.
func (d *DB) applyEditTo(edit *manifest.Edit, added []*manifest.TableMeta, change func(s *readState)) error {
	failed, err := d.changeVersion(edit, added, change)
	if failed {
		d.manifestFailed(err)
	}
	return err
}

// manifestFailed reports that the MANIFEST has failed. REQUIRES: no lock is held, since the logger
// and the callback may call methods of the DB.
func (d *DB) manifestFailed(err error) {
	d.opts.Logger.Error("the MANIFEST failed, no more writes are accepted", "err", err)
	d.opts.Events.failed(err)
}

// changeVersion is applyEditTo without the report; only it changes the version after Open. failed
// reports that the MANIFEST has just failed: the caller must call manifestFailed.
func (d *DB) changeVersion(edit *manifest.Edit, added []*manifest.TableMeta, change func(s *readState)) (failed bool, err error) {
	d.manifestMu.Lock()
	defer d.manifestMu.Unlock()
	defer func() {
		if err == nil {
			return
		}
		for _, meta := range added {
			meta.Handle.(*table).close()
		}
	}()
	if err := d.bg.fatal(); err != nil {
		return false, err
	}
	old := d.state.Load().version // cannot change while manifestMu is held
	next, err := old.Apply(edit)
	if err != nil {
		return d.fail(fmt.Errorf("sift: edit does not fit the version: %w", err))
	}
	nextFile := d.nextFile.Load()
	edit.NextFile = &nextFile
	if edit.LastSeq != nil {
		d.flushedSeq = *edit.LastSeq
	} else {
		// Not the current sequence number, since LastSeq must be below the first one in the live
		// log (I9).
		edit.LastSeq = &d.flushedSeq
	}
	if err := d.recordEdit(edit, next); err != nil {
		return d.fail(err)
	}
	next.Ref()
	d.bg.change(func() {
		s := *d.state.Load()
		s.version, s.flushed = next, d.flushedSeq
		if len(edit.Added) == 0 && len(edit.Deleted) > 0 {
			s.drops++
		}
		change(&s)
		d.state.Store(&s)
	})
	d.retire(old)
	d.filterManager.Changed()
	return false, nil
}

// fail records that the MANIFEST is in an unknown state, and returns the first such error; first
// reports whether that is err. From then on no file is removed, since the next Open may find
// either the old or the new version.
func (d *DB) fail(err error) (first bool, fatal error) {
	d.bg.change(func() {
		if first = d.bg.fatalErr == nil; first {
			d.bg.fatalErr = fmt.Errorf("%w: the MANIFEST: %w", ErrReopen, err)
		}
		fatal = d.bg.fatalErr
	})
	return first, fatal
}

// retire releases a version, in the background, when all readers that may use it without a
// reference have left the epoch: a reader may be waiting for the disk.
func (d *DB) retire(old *manifest.Version) {
	d.retired.do(func() {
		d.epoch.Synchronize()
		d.releaseVersion(old)
		d.filterManager.Move()
	})
}

// refVersion returns the current version with a reference, which the caller must release, or nil
// if the database is closed.
func (d *DB) refVersion() *manifest.Version {
	g := d.epoch.Enter()
	defer g.Exit()
	s := d.state.Load()
	if s == nil {
		return nil
	}
	s.version.Ref()
	return s.version
}

// releaseVersion releases a reference on a version. It closes and removes the tables that no
// version with a reference has any more.
func (d *DB) releaseVersion(v *manifest.Version) {
	v.Unref(func(meta *manifest.TableMeta) {
		t := meta.Handle.(*table)
		if err := t.close(); err != nil {
			d.opts.Logger.Warn("closing an obsolete table failed", "path", t.path, "err", err)
		}
		if d.removeFiles.Load() && d.bg.fatal() == nil {
			d.cleaner.do(func() { d.removeObsolete(t.path) })
		}
	})
}

// recordEdit makes an edit durable. next is the version after the edit. It starts a new MANIFEST
// if the current one is too large. REQUIRES: manifestMu.
func (d *DB) recordEdit(edit *manifest.Edit, next *manifest.Version) error {
	if edit.LogNumber != nil {
		d.logNumber = *edit.LogNumber
	}
	for _, p := range edit.Pointers {
		d.manifestPointers[p.Level] = slices.Clone(p.Key)
	}
	if d.manifest.Size() < max(d.opts.manifestBytes, 2*d.manifest.Base()) {
		return d.manifest.Append(edit)
	}
	old := d.manifest
	if switched, err := d.newManifest(next); err != nil {
		if switched {
			return err
		}
		// The old one is still current. The next edit tries again.
		d.cleaner.do(func() { d.opts.Logger.Warn("no new MANIFEST could be started", "err", err) })
		return old.Append(edit)
	}
	d.cleaner.do(func() { // not here: the caller holds locks, and a logger may call Metrics
		if err := old.Close(); err != nil {
			d.opts.Logger.Warn("closing an old MANIFEST failed", "num", old.Num(), "err", err)
		}
		d.removeObsolete(filepath.Join(d.dir, manifest.MakeName(manifest.KindManifest, old.Num())))
	})
	return nil
}

// maxManifestBytes is the size at which a new MANIFEST is started, with a snapshot of the version,
// unless more than half of the old one is its snapshot: with many tables, or long keys, each edit
// would otherwise write another snapshot.
const maxManifestBytes = 4 << 20

// newManifest creates a MANIFEST with a snapshot of the version, makes CURRENT name it, and sets
// d.manifest. After an error d.manifest is unchanged; switched reports whether CURRENT may name the
// new MANIFEST all the same.
func (d *DB) newManifest(version *manifest.Version) (switched bool, err error) {
	num := d.nextFile.Add(1) - 1
	w, switched, err := manifest.Create(d.fs, d.dir, num, &manifest.State{
		Version:   version,
		LogNumber: d.logNumber,
		NextFile:  d.nextFile.Load(),
		LastSeq:   d.flushedSeq,
		Pointers:  d.manifestPointers,
	})
	if err != nil {
		return switched, err
	}
	d.manifest = w
	return true, nil
}
