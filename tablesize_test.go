package sift

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestTableSizes checks that tables are larger in deeper levels, so that there are fewer of them,
// and that all keys are found.
func TestTableSizes(t *testing.T) {
	const tableBytes, keys = 2 << 10, 4000
	db := mustOpen(t, "db", &Options{
		FS: vfstest.NewMem(), MemtableBytes: 8 << 10, TableBytes: tableBytes, LevelBaseBytes: 8 << 10, LevelMultiplier: 2, DisableCompression: true,
	})
	rng := rand.New(rand.NewPCG(1, 2))
	for _, i := range rng.Perm(keys) {
		if err := db.Put(fmt.Appendf(nil, "key%05d", i), make([]byte, 100), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	level, bytes, tables := 0, uint64(0), db.Tables()
	for _, m := range tables {
		level, bytes = max(level, m.Level), bytes+m.Size
	}
	want := uint64(tableBytes) << max(level-2, 0)
	if mean := bytes / uint64(len(tables)); level < 4 || mean < want/2 || mean > 2*want {
		t.Errorf("%d tables down to level %d have %d bytes on average, want about %d", len(tables), level, mean, want)
	}
	for i := range keys {
		if _, err := db.Get(fmt.Appendf(nil, "key%05d", i)); err != nil {
			t.Fatal(i, err)
		}
	}
	mustClose(t, db)
}
