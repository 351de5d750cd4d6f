package sift

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/merge"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/wal"
	"github.com/siftdb/sift/memtable"
	"github.com/siftdb/sift/sstable"
)

// RepairReport summarizes what Repair found.
type RepairReport struct {
	// Tables and Logs are the numbers of files that Repair has read, fully or in part.
	Tables, Logs int
	// FromManifest is set if the MANIFEST was intact and determined which files to read.
	// Otherwise Repair has read all tables and logs, including obsolete ones that had not been
	// removed, so deleted keys may reappear if compactions had dropped their tombstones.
	FromManifest bool
	// Entries is the number of keys in the repaired database.
	Entries uint64
	// Dropped lists what Repair could not read. Each error names the file.
	Dropped []error
}

// Repair rebuilds a database from the readable parts of its tables and logs. It writes new tables
// and a new MANIFEST, and moves the old files to the directory "lost" below dir, so that nothing is
// destroyed. It holds the contents of the logs in memory, and cannot be canceled. dir needs space
// for old and new files, and for a second copy of the old ones if the file system has no hard
// links. A crash at any moment leaves a database that is repaired or can be repaired, with each old
// file in dir or in lost. o is as for Open.
//
// Repair returns ErrReadOnly if o.ReadOnly is set, and ErrLocked and ErrNotExist like Open. It
// returns ErrUnsupported, and has changed nothing, if the MANIFEST is that of another program, such
// as pebble or RocksDB, or names another comparator; or if the disk cannot read CURRENT or the
// MANIFEST. To repair without such a file, move it elsewhere; deleted keys may then reappear. After
// any other error the database is not repaired, or the disk failed while the repaired one was put
// in place; all old files are still in dir, and Repair can be called again.
func Repair(dir string, o *Options) (report RepairReport, err error) {
	opts, err := o.resolve()
	if err != nil {
		return report, err
	}
	if opts.ReadOnly {
		return report, ErrReadOnly
	}
	d := newDB(dir, opts)
	if err := d.mustExist(); err != nil {
		return report, err
	}
	lock, err := opts.lockDir(dir, true)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	state, stateErr := manifest.Load(d.fs, d.dir)
	switch {
	case stateErr == nil, isDispensable(stateErr):
	case errors.Is(stateErr, ErrUnsupported):
		return report, stateErr
	default:
		return report, fmt.Errorf("%w; nothing was changed; to repair without this file, move it elsewhere", stateErr)
	}
	if err := d.openFilterKey(); err != nil {
		return report, err
	}
	r := repairer{db: d, report: &report}
	defer r.close()
	if err := r.find(state, stateErr); err != nil {
		return report, err
	}
	if err = r.run(); err != nil {
		r.close()
		r.removeNew()
	}
	return report, err
}

// repairer is the state of a Repair.
type repairer struct {
	db      *DB
	report  *RepairReport
	old     []string           // base names of the files that the repaired database replaces
	tables  []string           // base names of the tables to read
	sizes   map[string]int64   // of the tables, if the MANIFEST says so
	logs    []string           // base names of the logs to read
	inputs  []base.Iterator    // over the readable entries
	growing *memtable.Memtable // the last memtable among inputs
	open    []io.Closer
	created []string // paths of the files to remove if the repair fails
	lastSeq uint64   // the highest sequence number read
	bytes   int64    // size of the files read
}

// drop reports something that could not be read.
func (r *repairer) drop(err error) {
	r.report.Dropped = append(r.report.Dropped, err)
	r.db.opts.Logger.Warn("repair: dropped", "err", err)
}

func (r *repairer) close() {
	for _, c := range r.open {
		c.Close()
	}
	r.open = nil
}

// find determines the files to read and to replace. state is that of the MANIFEST, or stateErr says
// why there is none.
func (r *repairer) find(state *manifest.State, stateErr error) error {
	names, err := r.db.fs.List(r.db.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		kind, num, ok := manifest.ParseName(name)
		if !ok || !kind.Repairable() {
			continue
		}
		r.old = append(r.old, name)
		r.db.nextFile.Store(max(r.db.nextFile.Load(), num+1))
		switch kind {
		case manifest.KindTable, manifest.KindTableSST:
			r.tables = append(r.tables, name)
		case manifest.KindLog:
			r.logs = append(r.logs, name)
		}
	}
	if len(r.old) == 0 {
		return fmt.Errorf("%w: %s", ErrNotExist, r.db.dir)
	}
	if err := r.db.checkNextFile(); err != nil {
		return err
	}
	if stateErr == nil {
		stateErr = r.trustManifest(state, names)
	}
	if isDispensable(stateErr) {
		r.drop(stateErr)
		return nil
	}
	return stateErr
}

