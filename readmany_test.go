package sift

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/sstable"
)

// orderedFile records prefetches and reads.
type orderedFile struct {
	io.ReaderAt
	*readOrder
}

// readOrder counts the prefetches and reads of files, and records their order.
type readOrder struct {
	mu sync.Mutex
	readCounts
	inARow int // ranges prefetched since the last read
}

type readCounts struct {
	prefetched int // ranges prefetched before the first read
	later      int // ranges prefetched after it
	mostInARow int // the most ranges prefetched without a read in between
	reads      int
}

func (f orderedFile) Prefetch(_, _ int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reads == 0 {
		f.prefetched++
	} else {
		f.later++
	}
	f.inARow++
	f.mostInARow = max(f.mostInARow, f.inARow)
	return true
}

func (f orderedFile) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	f.reads++
	f.inARow = 0
	f.mu.Unlock()
	return f.ReaderAt.ReadAt(p, off)
}

// take returns the counts since the last take.
func (o *readOrder) take() readCounts {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.readCounts
	o.readCounts, o.inARow = readCounts{}, 0
	return was
}

// TestManyPrefetch checks that GetMany prefetches all blocks before it reads the first.
func TestManyPrefetch(t *testing.T) {
	const n = 64
	var data bytes.Buffer
	w := sstable.NewWriter(&data, &sstable.WriterOptions{BlockBytes: 1}) // a block per key
	var keys [][]byte
	for i := range n {
		keys = append(keys, fmt.Appendf(nil, "%04d", i))
		if err := w.Add(keys[i], 1, base.KindSet, keys[i]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	f := orderedFile{bytes.NewReader(data.Bytes()), new(readOrder)}
	r, err := sstable.NewReader(f, int64(data.Len()), nil)
	if err != nil {
		t.Fatal(err)
	}
	f.reads = 0
	tbl := new(table)
	tbl.reader.Store(r)
	m := &many{values: make([][]byte, n)}
	m.add(nil, keys, base.MaxSequence, new(readStripe), 0)
	for i := range keys {
		m.jobs = append(m.jobs, manyJob{i, tbl, nil, 1})
	}
	if err := m.read(); err != nil {
		t.Fatal(err)
	}
	for i, v := range m.values {
		if !bytes.Equal(v, keys[i]) {
			t.Errorf("value of %s: %q", keys[i], v)
		}
	}
	if f.prefetched != n || f.reads != n {
		t.Errorf("%d blocks prefetched before the first read, %d read, want %d", f.prefetched, f.reads, n)
	}
}

// orderReads replaces the readers of db's tables by ones that record how they are read, and that
// have no cache.
func orderReads(t *testing.T, db *DB) *readOrder {
	t.Helper()
	order := new(readOrder)
	for _, tables := range db.state.Load().version.Levels {
		for _, meta := range tables {
			tbl := meta.Handle.(*table)
			data, err := os.ReadFile(tbl.path)
			if err != nil {
				t.Fatal(err)
			}
			old, err := tbl.load()
			if err != nil {
				t.Fatal(err)
			}
			r, err := sstable.NewReader(orderedFile{bytes.NewReader(data), order}, int64(len(data)), nil)
			if err != nil {
				t.Fatal(err)
			}
			tbl.reader.Store(r)
			old.Release()
		}
	}
	order.take()
	return order
}

// TestManyLevels checks that GetMany prefetches the blocks of all levels before it reads the first,
// and reads none that single lookups would not read.
func TestManyLevels(t *testing.T) {
	db, want := severalLevels(t, Options{Filter: filter.Ribbon(20), LevelFilters: []filter.Policy{filter.Ribbon(20)}})
	defer mustClose(t, db)
	order := orderReads(t, db)
	var keys [][]byte
	for i := 0; i < 3000; i += 50 {
		key := fmt.Appendf(nil, "%05d", i)
		if value, err := db.Get(key); err != nil && !errors.Is(err, ErrNotFound) || string(value) != want[string(key)] {
			t.Fatalf("Get(%s): %q, %v", key, value, err)
		}
		keys = append(keys, key)
	}
	levels := 0 // that hold some of the keys
	for _, l := range db.Metrics().Levels {
		levels += int(min(l.Filter.TruePositive, 1))
	}
	if levels < 3 {
		t.Fatalf("the keys are in %d levels", levels)
	}
	oneByOne := order.take()
	values, err := db.GetMany(keys)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		if value, there := want[string(keys[i])]; there != (v != nil) || value != string(v) {
			t.Errorf("%s = %q, want %q, %t", keys[i], v, value, there)
		}
	}
	if got := order.take(); got.prefetched == 0 || got.later > 0 || got.reads > oneByOne.reads {
		t.Errorf("%d blocks prefetched before the first read and %d after it; %d read, and %d by single lookups",
			got.prefetched, got.later, got.reads, oneByOne.reads)
	}
}

// TestManyRounds checks that GetMany searches level after level if filters exclude little or
// nothing, and that it never prefetches more than maxAhead blocks.
func TestManyRounds(t *testing.T) {
	for name, p := range map[string]filter.Policy{"no filters": filter.None(), "weak filters": filter.Ribbon(1)} {
		t.Run(name, func(t *testing.T) {
			db, want := severalLevels(t, Options{Filter: p, LevelFilters: []filter.Policy{p}})
			defer mustClose(t, db)
			order := orderReads(t, db)
			var keys [][]byte
			for i := range 3000 {
				keys = append(keys, fmt.Appendf(nil, "%05d", i), fmt.Appendf(nil, "%05dx", i))
			}
			for _, n := range []int{1, 2, 40, len(keys)} {
				for from := 0; from < len(keys); from += n {
					keys := keys[from:min(from+n, len(keys))]
					values, err := db.GetMany(keys)
					if err != nil {
						t.Fatal(err)
					}
					for i, v := range values {
						if value, there := want[string(keys[i])]; there != (v != nil) || value != string(v) {
							t.Fatalf("%s of %d = %q, want %q, %t", keys[i], n, v, value, there)
						}
					}
				}
			}
			if got := order.take(); got.mostInARow != maxAhead {
				t.Errorf("%d blocks prefetched in a row, want %d", got.mostInARow, maxAhead)
			}
		})
	}
}
