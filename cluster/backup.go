package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/hashicorp/raft"
)

// Backup writes the database as it is at one moment, with every command that was
// acknowledged before Backup was called, and returns how many bytes it has written. Only the
// leader can; others return ErrNotLeader. Commands go on meanwhile. It also is a snapshot of
// the node's own, of which the backup is a copy. What an error has left is no backup.
func (n *Node) Backup(ctx context.Context, w io.Writer) (size int64, err error) {
	if err := n.linearize(ctx); err != nil {
		return 0, err
	}
	future, err := await(ctx, n.raft.Snapshot)
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

// readerUntil fails when ctx has ended.
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

// RestoreBackup puts what Backup has written in the place of the database, on all nodes of
// the group. Only the leader can. The group keeps its members. It is for a group that nobody
// writes to: commands under way fail. size is what Backup returned. If the backup is damaged,
// nothing changes.
func (n *Node) RestoreBackup(r io.Reader, size int64) error {
	var head [streamHeaderLen]byte
	if err := readFull(r, head[:]); err != nil {
		return err
	}
	h, err := decodeHeader(head[:])
	if err != nil {
		return err
	}
	// Raft refuses while changes of the members are on their way.
	if err := n.raft.Barrier(0).Error(); err != nil {
		return err
	}
	// It takes its place behind this index, and behind all that is in the log.
	meta := raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Index: h.index, Size: size}
	return n.raft.Restore(&meta, io.MultiReader(bytes.NewReader(head[:]), r), 0)
}
