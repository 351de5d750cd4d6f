package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/testhook"
	"github.com/siftdb/sift/internal/torture/damage"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// dbDir is the directory of the tests' databases. It and its parent do not exist at
// first, as part of the test.
var dbDir = filepath.FromSlash("/data/db")

// Env is a running database with its oracle. Its methods do nothing once a guarantee has
// been violated (Err says which) or the database could not be opened.
type Env struct {
	Mem     *vfstest.Mem // the disk
	FS      vfs.FS       // what the database uses: the disk, possibly behind faults
	Dir     string
	Options sift.Options
	Retry   time.Duration // the pause after failed background work
	// CleanNow: obsolete files are removed before the call returns.
	CleanNow bool
	H        *History
	DB       *sift.DB
	Rng      *rand.Rand
	Err      error  // the first guarantee that was violated
	Oracle   Oracle // replaces H where several goroutines write
	Repairs  bool   // the database starts out damaged: it need not open, but can be repaired

	lost     damage.Files // the files before the repair
	repaired int          // the number of operations when it returned; 0: it has not

	// Wrap puts faults in front of a new disk.
	Wrap func(*vfstest.Mem) vfs.FS
	// Faults: operations on the file system may fail. Then errors are allowed, but wrong
	// answers are not.
	Faults bool
	// Failures counts the calls that failed; LastErr is the error of the last one.
	Failures int
	LastErr  error
	// ReadsWork: reads of an open database must not fail even then.
	ReadsWork bool
	// closeAt closes the database from another goroutine; see TryClose.
	closeAt *closer

	opened bool // the database has been opened, so it exists
	begun  int  // operations before the last open
	struck int  // operations before the first fault; 0: there was none
	seq    int  // numbers the values, so that all are different
	extras []extra
}

// extra is a second database that must be complete after a power cut, such as a checkpoint. It need
// not exist before the call that makes it returns.
type extra struct {
	dir      string
	contents map[string]string
	made     int // operations before it must exist; never if the call failed
}

// NewEnv returns an environment over an empty disk.
func NewEnv(seed uint64) *Env {
	mem := vfstest.NewMem()
	return &Env{Mem: mem, FS: mem, Dir: dbDir, H: NewHistory(nil), Rng: rand.New(rand.NewPCG(seed, 5)),
		Options: tiny(), Retry: time.Millisecond, Wrap: func(m *vfstest.Mem) vfs.FS { return m }}
}

// tiny returns options with which a few hundred writes rotate memtables, fill levels and
// cause compactions.
func tiny() sift.Options {
	return sift.Options{
		MemtableBytes: 4 << 10, TableBytes: 2 << 10, BlockBytes: 256,
		LevelBaseBytes: 6 << 10, LevelMultiplier: 3, L0Tables: 2, CacheBytes: 64 << 10,
	}
}

// manifestBytes is so small that the MANIFEST rotates every few edits.
const manifestBytes = 700

// options returns the environment's options for a file system.
func (e *Env) options(fs vfs.FS) *sift.Options {
	o := e.Options
	testhook.Apply(&o, testhook.Settings{FS: fs, ManifestBytes: manifestBytes, RetryDelay: e.Retry, CleanNow: e.CleanNow})
	return &o
}

// ops returns the current time: the number of operations on the disk so far.
func (e *Env) ops() int { return e.Mem.NumOps() }

func (e *Env) dead() bool { return e.Err != nil || e.DB == nil }

// broken records a violated guarantee.
func (e *Env) broken(format string, args ...any) {
	if e.Err == nil {
		e.Err = fmt.Errorf(format, args...)
	}
}

// failed reports whether a call failed, and records that. Errors must come from the faults,
// and must not report damage: the bytes on the disk are intact.
func (e *Env) failed(what string, err error) bool {
	if err == nil {
		return false
	}
	e.Failures++
	e.LastErr = err
	switch {
	case !e.Faults:
		e.broken("%s: %w", what, err)
	case e.closeAt != nil:
		if !errors.Is(err, sift.ErrClosed) {
			e.broken("%s, while another goroutine closes the database: %w", what, err)
		}
	case errors.Is(err, sift.ErrCorruption):
		e.broken("%s: a failing disk is reported as damage: %w", what, err)
	case errors.Is(err, sift.ErrNotFound), errors.Is(err, sift.ErrNotExist), errors.Is(err, sift.ErrExists), errors.Is(err, sift.ErrUnsupported), errors.Is(err, fs.ErrNotExist):
		e.broken("%s: a failing disk is reported as something else: %w", what, err)
	}
	return true
}

