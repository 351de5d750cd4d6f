package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/segment"

	"github.com/siftdb/sift"
)

// Errors of Propose and Read.
var (
	// ErrNotLeader: the node does not lead, and the command has not been and will not be applied.
	// Node.Leader may return the node that leads.
	ErrNotLeader = raft.ErrNotLeader
	// ErrUnknown: the command may have been applied, may be applied later, or may never be applied.
	// The cause is wrapped.
	ErrUnknown = errors.New("cluster: it is unknown whether the command was applied")
	// ErrClosed: the node has been closed. ReadStale returns sift.ErrClosed instead, and Propose an
	// ErrUnknown that wraps ErrClosed.
	ErrClosed = raft.ErrRaftShutdown
	// ErrTooLarge: the command has more than MaxCommandBytes, and is not applied.
	ErrTooLarge = errors.New("cluster: the command is too large")
)

// MaxCommandBytes is the size of the largest command. raft-wal would write entries larger than
// 64 MiB, but could not read them back.
const MaxCommandBytes = segment.MaxEntrySize - 64<<10

// Options configure a node. ID, Dir, Apply and Transport are required.
type Options struct {
	// ID names the node in the group. An ID and a Dir belong together: neither may be used with
	// another.
	ID string
	// Dir holds the log, the snapshots and the database.
	Dir string
	// Apply executes a command.
	Apply Apply
	// Transport connects the nodes. ListenTCP and Mux.Transport make one; the node closes it.
	Transport raft.Transport
	// Bootstrap lists the first members of the group. It has no effect once the node has a log.
	// Each of the first members may list all of them, in the same order. A node that joins later
	// lists none; Raft().AddVoter adds it.
	Bootstrap []raft.Server
	// DB configures the database; may be nil. See OpenFSM for the fields that are not used.
	DB *sift.Options
	// Raft configures Raft. Default: Defaults. ID and Logger replace its LocalID and Logger. Its
	// NoSnapshotRestoreOnStart is ignored.
	Raft *raft.Config
	// SegmentBytes is the size of a log file. Default: raft-wal's, 64 MiB.
	SegmentBytes int
	// Logger receives Raft's messages. Default: they are discarded.
	Logger hclog.Logger

	test testHooks
}

// Defaults returns Raft's defaults, without the legacy metrics, which are duplicates. A follower
// expects a heartbeat within a second. Every two to four minutes, a snapshot is taken if at least
// 8,192 entries have been added since the last one. At least the newest 10,240 entries are kept, so
// that a node that was down for a short time needs no snapshot. For a node that is behind, the
// leader reads 32 entries at a time instead of 64, since they may be large; it also syncs at most
// about 32 new commands together.
func Defaults() *raft.Config {
	c := raft.DefaultConfig()
	c.NoLegacyTelemetry = true
	c.MaxAppendEntries = 32
	return c
}

// Node is a member of a group. It is safe for concurrent use.
type Node struct {
	fsm       *FSM
	raft      *raft.Raft
	log       *log
	snapshots *SnapshotStore
	trans     *transport
	id        raft.ServerID
	protocol  raft.ProtocolVersion

	barrier   chan struct{} // holds an element while a barrier is in progress
	ledTerm   uint64        // a term in which all entries of earlier terms are applied; guarded by barrier
	closeOnce sync.Once
	closeErr  error
	closing   chan struct{} // closed by Close
	watched   chan struct{} // closed when the FSM is no longer watched
	told      chan struct{} // closed when removed members are no longer told
	endOnce   sync.Once
	ended     chan struct{} // closed when Raft has ended

	installing chan struct{} // holds an element while Raft installs a backup, and from shutdown on
	stopOnce   sync.Once
}

