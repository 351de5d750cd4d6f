package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"
)

// Backup writes a consistent copy of the database, with every command that was acknowledged before
// the call, and returns its size in bytes. Only the leader can do this; other nodes return
// ErrNotLeader. The group continues to execute commands meanwhile. Backup makes the node take a
// snapshot, and copies it. After an error, w does not hold a backup.
func (n *Node) Backup(ctx context.Context, w io.Writer) (size int64, err error) {
	if err := n.linearize(ctx); err != nil {
		return 0, err
	}
	future, err := await(ctx, n, (*raft.Raft).Snapshot)
	if err != nil {
		return 0, fmt.Errorf("cluster: taking a snapshot for a backup: %w", err)
	}
	meta, r, err := future.Open()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if size, err = io.Copy(w, readerUntil{ctx, r}); err == nil && size != meta.Size {
		err = fmt.Errorf("cluster: the snapshot has %d bytes of %d", size, meta.Size)
	}
	return size, err
}

// readerUntil fails once ctx has ended.
type readerUntil struct {
	ctx context.Context
	r   io.Reader
}

func (r readerUntil) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// RestoreBackup replaces the database with what Backup has written, on all nodes of the group. Only
// the leader can do this; other nodes return ErrNotLeader. The group keeps its members. No client
// should write to it meanwhile: commands in progress fail. size is what Backup returned. If the
// backup is damaged, nothing changes. After any other error, such as ErrClosed, the database may
// have been replaced.
func (n *Node) RestoreBackup(r io.Reader, size int64) error {
	var head [streamHeaderLen]byte
	if err := readFull(r, head[:]); err != nil {
		return err
	}
	h, err := decodeHeader(head[:])
	if err != nil {
		return err
	}
	// Raft refuses while a change of the members is in progress.
	if err := n.Do(context.Background(), func(r *raft.Raft) raft.Future { return r.Barrier(0) }); err != nil {
		return err
	}
	// The backup comes after this index, and after everything in the log.
	meta := raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Index: h.index, Size: size}
	all := io.MultiReader(bytes.NewReader(head[:]), r)
	b := &backupReader{Reader: all, node: n, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		b.err = n.raft.Restore(&meta, b, 0)
	}()
	select {
	case <-b.done:
		return errors.Join(b.err, n.fsm.Err())
	case <-n.ended:
		return ErrClosed
	}
}

// backupReader is a backup that Raft reads. From its end until Raft has installed it, the node does
// not shut Raft down, because Raft would panic.
type backupReader struct {
	io.Reader
	node *Node
	done chan struct{} // closed when Raft no longer needs the backup
	err  error         // what Raft has returned
}

func (b *backupReader) Read(p []byte) (int, error) {
	n := b.node
	select {
	case <-n.closing:
		return 0, ErrClosed
	case <-n.fsm.Failed():
		return 0, n.fsm.Err()
	default:
	}
	size, err := b.Reader.Read(p)
	if err != io.EOF {
		return size, err
	}
	select {
	case n.installing <- struct{}{}:
	case <-n.closing:
		return size, ErrClosed
	case <-n.fsm.Failed():
		return size, n.fsm.Err()
	}
	n.fsm.installsBackup.Store(true)
	go b.awaitInstalled(n.raft.AppliedIndex())
	return size, io.EOF
}

// awaitInstalled allows the node to shut Raft down again once Raft has installed the backup, which
// changes the applied index, or no longer needs it. Raft.Restore then still waits for other nodes.
func (b *backupReader) awaitInstalled(applied uint64) {
	defer func() {
		b.node.fsm.installsBackup.Store(false)
		<-b.node.installing
	}()
	for b.node.raft.AppliedIndex() == applied {
		select {
		case <-b.done:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}
