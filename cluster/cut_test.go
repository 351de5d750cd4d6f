package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const cutEnv = "SIFT_CLUSTER_CUT"

// TestMain also runs install, in the process that is killed while it installs a snapshot.
func TestMain(m *testing.M) {
	if at := os.Getenv(cutEnv); at != "" {
		install(at)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// install receives the snapshot in $DIR/from, installs it on the node in $DIR/to, and kills itself
// at a step.
func install(at string) {
	dir := os.Getenv("DIR")
	die := func(name string) {
		if name == at {
			self, _ := os.FindProcess(os.Getpid())
			_ = self.Kill()
			select {}
		}
	}
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	from, err := NewSnapshotStore(filepath.Join(dir, "from"))
	check(err)
	to, err := NewSnapshotStore(filepath.Join(dir, "to", "snapshots"))
	check(err)
	f, err := OpenFSM(filepath.Join(dir, "to", "state"), appendApply, small())
	check(err)
	f.test.step = die
	list, err := from.List()
	check(err)
	m, r, err := from.Open(list[0].ID)
	check(err)
	sink, err := to.Create(m.Version, m.Index, m.Term, m.Configuration, m.ConfigurationIndex, nil)
	check(err)
	buf := make([]byte, 1000)
	for sent := int64(0); sent < m.Size; {
		n, err := r.Read(buf)
		check(err)
		_, err = sink.Write(buf[:n])
		check(err)
		if sent < m.Size/2 && sent+int64(n) >= m.Size/2 {
			die("half received")
		}
		sent += int64(n)
	}
	die("received")
	check(sink.Close())
	die("stored")
	check(restore(f, to, sink.ID()))
	die("installed")
}

// TestInstallCut kills the process that receives and installs a snapshot, at each step and at
// random moments. Afterwards the node starts, with its old contents or with those of the snapshot.
func TestInstallCut(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 5))
	cuts := []string{"half received", "received", "stored", "begin", "filled", "opened", "end", "installed"}
	for i := range 12 {
		cuts = append(cuts, fmt.Sprint("after ", i))
	}
	installed := 0
	for _, cut := range cuts {
		dir := t.TempDir()
		leader, store := openFSM(t, filepath.Join(dir, "leader")), newStore(t, filepath.Join(dir, "from"))
		applyTo(t, leader, 1, 50)
		takeSnapshot(t, leader, store, 52)
		f := openFSM(t, filepath.Join(dir, "to", "state"))
		applyTo(t, f, 1, 7)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}

		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), cutEnv+"="+cut, "DIR="+dir)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if len(cut) > 6 && cut[:6] == "after " {
			time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
			cmd.Process.Kill()
		}
		cmd.Wait()
		if cmd.ProcessState.ExitCode() == 1 {
			t.Fatalf("%s: the process failed", cut)
		}

		f = openFSM(t, filepath.Join(dir, "to", "state"))
		snapshots := newStore(t, filepath.Join(dir, "to", "snapshots"))
		list, err := snapshots.List()
		if err != nil {
			t.Fatalf("%s: %v", cut, err)
		}
		want := tokens(1, 7)
		if len(list) > 0 {
			installed++
			want = tokens(1, 50)
			if err := restore(f, snapshots, list[0].ID); err != nil {
				t.Fatalf("%s: %v", cut, err)
			}
		} else if cut == "stored" || cut == "installed" {
			t.Errorf("%s: the snapshot is gone", cut)
		}
		wantList(t, f, want)
		applyTo(t, f, 53, 60)
		wantList(t, f, want+tokens(53, 60))
		for _, left := range []string{"state/state-*", "state/checkpoint-*", "snapshots/*"} {
			names, _ := filepath.Glob(filepath.Join(dir, "to", left))
			if len(names) > 1 {
				t.Errorf("%s: more than one file is left: %v", cut, names)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d kills came after the snapshot was stored", installed, len(cuts))
}

// sendSnapshot copies a node's newest snapshot into the directory of a stopped node.
func (g *group) sendSnapshot(t *testing.T, from *Node, to int) {
	t.Helper()
	dir := func(id raft.ServerID) string { return filepath.Join(g.dir, string(id), "snapshots") }
	store, err := NewSnapshotStore(dir(from.id))
	if err != nil {
		t.Fatal(err)
	}
	list, err := store.List()
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	send(t, store, list[0].ID, newStore(t, dir(g.servers[to].ID)))
}

// TestCutBeforeLog: Raft removes the log after it has installed a snapshot. If the process is
// killed in between, the log ends before the snapshot and would accept no further entry. The node
// must remove it when it starts again.
func TestCutBeforeLog(t *testing.T) {
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
	from := g.node(g.leader(t))
	if err := from.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	g.sendSnapshot(t, from, away)
	if err := g.start(away); err != nil {
		t.Fatal(err)
	}
	if got := g.waitApplied(t); got["k199"] != "v," || got["k"] != "v," {
		t.Errorf("k199 is %q, k is %q, want %q for both", got["k199"], got["k"], "v,")
	}
}

// TestCutBeforeOtherLog is like TestCutBeforeLog, but the log continues after the snapshot, with
// entries of a leader that was deposed before any other node had them.
func TestCutBeforeOtherLog(t *testing.T) {
	g := newGroup(t, 3)
	g.config = noSnapshots
	g.startAll(t)
	g.propose(t, "k v")
	g.waitApplied(t)
	lead := g.leader(t)
	term := g.node(lead).raft.CurrentTerm()
	if err := g.stop(lead); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		g.propose(t, fmt.Sprintf("k%d v", i))
	}
	from := g.node(g.leader(t))
	if err := from.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	l, err := openLog(filepath.Join(g.dir, string(g.servers[lead].ID), "raft"), 4<<10, hclog.NewNullLogger(), func(most uint64) (uint64, int64) { return most, 0 }, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	last, err := l.LastIndex()
	for i := range uint64(1000) {
		err = errors.Join(err, l.StoreLog(&raft.Log{Index: last + 1 + i, Term: term, Data: []byte("lost v")}))
	}
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	g.sendSnapshot(t, from, lead)
	if err := g.start(lead); err != nil {
		t.Fatal(err)
	}
	if got := g.waitApplied(t); got["k199"] != "v," || got["k"] != "v," || got["lost"] != "" {
		t.Errorf("k199 is %q, k %q, lost %q", got["k199"], got["k"], got["lost"])
	}
}

// TestSnapshotAhead: a node that has installed a snapshot that holds commands after its index is
// killed before it has received their entries. It starts again.
func TestSnapshotAhead(t *testing.T) {
	from := openFSM(t, t.TempDir())
	applyTo(t, from, 1, 10)
	store := newStore(t, t.TempDir())
	id := takeSnapshot(t, from, store, 5)
	g := newGroup(t, 1)
	t.Cleanup(func() { g.stopAll(t) })
	send(t, store, id, newStore(t, filepath.Join(g.dir, "n0", "snapshots")))
	for range 2 { // the first round installs the snapshot, the second finds it installed
		if err := g.start(0); err != nil {
			t.Fatal(err)
		}
		wantList(t, g.node(0).fsm, tokens(1, 10))
		if err := g.stop(0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestForeignLog: a database that is ahead of its log is rejected, since new commands would count
// as applied.
func TestForeignLog(t *testing.T) {
	g := newGroup(t, 1)
	g.startAll(t)
	for range 10 {
		g.propose(t, "k v")
	}
	if err := g.stop(0); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(g.dir, "n0", "raft")); err != nil {
		t.Fatal(err)
	}
	if err := g.start(0); err == nil {
		t.Error("a node without the log of its database starts")
	}
}

var _ raft.FSM = (*FSM)(nil)
