package siftd

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/siftdb/sift"
)

// TestDamagedGroup: a node that leads a group but cannot serve it, because its database is damaged,
// stops, so that others can lead.
func TestDamagedGroup(t *testing.T) {
	redis.SetLogger(silent{})
	dir := t.TempDir()
	cfg := Config{Dir: dir, Addr: "127.0.0.1:0", RaftAddr: "127.0.0.1:0", Password: "secret", Init: true, Shape: Shape{1, 3}, DB: &sift.Options{MemtableBytes: 64 << 10}}
	n, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := clientOf(t, n)
	waitUntil(t, "the node serves", func() bool { return c.Set(t.Context(), "k", 1, 0).Err() == nil })
	firstEnds(t, dir)
	for i := range 100 {
		if err := c.Set(t.Context(), "key"+strconv.Itoa(i), strings.Repeat("v", 10<<10), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "groups", "0", "state", "*", "*.ldb"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	for _, path := range tables {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(data) / 2 {
			data[i] ^= 0xff
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if n, err = Start(cfg); err != nil {
		t.Fatal(err)
	}
	select {
	case <-n.Done():
	case <-time.After(20 * time.Second):
		t.Error("the node keeps running")
	}
	if err := n.Close(); !errors.Is(err, sift.ErrCorruption) {
		t.Errorf("Close returns %v", err)
	}
}

// TestUnservableGroup: a node that leads a group but cannot serve it, here because a later version
// has written the database, stops, so that others can lead.
func TestUnservableGroup(t *testing.T) {
	redis.SetLogger(silent{})
	n, err := Start(Config{Dir: t.TempDir(), Addr: "127.0.0.1:0", RaftAddr: "127.0.0.1:0", Password: "secret", Init: true, Shape: Shape{1, 3}})
	if err != nil {
		t.Fatal(err)
	}
	c := clientOf(t, n)
	waitUntil(t, "the node serves", func() bool { return c.Set(t.Context(), "k", 1, 0).Err() == nil })
	g := n.replica(0).get().group
	var b sift.Batch
	b.Put([]byte("mformat"), []byte("sift serve 99"))
	if err := g.Write(&b); err != nil {
		t.Fatal(err)
	}
	g.lose() // another server begins
	select {
	case <-n.Done():
	case <-time.After(20 * time.Second):
		t.Error("the node keeps the group")
	}
	if err := n.Close(); err == nil || !strings.Contains(err.Error(), "format") {
		t.Errorf("Close returns %v", err)
	}
}
