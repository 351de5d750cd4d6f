// Package sift is a small LevelDB-compatible key-value store that almost never reads the disk for
// an absent key. Every table has one filter over all its keys. The filters stay in memory, and a
// lookup probes them, on every level, before it reads a block. A lookup of an absent key usually
// costs one hash, and a few cache lines per level.
//
// The directory on disk is a LevelDB database: LevelDB and goleveldb open it, and sift
// opens theirs.
//
// Keys and values are byte strings, possibly empty; nil is the empty string, except as a
// bound, where it means no bound. Keys are ordered bytewise. There are no custom comparators, merge
// operators or column families. Batch documents the maximum length of keys and values.
//
// sift does not retain slices that are passed to it. Slices returned by Get, Lookup and
// GetMany belong to the caller. Slices from an Iter and from View must not be modified, and are
// valid only as long as their comments say. Errors may be wrapped: compare them with errors.Is.
//
// Where options are passed, nil and zero fields mean the defaults. The zero values of DB, Snapshot,
// Iter and Tx are not usable; that of Batch is an empty batch.
//
// For users of pebble: Set is Put; Get copies the value, and View takes the place of Get with a
// closer; SetBounds and SetOptions are Iter.Reset, which reads the current state unless the Iter is
// from a Snapshot or a Tx; iterators of one Snapshot take the place of Clone; SeekPrefixGE is
// IterOptions.Prefix, and Comparer.Split Options.Prefix; Batch.Commit is DB.Write, Repr and SetRepr
// are Dump and Load; an indexed batch is a Tx; Ingest takes operations,
// and TableOps reads them from files; DeleteRange is a call, not part of a batch; EstimateDiskUsage
// is ApproximateSize; Close does not fail if iterators or snapshots are open. There is no
// DisableWAL, Merge, SingleDelete, RangeKeySet or AsyncFlush.
package sift

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/epoch"
	"github.com/siftdb/sift/internal/filtermem"
	"github.com/siftdb/sift/internal/gap"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/wal"
	"github.com/siftdb/sift/sstable"
)

// This file has all exported methods of DB. Their implementation is in:
//
//	open        open.go, recover.go, recoverlevels.go, table.go, tableload.go, filterkey.go, and
//	            internal/wal (replay)
//	read        snapshot.go, read.go, readmany.go, iter.go, iteropen.go, iterwalk.go, walkahead.go,
//	            iterprefix.go, hasrange.go, approximate.go
//	write       write.go (group commit), writestall.go, ingest.go, and internal/wal (the log)
//	transact    tx.go, transact.go, txjoint.go, txreads.go, txown.go, txcheck.go, txrecent.go
//	delete      deleterange.go, compactdeletions.go (compactions that drop tombstones)
//	flush       flush.go, tablewrite.go
//	compact     compactloop.go, compact.go, tablesearch.go, background.go (waiting), retry.go, and
//	            internal/compact
//	record      version.go (edits of the MANIFEST), obsolete.go, cleaner.go (files that are removed)
//	memory      memory.go, filterplan.go, garbage.go, and internal/filtermem
//	inspect     metrics.go, counters.go
//	maintain    checkpoint.go

