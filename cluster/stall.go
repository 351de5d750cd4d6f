package cluster

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// stallTime is how long an incoming snapshot may stall. A node does nothing else while it receives
// one, not even vote, and hashicorp/raft's transport would wait for as long as the sender is
// paused, or until the network reports that the connection is lost.
const stallTime = requestTimeout

// arrivalBytes is how much of a snapshot is read at once.
const arrivalBytes = 256 << 10

var errStalled = errors.New("cluster: an incoming snapshot has stalled")

// incomingSnapshot is a snapshot that another node sends. Reads fail if nothing arrives for
// stallTime, or if the transport is stopped. What arrives after that is discarded.
type incomingSnapshot struct {
	*io.PipeReader
	ended chan struct{} // closed when the connection is no longer read
}

func (t *transport) receiveSnapshot(from io.Reader) *incomingSnapshot {
	r, w := io.Pipe()
	a := &incomingSnapshot{r, make(chan struct{})}
	go func() {
		select {
		case <-t.closed:
			w.CloseWithError(raft.ErrTransportShutdown)
		case <-a.ended:
		}
	}()
	go func() {
		defer close(a.ended)
		buf := make([]byte, arrivalBytes)
		for {
			late := time.AfterFunc(t.stall, func() { w.CloseWithError(errStalled) })
			n, err := from.Read(buf)
			late.Stop()
			if n > 0 {
				w.Write(buf[:n]) // fails once Raft's reads have failed
			}
			if err != nil {
				w.CloseWithError(err)
				return
			}
		}
	}()
	return a
}

// sendSnapshot sends a snapshot, but returns when the transport is stopped: otherwise a receiver
// that does not read would keep this node from shutting down.
func (t *transport) sendSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	from := &outgoingSnapshot{r: data}
	done := make(chan error, 1)
	var theirs raft.InstallSnapshotResponse
	go func() { done <- t.Transport.InstallSnapshot(id, target, args, &theirs, from) }()
	select {
	case err := <-done:
		*resp = theirs
		return err
	case <-t.closed:
		from.end()
		return raft.ErrTransportShutdown
	}
}

// outgoingSnapshot is a snapshot that is sent to another node.
type outgoingSnapshot struct {
	mu    sync.Mutex
	r     io.Reader
	ended bool
}

func (d *outgoingSnapshot) Read(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return 0, raft.ErrTransportShutdown
	}
	return d.r.Read(p)
}

// end makes further reads fail, and returns when none is in progress.
func (d *outgoingSnapshot) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
}
