package sstable

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/golang/snappy"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// testIndex returns an index of data blocks at the given offsets, with the given user keys as
// separators.
func testIndex(t *testing.T, keys []string, offsets []uint64) *packedIndex {
	t.Helper()
	w := blockWriter{interval: 1}
	for i, key := range keys {
		end := offsets[i] + 1000
		if i+1 < len(offsets) {
			end = offsets[i+1]
		}
		h := Handle{Offset: offsets[i], Length: end - offsets[i] - blockTrailerLen}
		w.add(base.AppendInternalKey(nil, []byte(key), 0, base.KindSet), 0, appendHandle(nil, h))
	}
	x, err := decodeIndex(w.finish(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestLevelDBFilterExample checks the example in the format comment.
func TestLevelDBFilterExample(t *testing.T) {
	block, err := hex.DecodeString("8000000000000000" + "01" + "00000000" + "09000000" + "0b")
	if err != nil {
		t.Fatal(err)
	}
	f, ok := newLevelDBFilter(testIndex(t, []string{"m"}, []uint64{0}), levelDBFamily2, block)
	if !ok {
		t.Fatal("the block is rejected")
	}
	positive := 0
	for i := range 6400 {
		key := fmt.Appendf(nil, "a%d", i)
		want := levelDBHash(key, false)%64 == 7
		if got := f.MayContain(filter.NewKey(key)); got != want {
			t.Fatalf("%q: %t", key, got)
		} else if got {
			positive++
		}
	}
	if positive < 50 || positive > 200 {
		t.Errorf("MayContain is true for %d of 6400 keys", positive)
	}
	for i := range 640 {
		if key := fmt.Appendf(nil, "z%d", i); f.MayContain(filter.NewKey(key)) {
			t.Errorf("MayContain is true for %q, which is after the table", key)
		}
	}
	if got := f.FPR(); got != 1./64 {
		t.Errorf("FPR %g", got)
	}
}

// TestLevelDBFilterOfOthers probes filters that other engines built with six probes per key:
// LevelDB for "hello" and "world", and goleveldb for "key0" to "key9". The second filter has 104
// bits, so that all bits of the hashes matter.
func TestLevelDBFilterOfOthers(t *testing.T) {
	for _, c := range []struct {
		filter         string
		held, excluded []string
		size           int // of the filter and two offsets
	}{
		{"114000414410401006", []string{"hello", "world"}, []string{"x", "foo"}, 9 + 2*4},
		{
			"6c265a106c405c58242a2c4a6a06",
			[]string{"key0", "key1", "key2", "key3", "key4", "key5", "key6", "key7", "key8", "key9"},
			[]string{"other0", "other1", "other2", "other3"}, 14 + 2*4,
		},
	} {
		block, err := hex.DecodeString(c.filter)
		if err != nil {
			t.Fatal(err)
		}
		n := byte(len(block))
		block = append(block, 0, 0, 0, 0, n, 0, 0, 0, 11)
		f, ok := newLevelDBFilter(testIndex(t, []string{"z"}, []uint64{0}), levelDBFamily2, block)
		if !ok {
			t.Fatalf("%s is rejected", c.filter)
		}
		for _, key := range c.held {
			if !f.MayContain(filter.NewKey([]byte(key))) {
				t.Errorf("%s excludes %q", c.filter, key)
			}
		}
		for _, key := range c.excluded {
			if f.MayContain(filter.NewKey([]byte(key))) {
				t.Errorf("%s does not exclude %q", c.filter, key)
			}
		}
		if got := f.SizeBytes(); got != c.size {
			t.Errorf("%s takes %d bytes", c.filter, got)
		}
	}
}

// TestLevelDBHash checks the hashes that LevelDB's own test expects, for keys with and without
// bytes after the last whole word.
func TestLevelDBHash(t *testing.T) {
	for key, want := range map[string]uint32{
		"":                 levelDBSeed,
		"\x62":             0xef1345c4,
		"\xc3\x97":         0x5b663814,
		"\xe2\x99\xa5":     0x323c078f,
		"\xe1\x80\xb9\x32": 0xed21633a,
	} {
		if got := levelDBHash([]byte(key), false); got != want {
			t.Errorf("%x: %08x, want %08x", key, got, want)
		}
	}
}

// TestLevelDBFilterBits checks filters of the smallest sizes, and filters with the largest number
// of probes and one more.
func TestLevelDBFilterBits(t *testing.T) {
	for _, c := range []struct {
		filter []byte
		want   bool
	}{
		{nil, false},
		{[]byte{1}, false},
		{[]byte{0xff, 1}, true},
		{[]byte{0, 1}, false},
		{[]byte{0, maxLevelDBProbes}, false},
		{[]byte{0, maxLevelDBProbes + 1}, true},
	} {
		if got := levelDBMayContain(c.filter, 12345); got != c.want {
			t.Errorf("%x: %t", c.filter, got)
		}
	}
	// Three filters, two of them without bits: the FPR is that of the other.
	block, _ := hex.DecodeString("0f01" + "01" + "00000000" + "02000000" + "02000000" + "03000000" + "0b")
	f, ok := newLevelDBFilter(testIndex(t, []string{"m"}, []uint64{0}), levelDBFamily2, block)
	if !ok || f.FPR() != 0.5 {
		t.Errorf("%t, rate %g", ok, f.FPR())
	}
}

// TestLevelDBFilterMalformed checks that a block that does not cover all data blocks, or has wrong
// offsets, is rejected, since it would exclude keys.
func TestLevelDBFilterMalformed(t *testing.T) {
	x := testIndex(t, []string{"g", "p"}, []uint64{0, 5000})
	good := "8000000000000000" + "01" + "00000000" + "09000000" + "09000000" + "09000000" + "0b"
	for _, c := range []struct{ desc, block string }{
		{"", good},
		{"empty", ""},
		{"short", "0b"},
		{"one filter too few", "8000000000000000" + "01" + "00000000" + "09000000" + "09000000" + "0b"},
		{"an offset past the block", "8000000000000000" + "01" + "00000000" + "09000000" + "09000000" + "ff000000" + "0b"},
		{"an offset after the filters", "8000000000000000" + "01" + "00000000" + "0a000000" + "09000000" + "09000000" + "0b"},
		{"descending offsets", "8000000000000000" + "01" + "05000000" + "04000000" + "09000000" + "09000000" + "0b"},
		{"offset of the offsets past the block", good[:len(good)-10] + "80000000" + "0b"},
	} {
		block, err := hex.DecodeString(c.block)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := newLevelDBFilter(x, levelDBFamily2, block); ok != (c.desc == "") {
			t.Errorf("%s: %t", c.desc, ok)
		}
	}
	for shift, want := range map[byte]bool{31: true, 32: false} {
		block, _ := hex.DecodeString(good)
		block[len(block)-1] = shift
		if _, ok := newLevelDBFilter(x, levelDBFamily2, block); ok != want {
			t.Errorf("shift of %d bits: %t", shift, ok)
		}
	}
	// A partial offset at the end; everything else is correct.
	if _, ok := newLevelDBFilter(testIndex(t, []string{"m"}, []uint64{0}), levelDBFamily2, make([]byte, 12)); ok {
		t.Error("a partial offset is accepted")
	}
	// A table without data blocks needs no filter.
	if _, ok := newLevelDBFilter(new(packedIndex), levelDBFamily2, []byte{0, 0, 0, 0, 11}); !ok {
		t.Error("no data blocks: rejected")
	}
}

// TestLevelDBFilterTooLong checks that a filter whose number of bits does not fit in 32 bits is
// rejected. One of 2^32 bits would have no bits to probe.
func TestLevelDBFilterTooLong(t *testing.T) {
	if strconv.IntSize < 64 {
		t.Skip("the filter takes an eighth of the address space")
	}
	const length = 1<<29 + 1
	block := make([]byte, length, length+9)
	block[length-1] = 1
	block = append(block, 0, 0, 0, 0)
	block = append(binary.LittleEndian.AppendUint32(block, length), 31)
	f, ok := newLevelDBFilter(testIndex(t, []string{"m"}, []uint64{0}), levelDBFamily2, block)
	if ok {
		t.Errorf("a filter of %d bytes is accepted; MayContain is %t", length, f.MayContain(filter.NewKey([]byte("a"))))
	}
}

// TestLevelDBFilterNotChecked checks that a malformed data block does not count as a check of the
// filter.
func TestLevelDBFilterNotChecked(t *testing.T) {
	ikey := base.AppendInternalKey(nil, []byte("m"), 1, base.KindSet)
	r := openTable(t, handmadeTable((&blockWriter{interval: 1}).finish(), ikey), nil)
	f, ok := newLevelDBFilter(&r.index.Load().packedIndex, levelDBFamily2, []byte{0xff, 1, 0, 0, 0, 0, 2, 0, 0, 0, 11})
	if !ok {
		t.Fatal("the block is rejected")
	}
	if err := r.checkLevelDBFilter(f); err != errNotChecked {
		t.Error(err)
	}
}

// TestLevelDBFilterSigned checks that a filter of a LevelDB that hashed bytes as signed numbers
// excludes none of its keys.
func TestLevelDBFilterSigned(t *testing.T) {
	key := []byte("key\xff\x80")
	h := levelDBHash(key, true)
	if h == levelDBHash(key, false) {
		t.Fatal("the hashes are the same")
	}
	filters := make([]byte, 9)
	filters[h%64/8] |= 1 << (h % 8)
	filters[8] = 1
	block := append(filters, 0, 0, 0, 0, 9, 0, 0, 0, 11)
	f, ok := newLevelDBFilter(testIndex(t, []string{"m"}, []uint64{0}), levelDBFamily, block)
	if !ok || !f.MayContain(filter.NewKey(key)) {
		t.Error("excluded")
	}
	positive := 0
	for i := range 6400 {
		if f.MayContain(filter.NewKey(fmt.Appendf(nil, "a%d\xff", i))) {
			positive++
		}
	}
	if positive < 100 || positive > 400 { // either of two hashes may match, each with 1/64
		t.Errorf("MayContain is true for %d of 6400 keys", positive)
	}
}

// TestLevelDBFilterProbesAllBlocks checks that the filters of all blocks that can hold a key are
// probed: that of the first block whose separator is not before the key and, if the separator has
// this user key, that of the next block. Bytes of 0x80 and above are hashed as current versions of
// LevelDB do.
func TestLevelDBFilterProbesAllBlocks(t *testing.T) {
	filterOf := func(keys ...string) []byte {
		b := make([]byte, 9)
		for _, k := range keys {
			h := levelDBHash([]byte(k), false)
			b[h%64/8] |= 1 << (h % 8)
		}
		b[8] = 1
		return b
	}
	for _, c := range []struct{ first, second, key string }{
		{"g", "p", "g"}, // all its versions are in the first block
		{"f", "g", "g"}, // the older ones are in the second
		{"f", "m", "m"},
		{"f", "m\xff\x80", "m\xff\x80"},
	} {
		block := append(filterOf(c.first), filterOf(c.second)...)
		for _, start := range []byte{0, 9, 9, 18} { // three filters, the second one empty, and these offsets
			block = append(block, start, 0, 0, 0)
		}
		f, ok := newLevelDBFilter(testIndex(t, []string{"g", "p"}, []uint64{0, 5000}), levelDBFamily2, append(block, 11))
		if !ok || !f.MayContain(filter.NewKey([]byte(c.key))) {
			t.Errorf("%q is excluded", c.key)
		}
	}
}

// TestLevelDBFilterCompressed checks that a compressed filter block counts with its size in memory.
func TestLevelDBFilterCompressed(t *testing.T) {
	const size = 64 << 10
	block := append(bytes.Repeat([]byte{0xff}, size-1), 1)
	block = append(block, 0, 0, 0, 0, 0, 0, 1, 0, 31) // one filter of 64 KiB
	raw := append(snappy.Encode(nil, block), typeSnappy)
	table, _ := buildTable(t, []kv{{"m", 1, KindSet, ""}}, nil)
	h := Handle{Offset: uint64(len(table)), Length: uint64(len(raw) - 1)}
	table = binary.LittleEndian.AppendUint32(append(table, raw...), base.Checksum(raw))
	for _, c := range []struct {
		limit, held int64
		state       FilterState
	}{
		{0, int64(len(block)), FilterOK},
		{int64(len(block)), int64(len(block)), FilterOK},
		{int64(len(block)) - 1, 0, FilterUnknown},
		{int64(h.Length) - 1, 0, FilterUnknown},
	} {
		pool := new(FilterPool)
		pool.SetLimit(c.limit)
		r := openTable(t, table[:h.Offset], &ReaderOptions{FilterPool: pool})
		r.r = bytes.NewReader(table)
		if err := r.openLevelDBFilter(levelDBFamily2, h, &ReaderOptions{}); err != nil {
			t.Fatal(err)
		}
		if r.filterState != c.state || pool.HeldBytes() != c.held || pool.claimed != 0 {
			t.Errorf("limit %d: %v, %d bytes, %d claimed", c.limit, r.filterState, pool.HeldBytes(), pool.claimed)
		}
	}
}

// levelDBTable returns a table with a filter block of LevelDB, and the block's handle. There is a
// data block for each key.
func levelDBTable(keys []string, block []byte) ([]byte, Handle) {
	var buf bytes.Buffer
	w := NewWriter(&buf, &WriterOptions{DisableCompression: true})
	for _, key := range keys {
		ikey := base.AppendInternalKey(nil, []byte(key), 1, KindSet)
		b := blockWriter{interval: 1}
		b.add(ikey, 0, nil)
		w.handle, _ = w.writeBlock(b.finish(), false)
		w.addIndexEntry(ikey)
	}
	h, _ := w.writeBlock(block, false)
	metaindex := blockWriter{interval: 1}
	metaindex.add([]byte(levelDBPrefix+levelDBFamily2), 0, appendHandle(nil, h))
	var f footer
	f.metaindex, _ = w.writeBlock(metaindex.finish(), false)
	f.index, _ = w.writeBlock(w.index.finish(), false)
	buf.Write(appendFooter(nil, f))
	return buf.Bytes(), h
}

// TestLevelDBFilterFaults checks that Verify reports the offset of LevelDB's filter block, both if
// it excludes a key of a block that was not checked when the table was opened, and if it has become
// malformed since.
func TestLevelDBFilterFaults(t *testing.T) {
	one := make([]byte, 9)
	h := levelDBHash([]byte("a"), false)
	one[h%64/8] |= 1 << (h % 8)
	one[8] = 1
	other := "b" // a key that this filter excludes
	for levelDBMayContain(one, levelDBHash([]byte(other), false)) {
		other += "b"
	}
	block := append(one, 0, 0, 0, 0, 9, 0, 0, 0, 11)
	data, at := levelDBTable([]string{"a", other}, block)
	check := func(r *Reader, want string) {
		t.Helper()
		var faults []error
		if err := r.Verify(t.Context(), func(err error) { faults = append(faults, err) }); err != nil {
			t.Fatal(err)
		}
		var ce *base.CorruptionError
		if len(faults) != 1 || !errors.As(faults[0], &ce) || ce.Offset != int64(at.Offset) || !strings.Contains(ce.Error(), want) {
			t.Errorf("%v, want %q at offset %d", faults, want, at.Offset)
		}
	}
	r := openTable(t, data, nil)
	if state, err := r.FilterStatus(); state != FilterOK || err != nil {
		t.Fatalf("the filter is %v, %v", state, err)
	}
	check(r, "excludes 1 of 2 keys")

	// The same table, with a wrong offset of the offsets.
	changed := bytes.Clone(data)
	raw := changed[at.Offset:at.end()]
	raw[at.Length-5] = 0xff
	binary.LittleEndian.PutUint32(raw[at.Length+1:], base.Checksum(raw[:at.Length+1]))
	r.r = bytes.NewReader(changed)
	check(r, errLevelDBFilter.Error())
}

// TestLevelDBFilterKeepsIndex checks that the index that LevelDB's filters need is never evicted,
// and counts in the pool until the reader is released. If the filter is malformed, its index can be
// evicted like any other.
func TestLevelDBFilterKeepsIndex(t *testing.T) {
	var keys []string
	for i := range 200 {
		keys = append(keys, fmt.Sprintf("%c-the-same-for-long-%08d", 'a'+i/100, i))
	}
	all := append(bytes.Repeat([]byte{0xff}, 8), 1, 0, 0, 0, 0, 9, 0, 0, 0, 31) // it excludes nothing
	for _, c := range []struct {
		block []byte
		kept  bool
	}{{all, true}, {all[:8], false}} {
		data, _ := levelDBTable(keys, c.block)
		pool := new(IndexPool)
		r := openTable(t, data, &ReaderOptions{IndexPool: pool})
		x := r.index.Load()
		if x.small() {
			t.Fatalf("an index of %d bytes for %d blocks is small", x.bytesHeld(), len(keys))
		}
		if (r.Filter() != nil) != c.kept || pool.HeldBytes() != x.bytesHeld() {
			t.Errorf("filter %v: the pool holds %d bytes, the index has %d", r.Filter(), pool.HeldBytes(), x.bytesHeld())
		}
		pool.SetLimit(1)
		x.used.Store(false)
		pool.SetLimit(1)
		if kept := r.index.Load() == x; kept != c.kept {
			t.Errorf("filter %v: the index is kept: %t", r.Filter(), kept)
		}
		if r.Release(); pool.HeldBytes() != 0 {
			t.Errorf("filter %v: %d bytes are held after Release", r.Filter(), pool.HeldBytes())
		}
	}
}
