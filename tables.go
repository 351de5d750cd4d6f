package sift

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync/atomic"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/merge"
	"github.com/siftdb/sift/internal/plan"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/sstable"
)

// table is an open SSTable: the Handle of a manifest.TableMeta. A table that
// cannot be read stays in its place with err set, so that the rest of the
// database can be used and every read that needs the table fails.
type table struct {
	path   string
	file   vfs.File
	reader *sstable.Reader
	err    error
	mapped *atomic.Int64 // what size counts in; nil: the file is not mapped
	size   int64

	prefixes bool // its filter holds the prefixes by the database's Prefixer

	absent atomic.Uint64 // lookups of keys that it does not hold, from a sample
	heat   plan.Heat     // the filter keeper's; its mu guards it
}

// tableOpener opens the tables of one directory.
type tableOpener struct {
	fs   vfs.FS
	dir  string
	opts *Options
	io   *sstable.BlockIO
	pool *sstable.FilterPool

	mapped atomic.Int64 // bytes of the tables that are mapped
}

// open opens a table and checks that it is the one that the MANIFEST means. A
// missing file is an error of open itself; all else is the table's.
func (o *tableOpener) open(meta *manifest.TableMeta) (*table, error) {
	path, size, err := o.find(meta)
	if err != nil {
		return nil, err
	}
	t := &table{path: path}
	if uint64(size) != meta.Size {
		t.err = &CorruptionError{Path: path, Offset: -1, What: "table", Err: fmt.Errorf("file has %d bytes and the MANIFEST says %d", size, meta.Size)}
		return t, nil
	}
	if t.err = o.openFile(t, path, size); t.err != nil {
		return t, nil
	}
	t.reader, t.err = sstable.NewReader(t.file, size, &sstable.ReaderOptions{
		Path:     path,
		Cache:    o.opts.BlockCache,
		Policies: o.opts.FilterReaders,
		IO:       o.io,
		Prefix:   o.opts.Prefix,

		FilterPool: o.pool,
		// Under a budget the filter keeper says what is held.
		MaxFilterUnits: o.maxFilterUnits(),
	})
	if t.err == nil {
		t.err = t.checkRange(meta)
	}
	t.prefixes = o.opts.Prefix != nil && t.reader != nil && t.reader.PrefixFilter() == o.opts.prefixName
	return t, nil
}

// openFile opens the table's file, mapped if there is room for it under MapBytes.
func (o *tableOpener) openFile(t *table, path string, size int64) (err error) {
	if o.mapped.Add(size) > o.opts.MapBytes {
		o.mapped.Add(-size)
		t.file, err = o.fs.Open(path)
		return err
	}
	var mapped bool
	t.file, mapped, err = vfs.OpenMapped(o.fs, path)
	if !mapped {
		o.mapped.Add(-size)
		return err
	}
	t.mapped, t.size = &o.mapped, size
	return err
}

// maxFilterUnits is for sstable.ReaderOptions: all units, or none at first.
func (o *tableOpener) maxFilterUnits() int {
	if o.opts.FilterMemory != 0 {
		return -1
	}
	return 0
}

// find returns the table's file, .ldb or .sst. Where both are there, one is a
// leftover: the one with the right size is taken.
func (o *tableOpener) find(meta *manifest.TableMeta) (path string, size int64, err error) {
	for _, kind := range []manifest.FileKind{manifest.KindTable, manifest.KindTableSST} {
		p := filepath.Join(o.dir, manifest.MakeName(kind, meta.Num))
		n, err := o.fs.Size(p)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return "", 0, err
		}
		if path == "" || uint64(n) == meta.Size {
			path, size = p, n
		}
		if uint64(size) == meta.Size {
			break
		}
	}
	if path == "" {
		p := filepath.Join(o.dir, manifest.MakeName(manifest.KindTable, meta.Num))
		return "", 0, &CorruptionError{Path: p, Offset: -1, What: "table", Err: errors.New("named by the MANIFEST, but missing")}
	}
	return path, size, nil
}

