package memtable

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/siftdb/sift/internal/base"
)

// pending is the list of the entries that are not in the skip list yet. Lookups find entries
// through the index; an entry must be in the skip list only when an iterator or a flush needs the
// order of keys. The first of these sorts the pending entries and inserts them in one pass, which
// costs a third of a search for each (BenchmarkFill). From then on, entries are inserted when they
// are added, so that iterators do not wait again. If the memtable had many entries by then, the
// next few memtables insert entries in this way from the start.
//
// Until then, whenever another maxPending entries are pending, a goroutine sorts and inserts them,
// which bounds the wait of the first iterator. It uses only the memtable, and ends by itself. If it
// falls behind, a writer sorts before it adds more (KeepUp). An entry greater than all in the skip
// list needs no search, so it is always inserted at once.
type pending struct {
	// newest is the number of pending entries << 32 | the newest of them; or inserted. The field
	// offPrev of a pending node refers to the next older one. The word of the node's lowest link
	// has its height.
	newest  atomic.Uint64
	limit   uint64       // maxPending, except in tests
	eager   int          // number of memtables, from this one on, that insert at once even without an iterator
	mu      sync.Mutex   // held while entries are sorted and inserted; see lock
	waiting atomic.Int32 // number of goroutines that wait for mu
	late    atomic.Bool  // the memtable already had many entries when their order was needed
}

const (
	// inserted is the value of newest once entries are inserted when they are added.
	inserted = math.MaxUint64
	// maxPending is the number of pending entries at which a goroutine sorts and inserts them,
	// which takes 10 to 40 ms. Fewer at a time would cost more per entry: inserting passes nodes
	// of earlier runs, which are seldom in a cache.
	maxPending = 131072
	// backlog times the limit is the number of pending entries at which KeepUp sorts.
	backlog = 2
	// eagerly is the number of memtables that insert at once after a late one.
	eagerly = 4
	// many is the number of entries from which a memtable counts as late.
	many = 1024
	// yieldEvery is the number of entries that are inserted, in 10 to 30 µs, before other
	// goroutines get a turn.
	yieldEvery = 128
	// fetch is how many nodes are read at a time before they are inserted. They lie all over the
	// arena: the CPU waits for several cache misses at once, but for only one at each insert,
	// because a compare-and-swap completes before later loads.
	fetch = 16
)

// pendingNode is a node of a run, which is sorted and inserted in one pass.
type pendingNode struct {
	prefix uint64 // the first eight bytes of the key after the common prefix of the run
	node   uint32
}

// runs are reused between sorts. Each has capacity for twice its nodes, since sorting needs a copy.
var runs = sync.Pool{New: func() any { return new([]pendingNode) }}

// Follow makes m the successor of old. If old, or one of the last memtables before it, already had
// many entries when an iterator needed their order, m probably will, too: entries are then inserted
// into its list when they are added, so that iterators need not wait, and Add takes longer.
// REQUIRES: m is empty and not shared yet.
func (m *Memtable) Follow(old *Memtable) {
	m.pending.eager = max(0, old.pending.eager-1)
	if old.pending.late.Load() {
		m.pending.eager = eagerly
	}
	if m.pending.eager > 0 {
		m.pending.newest.Store(inserted)
	}
}

// postpone makes a node pending. It returns false if entries must be inserted at once.
func (m *Memtable) postpone(n uint32, height int) bool {
	p, l := &m.pending, &m.list
	var count uint64
	for {
		newest := p.newest.Load()
		if newest == inserted {
			return false
		}
		l.set(n+offPrev, uint32(newest))
		l.setHeight(n, height)
		count = newest>>32 + 1
		if p.newest.CompareAndSwap(newest, count<<32|uint64(n)) {
			break
		}
	}
	if count%p.limit == 0 {
		go m.sort()
	}
	return true
}

// KeepUp sorts and inserts the pending entries if they are too many, so that the first iterator
// does not wait for long. A writer calls it before it adds a batch, not while it adds it: whoever
// waits for the batch would otherwise wait for the sort, too.
func (m *Memtable) KeepUp() {
	if n := m.pending.newest.Load(); n != inserted && n>>32 >= backlog*m.pending.limit {
		m.sort()
	}
}

// inOrder returns the list, which contains all entries that were added before the call. An Add that
// runs at the same time either finds newest set to inserted, and inserts its entry, or has made it
// pending before, so that it is in the run.
func (m *Memtable) inOrder() *list {
	if !m.sorted.Load() {
		m.pending.lock()
		m.insertRun(m.pending.newest.Swap(inserted))
		if m.Len() >= many {
			m.pending.late.Store(true)
		}
		m.sorted.Store(true)
		m.pending.mu.Unlock()
	}
	return &m.list
}

// lock acquires mu. It counts those who wait: the holder does not yield while there are any.
func (p *pending) lock() {
	if p.mu.TryLock() {
		return
	}
	p.waiting.Add(1)
	p.mu.Lock()
	p.waiting.Add(-1)
}

