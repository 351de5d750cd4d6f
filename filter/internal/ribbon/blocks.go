package ribbon

import "sync"

// Hashes are collected in blocks: n of them take 8n bytes, while a slice would take twice as much
// whenever it grows, and each block is reused as soon as its hashes have been distributed to
// chunks.

const blockLen = 1024

type block [blockLen]uint64

var blockPool = sync.Pool{New: func() any { return new(block) }}

// list is a list of hashes. Its blocks come from blockPool, and drain returns them there.
type list struct {
	full []*block
	tail *block
	n    int // hashes in tail; 0 if it is nil
}

func (l *list) add(h uint64) {
	if l.tail == nil {
		l.tail = blockPool.Get().(*block)
	}
	l.tail[l.n] = h
	l.n++
	if l.n == blockLen {
		l.full = append(l.full, l.tail)
		l.tail, l.n = nil, 0
	}
}

func (l *list) len() int { return len(l.full)*blockLen + l.n }

// each calls f with runs of hashes, in order.
func (l *list) each(f func([]uint64)) {
	for _, b := range l.full {
		f(b[:])
	}
	if l.n > 0 {
		f(l.tail[:l.n])
	}
}

// drain is each, and empties the list on the way.
func (l *list) drain(f func([]uint64)) {
	for i, b := range l.full {
		f(b[:])
		l.full[i] = nil
		blockPool.Put(b)
	}
	l.full = l.full[:0]
	if l.tail != nil {
		f(l.tail[:l.n])
		blockPool.Put(l.tail)
		l.tail, l.n = nil, 0
	}
}

// take moves the hashes of m to l. Their order is undefined.
func (l *list) take(m *list) {
	l.full = append(l.full, m.full...)
	for i := range m.full {
		m.full[i] = nil
	}
	m.full = m.full[:0]
	if m.tail != nil {
		for _, h := range m.tail[:m.n] {
			l.add(h)
		}
		blockPool.Put(m.tail)
		m.tail, m.n = nil, 0
	}
}
