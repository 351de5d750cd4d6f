package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/golang/snappy"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// TestAddErrors checks that Add rejects entries that are out of order, invalid or too large, and
// that later calls return the same error.
func TestAddErrors(t *testing.T) {
	for _, c := range []struct {
		desc  string
		first Kind // of the entry before it, b at sequence number 5
		e     kv
	}{
		{"a smaller key", KindSet, kv{"a", 9, KindSet, ""}},
		{"a prefix", KindSet, kv{"", 9, KindSet, ""}},
		{"the same key and sequence number", KindSet, kv{"b", 5, KindSet, ""}},
		{"the same, of a smaller kind first", KindDelete, kv{"b", 5, KindSet, ""}},
		{"a newer version", KindSet, kv{"b", 6, KindSet, ""}},
		{"an unknown kind", KindSet, kv{"c", 6, 2, ""}},
		{"a sequence number of 57 bits", KindSet, kv{"c", base.MaxSequence + 1, KindSet, ""}},
	} {
		w := NewWriter(&bytes.Buffer{}, nil)
		if err := w.Add([]byte("b"), 5, c.first, nil); err != nil {
			t.Fatal(err)
		}
		err := w.Add([]byte(c.e.key), c.e.seq, c.e.kind, nil)
		if err == nil {
			t.Errorf("%s was added", c.desc)
			continue
		}
		if err2 := w.Add([]byte("z"), 1, KindSet, nil); err2 != err {
			t.Errorf("%s: the next Add returns %v", c.desc, err2)
		}
		if _, err2 := w.Finish(); err2 != err {
			t.Errorf("%s: Finish returns %v", c.desc, err2)
		}
	}
	if math.MaxInt > math.MaxInt32 {
		long := make([]byte, maxEntryLen+1) // its pages are never touched
		for _, e := range []struct{ key, value []byte }{{long, nil}, {nil, long}, {[]byte("c"), long[:maxEntryLen]}} {
			if err := NewWriter(&bytes.Buffer{}, nil).Add(e.key, 1, KindSet, e.value); err == nil {
				t.Errorf("a key of %d bytes and a value of %d were added", len(e.key), len(e.value))
			}
		}
	}
	w := NewWriter(&bytes.Buffer{}, nil)
	if err := w.Add([]byte("b"), 515, KindSet, nil); err != nil {
		t.Error(err)
	}
	if err := w.Add([]byte("a"), 700, KindSet, nil); err == nil || err.Error() != `sstable: key "a" at sequence 700 does not come after "b" at 515` {
		t.Errorf("a smaller key: %v", err)
	}
	w = NewWriter(&bytes.Buffer{}, nil)
	for _, e := range []kv{{"a", 5, KindSet, ""}, {"a", 4, KindSet, ""}, {"a", 4, KindDelete, ""}, {"b", base.MaxSequence, KindSet, ""}} {
		if err := w.Add([]byte(e.key), e.seq, e.kind, nil); err != nil {
			t.Errorf("%+v: %v", e, err)
		}
	}
	if _, err := w.Finish(); err != nil {
		t.Error(err)
	}
	if _, err := w.Finish(); !errors.Is(err, errFinished) {
		t.Errorf("a second Finish: %v", err)
	}
	if err := w.Add([]byte("c"), 1, KindSet, nil); !errors.Is(err, errFinished) {
		t.Errorf("Add after Finish: %v", err)
	}
}

// TestCompressionSaves checks that a block is compressed if that saves at least an eighth of it.
func TestCompressionSaves(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	stored := map[bool]int{} // by whether it is compressed
	for n := 800; n < 950; n++ {
		value := make([]byte, 1000)
		for i := range n {
			value[i] = byte(rng.Uint32())
		}
		list := []kv{{"a", 1, KindSet, string(value)}}
		length := func(o *WriterOptions) int {
			data, _ := buildTable(t, list, o)
			return int(openTable(t, data, nil).index.Load().handle(0).Length)
		}
		raw, _ := buildTable(t, list, &WriterOptions{DisableCompression: true})
		whole := length(&WriterOptions{DisableCompression: true})
		saved := whole - len(snappy.Encode(nil, raw[:whole]))
		want := saved >= whole/8
		got := length(nil)
		if (got < whole) != want || got < whole && got != whole-saved {
			t.Errorf("%d bytes are stored in %d, although compression saves %d", whole, got, saved)
		}
		stored[want]++
	}
	if stored[true] < 20 || stored[false] < 20 {
		t.Errorf("%d blocks are compressed, %d are not", stored[true], stored[false])
	}
}

