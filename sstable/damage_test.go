package sstable

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/golang/snappy"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// damageTable returns a small table with all features: several blocks, compressed and
// not, tombstones, versions, a filter of several units, properties.
func damageTable(t testing.TB) ([]byte, []kv) {
	t.Helper()
	list := numbered(25)
	for i := range 6 {
		list = append(list, kv{list[3].key, uint64(100 + i), KindSet, "newer"})
	}
	list = sortEntries(list)
	data, info := buildTable(t, list, &WriterOptions{BlockBytes: 200, RestartInterval: 4, Filter: hashList{unitKeys: 8}})
	if info.NumDataBlocks < 4 || info.FilterErr != nil {
		t.Fatalf("%+v", info)
	}
	return data, list
}

// readAll reads a table in every way and returns the number of errors. A wrong answer, an
// error that is not corruption, or one without the file's path, fails the test.
func readAll(t *testing.T, desc string, data []byte, list []kv) (errs int) {
	t.Helper()
	check := func(err error) {
		if err == nil {
			return
		}
		errs++
		var c *base.CorruptionError
		var wrong *wrongAnswer
		switch {
		case errors.As(err, &wrong):
			t.Fatalf("%s: %v", desc, err)
		case errors.Is(err, base.ErrUnsupported):
		case !errors.As(err, &c) || c.Path != "test.ldb":
			t.Fatalf("%s: %v is not a CorruptionError with the path", desc, err)
		}
	}
	r, err := NewReader(bytes.NewReader(data), int64(len(data)), &ReaderOptions{
		Path: "test.ldb", Policies: []filter.Policy{hashList{}}, Cache: NewBlockCache(1 << 20),
	})
	check(err)
	if err != nil {
		return errs
	}
	if s, err := r.FilterStatus(); s == FilterDamaged {
		check(err)
	}
	for _, e := range list {
		if !r.MayContain(filter.NewKey([]byte(e.key))) {
			t.Fatalf("%s: the filter excludes %q", desc, e.key)
		}
		check(checkGet(r, list, e.key, e.seq))
		check(checkGet(r, list, e.key+"x", base.MaxSequence))
	}
	check(checkScan(r, list, nil))
	check(checkScan(r, list, &IterOptions{DontFillCache: true, Readahead: true}))
	return errs
}

// verifies reports whether Verify finds no fault.
func verifies(t *testing.T, data []byte) bool {
	t.Helper()
	r, err := NewReader(bytes.NewReader(data), int64(len(data)), &ReaderOptions{Path: "test.ldb", Policies: []filter.Policy{hashList{}}})
	if err != nil {
		return false
	}
	ok := true
	if err := r.Verify(t.Context(), func(error) { ok = false }); err != nil {
		t.Fatal(err)
	}
	return ok
}

// TestFlips changes every byte in four ways: each answer must be correct or an error, and Verify
// must detect each change that causes an error.
func TestFlips(t *testing.T) {
	data, list := damageTable(t)
	if errs := readAll(t, "intact", data, list); errs != 0 || !verifies(t, data) {
		t.Fatalf("%d errors from an undamaged table", errs)
	}
	masks := []struct {
		name string
		f    func(byte) byte
	}{
		{"^01", func(b byte) byte { return b ^ 0x01 }},
		{"^80", func(b byte) byte { return b ^ 0x80 }},
		{"^FF", func(b byte) byte { return b ^ 0xff }},
		{"=0", func(byte) byte { return 0 }},
	}
	silent := 0
	for i := range data {
		for _, m := range masks {
			old := data[i]
			if data[i] = m.f(old); data[i] != old {
				desc := fmt.Sprintf("byte %d of %d %s", i, len(data), m.name)
				errs := readAll(t, desc, data, list)
				if verifies(t, data) && errs == 0 {
					silent++
					// Only the padding of the footer has no meaning.
					if i < len(data)-footerLen || i >= len(data)-8 {
						t.Errorf("%s: not detected", desc)
					}
				} else if errs > 0 && verifies(t, data) {
					t.Errorf("%s: not detected by Verify", desc)
				}
			}
			data[i] = old
		}
	}
	if silent == 0 {
		t.Error("changes of the footer's padding are detected")
	}
}

