package sstable_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	pebblev1bloom "github.com/cockroachdb/pebble/bloom"
	pebblev1 "github.com/cockroachdb/pebble/sstable"
	pebblev2bloom "github.com/cockroachdb/pebble/v2/bloom"
	pebblev2 "github.com/cockroachdb/pebble/v2/sstable"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/fixtures"
	"github.com/siftdb/sift/sstable"
)

// pebbleKeys is the number of keys in the tables for pebble.
const pebbleKeys = 5000

func pebbleTable(t *testing.T) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := sstable.NewWriter(&buf, &sstable.WriterOptions{Filter: filter.RocksDBBloom(10), FileNumber: 3})
	for i := range pebbleKeys {
		kind, value := sstable.KindSet, fmt.Appendf(nil, "value %d", i)
		if i%10 == 3 {
			kind, value = sstable.KindDelete, nil
		}
		if err := w.Add(fmt.Appendf(nil, "key%06d", i), uint64(i+1), kind, value); err != nil {
			t.Fatal(err)
		}
	}
	info, err := w.Finish()
	if err != nil || info.FilterErr != nil || info.FilterUnits != 1 {
		t.Fatal(err, info)
	}
	return buf.Bytes()
}

// checkEntry checks entry i of a scan.
func checkEntry(t *testing.T, i int, userKey []byte, trailer uint64, value []byte) {
	t.Helper()
	want, kind := fmt.Sprintf("value %d", i), uint64(1)
	if i%10 == 3 {
		want, kind = "", 0
	}
	if string(userKey) != fmt.Sprintf("key%06d", i) || trailer != uint64(i+1)<<8|kind || string(value) != want {
		t.Fatalf("entry %d is %q, %x, %q", i, userKey, trailer, value)
	}
}

// checkFilterUse looks up each key and as many absent keys in pebble, and checks how many of them
// its filter excluded, by its own count.
func checkFilterUse(t *testing.T, seek func(key []byte) bool, hits func() int64) {
	t.Helper()
	for i := range pebbleKeys {
		if !seek(fmt.Appendf(nil, "key%06d", i)) {
			t.Fatalf("pebble does not find key %d", i)
		}
	}
	if n := hits(); n != 0 {
		t.Fatalf("pebble counts %d filter hits for present keys", n)
	}
	for i := range pebbleKeys {
		seek(fmt.Appendf(nil, "key%06d?", i))
	}
	// 10 bits per key: about 1% false positives.
	if n := hits(); n < pebbleKeys*97/100 {
		t.Errorf("pebble's filter excludes %d of %d absent keys", n, pebbleKeys)
	}
}

// memFile is a table in memory, for pebble v1.
type memFile struct{ *bytes.Reader }

func (memFile) Close() error                 { return nil }
func (f memFile) Stat() (os.FileInfo, error) { return memInfo{f.Size()}, nil }

type memInfo struct{ size int64 }

func (memInfo) Name() string       { return "table" }
func (i memInfo) Size() int64      { return i.size }
func (memInfo) Mode() os.FileMode  { return 0o644 }
func (memInfo) ModTime() time.Time { return time.Time{} }
func (memInfo) IsDir() bool        { return false }
func (memInfo) Sys() any           { return nil }

var _ io.ReaderAt = memFile{}