// isDispensable reports whether the error means that the MANIFEST is damaged or missing: Repair
// then does without it. After an I/O error it must not: obsolete tables would bring deleted keys
// back.
func isDispensable(err error) bool {
	return errors.Is(err, ErrCorruption) || errors.Is(err, manifest.ErrNoDatabase)
}

// trustManifest restricts the files to read to those that the MANIFEST names, if it is whole and
// all of these exist. Otherwise it returns an error.
func (r *repairer) trustManifest(state *manifest.State, names []string) error {
	if state.Dropped != nil {
		return state.Dropped // the edits that are lost may have added tables
	}
	var tables []string
	sizes := map[string]int64{}
	there := setOf(names)
	for _, metas := range state.Version.Levels {
		for _, meta := range metas {
			path, err := r.db.opener.find(there, meta)
			if err != nil {
				return err
			}
			name := filepath.Base(path)
			tables = append(tables, name)
			sizes[name] = int64(meta.Size)
		}
	}
	// If the MANIFEST has been cut off between two edits, files that it names are missing, such as
	// a log whose contents are in tables by now.
	if _, missing, err := r.db.logs.Find(state, names); err != nil {
		return err
	} else if missing != nil {
		return missing
	}
	r.tables, r.sizes = tables, sizes
	r.logs = slices.DeleteFunc(r.logs, func(name string) bool {
		_, num, _ := manifest.ParseName(name)
		return num < state.LogNumber && num != state.PrevLogNum
	})
	r.report.FromManifest = true
	return nil
}

