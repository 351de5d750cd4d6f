package sstable

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/base"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFormatExamples checks the examples in the format comments.
func TestFormatExamples(t *testing.T) {
	t.Run("block", func(t *testing.T) {
		w := blockWriter{interval: 16}
		for _, e := range [][2]string{{"ab", "1"}, {"abc", "2"}} {
			w.add([]byte(e[0]), w.shared([]byte(e[0])), []byte(e[1]))
		}
		want := unhex(t, "00 02 01 61 62 31  02 01 01 63 32  00 00 00 00  01 00 00 00")
		if size := w.size(); size != len(want) {
			t.Errorf("size is %d before finish; want %d", size, len(want))
		}
		if got := w.finish(); !bytes.Equal(got, want) {
			t.Errorf("got  %x\nwant %x", got, want)
		}
	})
	t.Run("property", func(t *testing.T) {
		got := appendProperties(&Properties{NumEntries: 1, MaxSeq: 300})
		if want := unhex(t, "00 0c 02 73 69 66 74 2e 73 65 71 2e 6d 61 78 ac 02"); !bytes.Contains(got, want) {
			t.Errorf("%x does not contain %x", got, want)
		}
	})
	t.Run("table", func(t *testing.T) {
		got, _ := buildTable(t, []kv{{"a", 1, KindSet, "b"}}, &WriterOptions{DisableCompression: true})
		start := unhex(t, "00 09 01 61 01 01 00 00 00 00 00 00 62  00 00 00 00 01 00 00 00  00")
		end := unhex(t, tableExampleFooter+strings.Repeat("00", 40-6)+"57 fb 80 8b 24 75 47 db")
		if !bytes.HasPrefix(got, start) {
			t.Errorf("starts with\n%x, want\n%x", got[:len(start)], start)
		}
		if !bytes.HasSuffix(got, end) {
			t.Errorf("ends with\n%x, want\n%x", got[len(got)-len(end):], end)
		}
	})
}

const tableExampleFooter = "d9 03 20 fe 03 16"

// TestGolden compares tables with the files in testdata: the format must not change by accident.
func TestGolden(t *testing.T) {
	for _, c := range []struct {
		file string
		o    *WriterOptions
	}{
		{"plain.ldb", &WriterOptions{DisableCompression: true, BlockBytes: 256, FileNumber: 7}},
		{"snappy-filter.ldb", &WriterOptions{BlockBytes: 512, FileNumber: 8, Filter: hashList{}}},
	} {
		got, _ := buildTable(t, numbered(60), c.o)
		path := filepath.Join("testdata", c.file)
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := base.CommonPrefix(got, want); n != len(got) || n != len(want) {
			t.Errorf("%s: %d bytes, want %d; the first difference is at %d", c.file, len(got), len(want), n)
		}
	}
}

// TestDecodeFooter checks the errors for footers that are each wrong in one way.
func TestDecodeFooter(t *testing.T) {
	good := appendFooter(nil, footer{Handle{10, 20}, Handle{35, 60}})
	with := func(at int, b ...byte) []byte {
		f := bytes.Clone(good)
		copy(f[at:], b)
		return f
	}
	overlong := bytes.Repeat([]byte{0xff}, 11)
	for _, c := range []struct {
		desc         string
		src          []byte
		meta, failed bool
		is           error
	}{
		{"as written", good, false, false, nil},
		{"bytes after the handles", with(20, 1, 2, 3), false, false, nil},
		{"metaindex offset past the end", with(0, 0x7f), true, false, nil},
		{"metaindex too long", with(1, 0x7f), true, false, nil},
		{"index past the end", with(2, 0x7f), false, true, nil},
		{"varint of eleven bytes", with(0, overlong...), false, true, nil},
		{"another magic", with(40, 0), false, true, nil},
		{"RocksDB", with(36, 5, 0, 0, 0, 0xf7, 0xcf, 0xf4, 0x85, 0xb7, 0x41, 0xe2, 0x88), false, true, base.ErrUnsupported},
		{"pebble", with(40, 0xf0, 0x9f, 0xaa, 0xb3, 0xf0, 0x9f, 0xaa, 0xb3), false, true, base.ErrUnsupported},
	} {
		f, metaErr, err := decodeFooter(c.src, 100+footerLen)
		if (err != nil) != c.failed || !c.failed && (metaErr != nil) != c.meta || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v, %v", c.desc, metaErr, err)
		}
		if err == nil && metaErr == nil && f != (footer{Handle{10, 20}, Handle{35, 60}}) {
			t.Errorf("%s: %+v", c.desc, f)
		}
	}
}

