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

const requestTimeout = 10 * time.Second

// ListenTCP returns a transport that listens on an address such as "10.0.0.1:7000". Other nodes
// know it by that address, or by advertise if that is not empty. A host name in advertise is
// resolved at once, so nodes know IP addresses. Connections are neither encrypted nor
// authenticated: anyone who can reach the port can act as a member. A request that is not answered
// within ten seconds fails; snapshots get more time, depending on their size.
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
	return raft.NewTCPTransportWithLogger(address, known, 3, requestTimeout, logger)
}

// transport records which nodes have recognized this node as the leader, and when the request
// that they answered was sent. Time is a counter: each request takes the next number.
//
// Raft's VerifyLeader is not enough for reads: it also counts answers to heartbeats that were sent
// before it was called, and another leader may have been elected after such an answer.
type transport struct {
	raft.Transport

	in     chan raft.RPC // received requests that are passed on to Raft
	once   sync.Once
	closed chan struct{}
	stall  time.Duration // stallTime, except in tests
	most   int           // requestBytes, except in tests
	hang   time.Duration // requestTimeout, except in tests

	storing func() time.Duration // how long the log has been writing; may be nil

	mu       sync.Mutex
	clock    uint64
	acks     map[replica]ack
	held     map[replica]held
	progress map[replica]progress
	sends    map[*raft.InstallSnapshotRequest]bool // in progress
}

// replica identifies a node's replica of a group. A replica that the node creates after it has
// another address, and none of its state.
type replica struct {
	id   raft.ServerID
	addr raft.ServerAddress
}

// ack records that a node has recognized the leader of a term, in the answer to a request that was
// sent at the time after.
type ack struct{ term, after uint64 }

func newTransport(t raft.Transport) *transport {
	return &transport{
		Transport: t, in: make(chan raft.RPC), closed: make(chan struct{}), stall: stallTime, most: requestBytes, hang: requestTimeout,
		acks: map[replica]ack{}, held: map[replica]held{}, progress: map[replica]progress{}, sends: map[*raft.InstallSnapshotRequest]bool{},
	}
}

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.in }

// receive passes requests on to Raft until Close, after fit, keepVote and candidate have changed
// them. A request that keepVote has cut is rejected after its other entries have been stored. A
// snapshot that contains nothing new is acknowledged instead: see Node.covers. Requests that follow
// a snapshot are read once it has been installed.
func (t *transport) receive(covers func(*raft.InstallSnapshotRequest) bool, fit func(*raft.AppendEntriesRequest) *raft.AppendEntriesRequest,
	keepVote func(*raft.AppendEntriesRequest) (*raft.AppendEntriesRequest, bool), candidate func(id []byte) []byte) {
	for {
		var rpc raft.RPC
		select {
		case rpc = <-t.Transport.Consumer():
		case <-t.closed:
			return
		}
		respond := rpc.RespChan
		var installed chan raft.RPCResponse
		var incoming *incomingSnapshot
		switch req := rpc.Command.(type) {
		case *raft.AppendEntriesRequest:
			kept, cut := keepVote(fit(req))
			if rpc.Command = kept; cut {
				rpc.RespChan = t.reject(respond)
			}
		case *raft.RequestVoteRequest:
			c := *req // it may be the sender's
			c.ID = candidate(req.ID)
			rpc.Command = &c
		case *raft.RequestPreVoteRequest:
			c := *req
			c.ID = candidate(req.ID)
			rpc.Command = &c
		case *raft.InstallSnapshotRequest:
			if covers(req) {
				go skip(rpc, req)
				continue
			}
			installed = make(chan raft.RPCResponse, 1)
			incoming = t.receiveSnapshot(rpc.Reader)
			rpc.RespChan, rpc.Reader = installed, incoming
		}
		select {
		case t.in <- rpc:
		case <-t.closed:
			return
		}
		if installed == nil {
			continue
		}
		select {
		case r := <-installed:
			go func() { // until then, the snapshot is read from the connection
				<-incoming.ended
				respond <- r
			}()
		case <-t.closed:
			return
		}
	}
}