// failedRead is failed for reads.
func (e *Env) failedRead(what string, err error) bool {
	if err != nil && e.ReadsWork {
		e.broken("%s: %w", what, err)
	}
	return e.failed(what, err)
}

// Open opens the database. With faults it tries a few times.
func (e *Env) Open() {
	if e.Err != nil || e.DB != nil {
		return
	}
	for range 3 {
		db, err := sift.Open(e.Dir, e.options(e.FS))
		if !e.failed("Open", err) {
			e.DB, e.opened, e.begun = db, true, e.ops()
			e.closeAt.opened(db)
			e.adopt()
			return
		}
		if e.Err != nil {
			return
		}
	}
}

// adopt compares the contents after an open with the oracle.
func (e *Env) adopt() {
	contents, err := contentsOf(e.DB)
	for range 3 {
		if err == nil || !e.Faults {
			break
		}
		e.failed("scan", err)
		contents, err = contentsOf(e.DB)
	}
	if err != nil && e.Faults {
		// Nothing can be read: give up on this database until the disk works again.
		e.Failures++
		e.DB.Close()
		e.closeAt.wait() // it may be what closes the database
		e.DB = nil
		return
	}
	if !e.failed("scan", err) {
		if err := e.H.Adopt(contents); err != nil {
			e.broken("after Open: %w", err)
		}
	}
}

// contentsOf reads all of a database.
func contentsOf(db interface {
	NewIter(*sift.IterOptions) (*sift.Iter, error)
}) (map[string]string, error) {
	it, err := db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for ok := it.First(); ok; ok = it.Next() {
		m[string(it.Key())] = string(it.Value())
	}
	return m, it.Close()
}

// Close closes the database. Afterwards all writes are durable, unless it fails.
func (e *Env) Close() {
	if e.dead() {
		return
	}
	db := e.DB
	e.DB = nil
	err := db.Close()
	e.closeAt.wait()
	if !e.failed("Close", err) {
		e.H.Durable(e.ops())
	}
}

// Reopen closes and opens.
func (e *Env) Reopen() {
	e.Close()
	e.Open()
}

// Write applies a batch.
func (e *Env) Write(sync bool, edits ...Edit) {
	if e.dead() {
		return
	}
	var b sift.Batch
	for _, d := range edits {
		if d.Delete {
			b.Delete([]byte(d.Key))
		} else {
			b.Put([]byte(d.Key), []byte(d.Value))
		}
	}
	e.H.Begin(edits, sync, e.ops())
	err := e.DB.Write(&b, &sift.WriteOptions{NoSync: !sync})
	e.H.End(err, e.ops())
	e.failed("Write", err)
}

// Put sets one key to a value of roughly the given size.
func (e *Env) Put(key string, size int, sync bool) { e.Write(sync, e.Set(key, size)) }

// Delete deletes one key.
func (e *Env) Delete(key string, sync bool) { e.Write(sync, Edit{Key: key, Delete: true}) }

// DeleteRange deletes the keys in [from, to). If it returns false, some of them are
// deleted, and the caller must reopen the database to see which.
func (e *Env) DeleteRange(from, to string) bool {
	if e.dead() {
		return true
	}
	var edits []Edit
	for _, k := range slices.Sorted(maps.Keys(e.H.now)) {
		if k >= from && k < to {
			edits = append(edits, Edit{Key: k, Delete: true})
		}
	}
	e.H.Begin(edits, true, e.ops())
	e.H.writes[len(e.H.writes)-1].ranged = true
	err := e.DB.DeleteRange(context.Background(), []byte(from), []byte(to))
	e.H.End(err, e.ops())
	return !e.failed("DeleteRange", err)
}

