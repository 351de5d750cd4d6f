package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestGroup: three nodes agree, followers reject commands and reads, and a node that was down
// catches up.
func TestGroup(t *testing.T) {
	g := newGroup(t, 3)
	g.startAll(t)
	for i := range 10 {
		g.propose(t, fmt.Sprintf("k%d v", i))
	}
	away := (g.leader(t) + 1) % 3
	if err := g.stop(away); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		g.propose(t, "k0 w")
	}
	if err := g.start(away); err != nil {
		t.Fatal(err)
	}
	got := g.waitApplied(t)
	if want := "v," + strings.Repeat("w,", 10); got["k0"] != want {
		t.Errorf("k0 is %q, want %q", got["k0"], want)
	}
	leader := g.leader(t)
	for i := range 3 {
		if i == leader || g.node(i).raft.State() == raft.Leader {
			continue
		}
		if _, err := g.node(i).Propose(t.Context(), []byte("k x")); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a follower accepts a command: %v", err)
		}
		if err := g.node(i).Read(t.Context(), func(*View) error { return nil }); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a follower reads as if it led: %v", err)
		}
	}
}

// TestReadsWriteNothing: reads add nothing to the log once the leader has begun its term.
func TestReadsWriteNothing(t *testing.T) {
	g := newGroup(t, 1)
	g.startAll(t)
	n := g.node(g.leader(t))
	before := n.raft.LastIndex()
	for range 3 {
		if err := n.Read(t.Context(), func(*View) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if after := n.raft.LastIndex(); after != before {
		t.Errorf("the log ends with entry %d; before the reads it ended with %d", after, before)
	}
}

// TestCommandErrors: an error of Apply reaches the caller, and changes only the applied index.
func TestCommandErrors(t *testing.T) {
	g := newGroup(t, 3)
	g.startAll(t)
	g.propose(t, "k v")
	before := g.node(g.leader(t)).fsm.Applied()
	for _, c := range []struct {
		command string
		want    error
	}{{"nonsense", errBadCommand}, {Reserved + "k v", ErrReserved}} {
		err := ErrNotLeader
		for errors.Is(err, ErrNotLeader) || errors.Is(err, ErrUnknown) {
			_, err = g.node(g.leader(t)).Propose(t.Context(), []byte(c.command))
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%q returns %v, want %v", c.command, err, c.want)
		}
	}
	if n := g.node(g.leader(t)); n.fsm.Applied() < before+2 {
		t.Error("a command that fails does not advance the applied index")
	}
	g.waitApplied(t)
}

// TestIsolatedLeader: a leader that is cut off acknowledges nothing and serves no reads, even
// while it believes that it leads.
func TestIsolatedLeader(t *testing.T) {
	g := newGroup(t, 3)
	g.config = calm // the leader takes a second to notice that it is cut off
	g.startAll(t)
	g.propose(t, "k v")
	old := g.leader(t)
	g.isolate(old)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := g.node(old).Read(ctx, func(*View) error { return nil }); err == nil {
		t.Error("a leader that is cut off serves reads")
	}
	if _, err := g.node(old).Propose(ctx, []byte("k lost")); err == nil {
		t.Error("a leader that is cut off acknowledges a command")
	}
	if list := g.propose(t, "k w"); list != "v,w," {
		t.Errorf("the new leader: %q", list)
	}
	g.net.heal()
	if got := g.waitApplied(t); got["k"] != "v,w," {
		t.Errorf("k is %q", got["k"])
	}
}

// TestCatchUpBySnapshot: a node that has missed more than the log holds receives a snapshot.
func TestCatchUpBySnapshot(t *testing.T) {
	g := newGroup(t, 3)
	g.startAll(t)
	g.propose(t, "k v")
	away := (g.leader(t) + 1) % 3
	if err := g.stop(away); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		g.propose(t, fmt.Sprintf("k%d v", i))
	}
	for i := range 3 {
		if i != away {
			if err := g.node(i).raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := g.start(away); err != nil {
		t.Fatal(err)
	}
	g.waitApplied(t)
	if g.node(away).fsm.states.next == 2 {
		t.Error("the node has not installed a snapshot")
	}
	// Once more, after Raft has emptied the log.
	if err := g.stop(away); err != nil {
		t.Fatal(err)
	}
	g.propose(t, "k w")
	if err := g.start(away); err != nil {
		t.Fatal(err)
	}
	if got := g.waitApplied(t); got["k"] != "v,w," {
		t.Errorf("k is %q", got["k"])
	}
}

// TestCatchUpUnderLoad: while a snapshot is being sent to a node, so much is written that a
// truncated log would no longer reach back to that snapshot. The node needs no second one.
func TestCatchUpUnderLoad(t *testing.T) {
	g := newGroup(t, 3)
	g.config = calm
	g.startAll(t)
	lead := g.leader(t)
	away := (lead + 1) % 3
	if err := g.stop(away); err != nil {
		t.Fatal(err)
	}
	write := func() { // and take a snapshot
		for i := range 200 {
			g.propose(t, fmt.Sprintf("k%d v", i))
		}
		if err := g.node(lead).raft.Snapshot().Error(); err != nil && err != raft.ErrNothingNewToSnapshot {
			t.Error(err)
		}
	}
	write()
	var sent atomic.Int64
	g.net.mu.Lock()
	g.net.snapshot = func() { sent.Add(1); write() }
	g.net.mu.Unlock()
	if err := g.start(away); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); sent.Load() == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	g.waitApplied(t)
	if n := sent.Load(); n != 1 {
		t.Errorf("%d snapshots were sent, want 1", n)
	}
	g.net.mu.Lock()
	g.net.snapshot = nil
	g.net.mu.Unlock()
	write()
	if first, _ := g.node(lead).log.FirstIndex(); first+250 < g.node(lead).raft.LastIndex() {
		t.Errorf("the log still begins with entry %d, and ends with %d", first, g.node(lead).raft.LastIndex())
	}
}

// TestBackup: a backup restored into another group replaces its contents. A damaged one changes
// nothing.
func TestBackup(t *testing.T) {
	g := newGroup(t, 3)
	g.startAll(t)
	for i := range 60 {
		g.propose(t, fmt.Sprintf("k%d v", i))
	}
	leader := g.leader(t)
	var backup bytes.Buffer
	size, err := g.node(leader).Backup(t.Context(), &backup)
	if err != nil || size != int64(backup.Len()) {
		t.Fatalf("%d of %d bytes, %v", size, backup.Len(), err)
	}
	if _, err := g.node((leader+1)%3).Backup(t.Context(), io.Discard); err == nil {
		t.Error("a follower makes a backup, which may be stale")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.node(leader).Backup(ctx, io.Discard); err == nil {
		t.Error("a canceled backup returns no error")
	}
	h := newGroup(t, 3)
	h.config = calm // a restore that loses its leader is not repeated
	h.startAll(t)
	h.propose(t, "other v")
	to := h.node(h.leader(t))
	flipped := bytes.Clone(backup.Bytes())
	flipped[len(flipped)/2] ^= 1
	noDatabase := append(appendHeader(nil, streamHeader{index: 1, applied: 1, held: 1}), 0, 0)
	if err := to.RestoreBackup(bytes.NewReader(noDatabase), int64(len(noDatabase))); err == nil {
		t.Error("a backup without a database is restored")
	}
	other := bytes.Clone(backup.Bytes())
	held, err := decodeHeader(other[:streamHeaderLen])
	if err != nil {
		t.Fatal(err)
	}
	held.held++
	copy(other, appendHeader(nil, held))
	if err := to.RestoreBackup(bytes.NewReader(other), size); err == nil {
		t.Error("a backup whose header belongs to another database is restored")
	}
	for name, damaged := range map[string][]byte{"cut": backup.Bytes()[:backup.Len()-1], "flipped": flipped, "empty": nil, "of one byte": {1}} {
		if err := to.RestoreBackup(bytes.NewReader(damaged), size); err == nil {
			t.Errorf("a backup that is %s is restored", name)
		}
	}
	if got := h.waitApplied(t); got["other"] != "v," || got["k0"] != "" {
		t.Errorf("after damaged backups, other is %q, k0 %q", got["other"], got["k0"])
	}
	if err := to.RestoreBackup(&backup, size); err != nil {
		t.Fatal(err)
	}
	h.propose(t, "k0 w")
	check := func() {
		t.Helper()
		got := h.waitApplied(t)
		if got["k0"] != "v,w," || got["k59"] != "v," || got["other"] != "" {
			t.Errorf("after the restore: k0 is %q, k59 %q, other %q", got["k0"], got["k59"], got["other"])
		}
	}
	check()
	h.stopAll(t)
	h.startAll(t)
	check()
}

// TestCloseDuringRestore: a node can be closed while it restores a backup.
func TestCloseDuringRestore(t *testing.T) {
	g := newGroup(t, 1)
	g.config = noSnapshots
	var blocks atomic.Bool
	blocked, release := make(chan struct{}), make(chan struct{})
	g.test.step = func(name string) {
		if name == "filled" && blocks.CompareAndSwap(true, false) {
			close(blocked)
			<-release
		}
	}
	g.startAll(t)
	g.propose(t, "k v")
	n := g.node(g.leader(t))
	var backup bytes.Buffer
	size, err := n.Backup(t.Context(), &backup)
	if err != nil {
		t.Fatal(err)
	}
	g.propose(t, "k w")
	blocks.Store(true)
	restored, closed := make(chan error, 1), make(chan error, 1)
	go func() { restored <- n.RestoreBackup(&backup, size) }()
	<-blocked
	go func() { closed <- g.stop(0) }()
	time.Sleep(300 * time.Millisecond)
	close(release)
	for range 2 {
		select {
		case <-restored: // with or without an error
		case err := <-closed:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("a call does not return")
		}
	}
	g.startAll(t)
	if list := g.propose(t, "k x"); list != "v,x," {
		t.Errorf("after the restore, k is %q", list)
	}
}

// TestRestoreFails: a node that cannot install a backup stops, and installs it when it starts
// again.
func TestRestoreFails(t *testing.T) {
	g := newGroup(t, 1)
	g.config = noSnapshots
	g.startAll(t)
	g.propose(t, "k v")
	n := g.node(g.leader(t))
	var backup bytes.Buffer
	size, err := n.Backup(t.Context(), &backup)
	if err != nil {
		t.Fatal(err)
	}
	g.propose(t, "k w")
	inTheWay := filepath.Join(g.dir, "n0", "state", fmt.Sprintf("state-%d", n.fsm.states.next))
	if err := os.WriteFile(inTheWay, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := n.RestoreBackup(&backup, size); err == nil {
		t.Error("the backup is restored although there is a file where the database should be")
	}
	select {
	case <-n.fsm.Failed():
	case <-time.After(10 * time.Second):
		t.Error("the node keeps running")
	}
	if err := g.stop(0); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	g.startAll(t)
	if list := g.propose(t, "k x"); list != "v,x," {
		t.Errorf("after the restore, k is %q", list)
	}
}

// TestLateSnapshot: a snapshot that is behind the follower, such as one that was sent twice,
// removes nothing. Raft itself would drop the whole log.
func TestLateSnapshot(t *testing.T) {
	g := newGroup(t, 3)
	g.config = noSnapshots
	g.startAll(t)
	for i := range 20 {
		g.propose(t, fmt.Sprintf("a v%d", i))
	}
	leader := g.leader(t)
	from, to := g.node(leader), (leader+1)%3
	if err := from.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	snapshots, err := from.snapshots.List()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		g.propose(t, fmt.Sprintf("a w%d", i))
	}
	want := g.waitApplied(t)
	sink, err := g.node(to).snapshots.Create(raft.SnapshotVersionMax, snapshots[0].Index, snapshots[0].Term, raft.Configuration{}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write([]byte{0}); !errors.Is(err, errCovered) {
		t.Errorf("an old snapshot written to the store: %v, want %v", err, errCovered)
	}
	if err := sink.Cancel(); err != nil {
		t.Error(err)
	}
	for range 2 { // if the first changed the log, the second would show it
		meta, data, err := from.snapshots.Open(snapshots[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		before, err := g.node(to).log.LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		req := &raft.InstallSnapshotRequest{
			RPCHeader:       raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(from.id), Addr: []byte(from.id)},
			SnapshotVersion: raft.SnapshotVersionMax, Term: from.raft.CurrentTerm(), LastLogIndex: meta.Index,
			LastLogTerm: meta.Term, Configuration: raft.EncodeConfiguration(meta.Configuration),
			ConfigurationIndex: meta.ConfigurationIndex, Size: meta.Size,
		}
		var resp raft.InstallSnapshotResponse
		s := g.servers[to]
		err = from.trans.InstallSnapshot(s.ID, s.Address, req, &resp, data)
		if err != nil || !resp.Success {
			t.Errorf("the response to the snapshot is %+v, %v", resp, err)
		}
		data.Close()
		if last, err := g.node(to).log.LastIndex(); err != nil || last < before {
			t.Errorf("the log ended with entry %d, and now ends with %d (%v)", before, last, err)
		}
		if err := g.restart(to, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := g.converge(t)
	if err != nil {
		t.Fatal(err)
	}
	if got["a"] != want["a"] {
		t.Errorf("a is %q, want %q", got["a"], want["a"])
	}
}

// TestRestoredAlone: a leader that has restored a backup, and was deposed before the others had
// that backup, does not append entries of the new leader's log to its own, since its database
// differs.
func TestRestoredAlone(t *testing.T) {
	g := newGroup(t, 1)
	g.config = noSnapshots
	g.startAll(t)
	g.propose(t, "k v")
	n := g.node(g.leader(t))
	var backup bytes.Buffer
	size, err := n.Backup(t.Context(), &backup)
	if err == nil {
		err = n.RestoreBackup(&backup, size)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := n.snapshots.latest()
	if err != nil {
		t.Fatal(err)
	}
	for _, term := range []uint64{s.Term, s.Term + 1} {
		here, next := &raft.Log{Index: s.Index, Term: term}, &raft.Log{Index: s.Index + 1, Term: term}
		after := &raft.AppendEntriesRequest{PrevLogEntry: s.Index, PrevLogTerm: term, Entries: []*raft.Log{next}}
		across := &raft.AppendEntriesRequest{PrevLogEntry: s.Index - 1, PrevLogTerm: s.Term, Entries: []*raft.Log{here, next}}
		all := &raft.AppendEntriesRequest{Entries: []*raft.Log{here, next}}
		before := &raft.AppendEntriesRequest{PrevLogEntry: s.Index - 2, PrevLogTerm: s.Term, Entries: []*raft.Log{{Index: s.Index - 1, Term: term}}}
		for _, a := range []*raft.AppendEntriesRequest{after, across, all, before} {
			if b := n.fit(a); (b.PrevLogEntry > 0) != (term > s.Term) {
				t.Errorf("term %d: after entry %d, Raft compares entry %d", term, a.PrevLogEntry, b.PrevLogEntry)
			}
		}
	}
}

// TestBehindSnapshot: a follower whose log begins after the leader's snapshot accepts the
// entries that follow that snapshot. It skips those that are in its own snapshot.
func TestBehindSnapshot(t *testing.T) {
	g := newGroup(t, 3)
	g.config = noSnapshots
	g.startAll(t)
	for range 20 {
		g.propose(t, "k v")
	}
	leader := g.leader(t)
	from, to := g.node(leader), (leader+1)%3
	var snapshot raft.Log
	index := from.raft.AppliedIndex()
	if err := from.log.GetLog(index, &snapshot); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		g.propose(t, fmt.Sprintf("k%d %s", i, strings.Repeat("w", 500))) // several segments of the log
	}
	g.waitApplied(t)
	if err := g.node(to).raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	if first, _ := g.node(to).log.FirstIndex(); first <= index {
		t.Fatalf("the log begins with %d", first)
	}
	last, _ := g.node(to).log.LastIndex()
	req := raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(from.id), Addr: []byte(from.id)},
		Term:      from.raft.CurrentTerm(), PrevLogEntry: index, PrevLogTerm: snapshot.Term,
	}
	for i := index + 1; i <= last; i++ {
		entry := new(raft.Log)
		if err := from.log.GetLog(i, entry); err != nil {
			t.Fatal(err)
		}
		req.Entries = append(req.Entries, entry)
	}
	for _, n := range []int{0, 3, len(req.Entries)} {
		some := req
		some.Entries = some.Entries[:n]
		var resp raft.AppendEntriesResponse
		s := g.servers[to]
		if err := from.trans.Transport.AppendEntries(s.ID, s.Address, &some, &resp); err != nil || !resp.Success {
			t.Errorf("%d entries are rejected: %v", n, err)
		}
	}
	g.waitApplied(t)
}

// TestInstallFails: a snapshot that was received but could not be installed does not count as
// installed; the node must get it again.
func TestInstallFails(t *testing.T) {
	g := newGroup(t, 3)
	g.config = noSnapshots
	g.startAll(t)
	lead := g.leader(t)
	away := (lead + 1) % 3
	if err := g.stop(away); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		g.propose(t, fmt.Sprintf("k%d v", i))
	}
	for i := range 3 {
		if i != away {
			if err := g.node(i).raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var once sync.Once
	var sent atomic.Bool
	g.net.mu.Lock()
	g.net.snapshot = func() {
		once.Do(func() { // a file where the directory should be
			if err := os.WriteFile(filepath.Join(g.dir, string(g.servers[away].ID), "state", "state-2"), nil, 0o644); err != nil {
				t.Error(err)
			}
			sent.Store(true)
		})
	}
	g.net.mu.Unlock()
	if err := g.start(away); err != nil {
		t.Fatal(err)
	}
	if _, err := g.converge(t); err != nil {
		t.Error(err)
	}
	g.net.mu.Lock()
	defer g.net.mu.Unlock()
	if g.net.snapshot = nil; !sent.Load() {
		t.Error("no snapshot was sent")
	}
}

// TestLargeCommand: the largest command can be read back from the log, and a larger one is
// rejected. raft-wal would write it but could not read it back.
func TestLargeCommand(t *testing.T) {
	g := newGroup(t, 1)
	g.config = calm
	if err := g.start(0); err != nil {
		t.Fatal(err)
	}
	defer func() { g.stop(0) }()
	g.propose(t, "a v")
	large := append(make([]byte, MaxCommandBytes-2), " v"...) // no key can be this long: the command enters the log, and fails
	if _, err := g.node(0).Propose(t.Context(), append(large, 0)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a command that is too large: %v", err)
	}
	if _, err := g.node(0).Propose(t.Context(), large); errors.Is(err, ErrTooLarge) {
		t.Error("the largest command is rejected")
	}
	g.propose(t, "a w")
	if err := g.restart(0, func() {}); err != nil {
		t.Fatal(err)
	}
	if last, err := g.node(0).log.LastIndex(); err != nil || g.node(0).fsm.Applied() == 0 || last < g.node(0).fsm.Applied() {
		t.Errorf("the log ends with entry %d (%v)", last, err)
	}
	if got, want := g.propose(t, "a x"), "v,w,x,"; got != want {
		t.Errorf("a is %q, want %q", got, want)
	}
}

// TestVoteForUnknown: a node that has missed configuration changes votes for a node that it
// does not know. Without its vote no node could lead.
func TestVoteForUnknown(t *testing.T) {
	g := newGroup(t, 4)
	g.startAll(t)
	change := func(what func(*raft.Raft) raft.IndexFuture) {
		t.Helper()
		var err error
		for range 100 {
			if err = what(g.node(g.leader(t)).raft).Error(); err == nil {
				return
			}
		}
		t.Fatal("the configuration cannot be changed: ", err)
	}
	remove := func(i int) {
		t.Helper()
		change(func(r *raft.Raft) raft.IndexFuture { return r.RemoveServer(g.servers[i].ID, 0, 0) })
	}
	g.propose(t, "a four")
	first := g.leader(t)
	unknown, behind := (first+1)%4, (first+2)%4
	remove(unknown)
	eventually(t, func() error {
		if servers := g.node(behind).raft.GetConfiguration().Configuration().Servers; len(servers) > 3 {
			return fmt.Errorf("the removal has not arrived: %v", servers)
		}
		return nil
	})
	g.isolate(behind)
	change(func(r *raft.Raft) raft.IndexFuture {
		return r.AddVoter(g.servers[unknown].ID, g.servers[unknown].Address, 0, 0)
	})
	removed := (first + 3) % 4
	if g.leader(t) == removed {
		removed = first
	}
	remove(removed)
	g.propose(t, "a three")
	for i := range 4 {
		if i != unknown && i != behind {
			if err := g.stop(i); err != nil {
				t.Error(err)
			}
		}
	}
	g.net.heal()
	if got, want := g.propose(t, "a two"), "four,three,two,"; got != want {
		t.Errorf("a is %q, want %q", got, want)
	}
}