// TestBlockInit checks the errors for blocks that are each wrong in one way.
func TestBlockInit(t *testing.T) {
	for _, c := range []struct {
		desc string
		hex  string
		err  error
	}{
		{"two entries", "00 02 01 61 62 31  02 01 01 63 32  00 00 00 00  01 00 00 00", nil},
		{"no entries", "00 00 00 00  01 00 00 00", nil},
		{"nothing", "", errBlockShort},
		{"seven bytes", "00 00 00 01 00 00 00", errBlockShort},
		{"no restarts", "00 00 00 00  00 00 00 00", errRestarts},
		{"more restarts than bytes", "00 00 00 00  02 00 00 00", errRestarts},
		{"2^32-1 restarts", "00 00 00 00  ff ff ff ff", errRestarts},
		{"first restart not 0", "00 01 00 61  01 00 00 00  01 00 00 00", errRestarts},
		{"restart past the entries", "00 01 00 61  00 00 00 00  04 00 00 00  02 00 00 00", errRestarts},
		{"restart of 2^31", "00 01 00 61  00 00 00 00  00 00 00 80  02 00 00 00", errRestarts},
		{"restarts equal", "00 01 00 61  00 00 00 00  00 00 00 00  02 00 00 00", errRestarts},
	} {
		var b block
		if err := b.init(unhex(t, c.hex)); err != c.err {
			t.Errorf("%s: %v, want %v", c.desc, err, c.err)
		}
	}
}

// TestBlockGetMalformed checks the errors of lookups in blocks with malformed entries.
func TestBlockGetMalformed(t *testing.T) {
	const tr = "01 05 00 00 00 00 00 00" // a trailer: sequence 5
	const restarts = " 00 00 00 00  01 00 00 00"
	for _, c := range []struct {
		desc string
		hex  string
		key  string
		err  error
	}{
		{"entry longer than the block", "00 09 7f 61 " + tr + restarts, "a", errEntry},
		{"varint without end", "ff ff ff ff ff ff ff ff ff ff ff ff" + restarts, "a", errEntry},
		{"entry of one byte", "00 09 00 61 " + tr + " 00" + restarts, "b", errEntry},
		{"entry of three bytes that claims one more", "00 09 00 61 " + tr + " 00 01 00" + restarts, "b", errEntry},
		{"varint cut off", "00 09 00 61 " + tr + " 00 80" + restarts, "b", errEntry},
		{"lengths that overflow together", "00 ff ff ff ff 07 ff ff ff ff 07 00" + restarts, "a", errEntry},
		{"first key shares bytes", "01 09 00 61 " + tr + restarts, "a", errEntry},
		{"key shorter than a trailer", "00 07 00 05 00 00 00 00 00 00" + restarts, "a", errEntryKey},
		{"shares more than the previous key has", "00 09 00 61 " + tr + " 7f 01 00 62" + restarts, "b", errEntry},
		{"key is a prefix of the previous one", "00 0a 00 62 62 " + tr + " 02 07 00 05 00 00 00 00 00 00" + restarts, "bc", errKeyOrder},
		{"key ends where the previous one differs", "00 0b 00 62 62 62 " + tr + " 02 06 00 00 00 00 00 00 00" + restarts, "c", errKeyOrder},
	} {
		var b block
		if err := b.init(unhex(t, c.hex)); err != nil {
			t.Fatalf("%s: %v", c.desc, err)
		}
		if _, _, err := b.get([]byte(c.key), base.Trailer(9, base.KindSeek)); err != c.err {
			t.Errorf("%s: %v, want %v", c.desc, err, c.err)
		}
	}
}

// TestSharedTrailer checks that a key may begin with the whole previous internal key, trailer
// included.
func TestSharedTrailer(t *testing.T) {
	first := kv{"a", 5, KindSet, "1"}
	second := kv{string(first.ikey()) + "x", 5, KindSet, "2"}
	b := blockOf(t, 16, first, second, kv{"b", 5, KindSet, "3"})
	for _, e := range []kv{first, second, {"b", 5, KindSet, "3"}} {
		f, _, err := b.get([]byte(e.key), base.Trailer(9, base.KindSeek))
		if err != nil || !f.ok || string(b.data[f.value:f.end]) != e.value {
			t.Errorf("%q: %v, %v", e.key, f, err)
		}
	}
}

