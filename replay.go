package sift

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/record"
	"github.com/siftdb/sift/internal/wal"
	"github.com/siftdb/sift/memtable"
)

// recovery turns the logs into memtables and tables, and those into the database's first read
// state.
type recovery struct {
	db          *DB
	version     *manifest.Version    // referenced
	manifestSeq uint64               // the MANIFEST's last sequence number
	lastSeq     uint64               // the largest sequence number seen
	mems        []*memtable.Memtable // oldest first
	flushed     []*manifest.TableMeta
	deep        []manifest.DeepLevel  // the levels of a tree with too many
	merged      []*manifest.TableMeta // tables written to reduce them
	log         *wal.Log
	report      Recovery

	missing    error  // the log that the MANIFEST names is not there
	prevBySift bool   // sift wrote the previous log
	torn       error  // how the previous log ended, if not cleanly
	nextSeq    uint64 // the next sequence number according to the previous log; 0: unknown
}

// replay reads one log. Logs come oldest first.
func (r *recovery) replay(num uint64) (err error) {
	d := r.db
	path := filepath.Join(d.dir, manifest.MakeName(manifest.KindLog, num))
	size, err := d.fs.Size(path)
	if err != nil {
		return err
	}
	f, err := d.fs.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	l := logReplay{recovery: r, in: record.NewReader(f, size, path), path: path}
	r.report.Logs++
	if size <= unusedLogBytes {
		return r.passUnused(l.in, path)
	}
	for {
		payload, offset, err := l.in.Next()
		if err == io.EOF {
			return l.end()
		}
		if err != nil {
			return err
		}
		if done, err := l.next(payload, offset); done || err != nil {
			return err
		}
	}
}

// logReplay is the replay of one log.
type logReplay struct {
	*recovery
	in      *record.Reader
	path    string
	bySift  bool // sift wrote this log: it begins with an empty batch
	records int  // replayed so far
}

// next replays a record. done means that the rest of the log is not replayed.
func (l *logReplay) next(payload []byte, offset int64) (done bool, err error) {
	first, count, err := wal.DecodeBatch(payload, nil)
	if l.records == 0 {
		l.bySift = err == nil && count == 0
	}
	if begins := l.records == 0 || l.records == 1 && l.bySift; begins && err == nil {
		if gap := l.gapBefore(l.path, offset, l.bySift, first); gap != nil {
			return true, l.passLost(l.in, l.records > 0 && count == 0, gap)
		}
		if l.torn != nil && !(l.records == 0 && l.bySift && l.prevBySift) {
			// Nothing is missing before this log, or there is no way to know.
			return true, l.torn
		}
	} else if l.torn != nil {
		return true, l.torn
	}
	if err == nil {
		err = l.checkOrder(l.bySift, first, count, l.records == 0)
	}
	if err != nil {
		return true, &CorruptionError{Path: l.path, Offset: offset, What: "log record", Err: err}
	}
	if count > 0 {
		l.report.Batches++
		if err := l.insert(payload); err != nil {
			return true, err
		}
		l.lastSeq = max(l.lastSeq, first+uint64(count)-1)
	}
	if !l.bySift {
		l.nextSeq = 0
	} else if l.records > 0 {
		l.nextSeq = max(l.nextSeq, first+uint64(count))
	}
	l.records++
	return false, nil
}

// end judges how the log ends, once all its records have been replayed.
func (l *logReplay) end() error {
	if l.bySift && l.nextSeq == 0 {
		l.nextSeq = l.lastSeq + 1
	}
	l.prevBySift = l.bySift
	return l.judgeTail(l.in, l.bySift)
}

// gapBefore returns an error that describes what is missing between the previous log and this
// one, which begins at a sequence number, or nil if nothing is. Both must be sift's own logs.
func (r *recovery) gapBefore(path string, offset int64, bySift bool, first uint64) error {
	switch {
	case !bySift || !r.prevBySift || r.nextSeq == 0 || first <= r.nextSeq:
		return nil
	case r.torn != nil:
		return r.torn
	}
	return &CorruptionError{Path: path, Offset: offset, What: "log record", Err: fmt.Errorf("batch begins at sequence %d, and %d is next", first, r.nextSeq)}
}