// failingWriter fails, or writes too little, from the n-th write on.
type failingWriter struct {
	n     int
	short bool
}

func (f *failingWriter) Write(p []byte) (int, error) {
	if f.n--; f.n >= 0 {
		return len(p), nil
	}
	if f.short {
		return len(p) - 1, nil
	}
	return 0, errDisk
}

// TestWriteErrors lets each write fail in turn: Add or Finish must return an error.
func TestWriteErrors(t *testing.T) {
	for _, short := range []bool{false, true} {
		for n := 0; ; n++ {
			w := NewWriter(&failingWriter{n, short}, &WriterOptions{BlockBytes: 100, Filter: hashList{unitKeys: 1}})
			var err error
			for _, e := range numbered(10) {
				if err = w.Add([]byte(e.key), e.seq, e.kind, []byte(e.value)); err != nil {
					break
				}
			}
			if err == nil {
				_, err = w.Finish()
			}
			if err == nil {
				if n < 20 {
					t.Errorf("only %d writes", n)
				}
				break
			}
			if !short && !errors.Is(err, errDisk) {
				t.Fatalf("write %d: %v", n, err)
			}
		}
	}
}

// TestEmptyTable checks that a table without entries can be written, read and verified.
func TestEmptyTable(t *testing.T) {
	if _, info := buildTable(t, nil, &WriterOptions{Range: filter.Range(14, 0)}); info.FilterErr != nil || info.RangePolicy != "" {
		t.Errorf("an empty table's range filter: %v, %q", info.FilterErr, info.RangePolicy)
	}
	data, info := buildTable(t, nil, &WriterOptions{Filter: hashList{}})
	if info.NumEntries != 0 || info.Smallest != nil || info.Largest != nil || info.NumDataBlocks != 0 {
		t.Errorf("%+v", info)
	}
	r := openTable(t, data, &ReaderOptions{Cache: NewBlockCache(1 << 20)})
	if err := checkScan(r, nil, nil); err != nil {
		t.Error(err)
	}
	if err := checkGet(r, nil, "a", 1); err != nil {
		t.Error(err)
	}
	it := r.NewIter(nil)
	key := base.AppendInternalKey(nil, nil, 1, KindSet)
	if it.SeekGE(key) || it.SeekLT(key) || it.Next() || it.Prev() || it.Err() != nil {
		t.Error("an empty table has an entry")
	}
	if err := r.Verify(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Error(err)
	}
	if off := r.ApproximateOffset([]byte("a")); off != 0 {
		t.Errorf("offset %d", off)
	}
}

// TestBlockSizes checks that blocks do not exceed their maximum size and nearly fill it; large
// entries have their own blocks.
func TestBlockSizes(t *testing.T) {
	list := numbered(2000)
	list = append(list, kv{"large", 1, KindSet, strings.Repeat("0123456789", 10000)})
	list = append(list, kv{"larger than one", 1, KindSet, strings.Repeat("x", 5000)}, kv{"z", 1, KindSet, "small"})
	list = sortEntries(list)
	for _, blockBytes := range []int{0, 1, 300, 4096} {
		data, info := buildTable(t, list, &WriterOptions{BlockBytes: blockBytes})
		r := openTable(t, data, nil)
		limit := blockBytes
		if limit == 0 {
			limit = 4096
		}
		entries, full := 0, 0
		for i := range r.NumDataBlocks() {
			b, err := r.DataBlock(i)
			if err != nil {
				t.Fatal(err)
			}
			if b.Bytes > limit && b.NumEntries > 1 {
				t.Errorf("blocks of %d: one of %d bytes with %d entries", limit, b.Bytes, b.NumEntries)
			}
			if b.Bytes > limit*9/10 {
				full++
			}
			entries += b.NumEntries
		}
		if entries != len(list) || uint64(r.NumDataBlocks()) != info.NumDataBlocks || full < r.NumDataBlocks()*8/10 {
			t.Errorf("blocks of %d: %d entries, %d blocks, %d of them full", limit, entries, r.NumDataBlocks(), full)
		}
	}
}