// TestDecodeIndex checks the errors for index blocks that are each wrong in one way.
func TestDecodeIndex(t *testing.T) {
	key := func(s string) []byte { return base.AppendInternalKey(nil, []byte(s), 1, KindSet) }
	type entry struct {
		key   []byte
		value []byte
	}
	at := func(off, n uint64) []byte { return appendHandle(nil, Handle{off, n}) }
	for _, c := range []struct {
		desc string
		list []entry
		err  error
	}{
		{"none", nil, nil},
		{"two", []entry{{key("a"), at(0, 10)}, {key("b"), at(15, 20)}}, nil},
		{"a gap between blocks", []entry{{key("a"), at(0, 10)}, {key("b"), at(16, 20)}}, nil},
		{"separator without a trailer", []entry{{[]byte("1234567"), at(0, 10)}}, errIndexKey},
		{"separators equal", []entry{{key("a"), at(0, 10)}, {key("a"), at(15, 20)}}, errIndexKeys},
		{"separators descend", []entry{{key("b"), at(0, 10)}, {key("a"), at(15, 20)}}, errIndexKeys},
		{"blocks overlap", []entry{{key("a"), at(0, 10)}, {key("b"), at(14, 20)}}, errHandleOrder},
		{"block past the end", []entry{{key("a"), at(90, 6)}}, errHandle},
		{"offset past the end", []entry{{key("a"), at(1<<63, 6)}}, errHandle},
		{"length of 2^64-1", []entry{{key("a"), at(0, 1<<64-1)}}, errHandle},
		{"a partial handle", []entry{{key("a"), []byte{1}}}, base.ErrShort},
		{"no handle", []entry{{key("a"), nil}}, base.ErrShort},
		{"separator as long as its block can be", []entry{{key(strings.Repeat("a", int(maxDecodedLen(10)))), at(0, 10)}}, nil},
		{"separator longer by one", []entry{{key(strings.Repeat("a", int(maxDecodedLen(10))+1)), at(0, 10)}}, errSeparator},
		{"separator longer than its block", []entry{{key(strings.Repeat("a", 5000)), at(0, 10)}}, errSeparator},
	} {
		w := blockWriter{interval: 1}
		for _, e := range c.list {
			w.add(e.key, 0, e.value)
		}
		if _, err := decodeIndex(w.finish()[:7], 100); err != errBlockShort {
			t.Errorf("%s, cut to 7 bytes: %v", c.desc, err)
		}
		w.buf = w.buf[:len(w.buf)-4*len(w.restarts)-4]
		x, err := decodeIndex(w.finish(), 100)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.desc, err, c.err)
		}
		if err == nil && x.numBlocks() != len(c.list) {
			t.Errorf("%s: %d blocks", c.desc, x.numBlocks())
		}
	}
}

// TestSnappyBomb checks that a block that claims far more bytes than it can decode to is rejected
// with few allocations.
func TestSnappyBomb(t *testing.T) {
	bomb := []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0x00} // 4 GiB
	if n := testing.AllocsPerRun(1, func() {
		if _, err := decompress(nil, bomb, typeSnappy); err == nil {
			t.Error("no error")
		}
	}); n > 20 {
		t.Errorf("%v allocations", n)
	}
	if _, err := decompress(nil, []byte{0x80, 0x80, 0x04, 0x00}, typeSnappy); !errors.Is(err, errSnappyLen) { // 64 KiB
		t.Errorf("four bytes that claim 64 KiB: %v", err)
	}
	for typ := byte(2); typ < 9; typ++ {
		if _, err := decompress(nil, nil, typ); !errors.Is(err, base.ErrUnsupported) {
			t.Errorf("type %d: %v", typ, err)
		}
	}
	// The densest possible snappy: runs of 64 equal bytes.
	zeros := make([]byte, 1<<20)
	data, _ := buildTable(t, []kv{{"k", 1, KindSet, string(zeros)}}, nil)
	if len(data) > 60<<10 {
		t.Fatalf("a table of zeros takes %d bytes", len(data))
	}
	r := openTable(t, data, nil)
	if v, _, _, found, err := r.Get([]byte("k"), 1); err != nil || !found || !bytes.Equal(v, zeros) {
		t.Errorf("1 MiB of zeros: %d bytes, %v, %v", len(v), found, err)
	}
}

// TestProperties checks that properties are read as they were written.
func TestProperties(t *testing.T) {
	list := numbered(100)
	data, info := buildTable(t, list, &WriterOptions{Filter: hashList{}, FileNumber: 12345})
	p := openTable(t, data, nil).Properties()
	if p == nil {
		t.Fatal("no properties")
	}
	if p.NumEntries != 100 || p.NumKeys != 100 || p.NumDeletions != 6 || p.MinSeq != 1 || p.MaxSeq != 100 ||
		p.FileNumber != 12345 || p.FilterKeys != 100 || p.FilterPolicy != "hashes" || p.FilterFamily != "test.hashes" ||
		p.FilterUnits != 2 || p.FilterBytes != 801 || p.FilterFPR != 0 || p.FilterBitsPerKey() != 64.08 ||
		!bytes.Equal(p.Smallest, list[0].ikey()) || !bytes.Equal(p.Largest, list[99].ikey()) {
		t.Errorf("%+v", p)
	}
	got, want := *p, info.Properties
	if string(appendProperties(&got)) != string(appendProperties(&want)) {
		t.Errorf("read %+v\nwritten %+v", got, want)
	}
}