// passLost skips a log whose writes are lost because earlier ones are: a crash may keep a log
// and lose the end of one before. A sync mark in the log proves that the missing part was on
// disk: then the gap is damage. proven says that a mark was seen already.
func (r *recovery) passLost(in *record.Reader, proven bool, gap error) error {
	for !proven {
		payload, _, err := in.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		proven = isSyncMark(payload)
	}
	if !proven {
		var err error
		if proven, err = hasMark(in, r.nextSeq); err != nil {
			return err
		}
	}
	if proven {
		return gap
	}
	r.cutOff(gap)
	return nil
}

// cutOff records that the last writes are lost, and that nothing may follow.
func (r *recovery) cutOff(err error) {
	if r.torn == nil {
		r.torn = err
		r.report.Torn = append(r.report.Torn, err)
		r.db.opts.Logger.Warn("the end of a log was cut off", "err", err)
	}
}

// unusedLogBytes is the length of a log that only holds its header. No write fits in.
const unusedLogBytes = record.HeaderLen + wal.BatchHeaderLen

// passUnused handles a log that is too short to hold a write. It may never have been used:
// when a new log could not be completed, or power was lost between its creation and its first
// use, the previous log stayed in use. So it says nothing about how that one ends, except
// that all sequence numbers before its own had been assigned, on disk or not.
func (r *recovery) passUnused(in *record.Reader, path string) error {
	payload, offset, err := in.Next()
	if err == io.EOF {
		if tail := in.Tail(); tail.Kind != record.Clean {
			r.report.Torn = append(r.report.Torn, tail.Err)
			r.db.opts.Logger.Warn("the end of a log was cut off", "err", tail.Err)
		}
		return nil
	} else if err != nil {
		return err
	}
	first, count, err := wal.DecodeBatch(payload, nil)
	bySift := err == nil && count == 0
	if err == nil && first > r.lastSeq+1 {
		if gap := r.gapBefore(path, offset, bySift, first); gap != nil {
			r.cutOff(gap)
			return nil
		}
		if r.torn != nil {
			return r.torn
		}
		err = r.checkOrder(bySift, first, count, true)
	}
	if err != nil {
		return &CorruptionError{Path: path, Offset: offset, What: "log record", Err: err}
	}
	if r.nextSeq == 0 && r.torn == nil {
		r.nextSeq, r.prevBySift = r.lastSeq+1, bySift
	}
	return nil
}

// isSyncMark reports whether a log record is an empty batch.
func isSyncMark(payload []byte) bool {
	_, count, err := wal.DecodeBatch(payload, nil)
	return err == nil && count == 0
}

// hasMark looks for a sync mark with a number of at least minSeq among the intact records
// after the damage in a log. REQUIRES: in was read to its end.
func hasMark(in *record.Reader, minSeq uint64) (found bool, err error) {
	if in.Tail().Kind != record.Damaged {
		return false, nil
	}
	err = in.Salvage(func(payload []byte, _ int64) bool {
		// A value may contain what looks like a record of an older log.
		first, count, err := wal.DecodeBatch(payload, nil)
		found = err == nil && count == 0 && first >= minSeq
		return !found
	})
	return found, err
}

// checkOrder compares a batch's first sequence number with the expected one. It applies to
// logs that sift wrote; LevelDB's logs say nothing about each other or the MANIFEST, unless
// one is missing. Empty batches may have a lower number.
func (r *recovery) checkOrder(bySift bool, first uint64, count uint32, firstOfLog bool) error {
	switch {
	case r.missing != nil && firstOfLog && first > r.manifestSeq+1:
		return fmt.Errorf("log begins at sequence %d, and what came after %d is missing: %w", first, r.manifestSeq, r.missing)
	case !bySift:
		return nil
	case r.nextSeq == 0 && first > r.manifestSeq+1:
		return fmt.Errorf("log begins at sequence %d, and what came after %d is missing", first, r.manifestSeq)
	case r.nextSeq != 0 && (first > r.nextSeq || first < r.nextSeq && count > 0):
		return fmt.Errorf("batch begins at sequence %d, and %d is next", first, r.nextSeq)
	}
	return nil
}

