package sift

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/filecache"
	"github.com/siftdb/sift/internal/filtermem"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/merge"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/sstable"
)

// table is an SSTable: the Handle of a manifest.TableMeta. It is opened when it is first needed, or
// earlier by the loader. A table that cannot be read stays in the version: reads that need it fail,
// and the rest of the database remains usable. If it is damaged or not supported, it stays
// unreadable; after other errors, such as too many open files, the next read that needs it retries.
type table struct {
	opener *tableOpener
	meta   *manifest.TableMeta
	path   string
	reader atomic.Pointer[sstable.Reader] // nil: not yet opened

	mu     sync.Mutex      // guards the fields below, and opening
	file   *filecache.File // nil: none
	err    error           // error of the last attempt to open
	closed bool

	filterLater bool // the loader will load the filter: the first read does not wait for it

	prefixes bool // the filter contains the prefixes of the database's Prefixer; set before reader

	// ingested is the sequence number of the entries of a table that Ingest wrote, 0 for other
	// tables. Transactions may have begun between the creation of the table's file and that
	// sequence number, so the file number does not tell them whether it has newer entries. It
	// is set before the table is in a version.
	ingested uint64

	traffic filtermem.Traffic
}

// tableOpener opens the tables of one directory.
type tableOpener struct {
	fs     vfs.FS
	dir    string
	opts   *Options
	secret **filter.Secret // DB.secret
	io     *sstable.BlockIO
	files  *filecache.Cache

	filters *sstable.FilterPool
	indexes *sstable.IndexPool

	loaded func() // called when a table has been loaded
}

// place returns the table in the file at path. It does not open the table.
func (o *tableOpener) place(meta *manifest.TableMeta, path string) *table {
	return &table{opener: o, meta: meta, path: path, file: o.files.Add(path, int64(meta.Size))}
}

// load returns the table's reader, and opens the table if necessary. It retries if earlier attempts
// have failed, unless the table is known to be damaged or not supported. Concurrent callers wait
// for one of them to open it. After Open the reader may lack its filter for a while, see
// filterLater.
func (t *table) load() (*sstable.Reader, error) {
	if r := t.reader.Load(); r != nil {
		return r, nil
	}
	return t.open()
}

// open is load for a table that has no reader yet.
func (t *table) open() (*sstable.Reader, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.openOnce()
}

// openOnce is open. REQUIRES: mu.
func (t *table) openOnce() (*sstable.Reader, error) {
	switch r := t.reader.Load(); {
	case r != nil:
		return r, nil
	case t.closed:
		return nil, fmt.Errorf("%s: %w", t.path, fs.ErrClosed)
	case t.err != nil && isFinal(t.err):
		return nil, t.err
	}
	var r *sstable.Reader
	if r, t.err = t.openReader(); t.err != nil {
		t.closeFile() // the descriptor may be the problem
		return nil, t.err
	}
	t.prefixes = t.opener.opts.Prefix != nil && r.PrefixFilter() == t.opener.opts.prefixName
	t.reader.Store(r)
	t.opener.loaded()
	return r, nil
}

// loadWhole is load, but also loads the filter if load has not. Concurrent callers wait for one of
// them. filterErr is the I/O error that kept the filter from loading; FilterStatus reports damage.
func (t *table) loadWhole() (filterErr, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	later := t.filterLater
	t.filterLater = false
	r, err := t.openOnce()
	if err != nil || !later || t.opener.maxFilterUnits() != 0 {
		return nil, err
	}
	for {
		err := r.LoadFilterSteps(len(r.FilterSteps()))
		switch {
		case errors.Is(err, sstable.ErrNoRoom):
			return nil, nil // the filter memory manager loads fewer steps
		case !errors.Is(err, ErrCorruption):
			return err, nil
		}
		// FilterSteps no longer includes the damaged unit.
	}
}

// closedErr returns ErrClosed if err is due to Close, which closes the tables, else err.
func (d *DB) closedErr(err error) error {
	if err != nil && errors.Is(err, fs.ErrClosed) && d.state.Load() == nil {
		return ErrClosed
	}
	return err
}

// isFinal reports whether the error is about the file's contents, so that a retry is futile.
func isFinal(err error) bool {
	return errors.Is(err, ErrCorruption) || errors.Is(err, ErrUnsupported)
}

// openReader opens the file and a reader, and checks that the file is the table that the MANIFEST
// names. REQUIRES: mu.
func (t *table) openReader() (*sstable.Reader, error) {
	o := t.opener
	size, err := o.fs.Size(t.path)
	if err != nil {
		return nil, err
	}
	if uint64(size) != t.meta.Size {
		return nil, &CorruptionError{Path: t.path, Offset: -1, What: "table", Err: fmt.Errorf("the file has %d bytes, but the MANIFEST says %d", size, t.meta.Size)}
	}
	if t.file == nil {
		t.file = o.files.Add(t.path, size)
	}
	r, err := sstable.NewReader(t.file, size, &sstable.ReaderOptions{
		Path:     t.path,
		Cache:    o.opts.BlockCache,
		Policies: o.opts.FilterReaders,
		Secret:   *o.secret,
		IO:       o.io,
		Prefix:   o.opts.Prefix,

		RangePolicies: o.opts.rangeReaders,

		FilterPool: o.filters,
		IndexPool:  o.indexes,
		// With Options.FilterMemory, the filter memory manager loads filters.
		MaxFilterUnits: o.maxFilterUnits(),
		FilterLater:    t.filterLater,
	})
	if err != nil {
		return nil, err
	}
	if err := t.checkRange(r); err != nil {
		r.Release()
		return nil, err
	}
	return r, nil
}

