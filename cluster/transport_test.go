package cluster

import (
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