// TestDecodeProperties checks the errors for malformed values, an unknown comparator and a global
// sequence number.
func TestDecodeProperties(t *testing.T) {
	ikey := string(base.AppendInternalKey(nil, []byte("k"), 1, KindSet))
	for _, c := range []struct {
		desc string
		list []Property
		err  error
	}{
		{"nothing", nil, nil},
		{"unknown name", []Property{{"who.knows", []byte("x")}}, nil},
		{"number", []Property{{propEntries, []byte{0x80, 0x01}}}, nil},
		{"number with a byte too many", []Property{{propEntries, []byte{1, 0}}}, errProperty},
		{"number of no bytes", []Property{{propEntries, nil}}, errProperty},
		{"number without end", []Property{{propEntries, []byte{0x80}}}, errProperty},
		{"number of eleven bytes", []Property{{propEntries, bytes.Repeat([]byte{0xff}, 11)}}, errProperty},
		{"FPR of seven bytes", []Property{{propFPR, make([]byte, 7)}}, errProperty},
		{"checksums of five bytes", []Property{{propUnitChecksums, make([]byte, 5)}}, errProperty},
		{"key without a trailer", []Property{{propLargest, []byte(ikey)}, {propSmallest, []byte("k")}}, errProperty},
		{"one end of the range", []Property{{propSmallest, []byte(ikey)}}, errProperty},
		{"our comparator", []Property{{propComparator, []byte(comparatorName)}}, nil},
		{"another comparator", []Property{{propComparator, []byte("other")}}, base.ErrUnsupported},
		{"no global sequence number", []Property{{propGlobalSeq, make([]byte, 8)}}, nil},
		{"a global sequence number", []Property{{propGlobalSeq, []byte{9, 0, 0, 0, 0, 0, 0, 0}}}, base.ErrUnsupported},
	} {
		w := blockWriter{interval: 1}
		for _, e := range c.list {
			w.add([]byte(e.Name), 0, e.Value)
		}
		if _, err := decodeProperties(w.finish()); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.desc, err, c.err)
		}
	}
}

// TestWrongMagic checks that errors name the kinds of tables that are not supported.
func TestWrongMagic(t *testing.T) {
	for magic, want := range map[uint64]string{
		0x88e241b785f4cff7: "RocksDB table, format_version 5",
		0xb3aa9ff0b3aa9ff0: "pebble table, version 5",
		0x8242229663bf9564: "RocksDB plain table",
		0x4f3418eb7a8f13b8: "RocksDB plain table",
		0x926789d0c5f17873: "RocksDB cuckoo table",
	} {
		if err := wrongMagic(magic, 5); !errors.Is(err, base.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%x: %v", magic, err)
		}
	}
	if err := wrongMagic(1, 5); errors.Is(err, base.ErrUnsupported) {
		t.Errorf("magic 1: %v", err)
	}
}

// TestUnsupportedTables checks that intact tables with features that sift does not support are
// rejected with ErrUnsupported.
func TestUnsupportedTables(t *testing.T) {
	table := func(kind Kind, props []Property, names ...string) []byte {
		var buf bytes.Buffer
		w := NewWriter(&buf, nil)
		key := base.AppendInternalKey(nil, []byte("k"), 1, kind)
		d := blockWriter{interval: 1}
		d.add(key, 0, nil)
		w.handle, _ = w.writeBlock(d.finish(), false)
		w.addIndexEntry(key)
		meta, p := blockWriter{interval: 1}, blockWriter{interval: 1}
		for _, e := range props {
			p.add([]byte(e.Name), 0, e.Value)
		}
		h, _ := w.writeBlock(p.finish(), false)
		for _, n := range names {
			meta.add([]byte(n), 0, appendHandle(nil, h))
		}
		var f footer
		f.metaindex, _ = w.writeBlock(meta.finish(), false)
		f.index, _ = w.writeBlock(w.index.finish(), false)
		buf.Write(appendFooter(nil, f))
		return buf.Bytes()
	}
	for _, c := range []struct {
		desc string
		data []byte
		ok   bool
	}{
		{"nothing unusual", table(KindSet, nil, propertiesName), true},
		{"range deletions", table(KindSet, nil, rangeDelName), false},
		{"range deletions and properties", table(KindSet, nil, propertiesName, rangeDelName2), false},
		{"another comparator", table(KindSet, []Property{{propComparator, []byte("mine")}}, propertiesName), false},
	} {
		_, err := NewReader(bytes.NewReader(c.data), int64(len(c.data)), nil)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, base.ErrUnsupported) {
			t.Errorf("%s: %v", c.desc, err)
		}
	}
	// An entry of a kind that only other engines have is neither returned nor treated as absent.
	r := openTable(t, table(7, nil), nil)
	for _, seq := range []uint64{1, 2, base.MaxSequence, math.MaxUint64} { // that of the entry is 1
		if _, _, _, _, err := r.Get([]byte("k"), seq); !errors.Is(err, base.ErrUnsupported) {
			t.Errorf("Get at %d of an entry of kind 7: %v", seq, err)
		}
	}
	it := r.NewIter(nil)
	if it.First() || !errors.Is(it.Err(), base.ErrUnsupported) {
		t.Errorf("iterator at an entry of kind 7: %v", it.Err())
	}
}

