package sift

import (
	"context"
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
	deep    []manifest.DeepLevel  // the levels of a tree with too many
	merged  []*manifest.TableMeta // tables written to reduce them
	log     *wal.Log
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
