package sift

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
)

// TestMapBytes: tables are mapped while all of them have room under MapBytes, and none is
// once they have not; tables that go give back what they took.
func TestMapBytes(t *testing.T) {
	const limit = 1 << 20
	maps := runtime.GOOS == "linux" || runtime.GOOS == "darwin"
	dir := t.TempDir()
	o := &Options{MapBytes: limit, CacheBytes: -1, TableBytes: 64 << 10, DisableCompression: true}
	db := mustOpen(t, dir, o)
	keys := 0
	check := func() (tables int64, mapped int) {
		t.Helper()
		if err := db.Compact(context.Background(), nil, nil); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for i := range keys {
				if v, err := db.Get(fmt.Appendf(nil, "%d", i)); err != nil || len(v) != 200 {
					t.Fatalf("%d bytes, %v", len(v), err)
				}
			}
		}
		for _, m := range db.Tables() {
			tables += int64(m.Size)
		}
		// Tables that are no longer read are closed in the background.
		for i := 0; db.opener.files.Bytes() != tables; i++ {
			if i == 1000 {
				t.Fatalf("%d bytes are counted, and the tables have %d", db.opener.files.Bytes(), tables)
			}
			time.Sleep(10 * time.Millisecond)
		}
		return tables, db.opener.files.NumMapped()
	}
	grow := func(n int) {
		t.Helper()
		for range n {
			if err := db.Put(fmt.Appendf(nil, "%d", keys), make([]byte, 200), NoSync); err != nil {
				t.Fatal(err)
			}
			keys++
		}
	}
	grow(1000)
	if bytes, mapped := check(); maps && mapped < 2 {
		t.Errorf("of %d bytes %d tables are mapped", bytes, mapped)
	}
	grow(9000)
	if bytes, mapped := check(); bytes < limit || mapped != 0 {
		t.Errorf("of %d bytes %d tables are mapped", bytes, mapped)
	}
	mustClose(t, db)
	if c := db.opener.files; c.Bytes() != 0 || c.NumOpen() != 0 {
		t.Errorf("after Close %d bytes are counted, %d files open", c.Bytes(), c.NumOpen())
	}
	o.MapBytes = 4 * limit
	db = mustOpen(t, dir, o)
	if bytes, mapped := check(); maps && mapped != len(db.Tables()) {
		t.Errorf("of %d bytes %d tables are mapped", bytes, mapped)
	}
	mustClose(t, db)
}