func (r *repairer) run() error {
	d := r.db
	for _, name := range r.logs {
		if err := r.readLog(name); err != nil {
			return err
		}
	}
	for _, name := range r.tables {
		if err := r.readTable(name); err != nil {
			return err
		}
	}
	level := r.level()
	outputs, stats, err := d.runJob(context.Background(), &compact.Job{
		Input:        seqTracker{merge.New(r.inputs...), &r.lastSeq},
		Boundaries:   []uint64{base.MaxSequence},
		NothingBelow: func([]byte) bool { return true },
		TableBytes:   int64(d.opts.TableBytes),
		Writer:       d.tableOptions(level),
	})
	if err != nil {
		return err
	}
	r.report.Entries = stats.EntriesOut
	edit := &manifest.Edit{}
	for _, meta := range outputs {
		edit.Added = append(edit.Added, manifest.AddedTable{Level: level, Table: meta})
		t := meta.Handle.(*table)
		r.open, r.created = append(r.open, closerFunc(t.close)), append(r.created, t.path)
	}
	version, err := (*manifest.Version)(nil).Apply(edit)
	if err != nil {
		return err
	}
	d.flushedSeq = r.lastSeq
	log, err := wal.Create(&d.logs, r.lastSeq+1)
	if err != nil {
		return err
	}
	r.open = append(r.open, log)
	d.logNumber = log.Num()
	r.created = append(r.created, filepath.Join(d.dir, manifest.MakeName(manifest.KindLog, d.logNumber)))
	if err := r.keepOld(); err != nil {
		return err
	}
	switched, err := d.newManifest(version)
	if switched {
		r.created = nil
	}
	if err != nil {
		return err
	}
	if err := d.manifest.Close(); err != nil {
		return err
	}
	r.close()
	r.removeOld()
	return nil
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

// level returns the level for all entries: the first one whose target size they do not exceed, or
// the last.
func (r *repairer) level() int {
	level, capacity := 1, r.db.opts.LevelBaseBytes
	for level < manifest.NumLevels-1 && r.bytes > capacity {
		level++
		capacity *= int64(r.db.opts.LevelMultiplier)
	}
	return level
}

// readLog adds all intact batches of a log to the inputs.
func (r *repairer) readLog(name string) error {
	path := filepath.Join(r.db.dir, name)
	size, damage, err := wal.Salvage(r.db.fs, path, func(payload []byte, offset int64) { r.takeBatch(path, payload, offset) })
	if damage != nil {
		r.drop(damage)
	}
	if err != nil {
		return err
	}
	r.report.Logs++
	r.bytes += size
	return nil
}

// takeBatch adds a batch to memtables.
func (r *repairer) takeBatch(path string, payload []byte, offset int64) {
	first, count, err := wal.DecodeBatch(payload, func(_ uint64, _ base.Kind, key, value []byte) error {
		return r.db.fits(memtable.EntrySize(len(key), len(value)))
	})
	if err == nil {
		err = addBatch(payload, nil, r.room)
	}
	if err != nil {
		r.drop(&CorruptionError{Path: path, Offset: offset, What: "log record", Err: err})
	} else if count > 0 {
		r.lastSeq = max(r.lastSeq, first+uint64(count)-1)
	}
}

// room returns the newest memtable with n bytes reserved.
func (r *repairer) room(n int) (*memtable.Memtable, error) {
	if r.growing != nil && r.growing.Reserve(n) {
		return r.growing, nil
	}
	mem, err := r.db.newMemtable(n)
	if err == nil {
		r.growing = mem
		r.inputs = append(r.inputs, mem.NewIter())
	}
	return mem, err
}

// readTable adds an iterator over the readable entries of a table to the inputs.
func (r *repairer) readTable(name string) error {
	path := filepath.Join(r.db.dir, name)
	size, err := r.db.fs.Size(path)
	if err != nil {
		return err
	}
	if want, ok := r.sizes[name]; ok && size > want {
		r.drop(fmt.Errorf("%w: %s has %d bytes, but the MANIFEST says %d: the rest is ignored", ErrCorruption, path, size, want))
		size = want
	}
	t := &repairTable{fs: r.db.fs, path: path, size: size, drop: r.drop}
	if err := t.find(); err != nil {
		if isFinal(err) {
			r.drop(err)
			return nil
		}
		return err
	}
	r.report.Tables++
	r.bytes += size
	r.inputs = append(r.inputs, t)
	return nil
}

// repairTable is an iterator over the readable entries of a table, for First and Next. The table is
// open, and its blocks take memory, only between its first and its last entry: most tables do not
// overlap, so few are open at the same time. Before that the iterator has a copy of the first key.
type repairTable struct {
	base.Iterator // over the open table; nil: it is not open. Other methods are not called
	fs            vfs.FS
	path          string
	size          int64
	drop          func(error)
	file          vfs.File
	first         []byte // the key of the first entry, while the iterator is there
	err           error
}

// open opens the table, which is not open.
func (t *repairTable) open() error {
	f, err := t.fs.Open(t.path)
	if err != nil {
		return err
	}
	r, err := sstable.NewReader(f, t.size, &sstable.ReaderOptions{Path: t.path, IgnoreFilter: true})
	if err != nil {
		return errors.Join(err, f.Close())
	}
	skip := func(err error) {
		if t.first == nil { // else find has reported it
			t.drop(err)
		}
	}
	t.file = f
	t.Iterator = r.NewIter(&sstable.IterOptions{
		DontFillCache: true, Readahead: t.first != nil, CheckOrder: true, SkipDamaged: skip,
	})
	return nil
}

// reopen opens the table at its first entry.
func (t *repairTable) reopen() {
	if t.Iterator != nil || t.err != nil {
		return
	}
	if t.err = t.open(); t.err != nil {
		return
	}
	if !t.Iterator.First() || !bytes.Equal(t.Iterator.Key(), t.first) {
		t.err = cmp.Or(t.Iterator.Err(), error(fmt.Errorf("%s: the first entry has changed", t.path)))
	}
}

// find opens the table, copies the first key, and closes the table again.
func (t *repairTable) find() error {
	if err := t.open(); err != nil {
		return err
	}
	if t.Iterator.First() {
		t.first = bytes.Clone(t.Iterator.Key())
	}
	return errors.Join(t.Iterator.Err(), t.Close())
}

// First reports whether there is an entry. It is called once, after find.
func (t *repairTable) First() bool { return t.first != nil }

// Next moves to the next entry, and closes the table at its end.
func (t *repairTable) Next() bool {
	t.reopen()
	t.first = nil
	if t.err != nil {
		return false
	}
	if t.Iterator.Next() {
		return true
	}
	t.err = errors.Join(t.Iterator.Err(), t.Close())
	return false
}

// Key returns the encoded internal key.
func (t *repairTable) Key() []byte {
	if t.first != nil {
		return t.first
	}
	return t.Iterator.Key()
}

// Value returns the value, or nil if the table cannot be opened again: Next then fails.
func (t *repairTable) Value() []byte {
	if t.reopen(); t.err != nil {
		return nil
	}
	return t.Iterator.Value()
}

// Err returns the error that stopped the last move, or nil.
func (t *repairTable) Err() error { return t.err }

// Close closes the table if it is open.
func (t *repairTable) Close() error {
	if t.Iterator == nil {
		return nil
	}
	err := errors.Join(t.Iterator.Close(), t.file.Close())
	t.Iterator, t.file = nil, nil
	return err
}

// seqTracker is an iterator that records the highest sequence number of its entries.
type seqTracker struct {
	base.Iterator
	max *uint64
}

func (t seqTracker) First() bool { return t.note(t.Iterator.First()) }
func (t seqTracker) Next() bool  { return t.note(t.Iterator.Next()) }

func (t seqTracker) note(ok bool) bool {
	if ok {
		*t.max = max(*t.max, base.KeyTrailer(t.Key())>>8)
	}
	return ok
}
