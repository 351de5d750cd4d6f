package sift

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/sstable"
)

// runJob executes a job, closes its input, and returns the tables that it wrote, durable and open.
// On failure it removes them.
func (d *DB) runJob(ctx context.Context, job *compact.Job) ([]*manifest.TableMeta, compact.Stats, error) {
	var created []string
	job.Create = func() (uint64, vfs.File, error) {
		num := d.nextFile.Add(1) - 1
		path := filepath.Join(d.dir, manifest.MakeName(manifest.KindTable, num))
		created = append(created, path)
		f, err := d.fs.Create(path)
		return num, f, err
	}
	returned := false
	defer func() {
		if !returned { // the input of Ingest, which is the caller's code, has panicked
			job.Input.Close()
			d.discard(nil, created)
		}
	}()
	outputs, stats, err := compact.Run(ctx, job)
	if cerr := job.Input.Close(); err == nil { // Close, too, may call the code of Ingest's caller
		err = cerr
	}
	returned = true
	if err == nil && len(outputs) > 0 {
		err = d.fs.SyncDir(d.dir) // (I2)
	}
	metas := make([]*manifest.TableMeta, 0, len(outputs))
	for _, o := range outputs {
		if err != nil {
			break
		}
		meta := &manifest.TableMeta{Num: o.Num, Size: uint64(o.Info.Size), Smallest: o.Info.Smallest, Largest: o.Info.Largest}
		t := d.opener.place(meta, filepath.Join(d.dir, manifest.MakeName(manifest.KindTable, o.Num)))
		meta.Handle = t
		metas = append(metas, meta)
		_, err = t.load()
	}
	if err != nil {
		d.discard(metas, created)
		return nil, stats, err
	}
	for i, o := range outputs {
		if o.Info.FilterErr != nil { // the table is complete without it
			path := metas[i].Handle.(*table).path
			d.opts.Logger.Warn("a filter could not be built", "path", path, "err", o.Info.FilterErr)
			d.opts.Events.failed(fmt.Errorf("%s: %w", path, o.Info.FilterErr))
		}
	}
	return metas, stats, nil
}

// discard closes tables that no version has, and removes the files at paths.
func (d *DB) discard(metas []*manifest.TableMeta, paths []string) {
	for _, m := range metas {
		m.Handle.(*table).close()
	}
	for _, p := range paths {
		if err := d.fs.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			d.opts.Logger.Warn("removing an unfinished table failed", "path", p, "err", err)
		}
	}
}

// tableOptions returns the options of the tables written to a level.
func (d *DB) tableOptions(level int) *sstable.WriterOptions {
	return &sstable.WriterOptions{
		BlockBytes:         d.opts.BlockBytes,
		DisableCompression: d.opts.DisableCompression,
		Filter:             d.opts.LevelFilters[level],
		Prefix:             d.opts.Prefix,
		Range:              d.opts.RangeFilter,
	}
}