// reject returns a channel for an answer to an AppendEntries request, which is changed to a
// rejection and passed on.
func (t *transport) reject(to chan<- raft.RPCResponse) chan<- raft.RPCResponse {
	answer := make(chan raft.RPCResponse, 1)
	go func() {
		select {
		case r := <-answer:
			if resp, ok := r.Response.(*raft.AppendEntriesResponse); ok {
				resp.Success = false
			}
			to <- r
		case <-t.closed:
		}
	}()
	return answer
}

// skip reads a snapshot to its end, which the sender waits for, and acknowledges it. It returns
// when the connection is closed, if not before.
func skip(rpc raft.RPC, req *raft.InstallSnapshotRequest) {
	_, err := io.Copy(io.Discard, rpc.Reader)
	rpc.Respond(&raft.InstallSnapshotResponse{RPCHeader: req.RPCHeader, Term: req.Term, Success: err == nil}, err)
}

// now returns a time that is before those of all later requests.
func (t *transport) now() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clock++
	return t.clock
}

// requestBytes is the size of entries that a request carries, unless it has only one. The receiver
// takes several times as much memory to store them, and must be done within requestTimeout.
const requestBytes = 8 << 20

// shorten drops the last entries from a request that is too large. Raft bounds only their number.
// It sees in the request which entries were sent, and then sends the others.
func (t *transport) shorten(a *raft.AppendEntriesRequest) {
	size := 0
	for i, e := range a.Entries {
		size += len(e.Data) + len(e.Extensions)
		if i == 0 || size <= t.most {
			continue
		}
		clear(a.Entries[i:]) // they need not stay in memory while the request is sent
		a.Entries = a.Entries[:i]
		a.LeaderCommitIndex = min(a.LeaderCommitIndex, a.Entries[i-1].Index)
		return
	}
}

// AppendEntries implements raft.Transport; heartbeats are such requests.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if t.hangs() {
		return errHangs
	}
	t.shorten(args)
	sent := t.now()
	err := t.Transport.AppendEntries(id, target, args, resp)
	if err == nil {
		t.noteHeld(replica{id, target}, args, resp)
	} else {
		t.noteUnreachable(replica{id, target})
	}
	if err == nil && resp.Success && resp.Term == args.Term {
		t.mu.Lock()
		to := replica{id, target}
		if a := t.acks[to]; a.term < args.Term || a.term == args.Term && a.after < sent {
			t.acks[to] = ack{args.Term, sent}
		}
		t.mu.Unlock()
	}
	return err
}

var errHangs = errors.New("cluster: the log does not finish a write")

// hangs reports whether the log has not finished a write for a while, as on a disk that does not
// answer. Raft's main goroutine is then blocked, but its heartbeats would go on, and no other node
// would be elected.
func (t *transport) hangs() bool { return t.storing != nil && t.storing() > t.hang }

// majority reports whether a majority of the voters, the leader included, have recognized the
// leader of a term after a time.
func (t *transport) majority(c raft.Configuration, self raft.ServerID, term, after uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	voters, votes := 0, 0
	for _, server := range c.Servers {
		if server.Suffrage != raft.Voter {
			continue
		}
		voters++
		if a := t.acks[replica{server.ID, server.Address}]; server.ID == self || a.term == term && a.after > after {
			votes++
		}
	}
	return votes > voters/2
}

// RequestPreVote implements raft.WithPreVote.
func (t *transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if p, ok := t.Transport.(raft.WithPreVote); ok {
		return p.RequestPreVote(id, target, args, resp)
	}
	return errors.New("cluster: the transport does not support pre-votes")
}

// closeIdle closes the connections to other nodes that are not in use, if the transport is a Mux's.
// The transport of ListenTCP would also close connections from other nodes, which are in use.
func (t *transport) closeIdle() {
	if m, ok := t.Transport.(*muxTransport); ok {
		m.CloseStreams()
	}
}

// stop ends the calls that would keep Raft from shutting down.
func (t *transport) stop() { t.once.Do(func() { close(t.closed) }) }