// Open starts a node. It does not wait until the group has a leader.
func Open(o Options) (_ *Node, err error) {
	switch {
	case o.ID == "":
		return nil, errors.New("cluster: Options.ID is empty")
	case o.Dir == "":
		return nil, errors.New("cluster: Options.Dir is empty")
	case o.Transport == nil:
		return nil, errors.New("cluster: Options.Transport is nil")
	}
	config := *Defaults()
	if o.Raft != nil {
		config = *o.Raft
	}
	config.LocalID = raft.ServerID(o.ID)
	config.Logger = o.Logger
	if config.Logger == nil {
		config.Logger = hclog.NewNullLogger()
	}
	// A snapshot that was received but not installed must be installed at the start. FSM.Restore
	// ignores it if the database is not behind it.
	config.NoSnapshotRestoreOnStart = false

	n := &Node{id: config.LocalID, protocol: config.ProtocolVersion, trans: newTransport(o.Transport),
		closing: make(chan struct{}), watched: make(chan struct{}), told: make(chan struct{}), ended: make(chan struct{}),
		barrier: make(chan struct{}, 1), installing: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.closeStores())
		}
	}()
	if n.fsm, err = OpenFSM(filepath.Join(o.Dir, "state"), o.Apply, o.DB); err != nil {
		return nil, err
	}
	n.fsm.test = o.test
	if o.test.stall > 0 {
		n.trans.stall = o.test.stall
	}
	if o.test.most > 0 {
		n.trans.most = o.test.most
	}
	if o.test.hang > 0 {
		n.trans.hang = o.test.hang
	}
	snapshots, err := NewSnapshotStore(filepath.Join(o.Dir, "snapshots"))
	if err != nil {
		return nil, err
	}
	n.snapshots, snapshots.holds = snapshots, n.holds
	if n.log, err = openLog(filepath.Join(o.Dir, "raft"), o.SegmentBytes, config.Logger, n.trans.needed, func(err error) { n.fsm.fail(err) }); err != nil {
		return nil, err
	}
	n.log.unstable = o.test.unstable
	n.trans.storing = n.log.storingFor
	if err := n.reconcile(snapshots); err != nil {
		return nil, err
	}
	if err := n.startRaft(&config, o.Bootstrap); err != nil {
		return nil, err
	}
	go n.trans.receive(n.covers, n.fit, n.keepVote, n.candidate)
	go n.watch()
	go n.tellRemoved()
	return n, nil
}

// startRaft starts Raft, with the given first members if there is no log yet. It does so on another
// goroutine than the caller's, because that one ends if Raft cannot write a term: see
// log.SetUint64.
func (n *Node) startRaft(config *raft.Config, first []raft.Server) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if len(first) > 0 {
			members := raft.Configuration{Servers: first}
			e := raft.BootstrapCluster(config, n.log, n.log, n.snapshots, n.trans, members)
			if errors.Is(e, raft.ErrCantBootstrap) {
				e = n.endBootstrap(members)
			}
			if e != nil {
				err = e
				return
			}
		}
		n.raft, err = raft.NewRaft(config, n.fsm, n.log, n.log, n.snapshots, n.trans)
	}()
	<-done
	if n.raft == nil && err == nil {
		err = n.fsm.Err()
	}
	return err
}

// endBootstrap completes a raft.BootstrapCluster that was interrupted between its two steps:
// writing a term, and writing the members as the first entry of the log. With a term but no
// members, no node would ever lead.
func (n *Node) endBootstrap(members raft.Configuration) error {
	last, err := n.log.LastIndex()
	if err != nil || last > 0 {
		return err
	}
	newest, err := n.snapshots.latest()
	if err != nil || newest != nil {
		return err
	}
	return n.log.StoreLog(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(members)})
}

// covers reports whether a snapshot contains nothing new for this node. A leader may send a
// snapshot twice, or late. Raft would still install it and drop the log, including later entries
// that the node has acknowledged and that a majority may depend on.
func (n *Node) covers(req *raft.InstallSnapshotRequest) bool {
	if req.Term < n.raft.CurrentTerm() {
		return false // Raft rejects it
	}
	return n.holds(req.LastLogIndex, req.LastLogTerm)
}

// holds reports whether everything up to an entry is in this node's log or newest snapshot. In the
// log the entry must have the given term: if two logs share an entry, they agree on all before it.
// Everything in the snapshot was committed.
func (n *Node) holds(index, term uint64) bool {
	first, err := n.log.FirstIndex()
	if err != nil {
		return false
	}
	last, err := n.log.LastIndex()
	if err != nil {
		return false
	}
	var entry raft.Log
	if first <= index && index <= last && n.log.GetLog(index, &entry) == nil {
		return entry.Term == term
	}
	at, _ := n.installed()
	return at >= index
}

// installed returns the index and the term where the newest snapshot ends, zeros if there is none.
// A snapshot that was received but could not be installed in the database does not count.
func (n *Node) installed() (index, term uint64) {
	m, err := n.snapshots.latest()
	if err != nil || m == nil || m.Applied > n.fsm.Applied() {
		return 0, 0
	}
	return m.Index, m.Term
}

