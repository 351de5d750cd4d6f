package util

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync"
)

// MinRead is the least space, in bytes, that ReadFrom passes to Read.
const MinRead = bytes.MinRead

// Buffer is a bytes.Buffer with Alloc. The zero Buffer is empty and ready for use.
type Buffer struct {
	buf []byte
	off int // everything before off has been read
}

// NewBuffer returns a Buffer that holds buf, which belongs to it from then on.
func NewBuffer(buf []byte) *Buffer { return &Buffer{buf: buf} }

// Bytes returns the unread bytes. They are valid until the next change.
func (b *Buffer) Bytes() []byte { return b.buf[b.off:] }

// String returns the unread bytes as a string; "<nil>" for a nil Buffer.
func (b *Buffer) String() string {
	if b == nil {
		return "<nil>"
	}
	return string(b.Bytes())
}

// Len returns the number of unread bytes.
func (b *Buffer) Len() int { return len(b.buf) - b.off }

// Truncate drops all but the first n unread bytes. It panics if there are fewer.
func (b *Buffer) Truncate(n int) {
	switch {
	case n < 0 || n > b.Len():
		panic("leveldb/util.Buffer: truncation out of range")
	case n == 0:
		b.buf, b.off = b.buf[:0], 0
	default:
		b.buf = b.buf[:b.off+n]
	}
}

// Reset empties the buffer and keeps its memory.
func (b *Buffer) Reset() { b.Truncate(0) }

// Grow allocates space for n more bytes. It panics if n is negative.
func (b *Buffer) Grow(n int) {
	if n < 0 {
		panic("leveldb/util.Buffer.Grow: negative count")
	}
	if b.off > 0 && len(b.buf)+n > cap(b.buf) {
		b.buf, b.off = b.buf[:copy(b.buf, b.buf[b.off:])], 0
	}
	b.buf = slices.Grow(b.buf, n)
}

// Alloc appends n bytes with arbitrary contents and returns them, to be filled in before the next
// change. It panics if n is negative.
func (b *Buffer) Alloc(n int) []byte {
	b.Grow(n)
	end := len(b.buf)
	b.buf = b.buf[:end+n]
	return b.buf[end:]
}

// Write appends p. The error is always nil.
func (b *Buffer) Write(p []byte) (n int, err error) { return copy(b.Alloc(len(p)), p), nil }

// WriteByte appends c. The error is always nil.
func (b *Buffer) WriteByte(c byte) error {
	b.Alloc(1)[0] = c
	return nil
}

// ReadFrom appends everything that r returns until io.EOF. It returns the number of bytes.
func (b *Buffer) ReadFrom(r io.Reader) (n int64, err error) {
	for {
		b.Grow(MinRead)
		m, err := r.Read(b.buf[len(b.buf):cap(b.buf)])
		b.buf = b.buf[:len(b.buf)+m]
		n += int64(m)
		if err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, err
		}
	}
}

// WriteTo writes the unread bytes to w.
func (b *Buffer) WriteTo(w io.Writer) (n int64, err error) {
	if b.Len() > 0 {
		m, err := w.Write(b.Bytes())
		if m > b.Len() {
			panic("leveldb/util.Buffer.WriteTo: invalid Write count")
		}
		b.off += m
		if err == nil && b.Len() > 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return int64(m), err
		}
		n = int64(m)
	}
	b.Reset()
	return n, nil
}

// Read reads up to len(p) bytes. The error is io.EOF if none are left.
func (b *Buffer) Read(p []byte) (n int, err error) {
	if b.Len() == 0 {
		b.Reset()
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	return copy(p, b.Next(len(p))), nil
}

// Next reads n bytes, or all if there are fewer. They are valid until the next change.
func (b *Buffer) Next(n int) []byte {
	data := b.Bytes()
	data = data[:min(n, len(data))]
	b.off += len(data)
	return data
}

// ReadByte reads a byte. The error is io.EOF if none is left.
func (b *Buffer) ReadByte() (c byte, err error) {
	if b.Len() == 0 {
		b.Reset()
		return 0, io.EOF
	}
	return b.Next(1)[0], nil
}

// ReadBytes reads up to and including the first delim, into new memory. If there is none,
// it reads everything, and the error is io.EOF.
func (b *Buffer) ReadBytes(delim byte) (line []byte, err error) {
	n := bytes.IndexByte(b.Bytes(), delim) + 1
	if n == 0 {
		n, err = b.Len(), io.EOF
	}
	return append(line, b.Next(n)...), err
}

// BufferPool is a pool of byte slices. It is safe for concurrent use. A nil pool keeps nothing.
type BufferPool struct {
	pool     sync.Pool
	baseline int
}

// NewBufferPool returns a pool for slices of about baseline bytes, which must be
// positive.
func NewBufferPool(baseline int) *BufferPool {
	if baseline <= 0 {
		panic("baseline can't be <= 0")
	}
	return &BufferPool{baseline: baseline}
}

// Get returns n bytes with arbitrary contents.
func (p *BufferPool) Get(n int) []byte {
	if p != nil {
		if b, ok := p.pool.Get().(*[]byte); ok && cap(*b) >= n {
			return (*b)[:n]
		}
	}
	return make([]byte, n)
}

// Put returns memory to the pool. The caller must not use it afterwards.
func (p *BufferPool) Put(b []byte) {
	if p != nil && cap(b) > 0 && cap(b) <= 4*p.baseline {
		p.pool.Put(&b)
	}
}

// Close does nothing. The garbage collector frees what the pool holds.
func (p *BufferPool) Close() {}

// String describes the pool.
func (p *BufferPool) String() string {
	if p == nil {
		return "<nil>"
	}
	return fmt.Sprintf("BufferPool{B·%d}", p.baseline)
}
