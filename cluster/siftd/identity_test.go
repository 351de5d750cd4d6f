package siftd

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestAnotherCluster: a node that belongs to one cluster does not start as a node of another.
func TestAnotherCluster(t *testing.T) {
	redis.SetLogger(silent{})
	one := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{2, 3}})
	other := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{2, 3}})
	dir := t.TempDir()
	n := startAt(t, Config{Dir: dir, Join: []string{one.Addr()}})
	waitUntil(t, "the node has joined", func() bool { return votes(one, n.ID()) })
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Dir: dir, Addr: "127.0.0.1:0", RaftAddr: "127.0.0.1:0", Password: "secret", Join: []string{"127.0.0.1:1", other.Addr()}}
	if n, err := Start(cfg); !errors.Is(err, errCluster) {
		t.Errorf("Start: %v, want %v", err, errCluster)
		if err == nil {
			n.Close()
		}
	}
	startAndStop(t, Config{Dir: dir, Password: "secret", Join: []string{"127.0.0.1:1", one.Addr()}})
}

// TestOpensBeside: while a node opens a replica, it serves commands.
func TestOpensBeside(t *testing.T) {
	redis.SetLogger(silent{})
	one := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{2, 3}})
	opening, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	defer once.Do(func() { close(goOn) })
	var first sync.Once
	n := startAt(t, Config{Dir: t.TempDir(), Join: []string{one.Addr()}, opens: func(int) {
		first.Do(func() { close(opening) })
		<-goOn
	}})
	select {
	case <-opening:
	case <-time.After(time.Minute):
		t.Fatal("no replica is opened")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := redis.NewClient(&redis.Options{Addr: n.Addr(), Password: "secret", ContextTimeoutEnabled: true, MaxRetries: -1})
	defer c.Close()
	if err := c.ClusterShards(ctx).Err(); err != nil {
		t.Error(err)
	}
	once.Do(func() { close(goOn) })
	waitUntil(t, "the node has the groups", func() bool { return n.replica(0) != nil && n.replica(1) != nil })
}