// TestTruncation checks that truncation of the table to any length is detected, as are bytes that
// are appended.
func TestTruncation(t *testing.T) {
	data, list := damageTable(t)
	for n := range data {
		if errs := readAll(t, fmt.Sprintf("cut to %d", n), data[:n:n], list); errs == 0 {
			t.Fatalf("cut to %d of %d: no error", n, len(data))
		}
	}
	for _, n := range []int{1, 48, 1000} {
		if errs := readAll(t, fmt.Sprintf("%d bytes more", n), append(slices.Clone(data), make([]byte, n)...), list); errs == 0 {
			t.Fatalf("%d bytes more: no error", n)
		}
	}
	// A file that is truncated after it was opened.
	r := openTable(t, data, nil)
	r.r = bytes.NewReader(data[:r.index.Load().handle(1).Offset]) // after the first block
	failed := 0
	for _, e := range list {
		var c *base.CorruptionError
		if err := checkGet(r, list, e.key, e.seq); errors.As(err, &c) {
			failed++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if failed == 0 || failed == len(list) {
		t.Errorf("%d of %d lookups fail in a file that ends after the first block", failed, len(list))
	}
}

// TestSwappedBlocks swaps pairs of data blocks of the same stored length: this must be detected,
// although their checksums are valid in the wrong place, too.
func TestSwappedBlocks(t *testing.T) {
	list := make([]kv, 200)
	for i := range list {
		list[i] = kv{fmt.Sprintf("%04d", i), uint64(i), KindSet, fmt.Sprintf("%04d", 7*i)}
	}
	for _, blockBytes := range []int{1, 128} {
		swapBlocks(t, list, blockBytes)
	}
}

func swapBlocks(t *testing.T, list []kv, blockBytes int) {
	data, _ := buildTable(t, list, &WriterOptions{BlockBytes: blockBytes, DisableCompression: true})
	r := openTable(t, data, nil)
	swaps := 0
	for i := range r.NumDataBlocks() {
		for j := range i {
			a, b := r.index.Load().handle(i), r.index.Load().handle(j)
			if a.Length != b.Length || swaps > 150 {
				continue
			}
			swaps++
			d := bytes.Clone(data)
			copy(d[a.Offset:a.end()], data[b.Offset:b.end()])
			copy(d[b.Offset:b.end()], data[a.Offset:a.end()])
			if errs := readAll(t, fmt.Sprintf("blocks %d and %d swapped", i, j), d, list); errs == 0 || verifies(t, d) {
				t.Fatalf("blocks %d and %d swapped: no error", i, j)
			}
			// The same block twice.
			copy(d[a.Offset:a.end()], data[a.Offset:a.end()])
			if errs := readAll(t, fmt.Sprintf("block %d in the place of %d", i, j), d, list); errs == 0 || verifies(t, d) {
				t.Fatalf("block %d in the place of %d: no error", i, j)
			}
		}
	}
	if swaps < 100 {
		t.Fatalf("only %d swaps", swaps)
	}
}

// TestSwappedFilters replaces filter blocks by intact ones, from elsewhere in the table and from
// another table of the same shape: this must be detected, and no key may be excluded.
func TestSwappedFilters(t *testing.T) {
	data, list := damageTable(t)
	other := slices.Clone(list)
	for i := range other {
		other[i].key = "KEY" + other[i].key[3:]
	}
	data2, _ := buildTable(t, other, &WriterOptions{BlockBytes: 200, RestartInterval: 4, Filter: hashList{unitKeys: 8}})
	r := openTable(t, data, &ReaderOptions{Policies: []filter.Policy{hashList{}}})
	r2 := openTable(t, data2, &ReaderOptions{Policies: []filter.Policy{hashList{}}})
	for i := range r.NumFilterUnits() - 1 {
		a, b, c := r.filterUnits[i], r.filterUnits[(i+1)%(r.NumFilterUnits()-1)], r2.filterUnits[i]
		d := bytes.Clone(data)
		copy(d[a.Offset:a.end()], data[b.Offset:b.end()])
		if readAll(t, fmt.Sprintf("unit %d replaced by the next", i), d, list) == 0 {
			t.Fatalf("unit %d replaced by the next: no error", i)
		}
		copy(d[a.Offset:a.end()], data2[c.Offset:c.end()])
		if readAll(t, fmt.Sprintf("unit %d of another table", i), d, list) == 0 {
			t.Fatalf("unit %d of another table: no error", i)
		}
	}
}

// TestVerifyBeyondChecksums checks that Verify finds faults that no checksum detects.
func TestVerifyBeyondChecksums(t *testing.T) {
	list := numbered(50)
	wantFault := func(desc string, data []byte) {
		t.Helper()
		if verifies(t, data) {
			t.Errorf("%s: not found", desc)
		}
	}
	// A filter over other keys.
	data, _ := buildTable(t, list, &WriterOptions{Filter: lyingPolicy{hashList{}}})
	wantFault("filter over other keys", data)
	// Properties that were counted wrong.
	for i := range 9 {
		var buf bytes.Buffer
		w := NewWriter(&buf, nil)
		for _, e := range list {
			if err := w.Add([]byte(e.key), e.seq, e.kind, []byte(e.value)); err != nil {
				t.Fatal(err)
			}
		}
		p := &w.props
		*[]*uint64{&p.NumEntries, &p.NumDeletions, &p.NumKeys, &p.RawKeyBytes, &p.RawValueBytes, &p.MinSeq, &p.MaxSeq, &p.NumDataBlocks, &p.NumDataBlocks}[i]++
		if i == 8 {
			p.NumDataBlocks--
			p.Smallest = list[1].ikey()
		}
		if _, err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		wantFault(fmt.Sprintf("count %d", i), buf.Bytes())
	}
	// Another engine's count, without the range of keys.
	data, _ = buildTable(t, list, nil)
	for count, faults := range map[uint64]int{50: 0, 51: 1} {
		r := openTable(t, data, nil)
		r.props = &Properties{NumEntries: count}
		if err := r.Verify(t.Context(), func(error) { faults-- }); err != nil || faults != 0 {
			t.Errorf("%d entries in another engine's properties: %d faults too few, %v", count, faults, err)
		}
	}
	// A restart offset in the middle of an entry, keys out of order, a key past
	// its separator, an unknown kind: handmade blocks with valid checksums.
	key := func(s string, kind Kind) []byte { return base.AppendInternalKey(nil, []byte(s), 1, kind) }
	for _, c := range []struct {
		desc    string
		keys    [][]byte
		restart uint32
	}{
		{"keys out of order", [][]byte{key("a", 1), key("c", 1), key("b", 1)}, 0},
		{"a key twice", [][]byte{key("a", 1), key("a", 1)}, 0},
		{"key past the separator", [][]byte{key("a", 1), key("z", 1)}, 0},
		{"unknown kind", [][]byte{key("a", 2)}, 0},
		{"restart within an entry", [][]byte{key("a", 1), key("b", 1)}, 5},
	} {
		w := blockWriter{interval: 16}
		for _, k := range c.keys {
			w.add(k, w.shared(k), nil)
		}
		if c.restart != 0 {
			w.restarts = append(w.restarts, c.restart)
		}
		data := handmadeTable(w.finish(), key("d", 1))
		r := openTable(t, data, nil)
		var found error
		if err := r.Verify(t.Context(), func(err error) { found = err }); err != nil {
			t.Fatal(err)
		}
		var ce *base.CorruptionError
		if !errors.As(found, &ce) || ce.Offset != 0 {
			t.Errorf("%s: %v", c.desc, found)
		}
	}
	// These are no faults: the empty key, and a filter without properties.
	data, _ = buildTable(t, []kv{{"", 1, KindSet, ""}, {"a", 2, KindSet, ""}}, &WriterOptions{Filter: hashList{}})
	r := openTable(t, data, &ReaderOptions{Policies: []filter.Policy{hashList{}}})
	for range 2 {
		if err := r.Verify(t.Context(), func(err error) { t.Errorf("an undamaged table: %v", err) }); err != nil {
			t.Error(err)
		}
		r.props = nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := openTable(t, data, nil).Verify(ctx, func(error) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("Verify with a canceled context: %v", err)
	}
}

// handmadeTable returns a table of one data block, without metaindex entries.
func handmadeTable(data, separator []byte) []byte {
	var buf bytes.Buffer
	w := NewWriter(&buf, &WriterOptions{DisableCompression: true})
	w.handle, _ = w.writeBlock(data, false)
	w.addIndexEntry(separator)
	var f footer
	f.metaindex, _ = w.writeBlock((&blockWriter{interval: 1}).finish(), false)
	f.index, _ = w.writeBlock(w.index.finish(), false)
	buf.Write(appendFooter(nil, f))
	return buf.Bytes()
}

// lyingPolicy builds filters over other keys than those that are added.
type lyingPolicy struct{ hashList }

func (p lyingPolicy) NewWriter() filter.Writer { return lyingWriter{p.hashList.NewWriter()} }

type lyingWriter struct{ filter.Writer }

func (w lyingWriter) Add(k filter.Key) {
	w.Writer.Add(filter.NewKey(append([]byte("not "), k.Bytes...)))
}

// TestMalformedEntriesInIterators checks that an iterator stops with an error at a malformed entry,
// in both directions, or, with SkipDamaged, continues after the block.
func TestMalformedEntriesInIterators(t *testing.T) {
	key := func(s string) []byte { return base.AppendInternalKey(nil, []byte(s), 1, KindSet) }
	w := blockWriter{interval: 16}
	for _, s := range []string{"a", "b", "c"} {
		w.add(key(s), w.shared(key(s)), nil)
	}
	third := len(w.buf) - 12
	w.buf[third] = 100 // shares more than the previous key has
	data := handmadeTable(w.finish(), key("d"))
	r := openTable(t, data, nil)
	it := r.NewIter(nil)
	if !it.First() || !it.Next() || it.Next() || !errors.Is(it.Err(), base.ErrCorruption) || it.Valid() || it.Next() {
		t.Errorf("forward: %v", it.Err())
	}
	if it.Last() || !errors.Is(it.Err(), base.ErrCorruption) || it.Prev() {
		t.Errorf("backward: %v", it.Err())
	}
	if it.SeekGE(key("c")) || !errors.Is(it.Err(), base.ErrCorruption) {
		t.Errorf("SeekGE: %v", it.Err())
	}
	if it.SeekLT(key("d")) || !errors.Is(it.Err(), base.ErrCorruption) {
		t.Errorf("SeekLT: %v", it.Err())
	}
	if !it.First() || it.Err() != nil {
		t.Errorf("First after an error: %v", it.Err())
	}
	skipped := 0
	it = r.NewIter(&IterOptions{SkipDamaged: func(error) { skipped++ }})
	if !it.First() || !it.Next() || it.Next() || it.Err() != nil || skipped != 1 {
		t.Errorf("skipping: %d, %v", skipped, it.Err())
	}
	if it.Last() || it.Err() != nil || skipped != 2 {
		t.Errorf("skipping backward: %d, %v", skipped, it.Err())
	}
	if it.SeekGE(key("c")) || it.Valid() || it.Err() != nil || skipped != 3 {
		t.Errorf("SeekGE, skipping: %d, %v", skipped, it.Err())
	}
	if it.SeekLT(key("d")) || it.Valid() || it.Err() != nil || skipped != 4 {
		t.Errorf("SeekLT, skipping: %d, %v", skipped, it.Err())
	}
}

// TestSkipDamaged damages each block in turn: iterators must find the entries of all others.
func TestSkipDamaged(t *testing.T) {
	data, list := damageTable(t)
	r := openTable(t, data, nil)
	for i := range r.NumDataBlocks() {
		d := bytes.Clone(data)
		d[r.index.Load().handle(i).Offset] ^= 1
		lo, hi := base.UserKey(r.index.Load().separator(new(separatorBuf), max(i-1, 0))), base.UserKey(r.index.Load().separator(new(separatorBuf), i))
		for _, o := range []IterOptions{{}, {DontFillCache: true, Readahead: true}} {
			var skipped []error
			o.SkipDamaged = func(err error) { skipped = append(skipped, err) }
			it := openTable(t, d, nil).NewIter(&o)
			var forward, backward []string
			for ok := it.First(); ok; ok = it.Next() {
				forward = append(forward, string(it.Key()))
			}
			for ok := it.Last(); ok; ok = it.Prev() {
				backward = append(backward, string(it.Key()))
			}
			if it.Err() != nil || len(skipped) != 2 {
				t.Fatalf("block %d: %v, %d skipped", i, it.Err(), len(skipped))
			}
			var ce *base.CorruptionError
			if !errors.As(skipped[0], &ce) || ce.Offset != int64(r.index.Load().handle(i).Offset) {
				t.Fatalf("block %d: %v", i, skipped[0])
			}
			slices.Reverse(backward)
			if !slices.Equal(forward, backward) || len(forward) == 0 || len(forward) >= len(list) {
				t.Fatalf("block %d: %d entries forward, %d backward", i, len(forward), len(backward))
			}
			for _, e := range list {
				in := slices.Contains(forward, string(e.ikey()))
				if outside := i > 0 && e.key <= string(lo) || e.key > string(hi); outside && !in && e.key != string(lo) {
					t.Fatalf("block %d: %q is missing", i, e.key)
				}
			}
			// Seeks into the damaged block end after it, or before it.
			sep := r.index.Load().separator(new(separatorBuf), i)
			if ok := it.SeekGE(sep); ok && base.CompareInternal(it.Key(), sep) < 0 || it.Err() != nil {
				t.Fatalf("block %d: SeekGE is at %q, %v", i, it.Key(), it.Err())
			}
			if ok := it.SeekLT(sep); ok != (i > 0) || it.Err() != nil {
				t.Fatalf("block %d: SeekLT: %v, %v", i, ok, it.Err())
			}
			if len(skipped) != 4 {
				t.Fatalf("block %d: the seeks report it %d times", i, len(skipped)-2)
			}
		}
	}
}

var errDisk = errors.New("disk failure")

// failingReader fails from the n-th read on.
type failingReader struct {
	io.ReaderAt
	n int
}

func (f *failingReader) ReadAt(p []byte, off int64) (int, error) {
	if f.n--; f.n < 0 {
		return 0, errDisk
	}
	return f.ReaderAt.ReadAt(p, off)
}

// TestReadErrors checks that read errors are returned, do not count as corruption, are not skipped,
// and do not disable the filter.
func TestReadErrors(t *testing.T) {
	data, list := damageTable(t)
	o := &ReaderOptions{Path: "test.ldb", Policies: []filter.Policy{hashList{}}}
	opened := false
	for n := 0; !opened; n++ {
		f := &failingReader{bytes.NewReader(data), n}
		r, err := NewReader(f, int64(len(data)), o)
		opened = err == nil
		if !opened {
			if !errors.Is(err, errDisk) || errors.Is(err, base.ErrCorruption) {
				t.Fatalf("read %d: %v", n, err)
			}
			continue
		}
		if _, _, _, _, err := r.Get([]byte(list[0].key), base.MaxSequence); !errors.Is(err, errDisk) || errors.Is(err, base.ErrCorruption) {
			t.Fatalf("Get: %v", err)
		}
		it := r.NewIter(&IterOptions{SkipDamaged: func(err error) { t.Errorf("skipped: %v", err) }})
		if it.First() || !errors.Is(it.Err(), errDisk) || it.Last() || !errors.Is(it.Err(), errDisk) {
			t.Fatalf("iterator: %v", it.Err())
		}
		faults := 0
		if err := r.Verify(t.Context(), func(err error) {
			if faults++; !errors.Is(err, errDisk) {
				t.Errorf("Verify: %v", err)
			}
		}); err != nil || faults == 0 {
			t.Fatalf("Verify: %d faults, %v", faults, err)
		}
		// Loaded steps of the filter stay; loading more fails.
		units := r.NumFilterUnits()
		if err := r.LoadFilterSteps(1); err != nil {
			t.Fatal(err)
		}
		if err := r.LoadFilterSteps(2); !errors.Is(err, errDisk) {
			t.Fatalf("LoadFilterSteps: %v", err)
		}
		if r.HeldFilterSteps() != 1 || r.NumFilterUnits() != units {
			t.Fatalf("%d units held, %d can be loaded", r.HeldFilterSteps(), r.NumFilterUnits())
		}
	}
}

// TestMalformedRestarts checks that lookups and seeks in a block with wrong restarts return an
// error.
func TestMalformedRestarts(t *testing.T) {
	key := func(s string) []byte { return base.AppendInternalKey(nil, []byte(s), 1, KindSet) }
	// Each of three keys is a restart; the second claims to share a byte.
	w := blockWriter{interval: 1}
	for _, s := range []string{"a", "b", "c"} {
		w.add(key(s), 0, nil)
	}
	second := len(w.buf) / 3
	w.buf[second] = 1
	r := openTable(t, handmadeTable(w.finish(), key("d")), nil)
	if _, _, _, _, err := r.Get([]byte("b"), base.MaxSequence); !errors.Is(err, base.ErrCorruption) {
		t.Errorf("Get: %v", err)
	}
	it := r.NewIter(nil)
	if it.SeekGE(key("b")) || !errors.Is(it.Err(), base.ErrCorruption) {
		t.Errorf("SeekGE: %v", it.Err())
	}
	if it.SeekLT(key("b")) || !errors.Is(it.Err(), base.ErrCorruption) {
		t.Errorf("SeekLT: %v", it.Err())
	}
	skipped := 0
	it = r.NewIter(&IterOptions{SkipDamaged: func(error) { skipped++ }})
	if it.SeekGE(key("b")) || it.Valid() || it.Err() != nil || skipped != 1 {
		t.Errorf("SeekGE, skipping: %d, %v", skipped, it.Err())
	}
	if it.SeekLT(key("b")) || it.Valid() || it.Err() != nil || skipped != 2 {
		t.Errorf("SeekLT, skipping: %d, %v", skipped, it.Err())
	}

	// A restart in the middle of an entry, which a forward scan does not read.
	w = blockWriter{interval: 16}
	for _, s := range []string{"a", "b", "c"} {
		w.add(key(s), 0, nil)
	}
	w.restarts = append(w.restarts, uint32(second+1))
	r = openTable(t, handmadeTable(w.finish(), key("d")), nil)
	it = r.NewIter(nil)
	if !it.First() || !it.Next() || !it.Next() {
		t.Fatalf("a forward scan: %v", it.Err())
	}
	if it.Prev() || !errors.Is(it.Err(), base.ErrCorruption) {
		t.Errorf("Prev: %v", it.Err())
	}
	skipped = 0
	it = r.NewIter(&IterOptions{SkipDamaged: func(error) { skipped++ }})
	if !it.First() || !it.Next() || !it.Next() || it.Prev() || it.Valid() || it.Err() != nil || skipped != 1 {
		t.Errorf("Prev, skipping: %d, %v", skipped, it.Err())
	}
}

// TestUncompressable checks that a data block that cannot be decompressed is an error, with and
// without a cache.
func TestUncompressable(t *testing.T) {
	var buf bytes.Buffer
	w := NewWriter(&buf, nil)
	key := base.AppendInternalKey(nil, []byte("a"), 1, KindSet)
	b := blockWriter{interval: 16}
	b.add(key, 0, bytes.Repeat([]byte("a"), 500))
	w.handle, _ = w.writeBlock(b.finish(), true)
	w.addIndexEntry(key)
	var f footer
	f.metaindex, _ = w.writeBlock((&blockWriter{interval: 1}).finish(), false)
	f.index, _ = w.writeBlock(w.index.finish(), false)
	buf.Write(appendFooter(nil, f))
	data := buf.Bytes()
	if data[w.handle.Length] != 1 {
		t.Fatal("the block is not compressed")
	}
	data[0] ^= 1 // the length that it decodes to
	fixChecksums(data)
	for _, o := range []*ReaderOptions{nil, {Cache: NewBlockCache(1 << 20)}} {
		r := openTable(t, data, o)
		for _, io := range []*IterOptions{nil, {DontFillCache: true}} {
			it := r.NewIter(io)
			if it.First() || !errors.Is(it.Err(), base.ErrCorruption) {
				t.Errorf("First: %v", it.Err())
			}
		}
		if _, _, _, _, err := r.Get([]byte("a"), base.MaxSequence); !errors.Is(err, base.ErrCorruption) {
			t.Errorf("Get: %v", err)
		}
	}
}

// alter changes a stored block and makes its checksum valid.
func alter(data []byte, h Handle, change func(b []byte)) {
	end := h.Offset + h.Length
	change(data[h.Offset:end])
	binary.LittleEndian.PutUint32(data[end+1:], base.Checksum(data[h.Offset:end+1]))
}

// noRestarts removes the restarts of a block, badEntry makes its first entry malformed.
func noRestarts(b []byte) { clear(b[len(b)-4:]) }
func badEntry(b []byte)   { b[1] = 0xff }

// TestMalformedBlocks checks that Verify, and the methods that read a malformed block with a valid
// checksum, report it as damage.
func TestMalformedBlocks(t *testing.T) {
	wantCorruption := func(desc string, err error) {
		t.Helper()
		if ce := (*base.CorruptionError)(nil); !errors.As(err, &ce) || ce.Path != "test.ldb" {
			t.Errorf("%s: %v", desc, err)
		}
	}
	verify := func(desc string, r *Reader) {
		t.Helper()
		var found error
		if err := r.Verify(t.Context(), func(err error) { found = err }); err != nil {
			t.Fatal(err)
		}
		wantCorruption(desc, found)
	}
	open := func(data []byte) *Reader { return openTable(t, data, &ReaderOptions{Path: "test.ldb"}) }
	good, _ := buildTable(t, numbered(50), &WriterOptions{DisableCompression: true})
	intact := open(good)
	block, err := intact.DataBlock(0)
	if err != nil || block.NumEntries != 50 {
		t.Fatalf("%+v, %v", block, err)
	}
	props := Handle{}
	for _, m := range intact.MetaBlocks() {
		if m.Name == propertiesName {
			props = m.Handle
		}
	}
	for desc, change := range map[string]func([]byte){"no restarts": noRestarts, "a bad entry": badEntry} {
		data := bytes.Clone(good)
		alter(data, block.Handle, change)
		r := open(data)
		_, err := r.DataBlock(0)
		wantCorruption("data block with "+desc, err)
		verify("data block with "+desc, r)

		// Blocks that were read at open may have changed since.
		_, index := intact.Footer()
		for what, h := range map[string]Handle{"index": index, "properties": props} {
			data := bytes.Clone(good)
			r := open(data)
			alter(data, h, change)
			verify(what+" with "+desc, r)
			if _, err := r.RawProperties(); what == "properties" {
				wantCorruption("properties with "+desc, err)
			}
		}
	}
	data := bytes.Clone(good)
	r := open(data)
	data[len(data)-footerLen+1] ^= 1
	verify("a footer that has changed", r)
	data = bytes.Clone(good)
	r = open(data)
	data[props.Offset] ^= 1
	_, err = r.RawProperties()
	wantCorruption("properties with a wrong checksum", err)
	data[block.Offset] ^= 1
	_, err = r.DataBlock(0)
	wantCorruption("data block with a wrong checksum", err)
	r = open(data)
	if state, err := r.FilterStatus(); state != FilterDamaged {
		t.Errorf("a filter with damaged properties: %v, %v", state, err)
	} else {
		wantCorruption("a filter with damaged properties", err)
	}
	data = bytes.Clone(good)
	if data[len(data)-footerLen+1] >= 0x80 {
		t.Fatal("the metaindex handle is not one that this test can change")
	}
	data[len(data)-footerLen+1] = 0x7f // of its offset
	r = open(data)
	if state, err := r.FilterStatus(); state != FilterDamaged {
		t.Errorf("a metaindex past the end: %v, %v", state, err)
	} else {
		wantCorruption("a metaindex past the end", err)
	}
	if _, err := decodeMetaindex([]byte{1}, 100); err != errBlockShort {
		t.Errorf("a metaindex of one byte: %v", err)
	}
}

// onceFailing fails at the n-th Write.
type onceFailing struct{ n int }

func (w *onceFailing) Write(b []byte) (int, error) {
	if w.n--; w.n == -1 {
		return 0, errDisk
	}
	return len(b), nil
}

// TestWriteFailsOnce lets each write of a table fail once: Add or Finish must return the error,
// though later writes would succeed.
func TestWriteFailsOnce(t *testing.T) {
	for n := 0; ; n++ {
		out := &onceFailing{n}
		w := NewWriter(out, &WriterOptions{BlockBytes: 300, Filter: hashList{}, Range: filter.Range(14, 0)})
		var err error
		for i := 0; i < 60 && err == nil; i++ {
			size := 20
			if i%7 == 6 {
				size = 1000
			}
			err = w.Add(fmt.Appendf(nil, "key%03d", i), 1, KindSet, make([]byte, size))
		}
		if err == nil {
			_, err = w.Finish()
		}
		if out.n >= 0 {
			if err != nil || n < 30 {
				t.Errorf("%v after %d writes", err, n)
			}
			return
		}
		if !errors.Is(err, errDisk) {
			t.Errorf("write %d fails: %v", n, err)
		}
	}
}

// shortReads fails reads of more than 1,000 bytes.
type shortReads struct{ io.ReaderAt }

func (r shortReads) ReadAt(p []byte, off int64) (int, error) {
	if len(p) > 1000 {
		return 0, errDisk
	}
	return r.ReaderAt.ReadAt(p, off)
}

// TestReadaheadFails checks that blocks that cannot be read together are read one by one.
func TestReadaheadFails(t *testing.T) {
	list := numbered(300)
	data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 200})
	r := openTable(t, data, nil)
	r.r = shortReads{r.r}
	for _, o := range []*IterOptions{nil, {Readahead: true}} {
		if err := checkScan(r, list, o); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// longestRead records the longest read and the sum of all reads.
type longestRead struct {
	io.ReaderAt
	n, sum int
}

func (r *longestRead) ReadAt(p []byte, off int64) (int, error) {
	r.n = max(r.n, len(p))
	r.sum += len(p)
	return r.ReaderAt.ReadAt(p, off)
}

// TestReadahead checks that the size of an iterator's reads grows with the table, and that it reads
// nothing twice.
func TestReadahead(t *testing.T) {
	for _, tt := range []struct {
		entries     int // of 1 KiB
		least, most int
	}{
		{1000, mostOfSmall / 2, mostOfSmall},
		{4000, mostOfSmall + 1, maxReadahead / 2},
		{9000, maxReadahead / 2, maxReadahead},
	} {
		var list []kv
		for i := range tt.entries {
			list = append(list, kv{fmt.Sprintf("%08d", i), 1, KindSet, strings.Repeat("v", 1000)})
		}
		data, _ := buildTable(t, list, &WriterOptions{DisableCompression: true})
		for _, o := range []*IterOptions{nil, {Readahead: true}} {
			r := openTable(t, data, nil)
			reads := &longestRead{ReaderAt: r.r}
			r.r = reads
			it := r.NewIter(o)
			for ok := it.First(); ok; ok = it.Next() {
			}
			if it.Err() != nil || reads.n < tt.least || reads.n > tt.most {
				t.Errorf("%d entries, %+v: %d bytes at once, %v", tt.entries, o, reads.n, it.Err())
			}
			if reads.sum != int(r.dataEnd) {
				t.Errorf("%d entries, %+v: read %d bytes of %d", tt.entries, o, reads.sum, r.dataEnd)
			}
		}
	}
}

// TestDecompress checks that decompress rejects malformed snappy data.
func TestDecompress(t *testing.T) {
	intact := snappy.Encode(nil, bytes.Repeat([]byte("a"), 500))
	for _, b := range [][]byte{nil, bytes.Repeat([]byte{0xff}, 10), intact[:len(intact)-1]} {
		if out, err := decompress(nil, b, typeSnappy); !errors.Is(err, snappy.ErrCorrupt) {
			t.Errorf("%x: %d bytes, %v", b, len(out), err)
		}
	}
	if _, err := decodeProperties([]byte{1}); err != errBlockShort {
		t.Errorf("properties of one byte: %v", err)
	}
}

// TestErrorsWithoutPath: errors of a reader without a path begin with what is wrong.
func TestErrorsWithoutPath(t *testing.T) {
	zeros := make([]byte, 92)
	rocksdb := binary.LittleEndian.AppendUint64(slices.Clone(zeros), 0x88e241b785f4cff7)
	for _, c := range []struct {
		r    io.ReaderAt
		size int64
		want string
	}{
		{bytes.NewReader(nil), 0, "corrupt table: "},
		{bytes.NewReader(zeros), 92, "corrupt footer at offset 44: "},
		{bytes.NewReader(rocksdb), 100, "unsupported: "},
		{&failingReader{}, 100, "read footer at offset 52: "},
	} {
		for path, prefix := range map[string]string{"": "", "dir/000005.ldb": "dir/000005.ldb: "} {
			_, err := NewReader(c.r, c.size, &ReaderOptions{Path: path})
			if err == nil || !strings.HasPrefix(err.Error(), prefix+c.want) {
				t.Errorf("%v, want %s", err, prefix+c.want)
			}
		}
	}
}
