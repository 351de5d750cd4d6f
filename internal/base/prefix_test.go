package base

import (
	"bytes"
	"testing"
)

// TestCommonPrefix compares all lengths of up to three words, with a difference at each position.
func TestCommonPrefix(t *testing.T) {
	for n := range 25 {
		a := bytes.Repeat([]byte{'a'}, n)
		for m := range 25 {
			b := bytes.Repeat([]byte{'a'}, m)
			if got := CommonPrefix(a, b); got != min(n, m) {
				t.Errorf("%q and %q share %d bytes", a, b, got)
			}
			for at := range min(n, m) {
				b[at] ^= 0x80
				if got := CommonPrefix(a, b); got != at {
					t.Errorf("%q and %q share %d bytes, not %d", a, b, got, at)
				}
				b[at] ^= 0x80
			}
		}
	}
}
