package sift

import (
	"context"
	"errors"
	"testing"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestDeleteRangeUnread checks that DeleteRange also deletes keys that were put after it began if it
// drops a table that it cannot read, since that may hide older values of theirs.
func TestDeleteRangeUnread(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		mem := vfstest.NewMem()
		db := mustOpen(t, "db", uncached(mem))
		put := func(keys ...string) {
			for _, key := range keys {
				if err := db.Put([]byte(key), nil, NoSync); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		put("a", "m", "z")
		if damaged {
			put("n", "o") // a table within the range
		}
		mustClose(t, db)
		if damaged {
			all := oldFiles(t, mem)
			newest := ""
			for name := range all {
				if kind, _, _ := manifest.ParseName(name); kind == manifest.KindTable && name > newest {
					newest = name
				}
			}
			b := []byte(all[newest])
			b[len(b)-1] ^= 1
			writeFile(t, mem, "db/"+newest, b)
		}
		o := uncached(mem)
		o.DisableAutoCompaction = true
		db = mustOpen(t, "db", o)
		r := rangeDeletion{db: db, from: []byte("b"), to: []byte("y"), at: []byte("b"), began: 0, seq: db.visible.Load()}
		v := db.state.Load().version
		found, err := r.find(context.Background(), v, r.droppable(v))
		if err != nil || found != damaged || r.unread != damaged {
			t.Errorf("with a damaged table: %t; m is to be deleted: %t, unread %t, %v", damaged, found, r.unread, err)
		}
		if err := db.Close(); err != nil && !errors.Is(err, ErrCorruption) {
			t.Error(err)
		}
	}
}
