package pebblefilter

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/siftdb/sift/filter"
)

// never is a policy that excludes every key, which is correct where only absent keys
// are looked up: the block reads that remain cannot be saved by any filter.
type never struct{}

func (never) Name() string                                      { return "test.Never" }
func (never) MayContain(pebble.FilterType, []byte, []byte) bool { return false }
func (never) NewWriter(pebble.FilterType) pebble.FilterWriter   { return neverWriter{} }

type neverWriter struct{}

func (neverWriter) AddKey([]byte)            {}
func (neverWriter) Finish(buf []byte) []byte { return append(buf, 0) }

// wasted is the cost of lookups of absent keys with some policy, by pebble's own counters.
type wasted struct {
	probes    int64  // filter probes
	positives int64  // filter probes that excluded nothing
	blocks    int64  // lookups in the block cache
	bytes     uint64 // size of all filters
}

// place is the level or levels that a database's tables are in.
type place int

const (
	inLevel0 place = iota
	inLevel6
	inLevels2to6 // one in each
)

// wasteDB describes a database of keys of 16 bytes, and lookups of absent keys.
type wasteDB struct {
	keys, tables int
	place        place
	lookups      int
	probe        func(db *pebble.DB, key func(i int) []byte, lookups int) error
}

// spread returns the i-th of evenly spread keys. Those of odd numbers are absent.
func spread(i int) []byte {
	var k [16]byte
	binary.BigEndian.PutUint64(k[:], uint64(i)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(k[8:], uint64(i))
	return k[:]
}

// ingest ingests one part of the keys as a table.
func ingest(db *pebble.DB, o *pebble.Options, w *wasteDB, part int) error {
	var keys [][]byte
	for i := part; i < w.keys; i += w.tables {
		keys = append(keys, spread(2*i))
	}
	slices.SortFunc(keys, bytes.Compare)
	name := fmt.Sprint("ingest", part)
	f, err := o.FS.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	o = o.Clone()
	o.EnsureDefaults()
	table := sstable.NewWriter(objstorageprovider.NewFileWritable(f), o.MakeWriterOptions(2, db.TableFormat()))
	for _, k := range keys {
		if err := table.Set(k, nil); err != nil {
			return err
		}
	}
	if err := table.Close(); err != nil {
		return err
	}
	return db.Ingest(context.Background(), []string{name})
}

func (w *wasteDB) measure(t *testing.T, p pebble.FilterPolicy) wasted {
	t.Helper()
	o := &pebble.Options{
		FS: vfs.NewMem(), FormatMajorVersion: pebble.FormatNewest, Logger: quiet{},
		MemTableSize: 64 << 20, DisableAutomaticCompactions: true, L0StopWritesThreshold: 100,
	}
	o.Levels[0].FilterPolicy = p
	if w.place == inLevels2to6 {
		o.LBaseMaxBytes = 1 << 10 // otherwise levels above 6 are not used
	}
	db, err := pebble.Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for table := range w.tables {
		if w.place == inLevels2to6 {
			// pebble puts each table above those it overlaps, in the lowest level that is free.
			do(ingest(db, o, w, table))
			continue
		}
		b := db.NewBatch()
		for i := table; i < w.keys; i += w.tables {
			do(b.Set(spread(2*i), nil, nil))
		}
		do(b.Commit(pebble.NoSync))
		do(db.Flush())
	}
	if w.place == inLevel6 {
		do(db.Compact(t.Context(), []byte{0}, bytes.Repeat([]byte{0xff}, 17), false))
	}
	infos, err := db.SSTables(pebble.WithProperties())
	do(err)
	var result wasted
	for level := range infos {
		n := len(infos[level])
		if w.place == inLevels2to6 && (n == 1) != (level >= 2) ||
			w.place != inLevels2to6 && n > 0 && (level == 6) != (w.place == inLevel6) {
			t.Fatalf("%d tables in level %d", n, level)
		}
		for _, info := range infos[level] {
			result.bytes += info.Properties.FilterSize
		}
	}
	before := db.Metrics()
	do(w.probe(db, func(i int) []byte { return spread(2*i + 1) }, w.lookups))
	after := db.Metrics()
	result.positives = after.Filter.Misses - before.Filter.Misses
	result.probes = after.Filter.Hits - before.Filter.Hits + result.positives
	result.blocks = after.BlockCache.Hits + after.BlockCache.Misses - before.BlockCache.Hits - before.BlockCache.Misses
	return result
}

// getAbsent looks up absent keys through Get, which does not probe the filters of level 6.
func getAbsent(db *pebble.DB, key func(i int) []byte, lookups int) error {
	for i := range lookups {
		if _, _, err := db.Get(key(i)); !errors.Is(err, pebble.ErrNotFound) {
			return fmt.Errorf("%x: %w", key(i), err)
		}
	}
	return nil
}

// TestWasted compares the block reads that lookups of absent keys waste with pebble's
// bloom(10) and with filters of this module of the same size: through SeekPrefixGE in
// level 6 and through Get above it.
func TestWasted(t *testing.T) {
	keys, lookups, least := 400_000, 240_000, 10.0
	if testing.Short() {
		keys, lookups, least = 100_000, 100_000, 7
	}
	for _, w := range []struct {
		name string
		wasteDB
	}{
		{"SeekPrefixGE in level 6, with UseL6Filters", wasteDB{keys: keys, tables: 1, place: inLevel6, lookups: lookups,
			probe: func(db *pebble.DB, key func(int) []byte, n int) error {
				it, err := db.NewIter(&pebble.IterOptions{UseL6Filters: true})
				if err != nil {
					return err
				}
				for i := range n {
					if k := key(i); it.SeekPrefixGE(k) && bytes.Equal(it.Key(), k) {
						return fmt.Errorf("%x is there", k)
					}
				}
				return it.Close()
			}}},
		{"Get, four tables in level 0", wasteDB{keys: keys, tables: 4, lookups: lookups / 4,
			probe: getAbsent}},
		{"Get, a table in each of levels 2 to 6, without the reads in level 6", wasteDB{keys: keys, tables: 5, place: inLevels2to6,
			lookups: lookups / 4, probe: getAbsent}},
	} {
		none := w.measure(t, never{})
		theirs := w.measure(t, bloom.FilterPolicy(10))
		if theirs.probes < int64(lookups)*9/10 || none.positives != 0 {
			t.Fatalf("%s: %d lookups probe %d filters", w.name, w.lookups, theirs.probes)
		}
		per := func(n int64) float64 { return 1000 * float64(n) / float64(w.lookups) }
		t.Logf("%s: %d keys, %d lookups, %d filter probes", w.name, w.keys, w.lookups, theirs.probes)
		t.Logf("%22s: %8d bytes of filters, %7.3f wasted block reads per 1,000 lookups, %7.3f filter positives",
			"pebble's bloom(10)", theirs.bytes, per(theirs.blocks-none.blocks), per(theirs.positives))
		for _, p := range []filter.Policy{filter.Ribbon(10), filter.Bloom(10)} {
			ours := w.measure(t, New(p))
			t.Logf("%22s: %8d bytes of filters, %7.3f wasted block reads per 1,000 lookups, %7.3f filter positives: %.1f times fewer",
				p.Name(), ours.bytes, per(ours.blocks-none.blocks), per(ours.positives),
				float64(theirs.blocks-none.blocks)/float64(ours.blocks-none.blocks))
			// A Bloom filter is whole lines of 64 bytes, in each table.
			if float64(ours.bytes) > 1.01*float64(theirs.bytes)+float64(64*w.tables) {
				t.Errorf("%s: %s takes %d bytes, pebble's %d", w.name, p.Name(), ours.bytes, theirs.bytes)
			}
			want := 1.0
			if p == filter.Ribbon(10) {
				want = least
			}
			if float64(theirs.positives) < want*float64(ours.positives) ||
				float64(theirs.blocks-none.blocks) < want*float64(ours.blocks-none.blocks) {
				t.Errorf("%s: %s wastes %d block reads, pebble's %d: not %v times fewer", w.name, p.Name(),
					ours.blocks-none.blocks, theirs.blocks-none.blocks, want)
			}
		}
	}
}