// DB is an open database, from Open or OpenMemory. It is safe for concurrent use, even during
// Close. After Close, methods return ErrClosed (or ErrReadOnly, ErrBatchTooLarge or ctx.Err(), if
// those apply too). Methods without an error return zero values, except Snapshot and Scan: what
// they return fails with ErrClosed.
//
// Lookups wait neither for writes nor for flushes or compactions. Writes take effect one after
// another, in an order that all readers see and that recovery preserves. Writes that arrive
// together share one log record and one fsync. All changes go through the log, except those of
// Ingest and the tables that DeleteRange drops, which are edits of the MANIFEST.
// One goroutine flushes in the background, and another one compacts, one compaction at a time.
type DB struct {
	dir    string
	opts   Options // resolved
	fs     vfs.FS
	lock   io.Closer
	opener tableOpener
	closed atomic.Bool

	// Used by reads: the read state, and the newest visible sequence number. The state is
	// replaced in bg.change; it is nil once the database is closed.
	epoch   epoch.Domain
	state   atomic.Pointer[readState]
	visible atomic.Uint64
	reads   readCounters
	blockIO sstable.BlockIO // of reads; compactions use separate ones

	snapshots     snapshotList
	gaps          *gap.Set // nil: gaps are not recorded
	ahead         aheadWork
	commit        committer
	logs          wal.Config
	joints        jointQueue
	bg            background
	cleaner       cleaner // removes files
	retired       cleaner // releases versions
	collector     collector
	loader        tableLoader
	filters       sstable.FilterPool
	filterManager *filtermem.Manager
	indexes       sstable.IndexPool
	stats         stats
	recovery      Recovery

	secret       *filter.Secret // of keyed filters; nil: filters are not keyed
	filterKeyErr error          // why FILTERKEY cannot be read

	nextFile    atomic.Uint64
	removeFiles atomic.Bool // obsolete tables may be removed

	manifestMu       sync.Mutex // guards the fields below, and serializes changes of the version
	manifest         *manifest.Writer
	manifestPointers [manifest.NumLevels][]byte // where the next compaction of each level begins, as in the MANIFEST
	logNumber        uint64                     // all older logs have been flushed
	flushedSeq       uint64                     // all entries up to this sequence number are in tables

	noDeletions   *manifest.Version // a version without tables of mostly tombstones; guarded by bg.mu
	deletionsWait atomic.Bool       // such a table may be waiting for the end of a snapshot

	pointers      [manifest.NumLevels][]byte // current manifestPointers; used only by the compacting goroutine
	failedLevels  [manifest.NumLevels]bool   // their last compaction failed; used only by the compacting goroutine
	damagedLevels [manifest.NumLevels]bool   // of failedLevels, those whose compaction found damage; used likewise
}

// latest stands for the newest visible sequence number.
const latest = ^uint64(0)

// readSeq returns seq, or the newest visible sequence number if seq is latest. REQUIRES: the
// caller has loaded the read state. A number loaded before the state could be too old for it:
// a compaction may have dropped entries that only older readers see.
func (d *DB) readSeq(seq uint64) uint64 {
	if seq == latest {
		return d.visible.Load()
	}
	return seq
}

// Get returns a copy of the value of key, which is not nil even if it is empty. It returns
// ErrNotFound if there is no such key, ErrClosed after Close, an error that matches ErrCorruption
// if a table that it reads is damaged, one that matches ErrUnsupported if the table is of a kind
// that sift does not support, and errors of the file system. If a table cannot be opened because it
// is damaged or not supported, reads of it fail until the next Open; after other errors the next
// read tries again.
func (d *DB) Get(key []byte) ([]byte, error) { return d.getCopy(key, latest) }

func (d *DB) getCopy(key []byte, seq uint64) ([]byte, error) {
	value, buf, found, err := d.find(key, seq)
	switch {
	case err != nil:
		value = nil
	case found:
		value = copyOf(value)
	default:
		value, err = nil, ErrNotFound
	}
	buf.Release()
	return value, err
}

// Lookup is Get for programs that look up mostly absent keys: if there is no such key, it returns
// nil, false and nil instead of ErrNotFound.
func (d *DB) Lookup(key []byte) (value []byte, found bool, err error) {
	value, buf, found, err := d.find(key, latest)
	if found = found && err == nil; found {
		value = copyOf(value)
	} else {
		value = nil
	}
	buf.Release()
	return value, found, err
}

// View calls fn with the value of key, without copying it, and returns fn's error. It
// returns ErrNotFound without calling fn if there is no such key; other errors are those
// of Get. The value is valid until fn returns, and fn must not modify it. fn may call
// methods of the DB. A panic of fn passes through, and the DB stays usable.
func (d *DB) View(key []byte, fn func(value []byte) error) error {
	value, buf, found, err := d.find(key, latest)
	return view(value, buf, found, err, fn)
}

// view completes a View, given the results of find.
func view(value []byte, buf sstable.Buffer, found bool, err error, fn func(value []byte) error) error {
	switch {
	case err != nil:
	case found:
		err = fn(value)
	default:
		err = ErrNotFound
	}
	buf.Release()
	return err
}

// Has reports whether there is a value for key. Errors are those of Get, without
// ErrNotFound.
func (d *DB) Has(key []byte) (bool, error) { return d.has(key, latest) }

func (d *DB) has(key []byte, seq uint64) (bool, error) {
	_, buf, found, err := d.find(key, seq)
	buf.Release()
	return found, err
}

