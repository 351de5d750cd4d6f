package sstable

import (
	"slices"
	"sync"
)

// Buffer holds a block that the cache did not admit. The zero Buffer is ready for use. It
// takes memory from a pool when it needs some, and Release returns it. A Buffer must not be
// used concurrently.
type Buffer struct{ m *bufferMem }

// bufferMem holds at most one block. It belongs to the holder of the Buffer: no cache and
// no iterator refers to it.
type bufferMem struct {
	raw  []byte // a block as stored on disk
	data []byte // the decoded block
	blk  block  // parsed from data

	r *Reader // the reader of the block; nil: no block
	i int     // the block's number
}

var bufferPool = sync.Pool{New: func() any { return new(bufferMem) }}

// maxPooledBuffer is the size in bytes up to which memory returns to the pool.
const maxPooledBuffer = 1 << 20

// Release returns the memory to the pool, which invalidates the values found in it. It may be
// called at any time; the Buffer can be used again.
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

// mem returns the memory. The first call takes it from the pool.
func (b *Buffer) mem() *bufferMem {
	if b.m == nil {
		b.m = bufferPool.Get().(*bufferMem)
	}
	return b.m
}

// holds returns data block i of the reader if the buffer holds it, and nil otherwise.
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
