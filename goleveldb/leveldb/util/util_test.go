package util

import (
	"bytes"
	"testing"
)

// TestBytesPrefix checks the limits of prefix ranges, including prefixes that are not UTF-8.
func TestBytesPrefix(t *testing.T) {
	for _, c := range []struct{ prefix, limit []byte }{
		{nil, nil},
		{[]byte{}, nil},
		{[]byte{0xff, 0xff}, nil},
		{[]byte("a"), []byte("b")},
		{[]byte{1, 0xff}, []byte{2}},
		{[]byte{1, 0x7f}, []byte{1, 0x80}},
		{[]byte{1, 0x80}, []byte{1, 0x81}},
		{[]byte{1, 0xfe, 0xff, 0xff}, []byte{1, 0xff}},
		{[]byte("\uFFFD"), []byte{0xef, 0xbf, 0xbe}},
	} {
		r := BytesPrefix(c.prefix)
		if !bytes.Equal(r.Start, c.prefix) || !bytes.Equal(r.Limit, c.limit) || (r.Limit == nil) != (c.limit == nil) {
			t.Errorf("BytesPrefix(%x): %x to %x, want the limit %x", c.prefix, r.Start, r.Limit, c.limit)
		}
	}
}