// TestBlockGrowth checks that a block grows by what growth returns, at restarts and where a length
// takes another byte.
func TestBlockGrowth(t *testing.T) {
	w := blockWriter{interval: 3}
	w.add([]byte("a"), 0, nil)
	for i, n := range []int{0, 1, 126, 127, 128, 129, 16383, 16384, 16385, 7, 8, 9} {
		for _, length := range []int{n, 0} {
			key := append([]byte{'b' + byte(i)}, make([]byte, n)...)
			shared := w.shared(key)
			want := w.size() + w.growth(shared, len(key), length)
			if w.add(key, shared, make([]byte, length)); w.size() != want {
				t.Errorf("after a key of %d bytes and a value of %d the block has %d bytes, want %d", len(key), length, w.size(), want)
			}
		}
	}
	if size := w.size(); len(w.finish()) != size {
		t.Errorf("the block has %d bytes, want %d", len(w.buf), size)
	}
}

// TestSeparators checks that separators are short keys between those of adjacent blocks.
func TestSeparators(t *testing.T) {
	for _, c := range []struct{ last, next, want string }{
		{"the quick brown fox", "the who", "the r"},
		{"abc", "abd", ""},     // nothing shorter
		{"ab", "abc", ""},      // a prefix
		{"abcd", "abe", "abd"}, // shorter
		{"a", "a", ""},         // versions of one key
		{"ab\xff\xff", "ac", ""},
		{"abc", "ad", "ac"},
		{"abc", "ac", ""}, // no byte lies between b and c
	} {
		last := base.AppendInternalKey(nil, []byte(c.last), 5, KindSet)
		got := appendSeparator(nil, last, []byte(c.next))
		want := last
		if c.want != "" {
			want = base.AppendInternalKey(nil, []byte(c.want), base.MaxSequence, base.KindSeek)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("between %q and %q: %q, want %q", c.last, c.next, got, want)
		}
	}
}

// TestGetAcrossBlocks looks up versions of one key that fill many blocks, and keys that
// equal shortened separators.
func TestGetAcrossBlocks(t *testing.T) {
	var list []kv
	for i := range 300 {
		list = append(list, kv{"many", uint64(2*i + 10), KindSet, strings.Repeat("v", i%50)})
	}
	for _, k := range []string{"a", "b", "c", "l", "m", "n", "man", "many\x00", "mb"} {
		list = append(list, kv{k, 7, KindSet, k})
	}
	list = sortEntries(list)
	for _, blockBytes := range []int{1, 50, 200, 4096} {
		data, _ := buildTable(t, list, &WriterOptions{BlockBytes: blockBytes})
		r := openTable(t, data, nil)
		for seq := range uint64(620) {
			if err := checkGet(r, list, "many", seq); err != nil {
				t.Fatalf("blocks of %d: %v", blockBytes, err)
			}
		}
		for _, k := range []string{"", "a", "b", "ba", "c", "d", "l", "m", "ma", "man", "mana", "many\x00", "many\x01", "mb", "n", "o", "zzz"} {
			for _, seq := range []uint64{6, 7, 8, base.MaxSequence} {
				if err := checkGet(r, list, k, seq); err != nil {
					t.Fatalf("blocks of %d: %v", blockBytes, err)
				}
			}
		}
	}
}

// TestAbsentKeysReadOneBlock checks that a lookup of an absent key reads only the block where it
// would be.
func TestAbsentKeysReadOneBlock(t *testing.T) {
	list := numbered(500)
	data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 200})
	r := openTable(t, data, nil)
	for _, e := range list {
		before := r.io.Load().Reads
		if err := checkGet(r, list, e.key+"x", base.MaxSequence); err != nil {
			t.Fatal(err)
		}
		if reads := r.io.Load().Reads - before; reads > 1 {
			t.Fatalf("%q is absent: %d blocks were read", e.key+"x", reads)
		}
	}
}