// candidate returns the ID with which to pass a vote request on to Raft: the given one if it is a
// voter's, otherwise that of some voter. Raft rejects candidates that are not voters in the newest
// configuration that it knows. A node that is behind may not know the current configuration, and
// would reject the only node that can lead, although its vote is needed. Only whether the
// candidate's log is new enough should decide, as in section 4.1 of Ongaro's thesis on Raft; a
// removed node that requests votes while there is a leader is rejected because there is one. Raft
// does not use the ID for anything else: it records votes by address.
func (n *Node) candidate(id []byte) []byte {
	instead := id
	for _, s := range n.servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		if string(s.ID) == string(id) {
			return id
		}
		instead = []byte(s.ID)
	}
	return instead
}

// fit drops from a request the entries that precede this node's log. They are in its snapshot, so
// they were committed, and are the same in the logs of all leaders since. Raft would compare them
// with entries that the log no longer has, and reject the request; or, if the log is empty, store
// them although the snapshot already covers them. There is one exception: a backup that this node
// restored when it led is a snapshot that may not have been committed. Then Raft must reject a
// request with another entry at the snapshot's index, or with entries of a later term before it:
// the leader would count them as stored here.
func (n *Node) fit(a *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
	if a.PrevLogEntry == 0 && len(a.Entries) == 0 { // a heartbeat
		return a
	}
	first, err := n.log.FirstIndex()
	if err != nil || first != 0 && a.PrevLogEntry >= first {
		return a
	}
	snapshot, term := n.installed()
	if snapshot == 0 || a.PrevLogEntry > snapshot || a.PrevLogTerm > term || a.PrevLogEntry == snapshot && (first == 0 || a.PrevLogTerm != term) {
		return a
	}
	if first == 0 {
		first = snapshot + 1
	}
	b := *a // it may be the sender's
	last := a.PrevLogEntry
	b.PrevLogEntry, b.PrevLogTerm = 0, 0 // nothing is left to compare
	for len(b.Entries) > 0 && b.Entries[0].Index < first {
		if e := b.Entries[0]; e.Term > term || e.Index == snapshot && e.Term != term {
			b.PrevLogEntry, b.PrevLogTerm = e.Index, e.Term // this is compared
			return &b
		}
		last, b.Entries = b.Entries[0].Index, b.Entries[1:]
	}
	if n := len(b.Entries); n > 0 {
		last = b.Entries[n-1].Index
	}
	b.LeaderCommitIndex = min(b.LeaderCommitIndex, last) // later entries may differ from the leader's
	return &b
}

// reconcile makes the log, the snapshot and the database consistent after a crash.
//
// Raft removes the log after it has installed a snapshot. If it is interrupted before that, there
// are two cases in which reconcile removes the log. The log may end before the snapshot: then it
// would accept no further entry, since gaps are not allowed, and everything in it is in the
// snapshot. Or the log may hold a different entry where the snapshot ends: then that entry and
// those after it were never committed, and Raft would not accept the entries after the snapshot.
//
// A database that is ahead of both belongs to another log, which is an error. A snapshot may hold
// commands after its index, if the node that took it had restarted and Raft did not yet know which
// commands the database held.
func (n *Node) reconcile(snapshots *SnapshotStore) error {
	newest, err := snapshots.latest()
	if err != nil {
		return err
	}
	first, err := n.log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := n.log.LastIndex()
	if err != nil {
		return err
	}
	if newest != nil && last > 0 {
		other, err := n.conflictsWith(&newest.SnapshotMeta, first, last)
		if err != nil {
			return err
		}
		if other {
			if err := n.log.DeleteRange(first, last); err != nil {
				return err
			}
		}
	}
	if newest != nil {
		last = max(last, newest.Index, newest.Applied)
	}
	if applied := n.fsm.Applied(); applied > last {
		return fmt.Errorf("cluster: the database holds command %d, but the log ends with entry %d", applied, last)
	}
	return nil
}

// conflictsWith reports whether the log, from first to last, ends before a snapshot or has a
// different entry where the snapshot ends.
func (n *Node) conflictsWith(s *raft.SnapshotMeta, first, last uint64) (bool, error) {
	if last < s.Index || first > s.Index {
		return last < s.Index, nil
	}
	var entry raft.Log
	err := n.log.WAL.GetLog(s.Index, &entry) // log.GetLog could end the goroutine of Open's caller
	return entry.Term != s.Term, err
}

// watch shuts Raft down when the database has failed.
func (n *Node) watch() {
	defer close(n.watched)
	select {
	case <-n.fsm.Failed():
		_ = n.shutdown()
	case <-n.closing:
	}
}

