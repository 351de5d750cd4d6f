package siftd

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift/cluster"
	"github.com/siftdb/sift/cluster/internal/durable"
	"github.com/siftdb/sift/internal/vfs"
)

// The ids of the node and of its cluster, each 40 hex digits and a newline. The node's is random. A
// node with an empty directory chooses a new one, because it no longer knows how it voted and
// what it acknowledged. The cluster's is chosen at random by the node that creates the cluster;
// nodes that join get it from another node.
//
// On disk; do not change.
const (
	idName      = "id"
	clusterName = "cluster"
)

// directoryReplica is the number of a node's replica of the directory group: see
// cluster.Mux.Transport. A node that starts with an empty directory has another id, and so another
// number.
func directoryReplica(id string) uint64 {
	number, _ := strconv.ParseUint(id[:16], 16, 64)
	return number
}

// directoryAddr is the address of this node's replica of the directory group.
func (n *Node) directoryAddr() raft.ServerAddress {
	return cluster.ReplicaAddr(n.mux.Addr(), directoryReplica(n.id))
}

func newID() (id cluster.ClusterID) {
	rand.Read(id[:])
	return id
}

func writeID(path string, id cluster.ClusterID) error {
	return durable.Replace(path, []byte(hex.EncodeToString(id[:])+"\n"))
}

// readID returns the id in a file, zeros if there is no file.
func readID(path string) (id cluster.ClusterID, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return id, nil
	}
	if err != nil {
		return id, err
	}
	if id, err = parseID(strings.TrimSuffix(string(text), "\n")); err != nil {
		return id, fmt.Errorf("siftd: %s does not hold an id", path)
	}
	return id, nil
}

func parseID(text string) (id cluster.ClusterID, err error) {
	if !isID(text) {
		return id, fmt.Errorf("%.50q is not an id", text)
	}
	_, err = hex.Decode(id[:], []byte(text))
	return id, err
}

// identify reads the node's id, or creates it. empty means that the node has no log, and has not
// begun its first start.
func (n *Node) identify() (empty bool, err error) {
	if err := os.MkdirAll(n.cfg.Dir, 0o755); err != nil {
		return false, err
	}
	if err := n.readFirst(); err != nil {
		return false, err
	}
	if _, err := os.Stat(filepath.Join(n.cfg.Dir, "directory", "raft")); err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
		empty = n.first == nil
	}
	path := filepath.Join(n.cfg.Dir, idName)
	if empty {
		if err := writeID(path, newID()); err != nil {
			return true, err
		}
	}
	id, err := readID(path)
	if err != nil {
		return empty, err
	}
	if id == (cluster.ClusterID{}) {
		return empty, fmt.Errorf("siftd: %s has no id", n.cfg.Dir)
	}
	n.id = hex.EncodeToString(id[:])
	return empty, nil
}

// beginCluster gives the node a new cluster id, or none if it joins a cluster.
func (n *Node) beginCluster() error {
	path := filepath.Join(n.cfg.Dir, clusterName)
	if n.cfg.Init {
		return writeID(path, newID())
	}
	if err := vfs.OS.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// readCluster sets the node's cluster to the one in its directory. It must be the same as that of
// the nodes in Config.Join, as far as they answer.
func (n *Node) readCluster() error {
	id, err := readID(filepath.Join(n.cfg.Dir, clusterName))
	switch {
	case err != nil:
		return err
	case id == (cluster.ClusterID{}) && !n.joins():
		return fmt.Errorf("siftd: %s has no cluster id", n.cfg.Dir)
	case id == (cluster.ClusterID{}):
		return nil
	}
	n.mux.SetCluster(id)
	for _, addr := range n.cfg.Join {
		if err := n.sameCluster(addr); errors.Is(err, errCluster) {
			return err
		}
	}
	return nil
}

// errCluster: two nodes belong to different clusters.
var errCluster = errors.New("siftd: different clusters")

// clusterTime is how long a node may take to return its cluster's id.
const clusterTime = time.Second

// sameCluster returns nil if a node belongs to the same cluster as this one. If this one belongs
// to none yet, it joins the other's.
func (n *Node) sameCluster(addr string) error {
	reply, err := n.ask(addr, []string{"CLUSTER", "NODE", "CLUSTER"}, clusterTime)
	if err != nil {
		return err
	}
	theirs, err := parseID(strings.TrimPrefix(reply, "+"))
	if err != nil {
		return fmt.Errorf("siftd: %s replied %q", addr, reply)
	}
	ours := n.mux.Cluster()
	if ours == (cluster.ClusterID{}) {
		if err := writeID(filepath.Join(n.cfg.Dir, clusterName), theirs); err != nil {
			return err
		}
		n.mux.SetCluster(theirs)
		return nil
	}
	if ours != theirs {
		return fmt.Errorf("%w: %s belongs to %x, and %s to %x", errCluster, n.cfg.Dir, ours, addr, theirs)
	}
	return nil
}

// clusterID returns the reply to CLUSTER NODE CLUSTER.
func (n *Node) clusterID() (string, error) {
	id := n.mux.Cluster()
	if id == (cluster.ClusterID{}) {
		return "", errors.New("the node has not joined a cluster yet")
	}
	return hex.EncodeToString(id[:]), nil
}
