package sift

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestIngestOverlapsLittle checks that tables of an Ingest of scattered keys overlap only a part of
// the deepest level: a compaction of one of them would rewrite all of that otherwise.
func TestIngestOverlapsLittle(t *testing.T) {
	o := uncached(vfstest.NewMem())
	o.MemtableBytes, o.TableBytes, o.LevelBaseBytes, o.LevelMultiplier = 8<<10, 2<<10, 8<<10, 4
	o.BlockBytes, o.DisableCompression = 256, true
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	ops := func(step int, deleted bool) iter.Seq2[Op, error] {
		return func(yield func(Op, error) bool) {
			for i := 0; i < 3000; i += step {
				if !yield(Op{Delete: deleted, Key: fmt.Appendf(nil, "key%05d", i), Value: make([]byte, 100)}, nil) {
					return
				}
			}
		}
	}
	ctx := context.Background()
	err := db.Ingest(ctx, ops(1, false))
	err = errors.Join(err, db.do(ctx, func(ctx context.Context) (last bool, err error) {
		plan, due := compact.Pick(db.state.Load().version, db.compactConfig(), db.pointers)
		if !due {
			return true, nil
		}
		return false, db.runPlan(ctx, &plan)
	}))
	if err = errors.Join(err, db.Compact(ctx, nil, nil), db.Ingest(ctx, ops(10, true))); err != nil {
		t.Fatal(err)
	}
	v, above := db.state.Load().version, 0
	for level := range v.Deepest {
		for _, meta := range v.Levels[level] {
			above++
			var overlap uint64
			for _, m := range v.Overlapping(nil, v.Deepest, base.UserKey(meta.Smallest), base.UserKey(meta.Largest)) {
				overlap += m.Size
			}
			if overlap > v.Size(v.Deepest)/2 {
				t.Errorf("table %d of level %d overlaps %d of %d bytes", meta.Num, level, overlap, v.Size(v.Deepest))
			}
		}
	}
	if v.Deepest < 2 || above == 0 {
		t.Fatalf("%d tables above level %d", above, v.Deepest)
	}
}

// TestCompactionReadsRuns checks that a compaction of level 0 has one table of each run open: the
// read-ahead of all tables of an Ingest would take much more than Options.Memory.
func TestCompactionReadsRuns(t *testing.T) {
	fs := vfstest.Inject(vfstest.NewMem())
	o := uncached(fs)
	o.TableBytes, o.BlockBytes, o.DisableCompression = 1<<10, 256, true
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	err := errors.Join(db.Put([]byte("a"), nil, NoSync), db.Put([]byte("z"), nil, NoSync), db.Flush())
	err = errors.Join(err, db.Ingest(context.Background(), func(yield func(Op, error) bool) {
		for i := range 2000 {
			if !yield(Op{Key: fmt.Appendf(nil, "key%05d", i), Value: make([]byte, 100)}, nil) {
				return
			}
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	version := db.state.Load().version
	if n, runs := len(version.Levels[0]), len(version.Runs); n < 20 || runs != 2 {
		t.Fatalf("%d tables and %d runs in level 0", n, runs)
	}
	plan, _ := compact.PickOld(version, db.compactConfig(), nil, nil, math.MaxUint64)
	in, _, err := db.planInput(&plan)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var mu sync.Mutex
	read := map[string]bool{}
	fs.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpReadAt && strings.HasSuffix(op.Name, ".ldb") {
			mu.Lock()
			defer mu.Unlock()
			read[op.Name] = true
		}
		return nil
	})
	if !in.First() {
		t.Error(in.Err())
	}
	fs.SetHook(nil)
	if len(read) > len(version.Runs) {
		t.Errorf("the first move reads %d of %d tables, in %d runs", len(read), len(plan.Inputs[0]), len(version.Runs))
	}
}
