package sstable

import (
	"slices"
	"sync"
)

// Buffer is memory for a block that the cache did not admit. It gets the memory from a pool when
// it needs it, and Release returns it. The zero Buffer is ready for use. A Buffer is not safe for
// concurrent use.
type Buffer struct{ m *bufferMem }

// bufferMem is the memory of a Buffer, with at most one block. Only the Buffer refers to it: no
// cache and no iterator does.
type bufferMem struct {
	raw  []byte // a block as stored on disk
	data []byte // the decoded block
	blk  block  // parsed from data

	r *Reader // blk is data block i of r; nil: there is no block
	i int
}

var bufferPool = sync.Pool{New: func() any { return new(bufferMem) }}

// maxPooledBuffer is the maximum size in bytes of memory that returns to the pool.
const maxPooledBuffer = 1 << 20

// Release returns the memory to the pool. This invalidates the values that GetIn has returned with
// the Buffer. The Buffer can be used and released again.
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

// mem returns the memory. It gets it from the pool if the Buffer has none.
func (b *Buffer) mem() *bufferMem {
	if b.m == nil {
		b.m = bufferPool.Get().(*bufferMem)
	}
	return b.m
}

// holds returns data block i of the reader, or nil if the buffer does not have it.
func (b *Buffer) holds(r *Reader, i int) *block {
	if b.m != nil && b.m.r == r && b.m.i == i {
		return &b.m.blk
	}
	return nil
}

// rawBytes returns n bytes for a block as stored on disk.
func (m *bufferMem) rawBytes(n int) []byte {
	m.raw = slices.Grow(m.raw[:0], n)
	return m.raw[:n]
}
