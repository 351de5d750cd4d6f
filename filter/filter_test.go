package filter

import "testing"

// TestNewKey compares NewKey, which hashes short keys itself, with Hash.
func TestNewKey(t *testing.T) {
	b := make([]byte, 300)
	for i := range b {
		b[i] = byte(i * 7)
	}
	for n := range len(b) + 1 {
		if k := NewKey(b[:n]); k.Hash != Hash(b[:n]) || len(k.Bytes) != n {
			t.Errorf("%d bytes: hash %#x of %d, want %#x", n, k.Hash, len(k.Bytes), Hash(b[:n]))
		}
	}
}