// sort sorts and inserts the entries that are pending, before their order is needed.
func (m *Memtable) sort() {
	m.pending.lock()
	if m.pending.newest.Load() != inserted {
		m.insertRun(m.pending.newest.Swap(0))
	}
	m.pending.mu.Unlock()
}

// insertRun sorts and inserts the pending nodes; newest is the previous value of pending.newest.
// REQUIRES: mu is held.
func (m *Memtable) insertRun(newest uint64) {
	if newest == 0 || newest == inserted {
		return
	}
	l := &m.list
	buf := runs.Get().(*[]pendingNode)
	*buf = slices.Grow((*buf)[:0], 2*int(newest>>32))
	run := l.appendRun(*buf, uint32(newest))
	l.sortRun(run, (*buf)[len(run):2*len(run)], 0, !m.unordered.Load())
	s := atHead()
	turn := base.BeginTurns()
	defer turn.End()
	var targets [fetch]target
	var heights [fetch]int
	for i, e := range run {
		if i%yieldEvery == 0 && m.pending.waiting.Load() == 0 {
			turn.Yield()
		}
		at := i % fetch
		if at == 0 {
			for j, e := range run[i:min(i+fetch, len(run))] {
				heights[j] = l.pendingHeight(e.node)
				targets[j] = newTarget(l.userKey(e.node), l.trailer(e.node))
			}
		}
		l.searchFrom(&targets[at], &s)
		l.insert(e.node, heights[at], &targets[at], &s)
	}
	runs.Put(buf)
}

// appendRun appends pending nodes, from the newest on, to an empty run.
func (l *list) appendRun(run []pendingNode, newest uint32) []pendingNode {
	for n := newest; n != 0; n = l.word(n + offPrev).Load() {
		run = append(run, pendingNode{node: n})
	}
	return run
}

// sortRun sorts a run whose keys share their first skip bytes: by a radix sort of the eight bytes
// after all that they share, and then each group of nodes for which these are equal, a long one in
// the same way. tmp is as long as the run. With ordered, nodes of the same key are in order
// already.
func (l *list) sortRun(run, tmp []pendingNode, skip int, ordered bool) {
	const few = 256
	shared, whole := l.setPrefixes(run, skip)
	if len(run) < few {
		slices.SortFunc(run, l.comparePending)
		return
	}
	radixSort(run, tmp)
	if whole && ordered {
		return
	}
	for i, j := 0, 0; i < len(run); i = j {
		for j = i + 1; j < len(run) && run[j].prefix == run[i].prefix; {
			j++
		}
		switch group := run[i:j]; {
		case len(group) == 1:
		case len(group) < few, len(group) == len(run):
			slices.SortFunc(group, l.comparePending)
		default: // their keys share more than all keys do
			l.sortRun(group, tmp[i:j], shared, ordered)
		}
	}
}

// setPrefixes sets the prefixes of a run whose keys share their first skip bytes. It returns how
// many bytes they share in all, and whether nodes of equal prefixes have the same key.
func (l *list) setPrefixes(run []pendingNode, skip int) (shared int, whole bool) {
	if len(run) == 0 {
		return skip, true
	}
	rest := l.userKey(run[0].node)[skip:]
	length, differ := len(rest), false
	for _, e := range run {
		key := l.userKey(e.node)[skip:]
		rest = rest[:base.CommonPrefix(rest, key)]
		differ = differ || len(key) != length
	}
	shared = skip + len(rest)
	for i := range run {
		run[i].prefix = keyPrefix(l.userKey(run[i].node)[shared:])
	}
	return shared, !differ && length-len(rest) <= 8
}

// radixSort sorts a run by the prefixes. Nodes of equal prefixes stay in their order. tmp is as
// long as the run.
func radixSort(run, tmp []pendingNode) {
	var counts [8][256]uint32
	for _, e := range run {
		for i := range counts {
			counts[i][byte(e.prefix>>(8*i))]++
		}
	}
	from, to := run, tmp
	for i := range counts {
		shift, count := 8*i, &counts[i]
		if count[byte(run[0].prefix>>shift)] == uint32(len(run)) {
			continue // this byte is the same in all prefixes
		}
		at := uint32(0)
		for b, n := range count {
			count[b] = at
			at += n
		}
		for _, e := range from {
			c := &count[byte(e.prefix>>shift)]
			to[*c] = e
			*c++
		}
		from, to = to, from
	}
	if &from[0] != &run[0] {
		copy(run, from)
	}
}

// comparePending compares the internal keys of nodes of one run.
func (l *list) comparePending(a, b pendingNode) int {
	if c := cmp.Compare(a.prefix, b.prefix); c != 0 {
		return c
	}
	if c := bytes.Compare(l.userKey(a.node), l.userKey(b.node)); c != 0 {
		return c
	}
	return cmp.Compare(l.trailer(b.node), l.trailer(a.node))
}
