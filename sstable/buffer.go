package sstable

import (
	"slices"
	"sync"
)

// Buffer is memory for a block that is looked at but that the cache does not
// take. The zero Buffer is ready for use; memory comes from a pool when it is
// needed, and Release gives it back. A Buffer is used by one goroutine at a time.
type Buffer struct{ m *bufferMem }

// bufferMem holds at most one block. What is in it belongs to whoever holds the
// Buffer: no cache and no iterator ever refers to it.
type bufferMem struct {
	raw  []byte // a block as it is stored
	data []byte // and decoded
	blk  block  // of data

	r *Reader // whose block it holds; nil: none
	i int     // and which one
}

var bufferPool = sync.Pool{New: func() any { return new(bufferMem) }}

// maxPooledBuffer is the largest memory that goes back to the pool.
const maxPooledBuffer = 1 << 20

// Release gives the memory back: values that were found in it are not valid any
// more. It may be called at any time, and the Buffer be used again.
func (b *Buffer) Release() {
	m := b.m
	if m == nil {
		return
	}
	b.m = nil
	m.r = nil
	poison(m.data)
	if cap(m.raw)+cap(m.data) <= maxPooledBuffer {
		bufferPool.Put(m)
	}
}

// mem returns the memory, from the pool if need be.
func (b *Buffer) mem() *bufferMem {
	if b.m == nil {
		b.m = bufferPool.Get().(*bufferMem)
	}
	return b.m
}

// holds returns data block i of the reader if it is what the buffer holds.
func (b *Buffer) holds(r *Reader, i int) *block {
	if b.m != nil && b.m.r == r && b.m.i == i {
		return &b.m.blk
	}
	return nil
}

// rawBytes returns n bytes for a block as it is stored.
func (m *bufferMem) rawBytes(n int) []byte {
	m.raw = slices.Grow(m.raw[:0], n)
	return m.raw[:n]
}