// TestSeparatorThatIsAKey checks that Get continues in the next block if a separator has a user key
// that is only there.
func TestSeparatorThatIsAKey(t *testing.T) {
	var buf bytes.Buffer
	w := NewWriter(&buf, nil)
	for _, b := range []struct{ key, separator []byte }{
		{kv{"a", 9, KindSet, ""}.ikey(), kv{"b", 8, KindSet, ""}.ikey()},
		{kv{"b", 7, KindSet, ""}.ikey(), kv{"c", 7, KindSet, ""}.ikey()},
	} {
		d := blockWriter{interval: 16}
		d.add(b.key, 0, []byte("value"))
		w.handle, _ = w.writeBlock(d.finish(), false)
		w.addIndexEntry(b.separator)
	}
	var f footer
	f.metaindex, _ = w.writeBlock((&blockWriter{interval: 1}).finish(), false)
	f.index, _ = w.writeBlock(w.index.finish(), false)
	buf.Write(appendFooter(nil, f))
	r := openTable(t, buf.Bytes(), nil)
	if _, _, seq, found, err := r.Get([]byte("b"), 100); !found || seq != 7 || err != nil {
		t.Errorf("Get: %d, %v, %v", seq, found, err)
	}
	if err := r.Verify(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Error(err)
	}
}

// TestApproximateOffset checks that offsets ascend with the keys and end where the data does.
func TestApproximateOffset(t *testing.T) {
	list := numbered(2000)
	data, info := buildTable(t, list, nil)
	r := openTable(t, data, nil)
	last := int64(0)
	for _, e := range list {
		off := r.ApproximateOffset([]byte(e.key))
		if off < last {
			t.Fatalf("%q: %d after %d", e.key, off, last)
		}
		last = off
	}
	if end := r.ApproximateOffset([]byte("zzz")); end != int64(info.DataBytes) || last >= end || last < end*9/10 {
		t.Errorf("the last key is at %d, the end at %d of %d", last, end, info.DataBytes)
	}
	if r.ApproximateOffset(nil) != 0 {
		t.Error("the empty key is not at 0")
	}
}

// TestIntrospection checks the methods that dump a table.
func TestIntrospection(t *testing.T) {
	data, info := buildTable(t, numbered(500), &WriterOptions{Filter: hashList{}})
	r := openTable(t, data, nil)
	meta := r.MetaBlocks()
	if len(meta) != 3 || meta[0].Name != "fullfilter.test.hashes" || meta[1].Name != "fullfilter.test.hashes.1" || meta[2].Name != "rocksdb.properties" {
		t.Errorf("%+v", meta)
	}
	m, x := r.Footer()
	if m.end() != x.Offset || x.end() != uint64(r.size)-footerLen || r.size != info.Size {
		t.Errorf("metaindex %+v, index %+v, size %d", m, x, r.size)
	}
	props, err := r.RawProperties()
	if err != nil || len(props) < 15 || props[0].Name != propComparator || string(props[0].Value) != comparatorName {
		t.Errorf("%v, %v", props, err)
	}
	b, err := r.DataBlock(0)
	if err != nil || b.Offset != 0 || !b.Compressed || b.NumRestarts != (b.NumEntries+15)/16 || len(b.Separator) < 8 {
		t.Errorf("%+v, %v", b, err)
	}
	if r.MetaErr() != nil {
		t.Error(r.MetaErr())
	}
}

// TestEstimatedBytes checks that the estimate does not shrink as entries are added, and ends close
// to the size of the data.
func TestEstimatedBytes(t *testing.T) {
	w := NewWriter(&bytes.Buffer{}, &WriterOptions{DisableCompression: true})
	if w.EstimatedBytes() != 0 {
		t.Errorf("%d bytes before the first entry", w.EstimatedBytes())
	}
	last := int64(0)
	for i, e := range numbered(1000) {
		if err := w.Add([]byte(e.key), e.seq, e.kind, []byte(e.value)); err != nil {
			t.Fatal(err)
		}
		n := w.EstimatedBytes()
		if n < last || w.props.NumEntries != uint64(i+1) {
			t.Fatalf("entry %d: %d bytes after %d", i, n, last)
		}
		last = n
	}
	info, err := w.Finish()
	if err != nil || last > int64(info.DataBytes) || last < int64(info.DataBytes)*99/100 {
		t.Errorf("estimated %d, the data takes %d; %v", last, info.DataBytes, err)
	}
}