// TestPebbleV2Reads checks that pebble v2 reads sift's tables and uses their filters.
func TestPebbleV2Reads(t *testing.T) {
	policy := pebblev2bloom.FilterPolicy(10)
	var metrics pebblev2.FilterMetricsTracker
	r, err := pebblev2.NewMemReader(pebbleTable(t), pebblev2.ReaderOptions{
		Filters:              map[string]pebblev2.FilterPolicy{policy.Name(): policy},
		FilterMetricsTracker: &metrics,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	props, err := r.ReadPropertiesBlock(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if props.NumEntries != pebbleKeys || props.NumDeletions != pebbleKeys/10 || props.FilterPolicyName != policy.Name() {
		t.Errorf("pebble reads the properties as %s", props.String())
	}
	if err := r.ValidateBlockChecksums(); err != nil {
		t.Error(err)
	}
	it, err := r.NewIter(pebblev2.NoTransforms, nil, nil, pebblev2.AssertNoBlobHandles)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	n := 0
	for kv := it.First(); kv != nil; kv = it.Next() {
		value, _, err := kv.Value(nil)
		if err != nil {
			t.Fatal(err)
		}
		checkEntry(t, n, kv.K.UserKey, uint64(kv.K.Trailer), value)
		n++
	}
	if err := it.Error(); err != nil || n != pebbleKeys {
		t.Fatalf("pebble reads %d entries, %v", n, err)
	}
	checkFilterUse(t, func(key []byte) bool {
		kv := it.SeekPrefixGE(key, key, 0)
		return kv != nil && bytes.Equal(kv.K.UserKey, key)
	}, func() int64 { return metrics.Load().Hits })
}

// TestPebbleV1Reads checks that pebble v1 reads sift's tables and uses their filters.
func TestPebbleV1Reads(t *testing.T) {
	policy := pebblev1bloom.FilterPolicy(10)
	var metrics pebblev1.FilterMetricsTracker
	readable, err := pebblev1.NewSimpleReadable(memFile{bytes.NewReader(pebbleTable(t))})
	if err != nil {
		t.Fatal(err)
	}
	r, err := pebblev1.NewReader(readable, pebblev1.ReaderOptions{
		Filters: map[string]pebblev1.FilterPolicy{policy.Name(): policy},
	}, &metrics)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if p := r.Properties; p.NumEntries != pebbleKeys || p.NumDeletions != pebbleKeys/10 || p.FilterPolicyName != policy.Name() {
		t.Errorf("pebble reads the properties as %s", p.String())
	}
	if err := r.ValidateBlockChecksums(); err != nil {
		t.Error(err)
	}
	it, err := r.NewIter(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	n := 0
	for k, lazy := it.First(); k != nil; k, lazy = it.Next() {
		value, _, err := lazy.Value(nil)
		if err != nil {
			t.Fatal(err)
		}
		checkEntry(t, n, k.UserKey, k.Trailer, value)
		n++
	}
	if err := it.Error(); err != nil || n != pebbleKeys {
		t.Fatalf("pebble reads %d entries, %v", n, err)
	}
	checkFilterUse(t, func(key []byte) bool {
		k, _ := it.SeekPrefixGE(key, key, 0)
		return k != nil && bytes.Equal(k.UserKey, key)
	}, func() int64 { return metrics.Load().Hits })
}

// TestPebbleReadsEveryFamily checks that pebble reads tables with filters of families that it does
// not know.
func TestPebbleReadsEveryFamily(t *testing.T) {
	for _, policy := range []filter.Policy{nil, filter.Bloom(10), filter.Default()} {
		var buf bytes.Buffer
		w := sstable.NewWriter(&buf, &sstable.WriterOptions{Filter: policy})
		for i := range 1000 {
			if err := w.Add(fmt.Appendf(nil, "key%06d", i), uint64(i), sstable.KindSet, nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		bloom := pebblev2bloom.FilterPolicy(10)
		r, err := pebblev2.NewMemReader(buf.Bytes(), pebblev2.ReaderOptions{
			Filters: map[string]pebblev2.FilterPolicy{bloom.Name(): bloom},
		})
		if err != nil {
			t.Fatal(err)
		}
		it, err := r.NewIter(pebblev2.NoTransforms, nil, nil, pebblev2.AssertNoBlobHandles)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for kv := it.First(); kv != nil; kv = it.Next() {
			n++
		}
		if err := it.Error(); err != nil || n != 1000 {
			t.Errorf("%d entries, %v", n, err)
		}
		_ = it.Close()
		_ = r.Close()
	}
}

// TestReadsPebbleFilters checks that the filter in a table written by pebble v2 is recognized, but
// not used: it may hold prefixes only.
// TestPebbleV1Reads and TestPebbleV2Reads check the reverse.
func TestReadsPebbleFilters(t *testing.T) {
	from := fixtures.Dir(t)
	r, err := openFile(filepath.Join(from, "tables", "pebble-2.1.7_f1_bloom.sst"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.FilterFamily() != pebblev2bloom.FilterPolicy(10).Name() || r.NumFilterUnits() != 0 {
		t.Errorf("family %q, %d units", r.FilterFamily(), r.NumFilterUnits())
	}
}
