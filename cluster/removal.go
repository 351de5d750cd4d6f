package cluster

import (
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// keepVote drops from a request the first configuration that takes this node's vote and is not
// known to be committed, and what follows it; cut reports whether there is one. Raft's nodes do not
// campaign once they have stored such a configuration. If the leader then fails, and no other voter
// has stored it either, this node rejects the others, whose logs are shorter, and if its vote is
// needed, nobody leads: see section 4.2.2 of Ongaro's thesis.
//
// Only a configuration of the leader's own term is dropped. If it is not committed yet, it is the
// leader's last, since a leader appends one only when the previous one is committed; so it can be
// committed without this node. Those of earlier terms may be needed before a later one can be
// committed, and a leader that has just started does not know that they are.
func (n *Node) keepVote(a *raft.AppendEntriesRequest) (kept *raft.AppendEntriesRequest, cut bool) {
	for i, e := range a.Entries {
		if e.Type != raft.LogConfiguration || e.Index <= a.LeaderCommitIndex || e.Term != a.Term {
			continue
		}
		if n.votes(raft.DecodeConfiguration(e.Data).Servers) || !n.votes(n.servers()) {
			continue
		}
		b := *a // it may be the sender's
		b.Entries = a.Entries[:i]
		return &b, true
	}
	return a, false
}

// votes reports whether this node is a voter.
func (n *Node) votes(servers []raft.Server) bool {
	return slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == n.id && s.Suffrage == raft.Voter })
}

// servers returns the members of the newest configuration in the log.
func (n *Node) servers() []raft.Server {
	f := n.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	return f.Configuration().Servers
}

// AddedAfter reports whether the log holds, after an index, members that include this node. They
// may not be committed or applied yet.
func (n *Node) AddedAfter(index uint64) (bool, error) {
	first, err := n.log.FirstIndex()
	if err != nil {
		return false, err
	}
	last, err := n.log.LastIndex()
	if err != nil {
		return false, err
	}
	for i := max(index+1, first); i <= last; i++ {
		var entry raft.Log
		if err := n.log.WAL.GetLog(i, &entry); err != nil { // log.GetLog could end the caller's goroutine
			return false, err
		}
		if entry.Type != raft.LogConfiguration {
			continue
		}
		members := raft.DecodeConfiguration(entry.Data).Servers
		if slices.ContainsFunc(members, func(s raft.Server) bool { return s.ID == n.id }) {
			return true, nil
		}
	}
	return false, nil
}

// removal is a committed change that removes a member, or gives it another address.
type removal struct {
	server raft.Server
	index  uint64
	moved  bool // the member has another address
}

// tellRemoved tells members that they have been removed, while this node leads. Raft sends them the
// change only before it is committed, when keepVote drops it. A node that cannot be reached is not
// told. Once requests to removed members have ended, idle connections are closed. Those to removed
// members, and to former addresses of others, would remain open forever.
func (n *Node) tellRemoved() {
	defer close(n.told)
	var ended <-chan time.Time
	for {
		select {
		case r := <-n.fsm.removals:
			if !r.moved {
				n.tell(r)
			}
			ended = time.After(requestTimeout)
		case <-ended:
			n.trans.closeIdle()
		case <-n.closing:
			return
		}
	}
}

// tell sends a removal to the removed member once, and waits for the answer, or for Close.
func (n *Node) tell(r removal) {
	var entry, before raft.Log
	err := errors.Join(n.log.GetLog(r.index, &entry), n.log.GetLog(r.index-1, &before))
	if err != nil || n.raft.State() != raft.Leader || entry.Term != n.raft.CurrentTerm() {
		return
	}
	self := n.trans.EncodePeer(n.id, n.trans.LocalAddr())
	args := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: n.protocol, ID: []byte(n.id), Addr: self},
		Term:      entry.Term, LeaderCommitIndex: r.index,
		PrevLogEntry: before.Index, PrevLogTerm: before.Term, Entries: []*raft.Log{&entry},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = n.trans.AppendEntries(r.server.ID, r.server.Address, args, new(raft.AppendEntriesResponse))
	}()
	select {
	case <-done:
	case <-n.closing:
	}
}
