package base

import (
	"errors"
	"fmt"
	"testing"
)

// TestCursorBounds reads numbers at their bounds, and numbers that lack their last byte.
func TestCursorBounds(t *testing.T) {
	read := map[string]func(*Cursor) uint64{
		"varint": (*Cursor).Uvarint,
		"varint of 32 bits": func(c *Cursor) uint64 {
			return uint64(c.Uvarint32())
		},
		"4 bytes": func(c *Cursor) uint64 { return uint64(c.Uint32()) },
		"8 bytes": (*Cursor).Uint64,
	}
	for _, tt := range []struct {
		kind, b string
		want    uint64
		err     error
	}{
		{"varint", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 1<<64 - 1, nil},
		{"varint", "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02", 0, ErrVarint},
		{"varint of 32 bits", "\xff\xff\xff\xff\x0f", 1<<32 - 1, nil},
		{"varint of 32 bits", "\x80\x80\x80\x80\x10", 0, ErrVarint},
		{"varint of 32 bits", "\x80\x80\x80\x80", 0, ErrShort},
		{"4 bytes", "\x01\x02\x03\x04", 0x04030201, nil},
		{"4 bytes", "\x01\x02\x03", 0, ErrShort},
		{"8 bytes", "\x01\x02\x03\x04\x05\x06\x07\x08", 0x0807060504030201, nil},
		{"8 bytes", "\x01\x02\x03\x04\x05\x06\x07", 0, ErrShort},
	} {
		c := NewCursor([]byte(tt.b))
		if got := read[tt.kind](&c); got != tt.want || !errors.Is(c.Err(), tt.err) || tt.err == nil && c.Offset() != len(tt.b) {
			t.Errorf("%s of %x: %d, %v, %d bytes read", tt.kind, tt.b, got, c.Err(), c.Offset())
		}
	}
}

// TestShortKeysBetween checks separators, successors and the ends of prefixes next to bytes that
// cannot be incremented.
func TestShortKeysBetween(t *testing.T) {
	for _, tt := range []struct{ a, b, want string }{
		{"abc", "abz", "abd"},
		{"a\xfd", "a\xff", "a\xfe"},
		{"a\xfe0", "a\xff", "a\xfe0"},
		{"a\xfe00", "a\xff", "a\xfe1"},
		{"a\xfe\xfe0", "a\xff", "a\xfe\xff"},
		{"a\xfe\xff0", "a\xff", "a\xfe\xff0"},
		{"a\xff", "b", "a\xff"},
	} {
		if got := string(AppendSeparator(nil, []byte(tt.a), []byte(tt.b))); got != tt.want {
			t.Errorf("between %q and %q: %q, want %q", tt.a, tt.b, got, tt.want)
		}
	}
	for _, tt := range []struct{ a, successor, end string }{
		{"a", "b", "b"},
		{"\xfe0", "\xff", "\xfe1"},
		{"\xff\xfe0", "\xff\xff", "\xff\xfe1"},
		{"a\xfe", "b", "a\xff"},
		{"a\xff", "b", "b"},
		{"\xff\xff", "\xff\xff", ""},
	} {
		if got := string(AppendSuccessor(nil, []byte(tt.a))); got != tt.successor {
			t.Errorf("after %q: %q, want %q", tt.a, got, tt.successor)
		}
		end := PrefixEnd([]byte(tt.a))
		if fmt.Sprintf("%q", end) != fmt.Sprintf("%q", tt.end) || (end == nil) != (tt.end == "") {
			t.Errorf("the end of %q: %q, want %q", tt.a, end, tt.end)
		}
	}
}