// find returns the value of a key, which is valid until buf is released.
func (d *DB) find(key []byte, seq uint64) (value []byte, buf sstable.Buffer, found bool, err error) {
	g := d.epoch.Enter()
	defer g.Exit()
	s := d.state.Load()
	if s == nil {
		return nil, buf, false, ErrClosed
	}
	return s.get(d.secret, key, d.readSeq(seq), d.reads.stripe(), g.Turn())
}

// GetMany returns the values of many keys, all from the same state. The keys may be in any
// order, and repeated. values[i] is the value of keys[i]: nil if there is no such key, non-nil,
// possibly empty, if there is one. The values belong to the caller and do not share memory.
//
// If lookups wait for the disk, or filter probes for memory, GetMany takes a fraction of the time
// of as many calls of Get: it probes the filter of a table for all keys at once, and on Linux it
// requests the blocks of up to 256 keys before it waits for the first. If everything is in the
// CPU's caches, or for a few keys, Get is as fast or faster. For many keys, GetMany uses several
// goroutines.
//
// On error it returns no values; the errors are those of Get, without ErrNotFound.
func (d *DB) GetMany(keys [][]byte) (values [][]byte, err error) { return d.getMany(keys, latest) }

func (d *DB) getMany(keys [][]byte, seq uint64) ([][]byte, error) {
	g := d.epoch.Enter()
	defer g.Exit()
	s := d.state.Load()
	if s == nil {
		return nil, ErrClosed
	}
	return s.getMany(d.secret, keys, d.readSeq(seq), d.reads.stripe(), g.Turn())
}

// HasPrefix reports whether there is a key that begins with prefix. It reads no block of a
// table whose filter excludes the prefix; see Options.Prefix. Errors are those of Get, without
// ErrNotFound.
func (d *DB) HasPrefix(prefix []byte) (bool, error) {
	return d.hasAny(&IterOptions{Prefix: prefix}, latest)
}

// HasRange reports whether there is a key in [from, to); nil means no bound. It reads no block
// of a table whose range filter excludes the range; see Options.RangeFilter. Errors are those
// of Get, without ErrNotFound.
func (d *DB) HasRange(from, to []byte) (bool, error) {
	return d.hasAny(&IterOptions{LowerBound: from, UpperBound: to}, latest)
}

// HasRanges is HasRange for many ranges, in any order, all in the same state. has[i] is the
// result for ranges[i]. On error it returns no results; the errors are those of Get, without
// ErrNotFound.
func (d *DB) HasRanges(ranges []KeyRange) (has []bool, err error) { return d.hasRanges(ranges, latest) }

// NewIter returns an iterator over the current state, which the caller must close. o may be nil;
// NewIter copies it. It returns ErrClosed after Close. Other errors are those of Get, without
// ErrNotFound; NewIter or Iter.Err returns them. If an iterator is the first to read a memtable
// with many keys in random order, its first move sorts them, which may take tens of milliseconds.
func (d *DB) NewIter(o *IterOptions) (*Iter, error) {
	it, err := d.openIter(o, latest, nil)
	if it == nil && err == nil {
		it = d.noIter()
	}
	return it, err
}

// Scan returns a sequence of the entries within the bounds of o, for a range loop. If there is
// an error, it is in the last pair, with a zero Entry:
//
//	for e, err := range db.Scan(&sift.IterOptions{Prefix: prefix}) {
//		if err != nil {
//			return err
//		}
//		use(e.Key, e.Value)
//	}
//
// The slices of an Entry must not be modified, and are valid until the next iteration of the
// loop. Each loop over the sequence opens an iterator over the state at that moment, and closes
// it when the loop ends, early or not. o must not be modified while the sequence is in use.
func (d *DB) Scan(o *IterOptions) iter.Seq2[Entry, error] {
	return scan(func() (*Iter, error) { return d.NewIter(o) })
}

// Snapshot returns a snapshot of the current state, which the caller must close. On a closed
// database its reads return ErrClosed.
func (d *DB) Snapshot() *Snapshot {
	return &Snapshot{db: d, seq: d.snapshots.add(&d.visible)}
}

// Put sets key to value. A nil o means Sync. Errors are those of Write.
func (d *DB) Put(key, value []byte, o *WriteOptions) error {
	b := batchPool.Get().(*Batch)
	b.Put(key, value)
	return d.writePooled(b, o)
}

// Delete removes key. It is not an error if there is no such key. A nil o means Sync.
// Errors are those of Write.
func (d *DB) Delete(key []byte, o *WriteOptions) error {
	b := batchPool.Get().(*Batch)
	b.Delete(key)
	return d.writePooled(b, o)
}

