package sift

import (
	"slices"

	"github.com/siftdb/sift/internal/manifest"
)

// maxManifestBytes is the size at which a new MANIFEST is started, with a snapshot of the
// version.
const maxManifestBytes = 4 << 20

// newManifest creates a MANIFEST with a snapshot of the version, and makes CURRENT name it.
// After an error d.manifest is unchanged.
func (d *DB) newManifest(version *manifest.Version) error {
	num := d.nextFile.Add(1) - 1
	w, _, err := manifest.Create(d.fs, d.dir, num, &manifest.State{
		Version:   version,
		LogNumber: d.logNumber,
		NextFile:  d.nextFile.Load(),
		LastSeq:   d.flushedSeq,
		Pointers:  d.manifestPointers,
	})
	if err != nil {
		return err
	}
	d.manifest = w
	return nil
}

// recordEdit makes an edit durable. next is the version after it. REQUIRES:
// manifestMu.
func (d *DB) recordEdit(edit *manifest.Edit, next *manifest.Version) error {
	if edit.LogNumber != nil {
		d.logNumber = *edit.LogNumber
	}
	for _, p := range edit.Pointers {
		d.manifestPointers[p.Level] = slices.Clone(p.Key)
	}
	if d.manifest.Size() < d.opts.manifestBytes {
		return d.manifest.Append(edit)
	}
	old := d.manifest
	if err := d.newManifest(next); err != nil {
		return err
	}
	if err := old.Close(); err != nil {
		d.opts.Logger.Warn("closing an old MANIFEST failed", "num", old.Num(), "err", err)
	}
	d.removeMatching(func(kind manifest.FileKind, num uint64) bool {
		return kind == manifest.KindManifest && num == old.Num()
	})
	return nil
}
