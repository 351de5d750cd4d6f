package cache

import (
	"testing"
	"time"
)

// released is a value that reports its release.
type released bool

func (r *released) Release() { *r = true }

// evictions is a Cacher that holds nothing and counts calls of Evict.
type evictions int

func (*evictions) Capacity() int   { return 0 }
func (*evictions) SetCapacity(int) {}
func (*evictions) Promote(*Node)   {}
func (*evictions) Ban(*Node)       {}
func (e *evictions) Evict(n *Node) { *e++ }

// TestCloseTwice checks that a value is released with its last handle, even if the cache was closed
// twice before.
func TestCloseTwice(t *testing.T) {
	c := NewCache(NewLRU(10))
	var value released
	h := c.Get(1, 2, func() (int, Value) { return 1, &value })
	c.Close(false)
	c.Close(false)
	if value {
		t.Fatal("Close released a value that is in use")
	}
	h.Release()
	if !value || c.Nodes() != 0 {
		t.Errorf("released: %v, %d nodes", value, c.Nodes())
	}
}

// TestClosedEvict checks that a closed cache does not call its Cacher.
func TestClosedEvict(t *testing.T) {
	var e evictions
	c := NewCache(&e)
	h := c.Get(1, 2, func() (int, Value) { return 1, "value" })
	defer h.Release()
	c.EvictNS(1)
	c.EvictAll()
	if e != 2 {
		t.Errorf("%d evictions, want 2", e)
	}
	c.Close(false)
	before := e
	c.EvictNS(1)
	c.EvictAll()
	c.Close(false)
	if e != before {
		t.Errorf("%d evictions after Close", e-before)
	}
}

// TestCloseDuringGet checks that the Cacher does not keep a value that was created during Close.
func TestCloseDuringGet(t *testing.T) {
	for _, force := range []bool{false, true} {
		c := NewCache(NewLRU(10))
		closed := make(chan struct{})
		var value released
		h := c.Get(1, 2, func() (int, Value) {
			go func() {
				c.Close(force)
				close(closed)
			}()
			select {
			case <-closed: // Close must wait for Get
			case <-time.After(10 * time.Millisecond):
			}
			return 1, &value
		})
		<-closed
		h.Release()
		if !value || c.Nodes() != 0 {
			t.Errorf("force %v: released: %v, %d nodes", force, value, c.Nodes())
		}
	}
}
