package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift"
)

// Apply executes a command. Every node calls it for every command, in the same order, and each
// must get the same result: it may depend only on the command and on tx, not on clocks, random
// numbers, or the iteration order of maps. What it writes is applied as one batch. If it returns
// an error, nothing is written. The node that the command was proposed to returns reply and error
// to the caller of Propose. command is valid until Apply returns.
//
// The writes of a command, and the record of what it has read, must fit in 1 GiB. Every node stops
// at a command that exceeds that, as it does when its database fails, and again after each restart.
type Apply func(tx *Tx, command []byte) (reply any, err error)

// FSM is a sift database as the state machine of a Raft group. It implements
// raft.FSM and raft.ConfigurationStore.
//
// Each command and its index in the log are written as one batch, so a command is applied exactly
// once, even if the process is killed. Batches are not synced: those that a power failure loses
// are applied again from the log, which keeps them until a snapshot has made them durable.
//
// When the database fails, as on a full disk, the FSM stops: it applies nothing more and takes no
// snapshots, and Failed reports it. If it continued, the node would diverge from the others.
type FSM struct {
	apply  Apply
	states stateDir

	mu      sync.Mutex
	state   *state        // what reads see
	applied uint64        // the last command that state holds
	seen    uint64        // the log is applied up to this index, which is at least applied
	moved   chan struct{} // closed when seen or err changes
	err     error         // why the FSM has stopped
	closed  bool
	failed  chan struct{} // closed when err is set
	swapped chan struct{} // closed when another database replaces state

	members    []raft.Server // after the change at index configured
	configured uint64
	removals   chan removal // of the changes that Raft reports

	installsBackup atomic.Bool // Restore installs a backup, or will be called to do so

	test testHooks
}

// testHooks are set by tests to plant faults.
type testHooks struct {
	ignoreApplied bool                   // applies commands that have been applied
	checkpointed  func(dir string) error // may change a snapshot
	step          func(name string)      // called before each step of Restore
	stall         time.Duration          // stallTime
	most          int                    // requestBytes
	hang          time.Duration          // transport.hang
	unstable      error                  // what the log's Set and SetUint64 return
}

// OpenFSM opens the database of a node in dir, which it creates if necessary. o may be nil; its FS,
// Lock, ReadOnly, ErrorIfExists, ErrorIfMissing, TxBytes and TxLifetime are not used. Snapshots
// that are taken into a SnapshotStore on the same file system are hard links.
func OpenFSM(dir string, apply Apply, o *sift.Options) (*FSM, error) {
	if apply == nil {
		return nil, errors.New("cluster: the Apply function is nil")
	}
	f := &FSM{apply: apply, states: newStateDir(dir, o), moved: make(chan struct{}), failed: make(chan struct{}), swapped: make(chan struct{}), removals: make(chan removal, 16)}
	s, err := f.states.open()
	if err != nil {
		return nil, err
	}
	applied, err := readApplied(s.db)
	if err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	f.state, f.applied, f.seen = s, applied, applied
	return f, nil
}

// Applied returns the index of the last command that the database holds.
func (f *FSM) Applied() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.applied
}

// Members returns the members of the group after the last change that is committed, as far as this
// node knows, and the index of that change. Both are zero until Raft has started.
func (f *FSM) Members() (members []raft.Server, index uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.members), f.configured
}

// Failed returns a channel that is closed when the FSM stops because of an error,
// which Err returns.
func (f *FSM) Failed() <-chan struct{} { return f.failed }

// Err returns why the FSM has stopped, or nil.
func (f *FSM) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Metrics returns the database's metrics.
func (f *FSM) Metrics() (m sift.Metrics, err error) {
	err = f.use(func(db *sift.DB) error { m = db.Metrics(); return nil })
	return m, err
}

// View calls fn with the database as it is on this node, which may lag behind others. Node.Read
// waits until it is up to date.
func (f *FSM) View(fn func(*View) error) error {
	return f.use(func(db *sift.DB) error {
		s := db.Snapshot()
		defer s.Close()
		v := View{r: s}
		if err := fn(&v); err != nil {
			return err
		}
		return v.err
	})
}