// TestLongNames checks that a small, prefix-compressed metaindex is rejected if its names would
// take much memory.
func TestLongNames(t *testing.T) {
	w := blockWriter{interval: 1 << 20}
	name := bytes.Repeat([]byte("x"), 40000)
	for i := range 2000 {
		n := append(bytes.Clone(name), byte(i>>8), byte(i))
		w.add(n, w.shared(n), []byte{0, 0})
	}
	if _, err := decodeMetaindex(w.finish(), 100); !errors.Is(err, errNamesTooLong) {
		t.Errorf("%v", err)
	}
}

// TestMetaindexOrder checks that equal or descending names are damage.
func TestMetaindexOrder(t *testing.T) {
	for names, want := range map[string]error{"ab": nil, "aa": errKeyOrder, "ba": errKeyOrder} {
		w := blockWriter{interval: 1}
		for _, n := range []byte(names) {
			w.add([]byte{n}, 0, []byte{0, 0})
		}
		if _, err := decodeMetaindex(w.finish(), 100); err != want {
			t.Errorf("%q: %v", names, err)
		}
	}
}

// TestReadHandle checks that a block, trailer included, may end exactly at the limit, and no later.
func TestReadHandle(t *testing.T) {
	for _, tt := range []struct {
		h     Handle
		limit uint64
		ok    bool
	}{
		{Handle{0, 0}, blockTrailerLen, true},
		{Handle{0, 0}, blockTrailerLen - 1, false},
		{Handle{10, 20}, 35, true},
		{Handle{10, 20}, 34, false},
		{Handle{30, 0}, 35, true},
		{Handle{31, 0}, 35, false},
		{Handle{35, 0}, 35, false},
		{Handle{36, 0}, 35, false},
		{Handle{0, maxBlockLen}, 1 << 40, true},
		{Handle{0, maxBlockLen + 1}, 1 << 40, false},
		{Handle{0, math.MaxUint64}, 1 << 40, false},
		{Handle{math.MaxUint64, 1}, 1 << 40, false},
	} {
		c := base.NewCursor(appendHandle(nil, tt.h))
		if h, err := readHandle(&c, tt.limit); (err == nil) != tt.ok || tt.ok && h != tt.h {
			t.Errorf("%+v within %d bytes: %+v, %v", tt.h, tt.limit, h, err)
		}
	}
}

// TestUnknownKindHidesNothing checks that no older value is returned in place of an entry of an
// unknown kind.
func TestUnknownKindHidesNothing(t *testing.T) {
	d := blockWriter{interval: 16}
	for _, e := range []kv{{"k", 2, 7, ""}, {"k", 1, KindSet, "old"}} {
		key := e.ikey()
		d.add(key, d.shared(key), []byte(e.value))
	}
	var buf bytes.Buffer
	w := NewWriter(&buf, nil)
	w.handle, _ = w.writeBlock(d.finish(), false)
	w.addIndexEntry(base.AppendInternalKey(nil, []byte("l"), base.MaxSequence, base.KindSeek))
	meta := blockWriter{interval: 1}
	var f footer
	f.metaindex, _ = w.writeBlock(meta.finish(), false)
	f.index, _ = w.writeBlock(w.index.finish(), false)
	buf.Write(appendFooter(nil, f))
	r := openTable(t, buf.Bytes(), nil)
	if v, _, _, found, err := r.Get([]byte("k"), 2); !errors.Is(err, base.ErrUnsupported) {
		t.Errorf("Get = %q, %t, %v", v, found, err)
	}
}