// Ingest sorts and ingests edits; of several edits of a key it takes the last.
func (e *Env) Ingest(edits ...Edit) {
	if e.dead() {
		return
	}
	last := map[string]Edit{}
	for _, d := range edits {
		last[d.Key] = d
	}
	edits = nil
	for _, k := range slices.Sorted(maps.Keys(last)) {
		edits = append(edits, last[k])
	}
	e.H.Begin(edits, true, e.ops())
	err := e.DB.Ingest(context.Background(), func(yield func(sift.Op, error) bool) {
		for _, d := range edits {
			if !yield(sift.Op{Delete: d.Delete, Key: []byte(d.Key), Value: []byte(d.Value)}, nil) {
				return
			}
		}
	})
	e.H.End(err, e.ops())
	e.failed("Ingest", err)
}

// Set returns an edit with a unique value of roughly the given size, half of which is
// incompressible.
func (e *Env) Set(key string, size int) Edit {
	e.seq++
	v := fmt.Appendf(nil, "v%d.", e.seq)
	for len(v) < size/2 {
		v = fmt.Appendf(v, "%x", e.Rng.Uint64())
	}
	for len(v) < size {
		v = append(v, '.')
	}
	return Edit{Key: key, Value: string(v)}
}

// Sync returns true one time in n.
func (e *Env) Sync(n int) bool { return e.Rng.IntN(n) == 0 }

// Flush flushes, which makes all writes durable.
func (e *Env) Flush() {
	if e.dead() {
		return
	}
	if err := e.DB.Flush(); !e.failed("Flush", err) {
		e.H.Durable(e.ops())
	}
}

// Compact compacts a range of keys; an empty string is no bound.
func (e *Env) Compact(from, to string) {
	if e.dead() {
		return
	}
	bound := func(s string) []byte {
		if s == "" {
			return nil
		}
		return []byte(s)
	}
	if err := e.DB.Compact(context.Background(), bound(from), bound(to)); !e.failed("Compact", err) {
		e.H.Durable(e.ops())
	}
}

// BuildFilters rebuilds the filters that differ from those of the options.
func (e *Env) BuildFilters() {
	if e.dead() {
		return
	}
	_, err := e.DB.BuildFilters(context.Background())
	e.failed("BuildFilters", err)
}

// Checkpoint makes a checkpoint, which must be complete after any later power cut.
func (e *Env) Checkpoint(dir string) {
	if e.dead() {
		return
	}
	x := extra{dir: dir, contents: maps.Clone(e.H.now), made: never}
	if err := e.DB.Checkpoint(dir); !e.failed("Checkpoint", err) {
		x.made = e.ops()
		e.H.Durable(x.made)
	}
	e.extras = append(e.extras, x)
}

// View is a snapshot or an iterator with its expected contents.
type View struct {
	snap *sift.Snapshot
	it   *sift.Iter
	want map[string]string
}

// Snapshot takes a snapshot.
func (e *Env) Snapshot() *View {
	if e.dead() {
		return nil
	}
	return &View{snap: e.DB.Snapshot(), want: maps.Clone(e.H.now)}
}

// Iterator opens an iterator.
func (e *Env) Iterator() *View {
	if e.dead() {
		return nil
	}
	it, err := e.DB.NewIter(nil)
	if e.failedRead("NewIter", err) {
		return nil
	}
	return &View{it: it, want: maps.Clone(e.H.now)}
}

// Release compares a view with the contents at the time it was made, and closes it.
func (e *Env) Release(v *View) {
	if v == nil {
		return
	}
	if v.snap != nil {
		contents, err := contentsOf(v.snap)
		if !e.failedRead("scan of a snapshot", err) && sumOf(contents) != sumOf(v.want) {
			e.broken("snapshot: %s", difference(contents, v.want))
		}
		e.checkGets(v.snap, v.want)
		e.failed("Close of a snapshot", v.snap.Close())
		return
	}
	contents := map[string]string{}
	for ok := v.it.Last(); ok; ok = v.it.Prev() {
		contents[string(v.it.Key())] = string(v.it.Value())
	}
	if !e.failedRead("scan of an open iterator", v.it.Close()) && sumOf(contents) != sumOf(v.want) {
		e.broken("iterator: %s", difference(contents, v.want))
	}
}