// Hold returns the database for reading, and keeps it open until release is called, even if a
// snapshot replaces it; replaced is closed when that happens. Writing to the database would make
// the nodes diverge.
func (f *FSM) Hold() (db *sift.DB, replaced <-chan struct{}, release func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, nil, nil, sift.ErrClosed
	}
	s := f.state
	s.acquire()
	return s.db, f.swapped, sync.OnceFunc(s.release), nil
}

// use calls fn with the database, which stays open until fn returns.
func (f *FSM) use(fn func(*sift.DB) error) error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return sift.ErrClosed
	}
	s := f.state
	s.acquire()
	f.mu.Unlock()
	defer s.release()
	return fn(s.db)
}

// Close closes the database, after its readers have ended. Shut Raft down first.
func (f *FSM) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	s := f.state
	f.mu.Unlock()
	s.release()
	return s.wait()
}

// result is what Apply returns to Raft.
type result struct {
	reply any
	err   error
	fatal bool // err is the node's, not the command's
}

// Apply implements raft.FSM. It returns a value for Node.Propose.
func (f *FSM) Apply(log *raft.Log) any {
	if log.Type != raft.LogCommand {
		f.advance(log.Index, 0)
		return nil
	}
	f.mu.Lock()
	db, applied, err := f.state.db, f.applied, f.err
	f.mu.Unlock()
	if err != nil {
		return result{err: err, fatal: true}
	}
	if log.Index <= applied && !f.test.ignoreApplied {
		f.advance(log.Index, 0)
		return result{err: fmt.Errorf("cluster: command %d was applied before", log.Index), fatal: true}
	}
	reply, cmdErr, err := f.execute(db, log)
	if err != nil {
		err = f.fail(fmt.Errorf("cluster: command %d: %w", log.Index, err))
		return result{err: err, fatal: true}
	}
	f.advance(log.Index, log.Index)
	return result{reply: reply, err: cmdErr}
}

// execute runs a command and writes its batch and its index.
func (f *FSM) execute(db *sift.DB, log *raft.Log) (reply any, cmdErr, err error) {
	tx, err := db.Begin(&sift.TxOptions{NoSync: true})
	if err != nil {
		return nil, nil, err
	}
	defer func() { tx.Discard() }()
	t := Tx{View: View{r: tx}, tx: tx}
	reply, cmdErr = f.apply(&t, log.Data)
	if t.err != nil {
		return nil, nil, t.err
	}
	if cmdErr != nil {
		tx.Discard()
		return reply, cmdErr, db.Put([]byte(appliedKey), appliedValue(log.Index), sift.NoSync)
	}
	if err := tx.Put([]byte(appliedKey), appliedValue(log.Index)); err != nil {
		return nil, nil, err
	}
	return reply, nil, tx.Commit()
}

// StoreConfiguration implements raft.ConfigurationStore. Raft calls it for entries that change the
// configuration. They count as applied, too.
func (f *FSM) StoreConfiguration(index uint64, c raft.Configuration) {
	gone := f.configure(index, c)
	f.advance(index, 0)
	for _, r := range gone {
		select {
		case f.removals <- r:
		default: // nobody tells removed members, or many wait to be told
		}
	}
}

// configure records a change of the members, and returns those that it removes or that have another
// address from then on.
func (f *FSM) configure(index uint64, c raft.Configuration) (gone []removal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if index < f.configured {
		return nil
	}
	for _, was := range f.members {
		i := slices.IndexFunc(c.Servers, func(s raft.Server) bool { return s.ID == was.ID })
		if i < 0 || c.Servers[i].Address != was.Address {
			gone = append(gone, removal{server: was, index: index, moved: i >= 0})
		}
	}
	f.members, f.configured = c.Servers, index
	return gone
}

// advance records that the log is applied up to seen, and that applied is the last command.
func (f *FSM) advance(seen, applied uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied = max(f.applied, applied)
	if seen > f.seen {
		f.seen = seen
		f.wake()
	}
}

// fail stops the FSM, and returns why it has stopped.
func (f *FSM) fail(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
		close(f.failed)
		f.wake()
	}
	return f.err
}

// wake wakes all waiters, which check again. REQUIRES: mu.
func (f *FSM) wake() {
	close(f.moved)
	f.moved = make(chan struct{})
}