var batchPool = sync.Pool{New: func() any { return new(Batch) }}

// maxPooledBatch is the maximum capacity in bytes of a pooled batch, so that the memory of one
// large write is not retained.
const maxPooledBatch = 64 << 10

// writePooled writes a batch from batchPool, and returns it to the pool.
func (d *DB) writePooled(b *Batch, o *WriteOptions) error {
	err := d.Write(b, o)
	if cap(b.data) <= maxPooledBatch {
		b.Reset()
		batchPool.Put(b)
	}
	return err
}

// Write applies the operations of a batch atomically. Reads that begin after it returns see them.
// With Sync, no read sees them before they are durable. A nil o means Sync. Write does not modify
// the batch; the caller can then modify it, Reset it, or write it again. An empty batch is not
// written, and syncs nothing: to make earlier writes with NoSync durable, call Flush. Write may
// wait while flushes or compactions are behind (see Options.L0Tables), and while an Ingest runs.
// If keys are deleted in ascending order, right after a range without keys, a write also reads the
// blocks of the deleted keys after every 128 deletions, so that iterators can skip them. If no
// iterator does, these reads stop once they have taken about a second in all.
//
// Write returns ErrBatchTooLarge, with nothing written, if the batch is too large;
// ErrTryAgain, with nothing written, if there is no room for it at the moment; ErrReopen if
// the log or the MANIFEST failed, in which case reads do not see the batch, and the next Open
// decides whether it is applied; ErrReadOnly if the database was opened read-only; and
// ErrClosed after Close.
func (d *DB) Write(b *Batch, o *WriteOptions) error {
	switch {
	case d.opts.ReadOnly:
		return ErrReadOnly
	case b.err != nil:
		return b.err
	case d.closed.Load():
		return ErrClosed
	case b.count == 0:
		return nil
	}
	return d.commit.write(b, o == nil || !o.NoSync)
}

// DeleteRange deletes the keys in [from, to); nil means no bound. It drops tables that lie wholly
// within the range with one edit of the MANIFEST, without reading their entries, and removes their
// files before it returns, except those that something still uses: an older iterator, a Checkpoint,
// a flush, or the loading of filters. It deletes other keys one by one, in batches, and also the
// keys of tables from which an open snapshot or transaction can still see something.
//
// The call as a whole is not atomic: concurrent reads may find some of the keys deleted and
// others not. An existing Iter, Snapshot or Tx sees what it saw before. An older value of a
// key never reappears, not even after a crash. A key that is written during the call may or
// may not be deleted. When DeleteRange returns nil, the deletion is durable. When ctx ends, it
// returns ctx.Err(). Other errors are those of Write, Flush and Get, without ErrNotFound. After
// an error some of the keys may be deleted, and the call can be repeated. An empty range is
// not an error.
//
// Batch has no such operation: LevelDB's format has no entry for it.
func (d *DB) DeleteRange(ctx context.Context, from, to []byte) error {
	return d.deleteRange(ctx, from, to)
}

// Ingest applies operations atomically, even across a crash, by writing them directly to tables.
// Their keys must strictly ascend. They go neither through the log nor through a memtable, so
// Ingest is the fast way to load many keys, and their number is not limited. A key and its value
// together have at most 1 GiB less 23 bytes, as in a Batch. The slices of an Op must stay valid
// until Ingest requests the next one. The operations are durable when Ingest returns nil.
//
// Ingest flushes first. Other writes wait until it returns, however long ops takes; reads do not
// wait, and see either none of the operations or all. ops may read from the database. It must not
// call methods that write or wait for writes, which would wait for Ingest: Put, Delete, Write,
// Flush, Compact, DeleteRange, Ingest, Checkpoint, Close, and the commit of a transaction. If ops
// panics, nothing is applied, and the panic propagates. ctx is checked between operations; it
// interrupts neither ops, nor the flush, nor the wait for another Ingest.
//
// Ingest returns an error that ops yields, an error if the keys do not ascend or an operation is
// too large, ctx.Err() when ctx ends, errors of the file system, and those of Flush. After
// ErrReopen, the next Open decides whether the operations are applied; after any other error none
// of them is.
func (d *DB) Ingest(ctx context.Context, ops iter.Seq2[Op, error]) error {
	return d.ingest(ctx, ops)
}

