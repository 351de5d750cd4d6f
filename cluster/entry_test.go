package cluster

import (
	"fmt"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// TestCatchUpEntryOfSnapshot: while a node receives a snapshot, the log keeps the entry at which
// the snapshot ends, which the node needs to check the next one.
func TestCatchUpEntryOfSnapshot(t *testing.T) {
	trans := newTransport(nil)
	trans.sends[&raft.InstallSnapshotRequest{LastLogIndex: 50}] = true
	l, err := openLog(t.TempDir(), 256, hclog.NewNullLogger(), trans.needed, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range uint64(100) {
		if err := l.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []uint64{48, 49, 50, 51, 90} {
		first, _ := l.FirstIndex()
		if err := l.DeleteRange(first, to); err != nil {
			t.Fatal(err)
		}
		if first, _ = l.FirstIndex(); first != min(to, 50) {
			t.Errorf("with entries up to %d dropped, the log begins with %d", to, first)
		}
	}
}
