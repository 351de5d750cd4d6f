package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift/cluster"
)

// Three nodes in one process: a replicated map from names to values.
func Example() {
	dir, err := os.MkdirTemp("", "cluster")
	check(err)
	defer os.RemoveAll(dir)

	put := func(tx *cluster.Tx, command []byte) (any, error) {
		key, value, _ := strings.Cut(string(command), "=")
		return nil, tx.Put([]byte(key), []byte(value))
	}
	transports, members := connect("a", "b", "c")
	nodes := map[raft.ServerID]*cluster.Node{}
	for i, m := range members {
		nodes[m.ID], err = cluster.Open(cluster.Options{
			ID: string(m.ID), Dir: filepath.Join(dir, string(m.ID)),
			Apply: put, Transport: transports[i], Bootstrap: members,
		})
		check(err)
		defer nodes[m.ID].Close()
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	leader := nodes["a"]
	for errors.Is(propose(ctx, leader, "fruit=apple"), cluster.ErrNotLeader) {
		time.Sleep(10 * time.Millisecond) // no node leads yet, or another does
		if _, id := leader.Leader(); id != "" {
			leader = nodes[id]
		}
	}
	check(leader.Read(ctx, func(v *cluster.View) error {
		value, err := v.Get([]byte("fruit"))
		fmt.Printf("fruit is %s\n", value)
		return err
	}))
	// Output: fruit is apple
}

func propose(ctx context.Context, n *cluster.Node, command string) error {
	_, err := n.Propose(ctx, []byte(command))
	return err
}

// connect makes transports within the process; cluster.ListenTCP makes real ones.
func connect(ids ...raft.ServerID) (transports []*raft.InmemTransport, members []raft.Server) {
	for _, id := range ids {
		addr, transport := raft.NewInmemTransport(raft.ServerAddress(id))
		for i, other := range transports {
			other.Connect(addr, transport)
			transport.Connect(members[i].Address, other)
		}
		transports, members = append(transports, transport), append(members, raft.Server{ID: id, Address: addr})
	}
	return transports, members
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
