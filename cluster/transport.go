package cluster

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// ListenTCP returns a transport that listens at an address such as "10.0.0.1:7000",
// and is known to the others by it, or by advertise if that is not "". It neither
// encrypts nor authenticates: whoever reaches the port is a member. A request that
// is not answered within ten seconds fails; for a snapshot, longer by its size.
func ListenTCP(address, advertise string, logger hclog.Logger) (raft.Transport, error) {
	var known net.Addr
	if advertise != "" {
		addr, err := net.ResolveTCPAddr("tcp", advertise)
		if err != nil {
			return nil, err
		}
		known = addr
	}
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	return raft.NewTCPTransportWithLogger(address, known, 3, 10*time.Second, logger)
}

// transport notes who has recognized this node as the leader, and when the question
// was asked. Moments are counted, not timed: a heartbeat that is sent takes the next
// number.
//
// VerifyLeader does not suffice for reads: it also counts the answer to a heartbeat
// that was sent before it was called, and that answer may be older than another
// leader.
type transport struct {
	raft.Transport

	mu    sync.Mutex
	clock uint64
	acks  map[raft.ServerID]ack
}

// ack says that a node has recognized the leader of a term at some moment after one.
type ack struct{ term, after uint64 }

func newTransport(t raft.Transport) *transport {
	return &transport{Transport: t, acks: map[raft.ServerID]ack{}}
}

// now returns a moment that comes before all heartbeats that are sent later.
func (t *transport) now() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clock++
	return t.clock
}

// AppendEntries is raft.Transport; heartbeats are such requests.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	sent := t.now()
	err := t.Transport.AppendEntries(id, target, args, resp)
	if err == nil && resp.Success && resp.Term == args.Term {
		t.mu.Lock()
		if a := t.acks[id]; a.term < args.Term || a.term == args.Term && a.after < sent {
			t.acks[id] = ack{args.Term, sent}
		}
		t.mu.Unlock()
	}
	return err
}

// majority reports whether most voters have recognized the leader of a term after a
// moment, the leader itself included.
func (t *transport) majority(c raft.Configuration, self raft.ServerID, term, after uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	voters, votes := 0, 0
	for _, server := range c.Servers {
		if server.Suffrage != raft.Voter {
			continue
		}
		voters++
		if a := t.acks[server.ID]; server.ID == self || a.term == term && a.after > after {
			votes++
		}
	}
	return votes > voters/2
}

// RequestPreVote is raft.WithPreVote.
func (t *transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if p, ok := t.Transport.(raft.WithPreVote); ok {
		return p.RequestPreVote(id, target, args, resp)
	}
	return errors.New("cluster: the transport has no pre-votes")
}

// Close is raft.WithClose.
func (t *transport) Close() error {
	if c, ok := t.Transport.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