// judgeTail decides whether what follows the last good record of a log is a torn tail, which
// is cut off and reported, or damage.
//
// In sift's own logs, a sync mark after the bad record proves that the record had been synced:
// damage. Other valid records after it do not: a power cut may keep the later of two unsynced
// records. Other engines' logs have no marks: any valid record after the bad one counts as
// proof, and so does a complete last record with a wrong checksum.
//
// Zeros up to the end, after a record of sift's own, are preallocated space. No log of sift's
// begins with zeros: its header is on disk before space is allocated.
func (r *recovery) judgeTail(in *record.Reader, bySift bool) error {
	tail := in.Tail()
	if tail.Kind == record.Clean || tail.Kind == record.Zeros && bySift {
		return nil
	}
	damaged := tail.Kind == record.Damaged
	if !bySift {
		damaged = damaged || errors.Is(tail.Err, record.ErrChecksum)
	} else {
		var err error
		if damaged, err = hasMark(in, r.nextSeq); err != nil {
			return err
		}
	}
	if damaged {
		return tail.Err
	}
	r.cutOff(tail.Err)
	return nil
}

// insert adds a batch to the newest memtable, and to new ones when it is full. A batch may so
// end up in several tables; but since one edit adds all tables of a recovery, that is never
// visible, even after a crash.
func (r *recovery) insert(payload []byte) error { return addBatch(payload, r.db.secret, r.room) }

// room returns the newest memtable with n bytes reserved.
func (r *recovery) room(n int) (*memtable.Memtable, error) {
	if len(r.mems) > 0 {
		if mem := r.mems[len(r.mems)-1]; mem.Reserve(n) {
			return mem, nil
		}
		if !r.db.opts.ReadOnly {
			if err := r.flush(); err != nil {
				return nil, err
			}
		}
	}
	mem, err := r.db.newMemtable(n)
	if err == nil {
		r.mems = append(r.mems, mem)
	}
	return mem, err
}

// flush writes the memtables to tables of level 0.
func (r *recovery) flush() error {
	for _, mem := range r.mems {
		metas, _, err := r.db.runJob(context.Background(), &compact.Job{
			Input:      mem.NewIter(),
			Boundaries: []uint64{base.MaxSequence}, // there are no readers yet
			Writer:     r.db.tableOptions(0),
		})
		if err != nil {
			return err
		}
		r.flushed = append(r.flushed, metas...)
	}
	r.mems = nil
	return nil
}

// publishReadOnly installs the tables and the contents of the logs as the only read state.
func (r *recovery) publishReadOnly() {
	d := r.db
	slices.Reverse(r.mems)
	d.visible.Store(r.lastSeq)
	d.state.Store(&readState{mem: memtable.New(0), imms: r.mems, version: r.version})
	d.startFilterKeeper()
	d.startLoader()
}

// publish starts a new log and a new MANIFEST, and makes the database ready for writing.
func (r *recovery) publish() (err error) {
	d := r.db
	if err := r.flush(); err != nil {
		return err
	}
	if r.log, err = wal.Create(&d.logs, r.lastSeq+1); err != nil {
		return err
	}
	d.commit.lastSeq, d.commit.log = r.lastSeq, wal.NewWriter(r.log)
	edit := &manifest.Edit{}
	for _, meta := range r.flushed {
		edit.Added = append(edit.Added, manifest.AddedTable{Level: 0, Table: meta})
	}
	version := r.version
	if r.deep != nil {
		if version, err = r.fitLevels(r.deep); err != nil {
			return err
		}
	}
	next, err := version.Apply(edit)
	if err != nil {
		return err
	}
	d.flushedSeq, d.logNumber = r.lastSeq, r.log.Num()
	if err := d.newManifest(next); err != nil {
		return err
	}
	next.Ref()
	d.releaseVersion(r.version) // next holds its tables, except for merged ones
	d.visible.Store(r.lastSeq)
	d.state.Store(&readState{mem: memtable.New(d.opts.MemtableBytes), version: next, flushed: r.lastSeq})
	d.removeFiles.Store(true)
	d.removeOrphans(next)
	d.startFilterKeeper()
	d.startLoader()
	d.startBackground()
	return nil
}

// abandon closes what a failed recovery has opened.
func (r *recovery) abandon() {
	closeTables(r.version)
	for _, meta := range append(r.flushed, r.merged...) {
		meta.Handle.(*table).close()
	}
	if r.log != nil {
		r.log.Close()
	}
}

// removeOrphans removes what a crash has left: tables that no version refers to, flushed
// logs, old MANIFESTs and unfinished files. Everything that the MANIFEST names exists, so
// nothing else is needed.
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
