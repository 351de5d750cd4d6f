package sift

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/merge"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/sstable"
)

// CheckReport summarizes what Check read. Entries and Keys are 0 unless every table is intact. If
// the database cannot be opened, only Tables, Bytes and Faults are set.
type CheckReport struct {
	Tables, Logs    int    // files
	Entries, Keys   uint64 // entries in tables and logs, and keys that reads find
	Bytes           int64  // size of the tables
	Filters         int    // tables with a usable filter
	Faults          int    // calls of fault
	FilterlessBytes int64  // size of the tables without a usable filter
	// Notes are observations that are not faults, such as the torn end of a log after a crash.
	Notes []string
}

// Check reads the whole database in dir and calls fault, which must not be nil, on the caller's
// goroutine, for each fault. It verifies all checksums, the order of the entries in each table, the
// key ranges in the MANIFEST, that tables below level 0 do not overlap, that each table's filter
// has no false negatives, and, if all tables are intact, that a lookup of each key finds what a
// scan finds. o is as for Open; without o.Logger, nothing is logged. Check takes the lock like a
// read-only Open, and changes nothing, except that it may create a missing LOCK file. It returns an
// error only if it cannot continue, such as ctx.Err(), ErrLocked or ErrNotExist; faults are not
// errors.
func Check(ctx context.Context, dir string, o *Options, fault func(error)) (report CheckReport, err error) {
	opts, err := o.resolve()
	if err != nil {
		return CheckReport{}, err
	}
	opts.ReadOnly, opts.ErrorIfExists = true, false
	opts.loadLate = true // load tables on demand, so that no error is lost in the background
	if o == nil || o.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler) // everything is in the report or goes to fault
	}
	count := func(err error) {
		report.Faults++
		fault(err)
	}
	d := newDB(dir, opts)
	if err := d.mustExist(); err != nil {
		return report, err
	}
	lock, err := opts.lockDir(dir, false)
	if err != nil {
		return report, err
	}
	defer func() {
		if cerr := lock.Close(); err == nil {
			err = cerr
		}
	}()
	if opts.Lock == nil { // a failed open would release its own
		d.opts.Lock = &DirLock{dir: dir, closer: lock}
	}
	err = d.open()
	switch {
	case errors.Is(err, ErrCorruption) || errors.Is(err, ErrUnsupported):
		count(err)
		err = checkFiles(ctx, d, &report, count)
		return report, err
	case err != nil:
		return report, err
	}
	defer d.Close()
	c := checker{d: d, state: d.state.Load(), report: &report, fault: count}
	err = c.run(ctx)
	return report, err
}

// checker is the state of a Check.
type checker struct {
	d      *DB
	state  *readState
	report *CheckReport
	fault  func(error)
}

func (c *checker) run(ctx context.Context) error {
	c.report.Logs = c.d.recovery.Logs
	for _, err := range c.d.recovery.Torn {
		c.report.Notes = append(c.report.Notes, fmt.Sprintf("%v; opening for writing drops what follows, while Repair keeps what is readable", err))
	}
	if c.d.filterKeyErr != nil {
		c.fault(c.d.filterKeyErr)
	}
	whole := true
	for level, metas := range c.state.version.Levels {
		for _, meta := range metas {
			ok, err := c.table(ctx, level, meta)
			if err != nil {
				return err
			}
			whole = whole && ok
		}
	}
	c.orphans()
	if !whole {
		return nil // lookups would only report the same faults again
	}
	return c.lookups(ctx)
}

