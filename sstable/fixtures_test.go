package sstable_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/fixtures"
	"github.com/siftdb/sift/sstable"
)

type pair struct{ key, value string }

func openFile(path string, o *sstable.ReaderOptions) (*sstable.Reader, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if o == nil {
		o = &sstable.ReaderOptions{}
	}
	o.Path = path
	return sstable.NewReader(bytes.NewReader(data), int64(len(data)), o)
}

// TestTablesOfOtherEngines reads single tables written by LevelDB, goleveldb, RocksDB and
// pebble.
func TestTablesOfOtherEngines(t *testing.T) {
	from := fixtures.Dir(t)
	for _, c := range []struct {
		file, expected string
		unsupported    string
		filter         sstable.FilterState
	}{
		{"leveldb-1.23_nofilter.ldb", "medium", "", sstable.FilterNone},
		// Its filters hold internal keys: goleveldb's package table, used on its own, adds those.
		{"goleveldb-1.0.0_bloom.ldb", "medium", "", sstable.FilterDamaged},
		{"rocksdb-7.8.3_fv0_crc_bloom.sst", "medium", "", sstable.FilterOK},
		{"rocksdb-7.8.3_edge_fv0_crc_bloom.sst", "small", "", sstable.FilterOK},
		{"pebble-1.1.5_f1_bloom.sst", "medium", "", sstable.FilterOK},
		{"pebble-2.1.7_f1_bloom.sst", "medium", "", sstable.FilterUnknown}, // it may hold prefixes only
		{"rocksdb-7.8.3_fv5_crc_bloom.sst", "", "RocksDB table, format_version 5", 0},
		{"pebble-2.1.7_f2_bloom.sst", "", "RocksDB table, format_version 2", 0},
	} {
		t.Run(c.file, func(t *testing.T) {
			r, err := openFile(filepath.Join(from, "tables", c.file), nil)
			if c.unsupported != "" {
				if !errors.Is(err, base.ErrUnsupported) || !strings.Contains(err.Error(), c.unsupported) {
					t.Fatalf("%v, want %q", err, c.unsupported)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s, err := r.FilterStatus(); s != c.filter || (err == nil) != (s == sstable.FilterOK || s == sstable.FilterNone) {
				t.Errorf("filter is %v, %v; want %v", s, err, c.filter)
			}
			var want []pair
			for key, value := range fixtures.Listing(t, c.expected) {
				want = append(want, pair{key, value})
			}
			it := r.NewIter(nil)
			defer it.Close()
			n := 0
			for ok := it.First(); ok; ok = it.Next() {
				if n == len(want) || string(base.UserKey(it.Key())) != want[n].key || string(it.Value()) != want[n].value {
					t.Fatalf("entry %d is %q", n, it.Key())
				}
				n++
			}
			if err := it.Err(); err != nil || n != len(want) {
				t.Fatalf("%d entries of %d, %v", n, len(want), err)
			}
			excluded := 0
			for _, p := range want {
				if !r.MayContain(filter.NewKey([]byte(p.key))) {
					t.Fatalf("the filter excludes %q", p.key)
				}
				v, kind, seq, found, err := r.Get([]byte(p.key), base.MaxSequence)
				if err != nil || !found || kind != sstable.KindSet || seq != 0 || string(v) != p.value {
					t.Fatalf("Get(%q): %q, %d, %d, %v, %v", p.key, v, kind, seq, found, err)
				}
				absent := []byte(p.key + "?")
				if _, _, _, found, err := r.Get(absent, base.MaxSequence); found || err != nil {
					t.Fatalf("Get(%q): %v, %v", absent, found, err)
				}
				if !r.MayContain(filter.NewKey(absent)) {
					excluded++
				}
			}
			if c.filter == sstable.FilterOK && excluded < len(want)*9/10 {
				t.Errorf("the filter excludes %d of %d absent keys", excluded, len(want))
			}
			faults := 0
			if err := r.Verify(t.Context(), func(err error) { faults++ }); err != nil {
				t.Fatal(err)
			}
			if (faults > 0) != (c.filter == sstable.FilterDamaged) {
				t.Errorf("%d faults", faults)
			}
		})
	}
}

// TestTablesInDatabases reads every table of databases of LevelDB and goleveldb, with and
// without additional meta blocks.
func TestTablesInDatabases(t *testing.T) {
	from := fixtures.Dir(t)
	tables, err := filepath.Glob(filepath.Join(from, "*", "*", "*.ldb"))
	if err != nil {
		t.Fatal(err)
	}
	n, levelDB := 0, 0
	for _, path := range tables {
		if strings.Contains(path, "corrupt") {
			continue
		}
		n++
		lying := strings.Contains(path, "lying")
		r, err := openFile(path, &sstable.ReaderOptions{Cache: sstable.NewBlockCache(1 << 20)})
		if err != nil {
			t.Fatal(err)
		}
		want := sstable.FilterNone
		if r.FilterFamily() != "" {
			want = sstable.FilterOK
		}
		if strings.HasPrefix(r.FilterFamily(), "leveldb.") {
			levelDB++
			excluded := 0
			for i := range 1000 {
				if !r.MayContain(filter.NewKey(fmt.Appendf(nil, "absent%d", i))) {
					excluded++
				}
			}
			if excluded < 950 {
				t.Errorf("%s: LevelDB's filters exclude %d of 1000 absent keys", path, excluded)
			}
		} else if strings.Contains(path, "superset") == (r.FilterFamily() == "") {
			t.Errorf("%s: filter family %q", path, r.FilterFamily())
		}
		if s, err := r.FilterStatus(); s != want || err != nil {
			t.Errorf("%s: filter is %v, %v; want %v", path, s, err, want)
		}
		entries := 0
		it := r.NewIter(&sstable.IterOptions{DontFillCache: true})
		for ok := it.First(); ok; ok = it.Next() {
			entries++
			userKey, seq, kind, _ := base.SplitInternalKey(it.Key())
			v, k, s, found, err := r.Get(userKey, seq)
			if err != nil || !found || k != kind || s != seq || !bytes.Equal(v, it.Value()) {
				t.Fatalf("%s: Get(%q, %d): %q, %d, %d, %v, %v", path, userKey, seq, v, k, s, found, err)
			}
		}
		if it.Err() != nil || entries == 0 {
			t.Errorf("%s: %d entries, %v", path, entries, it.Err())
		}
		var faults []error
		if err := r.Verify(t.Context(), func(err error) { faults = append(faults, err) }); err != nil {
			t.Fatal(err)
		}
		if lying != (len(faults) == 1 && strings.Contains(faults[0].Error(), "excludes")) || !lying && len(faults) > 0 {
			t.Errorf("%s: %v", path, faults)
		}
	}
	if n < 15 || levelDB < 5 {
		t.Errorf("only %d tables, %d with LevelDB's filters", n, levelDB)
	}
}

// TestDamagedTables opens tables of LevelDB with known damage.
func TestDamagedTables(t *testing.T) {
	from := fixtures.Dir(t)
	for _, c := range []struct {
		variant string
		opens   bool // keys can be read, except those of a damaged block
		faults  int
		what    string
	}{
		{"cpp-ok", true, 0, ""},
		{"cpp-data-flip", true, 1, "data block"},
		{"cpp-filter-flip", true, 1, "filter block"},
		{"cpp-filter-zero", true, 1, "filter block"},
		{"cpp-metaindex-flip", true, 1, "metaindex block"},

		{"cpp-footer-handle", true, 1, ""},
		{"cpp-footer-indexhandle", false, 0, ""},
		{"cpp-index-flip", false, 0, "index block"},
		{"cpp-footer-magic", false, 0, "footer"},
		{"cpp-table-empty", false, 0, "table"},
		{"cpp-table-truncated", false, 0, ""},
	} {
		path := filepath.Join(from, "corrupt", c.variant, "000005.ldb")
		if _, err := os.Stat(path); err != nil {
			t.Fatal(err)
		}
		r, err := openFile(path, nil)
		var ce *base.CorruptionError
		if (err == nil) != c.opens || err != nil && (!errors.As(err, &ce) || !strings.Contains(ce.What, c.what) || ce.Path != path) {
			t.Errorf("%s: %v", c.variant, err)
		}
		if err != nil {
			continue
		}
		var faults []error
		if err := r.Verify(t.Context(), func(err error) { faults = append(faults, err) }); err != nil {
			t.Fatal(err)
		}
		if len(faults) != c.faults || c.faults > 0 && (!errors.As(faults[0], &ce) || !strings.Contains(ce.What, c.what)) {
			t.Errorf("%s: %v", c.variant, faults)
		}
	}
}