// checkRange compares the table's own first and last key with the MANIFEST's:
// a table under another's name must not answer for it.
func (t *table) checkRange(meta *manifest.TableMeta) error {
	if p := t.reader.Properties(); p != nil && p.FileNumber != 0 && p.FileNumber != meta.Num {
		return &CorruptionError{Path: t.path, Offset: -1, What: "table", Err: fmt.Errorf("was written as table %d", p.FileNumber)}
	}
	smallest, largest, err := t.keyRange()
	if err != nil {
		return err
	}
	if !bytes.Equal(smallest, meta.Smallest) || !bytes.Equal(largest, meta.Largest) {
		return &CorruptionError{Path: t.path, Offset: -1, What: "table", Err: fmt.Errorf("holds %q..%q and the MANIFEST says %q..%q",
			base.UserKey(smallest), base.UserKey(largest), base.UserKey(meta.Smallest), base.UserKey(meta.Largest))}
	}
	return nil
}

// keyRange returns the first and last internal key, from the properties where
// they say it and else from the blocks.
func (t *table) keyRange() (smallest, largest []byte, err error) {
	if p := t.reader.Properties(); p != nil && len(p.Smallest) > 0 {
		return p.Smallest, p.Largest, nil
	}
	it := t.reader.NewIter(&sstable.IterOptions{DontFillCache: true})
	defer it.Close()
	if it.First() {
		smallest = bytes.Clone(it.Key())
		if it.Last() {
			return smallest, bytes.Clone(it.Key()), nil
		}
	}
	if err := it.Err(); err != nil {
		return nil, nil, err
	}
	return nil, nil, &CorruptionError{Path: t.path, Offset: -1, What: "table", Err: errors.New("holds no entry")}
}

// close lets go of the file and of the table's blocks in the cache.
func (t *table) close() error {
	if t.reader != nil {
		t.reader.Release()
	}
	if t.mapped != nil {
		t.mapped.Add(-t.size)
		t.mapped = nil
	}
	if t.file != nil {
		return t.file.Close()
	}
	return nil
}

// iter returns an iterator over the table.
func (t *table) iter(o *sstable.IterOptions) (base.Iterator, error) {
	if t.err != nil {
		return nil, t.err
	}
	return t.reader.NewIter(o), nil
}

// tableIterators opens an iterator for each table.
func tableIterators(metas []*manifest.TableMeta, o *sstable.IterOptions) ([]base.Iterator, error) {
	if len(metas) == 0 {
		return nil, nil
	}
	its := make([]base.Iterator, 0, len(metas))
	for _, meta := range metas {
		it, err := meta.Handle.(*table).iter(o)
		if err != nil {
			return nil, errors.Join(err, closeAll(its))
		}
		its = append(its, it)
	}
	return its, nil
}

// levelIterator runs over the tables of a level >= 1, one after another.
func levelIterator(metas []*manifest.TableMeta, o *sstable.IterOptions) base.Iterator {
	return merge.NewLevel(len(metas),
		func(i int) []byte { return metas[i].Largest },
		func(i int) []byte { return metas[i].Smallest },
		func(i int) (base.Iterator, error) { return metas[i].Handle.(*table).iter(o) })
}

func closeAll(its []base.Iterator) error {
	var err error
	for _, it := range its {
		err = errors.Join(err, it.Close())
	}
	return err
}

// filterPolicy returns the name of the policy that built the table's filter, held
// or not; none's if it has none that can be used.
func (t *table) filterPolicy() string {
	if t.reader == nil || t.reader.NumFilterUnits() == 0 {
		return filter.None().Name()
	}
	if p := t.reader.Properties(); p != nil && p.FilterPolicy != "" {
		return p.FilterPolicy
	}
	return "unknown"
}

// settled reports whether the table is known to hold one version of each key
// and no deletion.
func (t *table) settled() bool {
	p := t.reader.Properties()
	return p != nil && len(p.Smallest) > 0 && p.NumDeletions == 0 && p.NumKeys == p.NumEntries
}

// filterDamaged reports whether the table has a filter that cannot be used.
func (t *table) filterDamaged() bool {
	if t.reader == nil {
		return false
	}
	_, err := t.reader.FilterStatus()
	return err != nil
}