// TestLargeBlocks checks offsets within blocks of more than 64 KiB.
func TestLargeBlocks(t *testing.T) {
	var list []kv
	for i := range 200 {
		list = append(list, kv{fmt.Sprintf("key%03d", i), 1, KindSet, strings.Repeat(string(rune('a'+i%26)), 3000)})
	}
	data, info := buildTable(t, list, &WriterOptions{BlockBytes: 1 << 20, RestartInterval: 2})
	if info.NumDataBlocks != 1 {
		t.Fatalf("%d blocks", info.NumDataBlocks)
	}
	r := openTable(t, data, nil)
	it := r.NewIter(nil)
	defer it.Close()
	for _, e := range list {
		ikey := base.AppendInternalKey(nil, []byte(e.key), base.MaxSequence, base.KindSeek)
		if !it.SeekGE(ikey) || string(base.UserKey(it.Key())) != e.key || string(it.Value()) != e.value {
			t.Fatalf("%s: %.20q, %v", e.key, it.Key(), it.Err())
		}
	}
}

// TestTombstoneValue checks that the value of a tombstone is ignored.
func TestTombstoneValue(t *testing.T) {
	var file bytes.Buffer
	w := NewWriter(&file, nil)
	if err := w.Add([]byte("k"), 1, KindDelete, []byte("value")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(bytes.NewReader(file.Bytes()), int64(file.Len()), nil)
	if err != nil {
		t.Fatal(err)
	}
	if value, kind, _, found, err := r.Get([]byte("k"), 1); len(value) > 0 || kind != KindDelete || !found || err != nil {
		t.Errorf("%q, kind %d, %t, %v", value, kind, found, err)
	}
}

// TestEstimatedSeparators checks that long separators count, although they compress well.
func TestEstimatedSeparators(t *testing.T) {
	w := NewWriter(io.Discard, nil)
	prefix := strings.Repeat("x", 1<<20)
	for i := range 20 {
		if err := w.Add(fmt.Appendf(nil, "%s%04d", prefix, i), 1, KindSet, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.EstimatedBytes(); n < 18<<20 {
		t.Errorf("%d bytes, and the index has some 19 separators of 1 MiB", n)
	}
}

// hugeUnit is a policy whose filters have a unit that does not fit in a block.
type (
	hugeUnit   struct{ filter.Policy }
	hugeWriter struct{ filter.Writer }
)

func (p hugeUnit) NewWriter() filter.Writer { return hugeWriter{p.Policy.NewWriter()} }

func (p hugeUnit) Open([][]byte) (filter.Reader, error) {
	w := p.Policy.NewWriter()
	w.Add(filter.NewKey([]byte("a")))
	units, _ := w.Finish()
	return p.Policy.Open(units)
}

func (w hugeWriter) Finish() ([][]byte, error) {
	_, _ = w.Writer.Finish()
	n := int64(maxBlockLen) + 1
	return [][]byte{make([]byte, n)}, nil
}

func TestFilterTooLong(t *testing.T) {
	if math.MaxInt == math.MaxInt32 || testing.Short() {
		t.Skip("needs 2 GiB of addresses")
	}
	w := NewWriter(io.Discard, &WriterOptions{Filter: hugeUnit{filter.Bloom(10)}})
	if err := w.Add([]byte("a"), 1, KindSet, nil); err != nil {
		t.Fatal(err)
	}
	if info, err := w.Finish(); err != nil || info.FilterErr == nil || info.Properties.FilterUnits != 0 {
		t.Errorf("%v, %v: no reader accepts such a block", info, err)
	}
}

// TestLargeForeignEntry checks that an entry of more than 1 GiB can be written: other engines write
// such entries, and compactions write them again.
func TestLargeForeignEntry(t *testing.T) {
	if testing.Short() || math.MaxInt == math.MaxInt32 {
		t.Skip("it takes 3 GiB of memory")
	}
	w := NewWriter(io.Discard, &WriterOptions{DisableCompression: true})
	if err := w.Add([]byte("k"), 1, KindSet, make([]byte, 1<<30+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		t.Error(err)
	}
}
