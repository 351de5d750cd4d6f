package siftd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/siftdb/sift/cluster/internal/durable"
	"github.com/siftdb/sift/internal/vfs"
)

// firstName is a file that exists until the node's first start is complete. For a node that
// creates a cluster, that is when the directory group has its shape; for a node that joins, when
// it has a vote there. Until then a later start continues the first one. The file holds the shape
// as JSON, zeros if the node joins.
//
// On disk; do not change.
const firstName = "first"

// readFirst sets n.first if the node's first start is not complete.
func (n *Node) readFirst() error {
	path := filepath.Join(n.cfg.Dir, firstName)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var s Shape
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && (s.Groups < 0 || s.Groups > maxGroups) {
		err = errors.New("it does not hold a shape")
	}
	if err != nil {
		return fmt.Errorf("siftd: %s: %w", path, err)
	}
	n.first = &s
	return nil
}

// beginFirst prepares the first start, and records that it has begun.
func (n *Node) beginFirst() error {
	s := n.cfg.Shape
	if !n.cfg.Init {
		if len(n.cfg.Join) == 0 {
			return fmt.Errorf("siftd: %s is empty: the node must create a cluster or join one", n.cfg.Dir)
		}
		s = Shape{}
	}
	// Groups found here would be opened as if they belonged to the cluster.
	if _, err := os.Stat(filepath.Join(n.cfg.Dir, "groups")); !errors.Is(err, os.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("siftd: %s has groups of another cluster: empty it", n.cfg.Dir))
	}
	if err := n.beginCluster(); err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	n.first = &s
	return durable.Replace(filepath.Join(n.cfg.Dir, firstName), text)
}

// creates returns the shape of the cluster that the node is creating, nil if it is not creating
// one.
func (n *Node) creates() *Shape {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.first == nil || n.first.Groups == 0 {
		return nil
	}
	return n.first
}

// joins reports whether the node has yet to become a voter of the directory group.
func (n *Node) joins() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.first != nil && n.first.Groups == 0
}

// endFirst completes the first start.
func (n *Node) endFirst() error {
	if err := vfs.OS.Remove(filepath.Join(n.cfg.Dir, firstName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := vfs.OS.SyncDir(n.cfg.Dir); err != nil {
		return err
	}
	n.mu.Lock()
	n.first = nil
	n.mu.Unlock()
	return nil
}
