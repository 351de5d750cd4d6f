package sift

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/wal"
	"github.com/siftdb/sift/memtable"
)

// recovery turns the logs into memtables and tables, and those into the database's first read
// state.
type recovery struct {
	db      *DB
	version *manifest.Version    // referenced
	lastSeq uint64               // the largest sequence number seen
	mems    []*memtable.Memtable // oldest first
	flushed []*manifest.TableMeta
	deep    []manifest.DeepLevel  // the levels, if there are too many
	merged  []*manifest.TableMeta // tables written to reduce them
	log     *wal.Log
	named   bool // a MANIFEST may name what was written
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

// insert adds a batch to the newest memtable, and to new ones as they fill. A batch may thus end up
// in several tables. This is never visible, even after a crash, because one edit adds all tables of
// a recovery.
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
	r.named = true
	if err := d.newManifest(next); err != nil {
		return err
	}
	next.Ref()
	d.releaseVersion(r.version) // next holds its tables, except for merged ones
	d.visible.Store(r.lastSeq)
	d.state.Store(&readState{mem: memtable.New(d.opts.MemtableBytes), version: next, flushed: r.lastSeq})
	d.removeFiles.Store(true)
	d.removeOrphans(next)
	d.startFilterManager()
	d.startLoader()
	d.startBackground()
	return nil
}

// abandon closes what a failed recovery has opened, and removes the tables that it has written:
// each further attempt would write them again.
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
	}
}

// maxOpenErrors bounds the number of missing tables that are reported.
const maxOpenErrors = 10

// placeTables finds the files of a version's tables in the directory, without opening them.
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
			meta.Handle = d.opener.place(meta, path)
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

// reserveFileNumbers ensures that no file in the directory, whatever wrote it, has a number
// that will be assigned again.
func (d *DB) reserveFileNumbers(names []string) {
	for _, name := range names {
		if _, num, ok := manifest.ParseName(name); ok && num >= d.nextFile.Load() {
			d.nextFile.Store(num + 1)
		}
	}
}

// checkNextFile returns an error if file numbers would run out.
func (d *DB) checkNextFile() error {
	if next := d.nextFile.Load(); next > manifest.MaxNextFile {
		return &CorruptionError{Path: d.dir, Offset: -1, What: "file number", Err: fmt.Errorf("the MANIFEST or the name of a file leads to %d", next)}
	}
	return nil
}

// maxSequence returns the largest of the MANIFEST's sequence number and those of the tables'
// first and last keys.
func maxSequence(seq uint64, version *manifest.Version) uint64 {
	for _, metas := range version.Levels {
		for _, meta := range metas {
			seq = max(seq, base.KeyTrailer(meta.Smallest)>>8, base.KeyTrailer(meta.Largest)>>8)
		}
	}
	return seq
}
