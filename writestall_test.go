package sift

import (
	"fmt"
	"testing"
)

// TestLevel0Runs flushes memtables that each become many tables, of which no two overlap: they must
// not stop writers as that many overlapping tables would.
func TestLevel0Runs(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &Options{DisableAutoCompaction: true})
	defer mustClose(t, db)
	flush := func(deleted bool) {
		t.Helper()
		for i := range 8 * minDeletions {
			key := fmt.Appendf(nil, "key%06d", i)
			var err error
			if deleted && i/minDeletions%2 == 0 {
				err = db.Delete(key, NoSync)
			} else {
				err = db.Put(key, nil, NoSync)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 3 {
		flush(n > 0)
		v := db.state.Load().version
		tables, runs := len(v.Levels[0]), level0Runs(v)
		if tables < 1+4*n || runs != n+1 {
			t.Errorf("%d flushes: %d tables count as %d, want %d or more as %d", n+1, tables, runs, 1+4*n, n+1)
		}
	}
}
