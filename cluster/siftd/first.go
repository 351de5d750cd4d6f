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

// firstName is a file that exists until the node's first start has ended: until the directory
// group has the shape of the cluster that the node creates, or until the node that joins has a
// vote there. A start before that continues the first one. The file holds the shape, JSON; zeros:
// the node joins.
//
// On disk; do not change.
const firstName = "first"

// readFirst records whether the node's first start has not ended.
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
		err = errors.New("it holds no shape")
	}
	if err != nil {
		return fmt.Errorf("siftd: %s: %w", path, err)
	}
	n.first = &s
	return nil
}

// beginFirst begins the first start.
func (n *Node) beginFirst() error {
	s := n.cfg.Shape
	if !n.cfg.Init {
		if len(n.cfg.Join) == 0 {
			return fmt.Errorf("siftd: %s is empty: the node begins a cluster or joins one", n.cfg.Dir)
		}
		s = Shape{}
	}
	// They would be opened as if they were the cluster's.
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

// begins returns the shape of the cluster that the node creates, nil if it does not.
func (n *Node) begins() *Shape {
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

// endFirst ends the first start.
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
