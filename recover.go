package sift

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/wal"
	"github.com/siftdb/sift/memtable"
)

// recovery replays the logs into memtables and tables, and makes the database's first read state.
type recovery struct {
	db      *DB
	version *manifest.Version     // the tables in the MANIFEST; referenced
	lastSeq uint64                // the highest sequence number in tables and logs
	mems    []*memtable.Memtable  // oldest first
	flushed []*manifest.TableMeta // tables written from memtables
	deep    []manifest.DeepLevel  // the levels below level 0 if there are too many, else nil
	merged  []*manifest.TableMeta // tables written to merge levels
	log     *wal.Log              // the new log
	named   bool                  // a MANIFEST may name the files written
}

// recover restores the database from the MANIFEST and the logs.
func (d *DB) recover(state *manifest.State) (err error) {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return err
	}
	version := state.Version
	version.Ref()
	if err := d.placeTables(version, names); err != nil {
		return err
	}
	r := recovery{db: d, version: version, deep: state.Deep}
	defer func() {
		if err != nil {
			r.abandon()
		}
	}()
	logs, missing, err := d.logs.Find(state, names)
	if err != nil {
		return err
	}
	in := wal.Recovery{Config: d.logs, ManifestSeq: state.LastSeq, LastSeq: maxSequence(state.LastSeq, version), Apply: r.insert}
	in.Torn = d.recovery.Torn
	if missing != nil {
		in.Missing = missing
		d.opts.Logger.Info("a log is missing", "err", missing)
		in.Torn = append(in.Torn, missing)
	}
	d.nextFile.Store(state.NextFile)
	d.reserveFileNumbers(names)
	if !d.opts.ReadOnly {
		if err := d.checkNextFile(); err != nil {
			return err
		}
	}
	d.pointers, d.manifestPointers = state.Pointers, state.Pointers
	for _, num := range logs {
		if err := in.Replay(num); err != nil {
			return err
		}
	}
	r.lastSeq = in.LastSeq
	d.recovery = Recovery{Logs: in.Logs, Batches: in.Batches, Torn: in.Torn}
	if d.opts.ReadOnly {
		r.publishReadOnly()
		return nil
	}
	return r.publish()
}

// insert adds a batch to the newest memtable, and to new ones when it is full. So a batch may be
// split over several tables. Readers never see a part of it, even after a crash, because one edit
// adds all tables of a recovery.
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
	d.startFilterManager()
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
	if r.named, err = d.newManifest(next); err != nil {
		return err
	}
	next.Ref()
	d.releaseVersion(r.version) // next has its tables, except those of merged levels
	d.visible.Store(r.lastSeq)
	d.state.Store(&readState{mem: memtable.New(d.opts.MemtableBytes), version: next, flushed: r.lastSeq})
	d.removeFiles.Store(true)
	d.removeOrphans(next)
	d.startFilterManager()
	d.startLoader()
	d.startBackground()
	return nil
}

// abandon closes the files of a failed recovery. It removes the tables that it has written unless a
// MANIFEST may name them: otherwise each attempt would leave another copy.
func (r *recovery) abandon() {
	closeTables(r.version)
	written := append(r.flushed, r.merged...)
	if r.named {
		r.db.discard(written, nil)
	} else {
		r.db.discardTables(written)
	}
	if r.log != nil {
		r.log.Close()
		if !r.named {
			r.db.removeObsolete(filepath.Join(r.db.dir, manifest.MakeName(manifest.KindLog, r.log.Num())))
		}
	}
}

// maxOpenErrors is the maximum number of missing tables that an error of Open reports.
const maxOpenErrors = 10

// placeTables finds the files of a version's tables among the names in the directory, without
// opening them, and sets the tables' Handles.
func (d *DB) placeTables(version *manifest.Version, names []string) error {
	there := setOf(names)
	var errs []error
	for _, metas := range version.Levels {
		for _, meta := range metas {
			path, err := d.opener.find(there, meta)
			if err != nil {
				if errs = append(errs, err); len(errs) == maxOpenErrors {
					closeTables(version)
					return errors.Join(errs...)
				}
				continue
			}
			t := d.opener.place(meta, path)
			t.filterLater = !d.opts.loadLate
			meta.Handle = t
		}
	}
	if len(errs) > 0 {
		closeTables(version)
	}
	return errors.Join(errs...)
}

func closeTables(version *manifest.Version) {
	for _, metas := range version.Levels {
		for _, meta := range metas {
			if t, ok := meta.Handle.(*table); ok {
				t.close()
			}
		}
	}
}

// reserveFileNumbers ensures that new files get higher numbers than all files in the directory,
// including those that the MANIFEST does not know.
func (d *DB) reserveFileNumbers(names []string) {
	for _, name := range names {
		if _, num, ok := manifest.ParseName(name); ok && num >= d.nextFile.Load() {
			d.nextFile.Store(num + 1)
		}
	}
}

// checkNextFile returns an error if there are too few file numbers left.
func (d *DB) checkNextFile() error {
	if next := d.nextFile.Load(); next > manifest.MaxNextFile {
		return &CorruptionError{Path: d.dir, Offset: -1, What: "file number", Err: fmt.Errorf("the next one would be %d, according to the MANIFEST or a file name", next)}
	}
	return nil
}

// maxSequence returns the maximum of seq and the sequence numbers of the tables' smallest and
// largest keys.
func maxSequence(seq uint64, version *manifest.Version) uint64 {
	for _, metas := range version.Levels {
		for _, meta := range metas {
			seq = max(seq, base.KeyTrailer(meta.Smallest)>>8, base.KeyTrailer(meta.Largest)>>8)
		}
	}
	return seq
}