// Close implements raft.WithClose.
func (t *transport) Close() error {
	t.stop()
	if c, ok := t.Transport.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// held records that a node has the leader's log of a term up to an index.
type held struct{ term, index uint64 }

// noteHeld records how much of the log a node has. Heartbeats do not show that.
func (t *transport) noteHeld(id replica, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	index := args.PrevLogEntry
	if n := len(args.Entries); n > 0 {
		index = args.Entries[n-1].Index
	}
	if !resp.Success || index == 0 {
		return
	}
	t.mu.Lock()
	if h := t.held[id]; h.term < args.Term || h.term == args.Term && h.index < index {
		t.held[id] = held{args.Term, index}
	}
	if r := t.progress[id]; r.index < index || args.PrevLogEntry < r.index {
		t.progress[id] = progress{index: index, at: time.Now(), size: r.size}
	}
	t.mu.Unlock()
}

// progress is the progress of a node that is catching up.
type progress struct {
	index uint64
	at    time.Time // when it reached index
	size  int64     // of the last snapshot that it has received
}

// noteUnreachable records that a node does not answer.
func (t *transport) noteUnreachable(id replica) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.progress, id)
}

// progressTime is how long a node that makes no progress still counts as catching up.
const progressTime = 30 * time.Second

// InstallSnapshot implements raft.Transport.
func (t *transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	t.mu.Lock()
	t.sends[args] = true
	t.mu.Unlock()
	err := t.sendSnapshot(id, target, args, resp, data)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sends, args)
	if err == nil && resp.Success {
		t.progress[replica{id, target}] = progress{index: args.LastLogIndex, at: time.Now(), size: args.Size}
	}
	return err
}

// needed returns the index from which nodes that are catching up need the log, or most if that is
// less, and the size of the largest snapshot that one of them has received or is receiving.
func (t *transport) needed(most uint64) (index uint64, size int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	index = most
	for _, r := range t.progress {
		if r.index < most && time.Since(r.at) < progressTime {
			index, size = min(index, r.index), max(size, r.size)
		}
	}
	for s := range t.sends {
		if s.LastLogIndex < most {
			index, size = min(index, s.LastLogIndex), max(size, s.Size)
		}
	}
	return index, size
}

// holding returns the index up to which a node has the log, according to its answers in a term.
func (t *transport) holding(id replica, term uint64) (index uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.held[id]
	return h.index, h.term == term
}

// AppendEntriesPipeline implements raft.Transport.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.Transport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := &pipeline{AppendPipeline: inner, t: t, out: make(chan raft.AppendFuture), closed: make(chan struct{})}
	go p.run(replica{id, target})
	return p, nil
}

// pipeline is a raft.AppendPipeline that shortens requests and records the answers.
type pipeline struct {
	raft.AppendPipeline
	t      *transport
	out    chan raft.AppendFuture
	once   sync.Once
	closed chan struct{}
}

func (p *pipeline) run(id replica) {
	defer p.end()
	for {
		select {
		case f := <-p.AppendPipeline.Consumer():
			if f.Error() == nil {
				p.t.noteHeld(id, f.Request(), f.Response())
			}
			select {
			case p.out <- f:
			case <-p.closed:
				return
			}
		case <-p.closed:
			return
		}
	}
}

// end ends the goroutine of Raft that receives the answers, and without which Raft does not shut
// down, if the one that sends the requests has ended early: see log.GetLog. Otherwise nobody
// receives any longer.
func (p *pipeline) end() {
	select {
	case p.out <- staleTerm{}:
	case <-time.After(time.Second):
	}
}

// staleTerm is an answer with a later term than that of the request.
type staleTerm struct{ raft.AppendFuture }

func (staleTerm) Start() time.Time                      { return time.Now() }
func (staleTerm) Request() *raft.AppendEntriesRequest   { return &raft.AppendEntriesRequest{} }
func (staleTerm) Response() *raft.AppendEntriesResponse { return &raft.AppendEntriesResponse{Term: 1} }

func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.t.hangs() {
		return nil, errHangs
	}
	p.t.shorten(args)
	return p.AppendPipeline.AppendEntries(args, resp)
}

func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.out }

func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.AppendPipeline.Close()
}
