package sift_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// prefixDB returns a database with keys user/N/field for even N, in several levels, and the keys.
func prefixDB(tb testing.TB, dir string, users int, o *sift.Options) (*sift.DB, []string) {
	tb.Helper()
	db := mustOpen(tb, dir, o)
	var keys []string
	rng := rand.New(rand.NewPCG(4, 2))
	for _, u := range rng.Perm(users) {
		for f := range 3 {
			key := fmt.Sprintf("user/%06d/%d", 2*u, f)
			keys = append(keys, key)
			if err := db.Put([]byte(key), bytes.Repeat([]byte{byte(u)}, 100), sift.NoSync); err != nil {
				tb.Fatal(err)
			}
		}
	}
	if err := db.Flush(); err != nil {
		tb.Fatal(err)
	}
	waitQuiet(db)
	slices.Sort(keys)
	return db, keys
}

func scanKeys(tb testing.TB, db *sift.DB, o *sift.IterOptions) []string {
	tb.Helper()
	var got []string
	for e, err := range db.Scan(o) {
		if err != nil {
			tb.Fatal(err)
		}
		got = append(got, string(e.Key))
	}
	return got
}

func TestPrefixFilters(t *testing.T) {
	small := func(p sift.Prefixer) *sift.Options {
		return &sift.Options{Prefix: p, MemtableBytes: 64 << 10, TableBytes: 32 << 10, LevelBaseBytes: 128 << 10, LevelMultiplier: 4}
	}
	byUser := sift.PrefixUpTo('/', 2)
	dir := t.TempDir()
	const users = 2000
	db, keys := prefixDB(t, dir, users, small(byUser))
	within := func(prefix string) []string {
		i, _ := slices.BinarySearch(keys, prefix)
		j := i
		for j < len(keys) && keys[j][:min(len(prefix), len(keys[j]))] == prefix {
			j++
		}
		return keys[i:j]
	}
	compare := func(db *sift.DB) {
		t.Helper()
		for _, prefix := range []string{"user/000000/", "user/000002/", "user/001998/", "user/003998/", "user/000002/1", "user/0000", "user/", "use", "zzz/1/", "user/000001/", "user/003999/"} {
			if got, want := scanKeys(t, db, &sift.IterOptions{Prefix: []byte(prefix)}), within(prefix); !slices.Equal(got, want) {
				t.Errorf("prefix %q: %d keys, want %d", prefix, len(got), len(want))
			}
		}
		// Bounds that extend beyond a prefix include the keys after it.
		if got := scanKeys(t, db, &sift.IterOptions{LowerBound: []byte("user/000001/"), UpperBound: []byte("user/000002/1")}); !slices.Equal(got, []string{"user/000002/0"}) {
			t.Errorf("within bounds: %q", got)
		}
	}
	compare(db)
	before := db.Metrics()
	for u := range users {
		if got := scanKeys(t, db, &sift.IterOptions{Prefix: fmt.Appendf(nil, "user/%06d/", 2*u+1)}); len(got) != 0 {
			t.Fatalf("absent user %d has %q", 2*u+1, got)
		}
	}
	after := db.Metrics()
	probes, useful := after.PrefixProbes-before.PrefixProbes, after.PrefixUseful-before.PrefixUseful
	if probes < users/2 || useful < probes*97/100 {
		t.Errorf("of %d tables probed for absent prefixes, only %d were skipped", probes, useful)
	}
	if n := after.BlockReads + after.CacheHits - before.BlockReads - before.CacheHits; n > 2*(probes-useful) {
		t.Errorf("%d blocks were read for %d filter positives", n, probes-useful)
	}
	mustClose(t, db)
	checkClean(t, dir, nil)
	checkClean(t, dir, small(byUser))

	// Tables written with another Prefixer, or none, are read normally.
	for _, p := range []sift.Prefixer{nil, sift.FixedPrefix(3), sift.PrefixUpTo('/', 1)} {
		db := mustOpen(t, dir, small(p))
		compare(db)
		if m := db.Metrics(); m.PrefixUseful != 0 {
			t.Errorf("%v: %d tables skipped", p, m.PrefixUseful)
		}
		mustClose(t, db)
	}
	// A compaction gives the tables the prefixes of the options.
	db = mustOpen(t, dir, small(sift.FixedPrefix(11)))
	for _, key := range keys { // so that all tables have something to compact
		if err := db.Put([]byte(key), nil, sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	compare(db)
	if m := db.Metrics(); m.PrefixUseful == 0 {
		t.Error("no table was skipped after a compaction with another Prefixer")
	}
	mustClose(t, db)
}

// TestEachPrefix checks random ranges of paths of any depth, with and without a range filter: the
// results must be those of a sorted list, and tables must be skipped for ranges below absent
// directories.
func TestEachPrefix(t *testing.T) {
	for _, delimiter := range []byte{'/', 0xff} {
		for _, ranges := range []filter.RangePolicy{nil, filter.Range(12, 0)} {
			rng := rand.New(rand.NewPCG(3, uint64(delimiter)))
			path := func(depth int) string {
				var b []byte
				for range depth {
					b = append(b, "abc\xff"[:1+rng.IntN(4)]...)
					b = append(b, byte('a'+rng.IntN(4)), delimiter)
				}
				return string(b[:len(b)-rng.IntN(2)])
			}
			dir := t.TempDir()
			o := &sift.Options{
				Prefix: sift.EachPrefix(delimiter), RangeFilter: ranges, Filter: filter.Ribbon(16),
				MemtableBytes: 64 << 10, TableBytes: 8 << 10, LevelBaseBytes: 64 << 10, LevelMultiplier: 4, BlockBytes: 512,
			}
			db := mustOpen(t, dir, o)
			var keys []string
			for range 8000 {
				keys = append(keys, path(1+rng.IntN(6)))
				if err := db.Put([]byte(keys[len(keys)-1]), nil, sift.NoSync); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
			slices.Sort(keys)
			keys = slices.Compact(keys)
			has := func(from, to string) bool {
				i, _ := slices.BinarySearch(keys, from)
				return i < len(keys) && keys[i] < to
			}
			absent, before := 0, db.Metrics()
			for i := range 20_000 {
				k := keys[rng.IntN(len(keys))]
				from := k[:rng.IntN(len(k)+1)] + path(1 + rng.IntN(2))[:1]
				to := keys[rng.IntN(len(keys))]
				switch i % 3 {
				case 0:
					from = k + string(delimiter)
					to = string(base.PrefixEnd([]byte(from)))
				case 1:
					to = k[:rng.IntN(len(k)+1)] + "\xff\xff"
				}
				got, err := db.HasRange([]byte(from), []byte(to))
				if want := has(from, to); err != nil || got != want {
					t.Fatalf("%q to %q: %v, %v, want %v", from, to, got, err, want)
				}
				if i%3 == 0 && !got {
					absent++
				}
			}
			if useful := db.Metrics().PrefixUseful - before.PrefixUseful; int(useful) < absent {
				t.Errorf("%d ranges below absent directories, but only %d tables skipped", absent, useful)
			}
			if delimiter == '/' && absent < 2000 {
				t.Errorf("only %d directories were absent", absent)
			}
			mustClose(t, db)
			checkClean(t, dir, nil)
			checkClean(t, dir, o)
		}
	}
}

// shortPrefixer violates the contract of Prefixer: its prefixes are a byte shorter than its name
// says, so filters exclude prefixes that are present.
type shortPrefixer struct{ sift.Prefixer }

func (p shortPrefixer) PrefixLen(key []byte) int { return p.Prefixer.PrefixLen(key) - 1 }

// TestAbsentPrefixAllocs checks that an iterator over an absent prefix costs one allocation: the
// iterator itself.
func TestAbsentPrefixAllocs(t *testing.T) {
	db, _ := prefixDB(t, t.TempDir(), 100, &sift.Options{Prefix: sift.PrefixUpTo('/', 2)})
	defer mustClose(t, db)
	o := &sift.IterOptions{Prefix: []byte("user/000017/")}
	n := testing.AllocsPerRun(1000, func() {
		it, err := db.NewIter(o)
		if err != nil {
			t.Fatal(err)
		}
		if it.First() || it.Close() != nil {
			t.Error("the prefix is found, or the iterator fails:", it.Err())
		}
	})
	if n > 1 {
		t.Errorf("%v allocations, want 1", n)
	}
}

// TestPrefixFiltersChecked checks that Check notices filters that lack the prefixes that their
// tables claim.
func TestPrefixFiltersChecked(t *testing.T) {
	dir := t.TempDir()
	db, _ := prefixDB(t, dir, 500, &sift.Options{Prefix: shortPrefixer{sift.PrefixUpTo('/', 2)}, Filter: filter.Bloom(20)})
	mustClose(t, db)
	faults := 0
	if _, err := sift.Check(context.Background(), dir, nil, func(error) { faults++ }); err != nil || faults == 0 {
		t.Errorf("Check reports %d faults, %v", faults, err)
	}
}

func TestPrefixers(t *testing.T) {
	for _, c := range []struct {
		p    sift.Prefixer
		name string
		key  string
		want int
	}{
		{sift.FixedPrefix(3), "fixed(3)", "abcd", 3},
		{sift.FixedPrefix(3), "fixed(3)", "abc", 3},
		{sift.FixedPrefix(3), "fixed(3)", "ab", -1},
		{sift.FixedPrefix(-1), "fixed(1)", "", -1},
		{sift.PrefixUpTo('/', 1), "upto(0x2f,1)", "/", 1},
		{sift.PrefixUpTo('/', 2), "upto(0x2f,2)", "user/17/name", 8},
		{sift.PrefixUpTo('/', 2), "upto(0x2f,2)", "user/17", -1},
		{sift.PrefixUpTo(0, 0), "upto(0x00,1)", "a\x00", 2},
		{sift.EachPrefix('/'), "each(0x2f)", "user/17/name", 8},
		{sift.EachPrefix('/'), "each(0x2f)", "/", 1},
		{sift.EachPrefix('/'), "each(0x2f)", "user", -1},
	} {
		if got := c.p.PrefixLen([]byte(c.key)); got != c.want || c.p.Name() != c.name {
			t.Errorf("%s, %q: %d, want %s, %d", c.p.Name(), c.key, got, c.name, c.want)
		}
	}
}

// BenchmarkAbsentPrefix scans prefixes that no key has, with a new iterator for each, with Reset
// of one iterator, and with HasPrefix: 2 million random keys of 16 bytes with values of 100,
// prefixes of 8, a block cache of 8 MiB. The same database is opened with and without a Prefixer.
func BenchmarkAbsentPrefix(b *testing.B) {
	keys := 2_000_000
	if testing.Short() {
		keys = 50_000
	}
	dir := b.TempDir()
	options := func(p sift.Prefixer) *sift.Options { return &sift.Options{Prefix: p, CacheBytes: 8 << 20} }
	db := mustOpen(b, dir, options(sift.FixedPrefix(8)))
	rng := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 100)
	var key []byte
	for _, i := range rng.Perm(keys) {
		key = benchKey(key, uint64(2*i))
		if err := db.Put(key, benchValue(rng, value), sift.NoSync); err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		b.Fatal(err)
	}
	for range 50 { // once quiesced, level 0 is empty
		if waitQuiet(db); db.Metrics().Levels[0].Tables == 0 {
			break
		}
	}
	mustClose(b, db)
	for _, shape := range []string{"quiesced", "compacted"} {
		if shape == "compacted" {
			db := mustOpen(b, dir, options(sift.FixedPrefix(8)))
			if err := db.Compact(context.Background(), nil, nil); err != nil {
				b.Fatal(err)
			}
			mustClose(b, db)
		}
		for _, p := range []sift.Prefixer{nil, sift.FixedPrefix(8)} {
			name := shape + "/none"
			if p != nil {
				name = shape + "/prefixes"
			}
			for _, way := range []string{"", "_Reset", "_HasPrefix"} {
				b.Run(name+way, func(b *testing.B) {
					o := options(p)
					o.DisableAutoCompaction = true
					db := mustOpen(b, dir, o)
					b.Cleanup(func() { mustClose(b, db) })
					prefixes := make([][]byte, 1<<14)
					for i := range prefixes {
						prefixes[i] = benchKey(nil, uint64(2*rng.IntN(keys)+1))[:8]
					}
					has := hasPrefixBy(b, db, way)
					b.ReportAllocs()
					before := db.Metrics()
					b.ResetTimer()
					for i := range b.N {
						if has(prefixes[i%len(prefixes)]) {
							b.Fatalf("%x is present", prefixes[i%len(prefixes)])
						}
					}
					b.StopTimer()
					after := db.Metrics()
					b.ReportMetric(float64(after.BlockReads-before.BlockReads)*1000/float64(b.N), "reads/1000")
				})
			}
		}
	}
}

// hasPrefixBy returns a function that looks for a prefix with a new iterator, with Reset of one,
// or with HasPrefix.
func hasPrefixBy(b *testing.B, db *sift.DB, way string) func(prefix []byte) bool {
	open := func(prefix []byte) *sift.Iter {
		it, err := db.NewIter(&sift.IterOptions{Prefix: prefix})
		if err != nil {
			b.Fatal(err)
		}
		return it
	}
	switch way {
	case "_Reset":
		it := open(nil)
		b.Cleanup(func() { mustClose(b, it) })
		return func(prefix []byte) bool {
			if err := it.Reset(&sift.IterOptions{Prefix: prefix}); err != nil {
				b.Fatal(err)
			}
			return it.First()
		}
	case "_HasPrefix":
		return func(prefix []byte) bool {
			has, err := db.HasPrefix(prefix)
			if err != nil {
				b.Fatal(err)
			}
			return has
		}
	}
	return func(prefix []byte) bool {
		it := open(prefix)
		has := it.First()
		if err := it.Close(); err != nil {
			b.Fatal(err)
		}
		return has
	}
}

// TestIterBounds checks that an iterator copies its bounds, whether they fit into the iterator or
// not, and that those of a prefix are right even for bytes of 0xff.
func TestIterBounds(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	defer mustClose(t, db)
	long := bytes.Repeat([]byte("k"), 50)
	var keys []string
	for _, k := range []string{"", "a", "a\xff", "a\xff\xff", "b", string(long), string(long) + "\xff", string(long) + "\xffz", string(long) + "l", "\xff", "\xff\xff", "\xffz"} {
		keys = append(keys, k)
		if err := db.Put([]byte(k), []byte("v"), sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(keys)
	bounds := [][]byte{nil, {}, []byte("a"), []byte("a\xff"), long, append(bytes.Clone(long), 0xff), append(bytes.Clone(long), "l"...), []byte("\xff"), []byte("\xff\xff"), []byte("zz")}
	for _, lower := range bounds {
		for _, upper := range bounds {
			for _, prefix := range bounds {
				var want []string
				for _, k := range keys {
					if k >= string(lower) && (upper == nil || k < string(upper)) && bytes.HasPrefix([]byte(k), prefix) {
						want = append(want, k)
					}
				}
				o := &sift.IterOptions{LowerBound: bytes.Clone(lower), UpperBound: bytes.Clone(upper), Prefix: bytes.Clone(prefix)}
				it, err := db.NewIter(o)
				if err != nil {
					t.Fatal(err)
				}
				for _, b := range [][]byte{o.LowerBound, o.UpperBound, o.Prefix} {
					for i := range b {
						b[i] = 'x'
					}
				}
				var got []string
				for ok := it.First(); ok; ok = it.Next() {
					got = append(got, string(it.Key()))
				}
				for ok := it.Last(); ok; ok = it.Prev() {
					got = append(got, string(it.Key()))
				}
				if err := it.Close(); err != nil {
					t.Fatal(err)
				}
				back := slices.Clone(want)
				slices.Reverse(back)
				if want = append(want, back...); !slices.Equal(got, want) {
					t.Fatalf("from %q to %q with prefix %q: %q, want %q", lower, upper, prefix, got, want)
				}
			}
		}
	}
}

// TestPrefixRanges compares scans within random bounds, in both directions, with a list of the
// keys; prefixes extend over several tables.
func TestPrefixRanges(t *testing.T) {
	o := &sift.Options{Prefix: sift.FixedPrefix(9), MemtableBytes: 64 << 10, TableBytes: 16 << 10, LevelBaseBytes: 64 << 10, LevelMultiplier: 4}
	db, keys := prefixDB(t, t.TempDir(), 1500, o) // 150 keys per prefix, in tables of 140
	defer mustClose(t, db)
	// Compactions may have left only one level, whose tables hold every prefix that they span. This
	// table spans all prefixes and holds two.
	for _, key := range []string{"user/000000/9", "user/002998/9"} {
		if err := db.Put([]byte(key), nil, sift.NoSync); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(8, 8))
	bound := func() []byte {
		key := fmt.Appendf(nil, "user/%06d/", rng.IntN(3200))
		switch rng.IntN(6) {
		case 0:
			return nil
		case 1:
			return key[:rng.IntN(len(key))]
		case 2:
			return []byte("user0") // after all
		}
		return key
	}
	found, empty := 0, 0
	for range 3000 {
		io := &sift.IterOptions{LowerBound: bound(), UpperBound: bound()}
		if rng.IntN(2) == 0 {
			io.Prefix = bound()
		}
		var want []string
		for _, k := range keys {
			if k >= string(io.LowerBound) && (io.UpperBound == nil || k < string(io.UpperBound)) && bytes.HasPrefix([]byte(k), io.Prefix) {
				want = append(want, k)
			}
		}
		it, err := db.NewIter(io)
		if err != nil {
			t.Fatal(err)
		}
		var forward, backward []string
		for ok := it.First(); ok; ok = it.Next() {
			forward = append(forward, string(it.Key()))
		}
		for ok := it.Last(); ok; ok = it.Prev() {
			backward = append(backward, string(it.Key()))
		}
		slices.Reverse(backward)
		if !slices.Equal(forward, want) || !slices.Equal(backward, want) {
			t.Fatalf("%+v: %d keys forward, %d backward, want %d", io, len(forward), len(backward), len(want))
		}
		if found += len(want); len(want) > 0 {
			if !it.SeekGE([]byte(want[0])) || !it.SeekLT([]byte("v")) || string(it.Key()) != want[len(want)-1] {
				t.Fatalf("%+v: seeks do not find %q and %q", io, want[0], want[len(want)-1])
			}
		} else {
			empty++
			if it.SeekGE(nil) || it.SeekLT([]byte("v")) || it.Next() || it.Prev() || it.Valid() || it.Key() != nil || it.Value() != nil || it.Err() != nil {
				t.Fatalf("%+v: at %q, %v", io, it.Key(), it.Err())
			}
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
		if it.First() || it.Err() != sift.ErrClosed {
			t.Fatalf("%+v: after Close: %v", io, it.Err())
		}
	}
	if m := db.Metrics(); m.PrefixUseful == 0 || found == 0 || empty == 0 {
		t.Errorf("%d tables were skipped, %d keys were found, %d scans were empty", m.PrefixUseful, found, empty)
	}
}

// TestRangesAtTableEnds checks that a range that begins with the last key of a table finds this
// key, with and without a prefix, in level 0 and below, and that one that ends with the first key
// does not.
func TestRangesAtTableEnds(t *testing.T) {
	for _, p := range []sift.Prefixer{nil, sift.FixedPrefix(1)} {
		for _, compact := range []bool{false, true} {
			db := mustOpen(t, t.TempDir(), &sift.Options{Prefix: p, DisableAutoCompaction: true})
			for _, k := range []string{"a5", "b1", "b5"} {
				if err := db.Put([]byte(k), nil, sift.NoSync); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
			if compact {
				if err := db.Compact(context.Background(), nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			for bounds, want := range map[[2]string]string{{"b5", "b6"}: "b5", {"b2", "b6"}: "b5", {"b6", "b7"}: "", {"a1", "a5"}: "", {"a1", "a6"}: "a5"} {
				it, err := db.NewIter(&sift.IterOptions{LowerBound: []byte(bounds[0]), UpperBound: []byte(bounds[1])})
				if err != nil {
					t.Fatal(err)
				}
				if it.First(); string(it.Key()) != want || it.Err() != nil {
					t.Errorf("prefixes %v, compacted %t, %q: at %q, %v", p, compact, bounds, it.Key(), it.Err())
				}
				mustClose(t, it)
			}
			mustClose(t, db)
		}
	}
}