// table checks one table, and reports whether it has no faults.
func (c *checker) table(ctx context.Context, level int, meta *manifest.TableMeta) (bool, error) {
	t := meta.Handle.(*table)
	c.report.Tables++
	c.report.Bytes += int64(meta.Size)
	r, err := t.load()
	if err != nil {
		c.fault(err)
		return false, nil
	}
	if r.NumFilterUnits() > 0 || r.Filter() != nil { // a LevelDB filter has no units
		c.report.Filters++
	} else {
		c.report.FilterlessBytes += int64(meta.Size)
		if _, err := r.FilterStatus(); err != nil && filter.IsKeyedFamily(r.FilterFamily()) && errors.Is(err, filter.ErrUnknownFamily) {
			c.report.Notes = append(c.report.Notes, fmt.Sprintf("%v; BuildFilters builds a usable one", err))
		}
	}
	before := c.report.Faults
	err = r.Verify(ctx, c.fault)
	return c.report.Faults == before, err
}

// orphans notes tables and temporary files that the MANIFEST does not name.
func (c *checker) orphans() {
	named := map[uint64]bool{}
	for _, metas := range c.state.version.Levels {
		for _, meta := range metas {
			named[meta.Num] = true
		}
	}
	names, err := c.d.fs.List(c.d.dir)
	if err != nil {
		c.fault(err)
		return
	}
	for _, name := range names {
		kind, num, ok := manifest.ParseName(name)
		if ok && (kind == manifest.KindTemp || (kind == manifest.KindTable || kind == manifest.KindTableSST) && !named[num]) {
			c.report.Notes = append(c.report.Notes, fmt.Sprintf("%s: not named by the MANIFEST; opening for writing removes it", filepath.Join(c.d.dir, name)))
		}
	}
}

// lookups scans the whole database and looks up each key: a lookup must find the newest entry,
// which is the first one in the scan, whatever its level.
func (c *checker) lookups(ctx context.Context) error {
	sources := c.state.sources(nil, nil, &prefixProbe{})
	children, err := sources.iterators(&sstable.IterOptions{DontFillCache: true, Readahead: true})
	if err != nil {
		return err
	}
	it := merge.New(children...)
	defer it.Close()
	var key, last []byte
	have := false
	for ok := it.First(); ok; ok = it.Next() {
		if c.report.Entries%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		c.report.Entries++
		if have && base.CompareInternal(last, it.Key()) > 0 {
			c.fault(fmt.Errorf("%w: %s: entries out of order at %q (I6)", ErrCorruption, c.d.dir, base.UserKey(it.Key())))
		}
		last = append(last[:0], it.Key()...)
		userKey, seq, kind, _ := base.SplitInternalKey(it.Key())
		if have && bytes.Equal(userKey, key) {
			continue
		}
		key, have = append(key[:0], userKey...), true
		value, found, err := c.state.search(&lookup{key: lookupKey(c.d.secret, userKey), keyed: c.d.secret != nil, seq: base.MaxSequence, counts: c.d.reads.stripe()})
		switch {
		case err != nil:
			c.fault(err)
		case found != (kind == base.KindSet) || found && !bytes.Equal(value, it.Value()):
			c.fault(fmt.Errorf("%w: %s: a lookup of %q does not find its newest entry, sequence %d (I1, I6)", ErrCorruption, c.d.dir, userKey, seq))
		case found:
			c.report.Keys++
		}
	}
	return it.Err()
}

// checkFiles checks each table in the directory by itself, for a database that cannot be opened.
func checkFiles(ctx context.Context, d *DB, report *CheckReport, fault func(error)) error {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		kind, _, ok := manifest.ParseName(name)
		if !ok || kind != manifest.KindTable && kind != manifest.KindTableSST {
			continue
		}
		if err := checkFile(ctx, d.fs, filepath.Join(d.dir, name), d.opts.FilterReaders, report, fault); err != nil {
			return err
		}
	}
	return nil
}

func checkFile(ctx context.Context, fs vfs.FS, path string, policies []filter.Policy, report *CheckReport, fault func(error)) error {
	size, err := fs.Size(path)
	if err != nil {
		return err
	}
	f, err := fs.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	report.Tables++
	report.Bytes += size
	r, err := sstable.NewReader(f, size, &sstable.ReaderOptions{Path: path, Policies: policies})
	if err != nil {
		fault(err)
		return nil
	}
	return r.Verify(ctx, fault)
}