// failsForNow reports whether the last attempt to open failed, and another one may succeed.
func (t *table) failsForNow() bool {
	if t.reader.Load() != nil {
		return false
	}
	err := t.lastErr()
	return err != nil && !isFinal(err)
}

// lastErr returns the error of the last attempt to open, or nil if the table is open.
func (t *table) lastErr() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// maxFilterUnits returns sstable.ReaderOptions.MaxFilterUnits: all units, or none if the filter
// memory manager loads them.
func (o *tableOpener) maxFilterUnits() int {
	if o.opts.FilterMemory != 0 {
		return -1
	}
	return 0
}

// find returns the path of the table's file, .ldb or .sst. If both exist, one of them is obsolete,
// and find returns the file of the right size.
func (o *tableOpener) find(names map[string]bool, meta *manifest.TableMeta) (path string, err error) {
	ldb := manifest.MakeName(manifest.KindTable, meta.Num)
	sst := manifest.MakeName(manifest.KindTableSST, meta.Num)
	path = filepath.Join(o.dir, ldb)
	switch {
	case names[ldb] && names[sst]:
		size, err := o.fs.Size(path)
		if err != nil {
			return "", err
		}
		if uint64(size) == meta.Size {
			return path, nil
		}
		other := filepath.Join(o.dir, sst)
		if size, err = o.fs.Size(other); err != nil {
			return "", err
		}
		if uint64(size) == meta.Size {
			return other, nil
		}
	case names[sst]:
		return filepath.Join(o.dir, sst), nil
	case !names[ldb]:
		return "", &CorruptionError{Path: path, Offset: -1, What: "table", Err: errors.New("named by the MANIFEST, but missing")}
	}
	return path, nil
}

// setOf returns the names as a set.
func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// checkRange compares the table's file number, and its smallest and largest key, with those in the
// MANIFEST. It detects a table under the name of another one.
func (t *table) checkRange(r *sstable.Reader) error {
	meta := t.meta
	if p := r.Properties(); p != nil && p.FileNumber != 0 && p.FileNumber != meta.Num {
		return &CorruptionError{Path: t.path, Offset: -1, What: "table", Err: fmt.Errorf("was written as table %d", p.FileNumber)}
	}
	smallest, largest, err := t.keyRange(r)
	if err != nil {
		return err
	}
	if !bytes.Equal(smallest, meta.Smallest) || !bytes.Equal(largest, meta.Largest) {
		return &CorruptionError{Path: t.path, Offset: -1, What: "table", Err: fmt.Errorf("holds %q..%q, but the MANIFEST says %q..%q",
			base.UserKey(smallest), base.UserKey(largest), base.UserKey(meta.Smallest), base.UserKey(meta.Largest))}
	}
	return nil
}

// keyRange returns the smallest and largest internal key, from the properties if they are there,
// otherwise from the data blocks.
func (t *table) keyRange(r *sstable.Reader) (smallest, largest []byte, err error) {
	if p := r.Properties(); p != nil && len(p.Smallest) > 0 {
		return p.Smallest, p.Largest, nil
	}
	it := r.NewIter(&sstable.IterOptions{DontFillCache: true})
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

// close closes the file and evicts the table's blocks from the cache.
func (t *table) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if r := t.reader.Load(); r != nil {
		r.Release()
	}
	return t.closeFile()
}

// closeFile closes the file if there is one. REQUIRES: mu.
func (t *table) closeFile() error {
	f := t.file
	if t.file = nil; f == nil {
		return nil
	}
	return f.Close()
}

// iter returns an iterator over the table.
func (t *table) iter(o *sstable.IterOptions) (base.Iterator, error) {
	r, err := t.load()
	if err != nil {
		return nil, err
	}
	return r.NewIter(o), nil
}

// levelIterator returns an iterator over tables that do not overlap, in the order of their keys.
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

// filterPolicy returns the name of the policy that built the table's filter, whether loaded or not,
// "unknown" if the table does not record it, or the name of filter.None if there is no usable
// filter.
func (t *table) filterPolicy() string {
	r := t.reader.Load()
	switch {
	case r == nil:
		return filter.None().Name()
	case r.NumFilterUnits() == 0:
		if r.Filter() != nil {
			return r.FilterFamily() // a LevelDB filter
		}
		return filter.None().Name()
	}
	if p := r.Properties(); p != nil && p.FilterPolicy != "" {
		return p.FilterPolicy
	}
	return "unknown"
}

// hasFilter reports whether a policy of that name built the table's filter, and all of it is
// usable. REQUIRES: the table is open.
func (t *table) hasFilter(name string) bool {
	return t.filterPolicy() == name && (t.reader.Load().NumFilterUnits() == 0 || !t.filterDamaged())
}

// compacted reports whether the table is known to have one entry per key and no tombstones.
// REQUIRES: the table is open.
func (t *table) compacted() bool {
	p := t.reader.Load().Properties()
	return p != nil && len(p.Smallest) > 0 && p.NumDeletions == 0 && p.NumKeys == p.NumEntries
}

// filterDamaged reports whether the table's filter, or a unit of it, is unusable. REQUIRES: the
// table is open.
func (t *table) filterDamaged() bool {
	_, err := t.reader.Load().FilterStatus()
	return err != nil
}
