package base

import (
	"encoding/binary"
	"errors"
)

// Errors of a Cursor.
var (
	ErrShort  = errors.New("ends too early")
	ErrVarint = errors.New("malformed varint")
)

// Cursor decodes untrusted bytes. The first error sticks: later reads return zero values and
// Err returns that error, so a decoder can read a whole record and check once. Returned
// slices point into the input. A Cursor does not allocate.
type Cursor struct {
	buf []byte
	off int
	err error
}

// NewCursor returns a cursor at the start of b.
func NewCursor(b []byte) Cursor { return Cursor{buf: b} }

// Err returns the first failure, or nil.
func (c *Cursor) Err() error { return c.err }

// Len returns the number of unread bytes; 0 after an error.
func (c *Cursor) Len() int {
	if c.err != nil {
		return 0
	}
	return len(c.buf) - c.off
}

// Offset returns the number of bytes read.
func (c *Cursor) Offset() int { return c.off }

func (c *Cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// Uvarint reads a varint of up to 64 bits.
func (c *Cursor) Uvarint() uint64 {
	if c.err != nil {
		return 0
	}
	v, n := binary.Uvarint(c.buf[c.off:])
	if n <= 0 {
		if n == 0 {
			c.fail(ErrShort)
		} else {
			c.fail(ErrVarint)
		}
		return 0
	}
	c.off += n
	return v
}

// Uvarint32 reads a varint that must fit 32 bits.
func (c *Cursor) Uvarint32() uint32 {
	v := c.Uvarint()
	if v > 1<<32-1 {
		c.fail(ErrVarint)
		return 0
	}
	return uint32(v)
}

// Uint8 reads one byte.
func (c *Cursor) Uint8() uint8 {
	if b := c.Bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// Uint32 reads four bytes, little-endian.
func (c *Cursor) Uint32() uint32 {
	if b := c.Bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// Uint64 reads eight bytes, little-endian.
func (c *Cursor) Uint64() uint64 {
	if b := c.Bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Bytes reads n bytes. The result has no spare capacity; it is empty and not nil for n == 0,
// and nil after an error.
func (c *Cursor) Bytes(n uint64) []byte {
	if c.err != nil {
		return nil
	}
	if n > uint64(len(c.buf)-c.off) {
		c.fail(ErrShort)
		return nil
	}
	b := c.buf[c.off : c.off+int(n) : c.off+int(n)]
	c.off += int(n)
	return b
}

// LengthPrefixed reads a varint length and that many bytes.
func (c *Cursor) LengthPrefixed() []byte { return c.Bytes(c.Uvarint()) }
