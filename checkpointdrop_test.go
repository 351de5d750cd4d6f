package sift

import (
	"context"
	"errors"
	"testing"
)

// TestCheckpointDuringDrop checks that DeleteRange drops no table while a Checkpoint flushes and
// chooses a version, not even one that was chosen before: the copy could have the effect of the
// DeleteRange without the writes before it.
func TestCheckpointDuringDrop(t *testing.T) {
	var db *DB
	users := 0 // during the last flush
	note := func(FlushEvent) {
		db.snapshots.mu.Lock()
		defer db.snapshots.mu.Unlock()
		users = db.snapshots.tableUsers
	}
	opened, err := OpenMemory(&Options{DisableAutoCompaction: true, Events: Events{Flushed: note}})
	if err != nil {
		t.Fatal(err)
	}
	db = opened
	defer mustClose(t, db)
	if err := db.Put([]byte("a"), nil, NoSync); err != nil {
		t.Fatal(err)
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	r := rangeDeletion{db: db, began: db.visible.Load(), seq: db.visible.Load()}
	version := db.state.Load().version
	tables := r.droppable(version)
	if len(tables) != 1 {
		t.Fatalf("%d tables can be dropped", len(tables))
	}
	db.snapshots.keepTables(1) // as a Checkpoint does
	if n := len(r.droppable(version)); n != 0 {
		t.Errorf("%d tables can be dropped during a Checkpoint", n)
	}
	if again, _, err := r.drop(version, tables); !again || err != nil || db.state.Load().version != version {
		t.Errorf("tables were dropped during a Checkpoint: %t, %v", again, err)
	}
	if err := db.DeleteRange(context.Background(), nil, nil); err != nil {
		t.Error(err)
	}
	if n := len(db.state.Load().version.Levels[0]); n != 2 {
		t.Errorf("%d tables, want that of the key and that of its tombstone", n)
	}
	db.snapshots.keepTables(-1)
	if err := errors.Join(db.Put([]byte("b"), nil, NoSync), db.Checkpoint("copy")); err != nil {
		t.Error(err)
	}
	if db.snapshots.mu.Lock(); users != 1 {
		t.Error("the Checkpoint flushes without keeping the tables")
	}
	db.snapshots.mu.Unlock()
	if err := db.DeleteRange(context.Background(), nil, nil); err != nil {
		t.Error(err)
	}
	if n := len(db.state.Load().version.Levels[0]); n != 0 {
		t.Errorf("%d tables after the last Checkpoint and a DeleteRange", n)
	}
}
