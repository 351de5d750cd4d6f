//go:build linux

package block

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/testhook"
	"github.com/siftdb/sift/internal/torture"
)

// An engine opens databases, with small memtables and tables, so that files change all the time.
type engine struct {
	name string
	open func(dir string) (store, error)
	// unsynced: it supports unsynced writes, and a crash may lose only the latest of them.
	unsynced bool
}

// store is an open database.
type store interface {
	Write(edits []torture.Edit, sync bool) error
	// Contents reads everything with a scan, and compares lookups of keys with it.
	Contents(keys []string) (map[string]string, error)
	// Tidy performs one of the engine's other operations, such as a compaction, chosen by n. It
	// reports whether everything that was written before is durable now.
	Tidy(n int) (durable bool, err error)
	Close() error
}

var siftEngine = engine{"sift", openSift, true}

type siftStore struct {
	db     *sift.DB
	writes atomic.Int64
}

func siftOptions() *sift.Options {
	o := &sift.Options{MemtableBytes: 8 << 10, TableBytes: 4 << 10, BlockBytes: 512,
		LevelBaseBytes: 16 << 10, LevelMultiplier: 3, L0Tables: 2, CacheBytes: 64 << 10, KeyedFilters: true,
		Logger: slog.New(slog.DiscardHandler)}
	testhook.Apply(o, testhook.Settings{ManifestBytes: 2000})
	return o
}

func openSift(dir string) (store, error) {
	db, err := sift.Open(dir, siftOptions())
	return &siftStore{db: db}, err
}

// Write implements store. Some of the synced writes are ingested.
func (s *siftStore) Write(edits []torture.Edit, sync bool) error {
	if sync && s.writes.Add(1)%4 == 0 {
		return s.db.Ingest(context.Background(), ascending(edits))
	}
	var b sift.Batch
	for _, e := range edits {
		if e.Delete {
			b.Delete([]byte(e.Key))
		} else {
			b.Put([]byte(e.Key), []byte(e.Value))
		}
	}
	return s.db.Write(&b, &sift.WriteOptions{NoSync: !sync})
}

// ascending returns the last edit of each key, in the order of the keys.
func ascending(edits []torture.Edit) iter.Seq2[sift.Op, error] {
	last := map[string]torture.Edit{}
	for _, e := range edits {
		last[e.Key] = e
	}
	return func(yield func(sift.Op, error) bool) {
		for _, k := range slices.Sorted(maps.Keys(last)) {
			if e := last[k]; !yield(sift.Op{Key: []byte(k), Value: []byte(e.Value), Delete: e.Delete}, nil) {
				return
			}
		}
	}
}

func (s *siftStore) Contents(keys []string) (map[string]string, error) {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	m, err := walk(it)
	if err != nil {
		return nil, err
	}
	return m, agree(m, keys, func(k []byte) ([]byte, bool, error) {
		v, err := s.db.Get(k)
		return v, err == nil, ignore(err, sift.ErrNotFound)
	})
}

func (s *siftStore) Tidy(n int) (durable bool, err error) {
	ctx := context.Background()
	switch n % 4 {
	case 0:
		return true, s.db.Flush()
	case 1:
		return true, s.db.Compact(ctx, nil, nil)
	case 2:
		_, err := s.db.BuildFilters(ctx)
		return false, err
	default:
		return false, s.db.Compact(ctx, []byte("key010"), []byte("key030"))
	}
}

func (s *siftStore) Close() error { return s.db.Close() }

// checkSift checks a closed database.
func checkSift(dir string) error {
	var faults error
	report, err := sift.Check(context.Background(), dir, siftOptions(), func(fault error) { faults = errors.Join(faults, fault) })
	if err = errors.Join(err, faults); err != nil {
		return fmt.Errorf("checking: %w", err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.[ls][ds][bt]"))
	if err != nil {
		return err
	}
	if len(names) != report.Tables {
		return fmt.Errorf("%d tables are in use, but the directory holds %q", report.Tables, names)
	}
	return nil
}
