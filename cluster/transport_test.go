package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// answers is a raft.Transport whose AppendEntries always succeeds.
type answers struct{ raft.Transport }

func (answers) AppendEntries(_ raft.ServerID, _ raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	resp.Term, resp.Success = args.Term, true
	return nil
}

// TestAckOfAnother: an acknowledgment by a replica does not count for a replica that was created in
// its place.
func TestAckOfAnother(t *testing.T) {
	tr := newTransport(answers{})
	before := tr.now()
	was, is := ReplicaAddr("127.0.0.1:1", 1), ReplicaAddr("127.0.0.1:1", 2)
	args := &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, Entries: []*raft.Log{{Index: 8}}}
	if err := tr.AppendEntries("a", was, args, new(raft.AppendEntriesResponse)); err != nil {
		t.Fatal(err)
	}
	members := func(addr raft.ServerAddress) raft.Configuration {
		return raft.Configuration{Servers: []raft.Server{{ID: "self"}, {ID: "a", Address: addr}}}
	}
	if !tr.majority(members(was), "self", 3, before) || tr.majority(members(is), "self", 3, before) {
		t.Error("the acknowledgment counts for the new replica, or not for the old one")
	}
}

// sentRequests is a raft.AppendPipeline that does nothing but record the requests.
type sentRequests struct {
	raft.AppendPipeline
	sent []*raft.AppendEntriesRequest
}

func (r *sentRequests) AppendEntries(args *raft.AppendEntriesRequest, _ *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	r.sent = append(r.sent, args)
	return nil, nil
}

// TestShortRequests: a request carries entries of at most requestBytes, or one. What it does not
// carry counts neither as sent nor as committed.
func TestShortRequests(t *testing.T) {
	const most = requestBytes
	for _, c := range []struct {
		sizes         []int
		kept          int
		commit, lower uint64 // LeaderCommitIndex, before and after
	}{
		{nil, 0, 20, 20},
		{[]int{1, 1, 1}, 3, 20, 20},
		{[]int{most - 1, 1}, 2, 20, 20},
		{[]int{most, 1}, 1, 20, 11},
		{[]int{2 * most}, 1, 20, 20},
		{[]int{2 * most, 0, 1}, 1, 20, 11},
		{[]int{0, 2 * most}, 1, 20, 11},
		{[]int{most / 4, most / 2, most / 2, 1}, 2, 20, 12},
		{[]int{most / 4, most / 2, most / 2, 1}, 2, 11, 11},
	} {
		request := func() *raft.AppendEntriesRequest {
			args := &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 10, LeaderCommitIndex: c.commit}
			for i, size := range c.sizes {
				args.Entries = append(args.Entries, &raft.Log{Index: 11 + uint64(i), Data: make([]byte, size/2), Extensions: make([]byte, size-size/2)})
			}
			return args
		}
		tr, piped := newTransport(answers{}), &sentRequests{}
		args, inPipeline := request(), request()
		if err := tr.AppendEntries("a", "a", args, new(raft.AppendEntriesResponse)); err != nil {
			t.Fatal(err)
		}
		if at, _ := tr.holding(replica{"a", "a"}, 3); at != 10+uint64(c.kept) {
			t.Errorf("%d: the follower has entry %d, want %d", c.sizes, at, 10+c.kept)
		}
		if _, err := (&pipeline{AppendPipeline: piped, t: tr}).AppendEntries(inPipeline, new(raft.AppendEntriesResponse)); err != nil || len(piped.sent) != 1 || piped.sent[0] != inPipeline {
			t.Fatal(piped.sent, err)
		}
		for _, a := range []*raft.AppendEntriesRequest{args, inPipeline} {
			if len(a.Entries) != c.kept || a.LeaderCommitIndex != c.lower {
				t.Errorf("%d: %d entries are sent, committed up to %d; want %d, %d", c.sizes, len(a.Entries), a.LeaderCommitIndex, c.kept, c.lower)
			}
		}
	}
}

// TestCatchUpInParts: a follower that was down receives large entries in several requests of
// bounded size, and so do followers that are up to date, through a pipeline.
func TestCatchUpInParts(t *testing.T) {
	g := newGroup(t, 3)
	const most = 64 << 10
	g.config, g.net.pipelines, g.test.most = patientLeader, true, most
	var mu sync.Mutex
	largest, entries := map[bool]int{}, map[bool]int{} // of a request, by whether it was in a pipeline
	g.net.sent = func(a *raft.AppendEntriesRequest, piped bool) {
		size := 0
		for _, e := range a.Entries {
			size += len(e.Data)
		}
		mu.Lock()
		defer mu.Unlock()
		largest[piped], entries[piped] = max(largest[piped], size), max(entries[piped], len(a.Entries))
	}
	g.startAll(t)
	value := strings.Repeat("v", most/8)
	write := func(round int) {
		t.Helper()
		leader := g.node(g.leader(t))
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				if _, err := leader.Propose(context.Background(), fmt.Appendf(nil, "k%d.%d %s", round, i, value)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	away := (g.leader(t) + 1) % 3
	if err := g.stop(away); err != nil {
		t.Fatal(err)
	}
	write(1)
	if err := g.start(away); err != nil {
		t.Fatal(err)
	}
	g.waitApplied(t)
	write(2)
	g.waitApplied(t)
	mu.Lock()
	defer mu.Unlock()
	if entries[true] == 0 || entries[false] < 2 {
		t.Errorf("a request in a pipeline had up to %d entries, another one %d", entries[true], entries[false])
	}
	if size := max(largest[false], largest[true]); size > most {
		t.Errorf("a request has entries of %d bytes, more than %d", size, most)
	}
}

// TestEntryOfSnapshotStays: the entry at which a snapshot ends stays in the log while the
// snapshot is sent, since its receiver needs the entries after that, even if there is a newer
// snapshot.
func TestEntryOfSnapshotStays(t *testing.T) {
	needed := uint64(1 << 62)
	l, err := openLog(t.TempDir(), 1<<10, hclog.NewNullLogger(), func(most uint64) (uint64, int64) { return min(needed, most), 0 }, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range uint64(100) {
		if err := l.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: []byte("some")}); err != nil {
			t.Fatal(err)
		}
	}
	first := func(want uint64) {
		t.Helper()
		if got, err := l.FirstIndex(); got != want || err != nil {
			t.Errorf("the log begins with %d, %v, want %d", got, err, want)
		}
	}
	cut := func(to uint64) {
		t.Helper()
		if err := l.DeleteRange(1, to); err != nil {
			t.Fatal(err)
		}
	}
	cut(40) // a snapshot that ends with 40
	first(40)
	needed = 40 // it is being sent
	cut(60)     // another one was taken
	first(40)
	needed = 50
	cut(60)
	first(50)
	needed = 1 << 62
	cut(60)
	first(60)
	if err := l.DeleteRange(60, 100); err != nil { // all of it, as when a snapshot was installed
		t.Fatal(err)
	}
	first(0)
}
