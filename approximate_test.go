package sift

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestApproximateSize checks that the sizes of ranges add up and are proportional to the number of
// keys in them.
func TestApproximateSize(t *testing.T) {
	db, err := OpenMemory(&Options{DisableCompression: true, MemtableBytes: 256 << 10, TableBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	value := make([]byte, 100)
	for i := range 10_000 {
		for j := range value {
			value[j] = byte(rng.Uint32())
		}
		if err := db.Put(fmt.Appendf(nil, "key%05d", i), value, NoSync); err != nil {
			t.Fatal(err)
		}
	}
	size := func(from, to string) uint64 {
		t.Helper()
		bound := func(s string) []byte {
			if s == "" {
				return nil
			}
			return []byte(s)
		}
		n, err := db.ApproximateSize(bound(from), bound(to))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	var tables uint64
	for _, m := range db.Tables() {
		tables += m.Size
	}
	if all := size("", ""); all != tables || size("a", "z") != tables {
		t.Errorf("all keys: %d and %d bytes, but the tables have %d", all, size("a", "z"), tables)
	}
	if n := size("", "key09999"); n >= tables {
		t.Errorf("all keys but the last: %d of %d bytes", n, tables)
	}
	if half := size("key02500", "key07500"); half < tables*45/100 || half > tables*55/100 {
		t.Errorf("half of the keys: %d of %d bytes", half, tables)
	}
	if n := size("x", "z") + size("a", "key00000") + size("key5", "key2") + size("key2", "key2"); n != 0 {
		t.Errorf("empty ranges: %d bytes", n)
	}
	if parts := size("", "key03000") + size("key03000", "key06000") + size("key06000", ""); parts < tables*9/10 || parts > tables {
		t.Errorf("the sum of the parts: %d of %d bytes", parts, tables)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ApproximateSize(nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
