package cluster

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

// ReadStale calls fn with the database as it is on this node, which may lag behind, without limit
// while the node is cut off from the others. It shows only committed commands. It goes back in time
// only after a power failure, until the node has applied the log again, and by RestoreBackup.
func (n *Node) ReadStale(fn func(*View) error) error { return n.fsm.View(fn) }

// Read calls fn with a view that includes every command that any node had acknowledged when Read
// was called. Only the leader can do this; other nodes return ErrNotLeader. If the node stops
// leading meanwhile, Read may also return raft.ErrLeadershipLost or
// raft.ErrLeadershipTransferInProgress.
//
// The leader notes the commit index. It waits until a majority has answered a heartbeat that was
// sent after that, which shows that there was no other leader when Read was called, and until the
// log is applied up to that index. Read does not depend on clocks. Read writes nothing, with two
// exceptions. A new leader first commits an entry in its term: until then it does not know what is
// committed. And if the log is not applied within 20 ms, Read adds a barrier to it.
func (n *Node) Read(ctx context.Context, fn func(*View) error) error {
	if err := n.linearize(ctx); err != nil {
		return err
	}
	return n.fsm.View(fn)
}

func (n *Node) linearize(ctx context.Context) error {
	term := n.raft.CurrentTerm()
	if err := n.lead(ctx, term); err != nil {
		return err
	}
	index := n.raft.CommitIndex()
	if err := n.Confirm(ctx, term); err != nil {
		return err
	}
	return n.applied(ctx, index)
}

// Confirm returns nil if the node leads in a term, and no other node had been elected in a later
// one when Confirm was called: a majority has answered a heartbeat that was sent since. If the node
// had already applied an entry of the term, its state at the time of the call was the newest that
// anyone had seen.
func (n *Node) Confirm(ctx context.Context, term uint64) error {
	after := n.trans.now()
	for {
		// This sends heartbeats at once and waits for the answers of a majority, which may be to
		// heartbeats that were sent before.
		if err := n.Do(ctx, (*raft.Raft).VerifyLeader); err != nil {
			return err
		}
		if n.raft.CurrentTerm() != term {
			return ErrNotLeader
		}
		if n.confirmed(term, after) {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lead ensures that the leader has committed an entry in its term, and has applied all entries
// before it.
func (n *Node) lead(ctx context.Context, term uint64) error {
	select {
	case n.barrier <- struct{}{}:
		defer func() { <-n.barrier }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if n.ledTerm == term {
		return nil
	}
	if err := n.applyAll(ctx); err != nil {
		return err
	}
	// If another term has begun meanwhile, this one does not matter any more.
	n.ledTerm = term
	return nil
}

// confirmed reports whether a majority has recognized the leader of a term in answers to heartbeats
// that were sent after the time after.
func (n *Node) confirmed(term, after uint64) bool {
	future := n.raft.GetConfiguration()
	if future.Error() != nil {
		return false
	}
	return n.trans.majority(future.Configuration(), n.id, term, after)
}

// applyAll returns when everything that was in the log before is applied. Raft does not pass
// barriers, nor the first entries of terms, to the FSM, so applyAll advances it.
func (n *Node) applyAll(ctx context.Context) error {
	future, err := await(ctx, n, func(r *raft.Raft) raft.Future { return r.Barrier(0) })
	if err == nil {
		n.fsm.advance(future.(raft.IndexFuture).Index(), 0)
	}
	return err
}

// applied waits until the log is applied up to index. It may be applied further than the FSM knows,
// as after RestoreBackup; another barrier then proves it.
func (n *Node) applied(ctx context.Context, index uint64) error {
	soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	err := n.fsm.wait(soon, index)
	cancel()
	if err == nil || ctx.Err() != nil || n.fsm.Err() != nil {
		return err
	}
	if err := n.applyAll(ctx); err != nil {
		return err
	}
	return n.fsm.Err()
}