// wait returns when the log is applied up to index.
func (f *FSM) wait(ctx context.Context, index uint64) error {
	for {
		f.mu.Lock()
		seen, err, moved := f.seen, f.err, f.moved
		f.mu.Unlock()
		if err != nil || seen >= index {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Snapshot implements raft.FSM. It takes as long as a flush of the memtable and a hard link for
// each table.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) {
	if err := f.Err(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(f.states.dir, checkpointPrefix)
	if err != nil {
		return nil, err
	}
	s := &checkpoint{dir: filepath.Join(dir, snapshotDB), parent: dir}
	err = f.use(func(db *sift.DB) error {
		// Raft applies nothing meanwhile.
		if s.applied, err = readApplied(db); err != nil {
			return err
		}
		return db.Checkpoint(s.dir)
	})
	if err == nil && f.test.checkpointed != nil {
		err = f.test.checkpointed(s.dir)
	}
	if err != nil {
		s.Release()
		return nil, err
	}
	return s, nil
}

// checkpoint is a raft.FSMSnapshot.
type checkpoint struct {
	dir, parent string
	applied     uint64
	store       *SnapshotStore // the store into which it was moved, until Release
}

// Persist moves the checkpoint into a SnapshotStore of this package, and streams its files into
// any other.
func (c *checkpoint) Persist(sink raft.SnapshotSink) error {
	if snapshots, ok := sink.(*snapshotSink); ok {
		c.store = snapshots.store
		c.store.ownSnapshotMu.Lock()
		return snapshots.adopt(c.dir, c.applied)
	}
	return writeStream(sink, streamHeader{applied: c.applied, held: c.applied}, c.dir)
}

// Release implements raft.FSMSnapshot. Raft calls it once it has recorded where the snapshot ends.
func (c *checkpoint) Release() {
	if c.store != nil {
		c.store.ownSnapshotMu.Unlock()
		c.store = nil
	}
	os.RemoveAll(c.parent)
}

// Restore implements raft.FSM. It creates a database from the snapshot next to the current one, and
// switches to it by replacing CURRENT, the file that names the current one. Readers of the old one
// continue. Restore ignores a snapshot of a SnapshotStore if the database is not behind it; one of
// another store always replaces the database.
func (f *FSM) Restore(rc io.ReadCloser) error {
	err := f.restore(rc)
	if err != nil && f.installsBackup.Load() {
		// Raft would panic. The FSM stops, and the next start installs the backup.
		f.fail(err)
		return nil
	}
	return err
}

func (f *FSM) restore(rc io.ReadCloser) error {
	if err := f.Err(); err != nil {
		return err
	}
	local, isLocal := unwrap(rc).(*snapshotReader)
	if isLocal && local.meta.Applied <= f.Applied() {
		f.configure(local.meta.ConfigurationIndex, local.meta.Configuration)
		f.advance(local.meta.Index, 0)
		return nil
	}
	f.step("begin")
	next, err := f.states.create(func(dir string) (streamHeader, error) {
		if isLocal {
			return local.meta.header(), linkDB(local.db, dir)
		}
		return readStream(rc, dir)
	}, f.step)
	if err != nil {
		return fmt.Errorf("cluster: installing a snapshot: %w", err)
	}
	f.mu.Lock()
	old := f.state
	f.state, f.applied = next, next.applied
	close(f.swapped)
	f.swapped = make(chan struct{})
	f.seen = max(f.seen, next.applied)
	if isLocal {
		f.seen = max(f.seen, local.meta.Index)
	}
	f.wake()
	f.mu.Unlock()
	if isLocal {
		f.configure(local.meta.ConfigurationIndex, local.meta.Configuration)
	}
	old.obsolete.Store(true)
	old.release()
	f.step("end")
	return nil
}

func (f *FSM) step(name string) {
	if f.test.step != nil {
		f.test.step(name)
	}
}

// unwrap returns the reader that Raft has wrapped.
func unwrap(rc io.ReadCloser) io.ReadCloser {
	for {
		w, ok := rc.(raft.ReadCloserWrapper)
		if !ok {
			return rc
		}
		rc = w.WrappedReadCloser()
	}
}
