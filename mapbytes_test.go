package sift

import (
	"context"
	"fmt"
	"testing"

	"github.com/siftdb/sift/internal/vfs"
)

// TestMapBytes: tables that go give back what they took of the mappings.
func TestMapBytes(t *testing.T) {
	db, err := Open(t.TempDir(), &Options{MapBytes: 1 << 20, CacheBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 20 {
		for i := range 2000 {
			if err := db.Put(fmt.Appendf(nil, "%d", i), fmt.Appendf(make([]byte, 200), "%d", round), NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Compact(context.Background(), nil, nil); err != nil {
			t.Fatal(err)
		}
		for i := range 2000 {
			v, err := db.Get(fmt.Appendf(nil, "%d", i))
			if err != nil || string(v[200:]) != fmt.Sprint(round) {
				t.Fatalf("%q, %v", v, err)
			}
		}
		if n := db.opener.mapped.Load(); n <= 0 && vfs.Memory() > 0 || n > 1<<20 {
			t.Fatalf("round %d: %d bytes are mapped", round, n)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if n := db.opener.mapped.Load(); n != 0 {
		t.Errorf("after Close %d bytes are mapped", n)
	}
}