// Close stops the node and closes its log and database; the other nodes continue without it. Calls
// in progress return an error.
func (n *Node) Close() error {
	n.closeOnce.Do(func() {
		close(n.closing)
		<-n.watched
		<-n.told
		n.closeErr = errors.Join(n.shutdown(), n.closeStores())
	})
	return n.closeErr
}

// shutdown stops Raft and returns when it has stopped. It waits until Raft is not installing a
// backup, and prevents it from installing another: see backupReader.
func (n *Node) shutdown() error {
	n.stopOnce.Do(func() { n.installing <- struct{}{} })
	future := n.raft.Shutdown()
	n.trans.stop()
	err := future.Error()
	n.endOnce.Do(func() { close(n.ended) })
	return err
}

func (n *Node) closeStores() error {
	var errs []error
	errs = append(errs, n.trans.Close())
	if n.log != nil {
		errs = append(errs, n.log.Close())
	}
	if n.fsm != nil {
		errs = append(errs, n.fsm.Close())
	}
	return errors.Join(errs...)
}

// Raft returns the node's Raft, for membership changes, leadership transfers, and statistics.
func (n *Node) Raft() *raft.Raft { return n.raft }

// FSM returns the node's database.
func (n *Node) FSM() *FSM { return n.fsm }

// Holds returns the index up to which a node has the log, as far as this node knows. ok is false if
// it does not know: only the leader of the current term does, and not for itself.
func (n *Node) Holds(id raft.ServerID) (index uint64, ok bool) {
	for _, server := range n.servers() {
		if server.ID == id {
			return n.trans.holding(replica{id, server.Address}, n.raft.CurrentTerm())
		}
	}
	return 0, false
}

// Leader returns the node that leads as far as this node knows, or empty strings.
func (n *Node) Leader() (raft.ServerAddress, raft.ServerID) { return n.raft.LeaderWithID() }

// Propose replicates a command, which all nodes then apply, and returns what Apply returned on this
// node. Only the leader can do this: other nodes return ErrNotLeader at once. If the error is nil
// or was returned by Apply, the command is on disk in the logs of a majority, and applied here. An
// error that matches ErrUnknown means that the command may or may not be applied, possibly later.
// ErrNotLeader, raft.ErrEnqueueTimeout and raft.ErrLeadershipTransferInProgress mean that it never
// is. command must not be modified until Propose returns, and never after ErrUnknown: it may still
// be in use.
func (n *Node) Propose(ctx context.Context, command []byte) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(command) > MaxCommandBytes {
		return nil, fmt.Errorf("%w: %d bytes of at most %d", ErrTooLarge, len(command), MaxCommandBytes)
	}
	var timeout time.Duration
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(deadline), time.Nanosecond)
	}
	future, err := await(ctx, n, func(r *raft.Raft) raft.ApplyFuture { return r.Apply(command, timeout) })
	if err != nil {
		if n.refused(err) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	r, ok := future.Response().(result)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: the state machine answered %T", ErrUnknown, future.Response())
	case r.fatal:
		// The command is in the log.
		return nil, fmt.Errorf("%w: %w", ErrUnknown, r.err)
	}
	return r.reply, r.err
}

// refused reports whether an error means that a command has not entered the log.
func (n *Node) refused(err error) bool {
	return errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrEnqueueTimeout) ||
		errors.Is(err, raft.ErrLeadershipTransferInProgress)
}

// Do starts an operation of Raft and waits until it is done or ctx ends. When Raft ends, Do returns
// ErrClosed, while the operation's future might never complete. If Do returns early, the operation
// may still be executed.
func (n *Node) Do(ctx context.Context, start func(*raft.Raft) raft.Future) error {
	_, err := await(ctx, n, start)
	return err
}

// await is Do, but returns the completed future. Raft may never complete a future that it accepts
// while it ends, and its goroutines can end unexpectedly (see log.SetUint64).
func await[F raft.Future](ctx context.Context, n *Node, start func(*raft.Raft) F) (future F, err error) {
	done := make(chan F, 1)
	go func() {
		f := start(n.raft)
		_ = f.Error() // waits; the error is read again below
		done <- f
	}()
	select {
	case future = <-done:
		return future, future.Error()
	case <-ctx.Done():
		return future, ctx.Err()
	case <-n.ended:
	}
	select {
	case future = <-done: // it completed before Raft ended
		return future, future.Error()
	default:
		return future, ErrClosed
	}
}
