package memtable

import (
	"fmt"
	"testing"

	"github.com/siftdb/sift/internal/base"
)

func TestHeightOf(t *testing.T) {
	for _, c := range []struct {
		random uint64
		want   int
	}{{1, 1}, {2, 1}, {3, 1}, {4, 2}, {8, 2}, {16, 3}, {1 << 25, maxHeight - 1}, {1 << 26, maxHeight}, {1 << 27, maxHeight}, {1 << 63, maxHeight}, {0, maxHeight}} {
		if h := heightOf(c.random); h != c.want {
			t.Errorf("a node has height %d for %#x, want %d", h, c.random, c.want)
		}
	}
}

// TestListHeight checks that the list is as high as the highest node, and never gets lower.
func TestListHeight(t *testing.T) {
	m := New(1 << 20)
	most := 1
	for range 5000 {
		most = max(most, m.list.newHeight())
		if have := int(m.list.height.Load()); have != most {
			t.Fatalf("the list has height %d, its highest node %d", have, most)
		}
	}
	if most < 3 {
		t.Fatal("all nodes are low: this tests nothing")
	}
}

// TestLastTower checks that space for one link above level 0 is used, and only once.
func TestLastTower(t *testing.T) {
	m := New(1 << 20)
	m.list.towers.Store(4)
	links := 0
	for range 1000 {
		links += m.list.newHeight() - 1
	}
	if left := m.list.towers.Load(); links != 1 || left != 0 || m.list.height.Load() != 2 {
		t.Errorf("%d links, %d bytes left, height %d", links, left, m.list.height.Load())
	}
}

// TestStalePlaces resets what concurrent writers may leave out of date: the tails of some levels,
// and the references to previous nodes. Inserts and backward iteration then take more steps, but
// must find the same nodes.
func TestStalePlaces(t *testing.T) {
	const n = 200
	for stale := range 3 {
		m := New(1 << 20)
		l := &m.list
		for i := range uint64(n) {
			tgt := newTarget(fmt.Appendf(nil, "key%03d", i), base.Trailer(i, base.KindSet))
			height := 1 + int(i%2)
			l.height.Store(2)
			s := atHead()
			before := l.tails[stale%2].Load()
			if !l.searchEnd(&tgt, height, &s) {
				l.search(&tgt, height, &s)
			}
			node := l.newNode(height, &tgt, nil)
			l.insert(node, height, &tgt, &s)
			if stale < 2 && i%3 == 0 {
				l.tails[stale].Store(before)
			}
			if stale == 2 {
				l.word(node + offPrev).Store(head)
			}
		}
		node := l.last()
		for i := n - 1; i >= 0; i-- {
			if want := fmt.Sprintf("key%03d", i); node == tail || string(l.userKey(node)) != want {
				t.Fatalf("stale %d: node %d, want %s", stale, node, want)
			}
			node = l.prevOf(node)
		}
		if node != tail {
			t.Errorf("stale %d: there is a node before the first", stale)
		}
	}
}

// TestHighNodes inserts and sorts nodes that are on all levels: all must be found, in order.
func TestHighNodes(t *testing.T) {
	m := New(1 << 20)
	m.list.height.Store(maxHeight)
	const n = 500
	for i := range uint64(n) {
		tgt := newTarget(fmt.Appendf(nil, "key%03d", i*337%n), base.Trailer(i, base.KindSet))
		if node := m.list.newNode(maxHeight, &tgt, nil); !m.postpone(node, maxHeight) {
			t.Fatal("not pending")
		}
		if i == n/2 {
			m.sort()
		}
	}
	it, i := m.NewIter(), 0
	for ok := it.First(); ok; ok = it.Next() {
		want := fmt.Sprintf("key%03d", i)
		if string(base.UserKey(it.Key())) != want {
			t.Fatalf("entry %d is %q", i, it.Key())
		}
		if _, _, _, found := m.Get([]byte(want), base.MaxSequence); !found {
			t.Fatalf("%q is not found", want)
		}
		i++
	}
	if i != n {
		t.Fatalf("%d entries", i)
	}
}

// TestLastWord allocates nodes of all paddings at the end of the arena: a node that fits exactly is
// allocated, and one that is a word larger is not.
func TestLastWord(t *testing.T) {
	for length := range 9 {
		m := New(1 << 16)
		l := &m.list
		tgt := newTarget(make([]byte, length), base.Trailer(1, base.KindSet))
		before := l.alloc.Load()
		if l.newNode(1, &tgt, nil) == 0 {
			t.Fatal("an empty arena has no space for a node")
		}
		size := l.alloc.Load() - before - 1<<32
		l.alloc.Store(l.limit/4 - size + 1)
		if l.newNode(1, &tgt, nil) != 0 {
			t.Errorf("%d words are allocated where one fewer is left", size)
		}
		l.alloc.Store(l.limit/4 - size)
		if l.newNode(1, &tgt, nil) == 0 {
			t.Errorf("%d words are left and cannot be allocated", size)
		}
	}
}