// Check reads everything in several ways.
func (e *Env) Check() {
	if e.dead() {
		return
	}
	contents, err := contentsOf(e.DB)
	if !e.failedRead("scan", err) && sumOf(contents) != sumOf(e.H.now) {
		e.broken("scan: %s", difference(contents, e.H.now))
	}
	e.checkGets(e.DB, e.H.now)
}

// CheckFiles runs sift.Check. It must refuse an open database, and must not report a
// failing disk as clean.
func (e *Env) CheckFiles() {
	if e.Err != nil {
		return
	}
	faulty, _ := e.FS.(*vfstest.Faulty)
	before := countFailed(faulty)
	faults := 0
	_, err := sift.Check(context.Background(), e.Dir, e.options(e.FS), func(fault error) {
		faults++
		e.failed("Check reports", fault)
	})
	failed := countFailed(faulty) > before
	switch {
	case errors.Is(err, sift.ErrLocked) && e.DB != nil:
	case isMissing(err) && !e.opened:
	case e.DB != nil && err == nil && e.closeAt != nil: // another goroutine has closed it
	case e.DB != nil && err == nil:
		e.broken("Check of an open database gives no error")
	case err == nil && faults == 0 && failed:
		e.broken("Check of a failing disk finds nothing")
	default:
		e.failed("Check", err)
	}
}

// countFailed returns the number of failed operations that a check depends on. A single
// read does not count: after a failed readahead each block is read by itself. Nor does opening a
// table once with EMFILE: the file cache closes another table and tries again.
func countFailed(f *vfstest.Faulty) (n int) {
	if f == nil {
		return 0
	}
	reads, opens := 0, 0
	for _, op := range f.Failed() {
		switch {
		case op.Kind == vfstest.OpClose, op.Kind == vfstest.OpUnlock:
		case op.Kind == vfstest.OpReadAt:
			reads++
		case op.Kind == vfstest.OpOpen && filepath.Ext(op.Name) == ".ldb" && errors.Is(op.Err, syscall.EMFILE):
			opens++
		default:
			n++
		}
	}
	return n + max(0, reads-1) + max(0, opens-1)
}

type getter interface {
	Get(key []byte) ([]byte, error)
	View(key []byte, fn func(value []byte) error) error
	Has(key []byte) (bool, error)
	GetMany(keys [][]byte) ([][]byte, error)
}

// checkGets looks up every key that was ever written.
func (e *Env) checkGets(db getter, want map[string]string) {
	keys := e.H.Keys()
	for i, k := range keys {
		var v []byte
		var err error
		w, there := want[k]
		switch i % 4 {
		case 0:
			err = db.View([]byte(k), func(value []byte) error { v = bytes.Clone(value); return nil })
		case 1:
			var has bool
			if has, err = db.Has([]byte(k)); err == nil && !has {
				err = sift.ErrNotFound
			}
			v = []byte(w)
		default:
			v, err = db.Get([]byte(k))
		}
		switch {
		case there && err == nil && string(v) == w:
		case !there && errors.Is(err, sift.ErrNotFound):
		case err != nil && !errors.Is(err, sift.ErrNotFound):
			e.failedRead("Get", err)
		default:
			e.broken("Get(%q) = %.20q, %v; want %.20q, %v", k, v, err, w, there)
		}
	}
	e.checkGetMany(db, want, keys)
}

func (e *Env) checkGetMany(db getter, want map[string]string, keys []string) {
	list := make([][]byte, len(keys))
	for i, k := range keys {
		list[i] = []byte(k)
	}
	values, err := db.GetMany(list)
	if e.failedRead("GetMany", err) {
		return
	}
	for i, k := range keys {
		if w, there := want[k]; there != (values[i] != nil) || !bytes.Equal(values[i], []byte(w)) {
			e.broken("GetMany: %q = %.20q; want %.20q, %v", k, values[i], w, there)
		}
	}
}

// key returns one of n keys.
func (e *Env) key(n int) string { return fmt.Sprintf("key%03d", e.Rng.IntN(n)) }

// pick returns a present key, or an absent one.
func (e *Env) pick() string {
	keys := slices.Sorted(maps.Keys(e.H.now))
	if len(keys) == 0 || e.Rng.IntN(10) == 0 {
		return "none"
	}
	return keys[e.Rng.IntN(len(keys))]
}