// Flush writes everything in memory to tables and returns when they are durable. It does not itself
// wait for compactions, but for writes before it, which may (see Options.L0Tables), and for an
// Ingest that is running. It returns ErrTryAgain if a flush failed
// and is being retried, or if no new log could be created, ErrReopen if the log or the MANIFEST
// failed, ErrReadOnly if the database was opened read-only, and ErrClosed after Close.
func (d *DB) Flush() error {
	if d.opts.ReadOnly {
		return ErrReadOnly
	}
	if err := d.commit.write(nil, false); err != nil {
		return err
	}
	return d.bg.waitFlushed()
}

// Compact flushes, and then compacts the tables that overlap [from, to] into the deepest level with
// such a table; nil means no bound. Unlike elsewhere, to is inclusive. Afterwards, entries that
// were deleted or overwritten before the call, and that no snapshot or transaction sees, are gone,
// and every table in the range has the filter of its level. Compact does not rewrite a table only
// to add prefixes or a range filter. If from is after to, Compact only flushes.
//
// Compact ends even under a constant stream of writes, since it ignores what is flushed after its
// first step has begun. It works in steps, interleaved with automatic compactions and with other
// calls of Compact, BuildFilters, DeleteRange and Ingest. When ctx ends it returns ctx.Err(). Other
// errors are those of Flush, of the file system, and of Get for a table that has to be merged with
// others and cannot be read. In the deepest level, a table that cannot be read and overlaps no
// other stays (Tables reports it). Above that level, Compact merges several tables of a level at a
// time, so it fails unless it can move the unreadable table down alone. Damage to a filter that is
// not in memory stays, too; BuildFilters finds it. After an error, the effects of completed steps
// remain. The files of the old tables are removed in the background, when no iterator uses them any
// more.
func (d *DB) Compact(ctx context.Context, from, to []byte) error {
	if err := d.flushBefore(ctx); err != nil {
		return err
	}
	if from != nil && to != nil && bytes.Compare(from, to) > 0 {
		return nil
	}
	c := rangeCompaction{db: d, from: from, to: to}
	return d.do(ctx, c.step)
}

// BuildFilters rewrites every table whose filter is missing, corrupt, of an unknown family, or not
// built by the policy that the options choose for its level. It compacts tables of level 0 into
// level 1, and rewrites others in place. It returns the number of tables rewritten. When ctx ends
// it returns ctx.Err(). Other errors are those of Compact, and fs.ErrPermission if
// Options.KeyedFilters is set and the secret may not be read. After an error, completed tables
// remain. BuildFilters does not rewrite a table only to add prefixes or a range filter. It skips
// tables that cannot be read; DB.Tables reports them. If tables of level 0 can be compacted only
// together with such a table, BuildFilters rewrites all others and then returns that table's error.
func (d *DB) BuildFilters(ctx context.Context) (rewritten int, err error) {
	return d.buildFilters(ctx)
}

// Transact runs fn in a transaction with default TxOptions and commits it. The writes are
// durable when Transact returns nil. If the commit finds a conflict, fn runs again in a
// new transaction, so it must be safe to run more than once. While
// many transactions conflict, Transact runs them one after another, each on its caller's
// goroutine, and commits several as one; each sees the writes of those before it. Transact
// returns
//
//   - fn's error, with nothing written,
//   - an error that matches ErrConflict after too many attempts, see TxOptions.Tries,
//   - ctx.Err() if ctx ends before an attempt; Transact does not interrupt a commit, and fn
//     has to check ctx itself,
//   - otherwise the result of Begin or Commit.
//
// If fn panics, nothing is written, and the panic propagates. fn must not call Commit; it may call
// Discard, and Transact then returns ErrClosed. The Tx must not be used after fn has returned. fn
// may use the DB, but what it reads and writes there is not part of the transaction. A call of
// Transact in fn may wait up to a second, and is likely to make fn run again.
func (d *DB) Transact(ctx context.Context, fn func(tx *Tx) error) error {
	return d.transactWith(ctx, nil, fn)
}

// TransactWith is Transact with options; o may be nil.
func (d *DB) TransactWith(ctx context.Context, o *TxOptions, fn func(tx *Tx) error) error {
	return d.transactWith(ctx, o, fn)
}

// Begin begins a transaction; o may be nil. On a database that was opened read-only the
// transaction is read-only. Begin returns ErrClosed after Close. Transact, unlike Begin, also
// commits the transaction, and retries it after a conflict.
func (d *DB) Begin(o *TxOptions) (*Tx, error) {
	return d.begin(o)
}

