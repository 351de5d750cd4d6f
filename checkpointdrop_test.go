package sift

import (
	"testing"

	"github.com/siftdb/sift/internal/manifest"
)

// TestCheckpointDuringDrop checks that a checkpoint has what was written before tables were dropped,
// even if the tables are dropped between its flush and its choice of a version.
func TestCheckpointDuringDrop(t *testing.T) {
	db, err := OpenMemory(&Options{DisableAutoCompaction: true})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, db)
	if err := db.Put([]byte("a"), nil, NoSync); err != nil {
		t.Fatal(err)
	}
	flushes := 0
	version, err := db.flushedVersion(func() error {
		flushes++
		if err := db.Flush(); err != nil || flushes > 1 {
			return err
		}
		if err := db.Put([]byte("z"), nil, NoSync); err != nil {
			return err
		}
		edit := &manifest.Edit{}
		for _, meta := range db.state.Load().version.Levels[0] {
			edit.Deleted = append(edit.Deleted, manifest.DeletedTable{Num: meta.Num})
		}
		_, err := db.changeVersion(edit, nil, func(*readState) {})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer db.releaseVersion(version)
	tables := version.Levels[0]
	if flushes != 2 || len(tables) != 1 || string(tables[0].Largest[:1]) != "z" {
		t.Errorf("after %d flushes the tables are %v", flushes, tables)
	}
}