// Checkpoint creates a second database in dir, which must be empty, or is created with its parents
// if it is missing. The second database has the contents of this database at some moment during the
// call, including writes that had not been flushed or synced, and is durable when Checkpoint
// returns nil. Reads and writes continue meanwhile; Checkpoint waits for an Ingest that is running.
// Tables are hard links, so Checkpoint is fast and takes no space until the two databases diverge.
// dir must be in Options.FS, on the volume of this database, and the file system must support hard
// links. The secret of KeyedFilters is copied. After an error dir may contain files, and is not
// usable as a database: empty it before another attempt. Errors are those of Flush and of the file
// system, and ErrExists if dir is not empty.
func (d *DB) Checkpoint(dir string) error {
	return d.checkpoint(dir)
}

// ApproximateSize returns the approximate number of bytes on disk that the keys in [from, to) take;
// nil means no bound. In each table it is accurate to about a block at either end of the range; if
// the range includes the last key of a table, its filters and index count, too. It does not count
// entries in memtables, and counts unreadable tables as a whole. ApproximateSize loads the tables
// in which the range begins or ends if they have not been loaded since Open, since it needs their
// indexes. It returns ErrClosed after Close, and no other error.
func (d *DB) ApproximateSize(from, to []byte) (uint64, error) {
	return d.approximateSize(from, to)
}

// Metrics returns the current metrics, or the zero Metrics if the database is closed. It
// reads no files, and does not count the filters of tables that have not been loaded since Open.
// It visits every table, and may wait for a filter that is being loaded.
func (d *DB) Metrics() Metrics {
	return d.metrics()
}

// Tables returns the metrics of all tables, level by level: in level 0 the newest table first, in
// other levels in key order. It loads tables that have not been loaded since Open. It returns nil
// if the database is closed.
func (d *DB) Tables() []TableMetrics {
	return d.tables()
}

// PlanFilters returns how a filter memory budget, in bytes, would be spent if lookups of absent
// keys were spread evenly over all keys. A budget of 0 or less is that of no filters. It loads
// tables that have not been loaded since Open, and changes nothing else. It returns ErrClosed after
// Close, and no other error: if a table cannot be loaded, the Err of its PlannedTable says why.
func (d *DB) PlanFilters(budget int64) (FilterPlan, error) {
	return d.planFilters(budget)
}

// Close cancels compactions, waits for lookups and writes that have begun, flushes, and releases
// the lock. Callers that wait for a compaction get ErrClosed, as do writes that wait for one. When
// Close returns nil, all writes are durable, including those with NoSync. Its errors are those of
// Flush and of the file system. After an error the database is closed nevertheless, and the next
// Open recovers from the log what was not flushed. Close iterators first: afterwards, moves of an
// iterator that need a file fail with ErrClosed. Reads of a Snapshot or Tx that is still open
// return ErrClosed, except that Get, View and Has find what the Tx itself has written; Tx.Commit
// returns ErrClosed.
// Close ends a running Ingest once its ops yields or returns. It does not wait for functions that
// were passed to View or Transact. A second Close returns ErrClosed, without waiting for the first.
func (d *DB) Close() error {
	if !d.closed.CompareAndSwap(false, true) {
		return ErrClosed
	}
	d.loader.close()
	d.filterManager.Close()
	var err error
	if !d.opts.ReadOnly {
		err = d.closeWriting()
	}
	var s *readState
	d.bg.change(func() { s = d.state.Swap(nil) })
	d.epoch.Synchronize()
	d.removeFiles.Store(false)
	for _, metas := range s.version.Levels {
		for _, meta := range metas {
			err = errors.Join(err, meta.Handle.(*table).close())
		}
	}
	d.opener.files.WaitUnmapped() // a mapped file keeps its file system from being unmounted
	return errors.Join(err, d.lock.Close())
}

// closeWriting flushes and ends all writing. The log is empty afterwards, so that recovery does
// not depend on how a log ends.
func (d *DB) closeWriting() error {
	d.stopCompactions()
	d.commit.queue.Close()
	err := d.commit.rotate()
	if err == nil {
		err = d.bg.waitFlushed()
	}
	logErr := d.commit.log.Close()
	d.stopBackground()
	d.retired.close() // its tasks close and remove tables
	d.cleaner.close()
	d.manifestMu.Lock()
	defer d.manifestMu.Unlock()
	return errors.Join(err, logErr, d.manifest.Close())
}
