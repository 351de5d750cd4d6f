package sstable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// These tests cover cases that occur only in tables of other programs, in damaged tables, and with
// very large entries.

// namedBlocks returns the handles of a table's index, metaindex and metaindex entries, by name.
func namedBlocks(r *Reader) map[string]Handle {
	meta, index := r.Footer()
	handles := map[string]Handle{"index": index, "metaindex": meta}
	for _, m := range r.MetaBlocks() {
		handles[m.Name] = m.Handle
	}
	return handles
}

// TestOpenOfMalformed checks that a table whose index is malformed but has a valid checksum cannot
// be opened, and that one with a malformed metaindex or malformed properties has no usable filter.
func TestOpenOfMalformed(t *testing.T) {
	good, _ := buildTable(t, numbered(50), &WriterOptions{DisableCompression: true, Filter: hashList{}})
	handles := namedBlocks(openTable(t, good, nil))
	for desc, change := range map[string]func([]byte){"no restarts": noRestarts, "a bad entry": badEntry} {
		data := bytes.Clone(good)
		alter(data, handles["index"], change)
		if _, err := NewReader(bytes.NewReader(data), int64(len(data)), &ReaderOptions{}); !errors.Is(err, base.ErrCorruption) {
			t.Errorf("an index with %s: %v", desc, err)
		}
		for _, name := range []string{"metaindex", propertiesName} {
			data := bytes.Clone(good)
			alter(data, handles[name], change)
			r := openTable(t, data, &ReaderOptions{Policies: []filter.Policy{hashList{}}})
			if state, err := r.FilterStatus(); state != FilterDamaged || !errors.Is(err, base.ErrCorruption) {
				t.Errorf("%s with %s: %v, %v", name, desc, state, err)
			}
			if err := checkScan(r, numbered(50), nil); err != nil {
				t.Errorf("%s with %s: %v", name, desc, err)
			}
		}
	}
}

// TestUncompressableMeta checks that a metaindex that claims to be compressed, but is not, is
// damaged, as is a filter unit of any type other than plain.
func TestUncompressableMeta(t *testing.T) {
	good, _ := buildTable(t, numbered(50), &WriterOptions{DisableCompression: true, Filter: hashList{}})
	for name, h := range namedBlocks(openTable(t, good, nil)) {
		if name != "metaindex" && !strings.HasPrefix(name, filterPrefix) {
			continue
		}
		data := bytes.Clone(good)
		data[h.Offset+h.Length] = typeSnappy
		clear(data[h.Offset : h.Offset+1]) // a decoded length of 0, with data after it
		fixChecksums(data)
		r := openTable(t, data, &ReaderOptions{Policies: []filter.Policy{hashList{}}})
		if state, err := r.FilterStatus(); state != FilterDamaged || !errors.Is(err, base.ErrCorruption) {
			t.Errorf("%s: %v, %v", name, state, err)
		}
	}
}

// TestWithoutProperties checks that a table of another program has no prefix filter, and that the
// bits per key of its filter are unknown.
func TestWithoutProperties(t *testing.T) {
	data, _ := levelDBTable([]string{"a", "b"}, []byte{0})
	r := openTable(t, data, nil)
	if r.Properties() != nil || r.PrefixFilter() != "" {
		t.Errorf("%+v, prefixes of %q", r.Properties(), r.PrefixFilter())
	}
	if n := new(Properties).FilterBitsPerKey(); !math.IsNaN(n) {
		t.Errorf("%v bits per key", n)
	}
	if n := (&Properties{FilterBytes: 10, FilterKeys: 4}).FilterBitsPerKey(); n != 20 {
		t.Errorf("%v bits per key", n)
	}
}

// TestLongPropertyName checks that a property whose name is longer than all known names is ignored,
// like other unknown ones.
func TestLongPropertyName(t *testing.T) {
	w := blockWriter{interval: 1}
	for n := range maxPropertyName + 2 {
		key := bytes.Repeat([]byte("a"), n)
		w.add(key, 0, []byte("value"))
	}
	w.add([]byte(propFileNumber), 0, []byte{7})
	p, err := decodeProperties(w.finish())
	if err != nil || p.FileNumber != 7 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestLevelDBFilterUnchecked checks that LevelDB's filters are not used if none of the first blocks
// can be read, if the index cannot be read, or, after a failed read, until the table is opened
// again.
func TestLevelDBFilterUnchecked(t *testing.T) {
	keys := []string{"a", "b"}
	all := append(bytes.Repeat([]byte{0xff}, 8), 1, 0, 0, 0, 0, 9, 0, 0, 0, 31) // it excludes nothing
	good, at := levelDBTable(keys, all)
	r := openTable(t, good, nil)
	f, ok := r.held().reader.(*levelDBFilter)
	if !ok {
		t.Fatalf("the filter is %v", r.Filter())
	}
	positive := make([]bool, 2)
	// The second key comes after all blocks.
	if f.MayContainMany([]filter.Key{filter.NewKey([]byte("a")), filter.NewKey([]byte("x"))}, positive); !positive[0] || positive[1] {
		t.Errorf("MayContainMany: %v", positive)
	}
	data := bytes.Clone(good)
	for i := range keys { // the blocks are first, and of one size
		data[i*int(at.Offset)/len(keys)] ^= 1
	}
	r = openTable(t, data, nil)
	if state, err := r.FilterStatus(); state != FilterUnknown || !strings.Contains(fmt.Sprint(err), errNotChecked.Error()) || r.Filter() != nil {
		t.Errorf("no block is readable: %v, %v", state, err)
	}
	six := []string{"a", "b", "c", "d", "e", "f"}
	for bad, want := range map[int]FilterState{0: FilterOK, 3: FilterOK, 4: FilterUnknown} {
		data, at := levelDBTable(six, all)
		for i := range bad {
			data[i*int(at.Offset)/len(six)] ^= 1
		}
		if state, err := openTable(t, data, nil).FilterStatus(); state != want {
			t.Errorf("the first %d of %d blocks are damaged: %v, %v", bad, len(six), state, err)
		}
	}

	opened := false
	for n := 0; !opened; n++ {
		f := &failingReader{bytes.NewReader(good), n}
		r, err := NewReader(f, int64(len(good)), &ReaderOptions{})
		if opened = f.n >= 0; !opened {
			if err != nil && !errors.Is(err, errDisk) {
				t.Errorf("read %d fails: %v", n, err)
			}
			if err != nil {
				continue
			}
			if state, err := r.FilterStatus(); state != FilterUnknown || r.Filter() != nil { // the data blocks cannot be read
				t.Errorf("read %d fails: the filter is %v, %v", n, state, err)
			}
		} else if err != nil || n < 5 {
			t.Errorf("%v after %d reads", err, n)
		}
	}

	r = openTable(t, good, nil)
	r.r = &failingReader{bytes.NewReader(good), 2} // as the filters are read again
	var faults []error
	if err := r.Verify(t.Context(), func(err error) { faults = append(faults, err) }); !errors.Is(err, errDisk) && !errors.Is(errors.Join(faults...), errDisk) {
		t.Errorf("a read fails: %v, %v", err, faults)
	}
}

// TestIndexUnreadable checks that each move of an iterator fails if its table's index is not in
// memory and cannot be read.
func TestIndexUnreadable(t *testing.T) {
	list := numbered(50)
	data, _ := buildTable(t, list, nil)
	for name, move := range map[string]func(it *Iter) bool{
		"First": (*Iter).First, "Last": (*Iter).Last,
		"SeekGE": func(it *Iter) bool { return it.SeekGE(list[20].ikey()) },
		"SeekLT": func(it *Iter) bool { return it.SeekLT(list[20].ikey()) },
	} {
		r := openTable(t, data, &ReaderOptions{IndexPool: new(IndexPool)})
		r.index.Store(nil) // evicted
		r.r = &failingReader{bytes.NewReader(data), 0}
		it := r.NewIter(nil)
		if move(it) || it.Valid() || !errors.Is(it.Err(), errDisk) {
			t.Errorf("%s: %v", name, it.Err())
		}
		r.r = bytes.NewReader(data)
		if !move(it) || it.Err() != nil {
			t.Errorf("%s, again: %v", name, it.Err())
		}
	}
}

// TestBackOverLongKeys checks that an iterator visits all entries when it moves backward over more
// bytes of keys than it keeps.
func TestBackOverLongKeys(t *testing.T) {
	var list []kv
	for i := range 40 {
		list = append(list, kv{fmt.Sprintf("%02d%s", i, strings.Repeat("k", maxBackBytes/10)), 1, KindSet, fmt.Sprint(i)})
	}
	data, info := buildTable(t, list, &WriterOptions{BlockBytes: 8 * maxBackBytes})
	if info.NumDataBlocks != 1 {
		t.Fatalf("%d blocks", info.NumDataBlocks)
	}
	r := openTable(t, data, nil)
	it := r.NewIter(nil)
	i := len(list)
	for ok := it.Last(); ok; ok = it.Prev() {
		if i--; !bytes.Equal(it.Key(), list[i].ikey()) || string(it.Value()) != list[i].value {
			t.Fatalf("entry %d is %.10q=%q", i, it.Key(), it.Value())
		}
	}
	if i != 0 || it.Err() != nil {
		t.Errorf("the iterator stops at entry %d, %v", i, it.Err())
	}
}

// TestRestartWithinEntry checks that iterators and Verify report a restart offset that is not that
// of an entry, or whose entry shares bytes with the previous one, as damage.
func TestRestartWithinEntry(t *testing.T) {
	key := func(s string) []byte { return kv{s, 1, KindSet, ""}.ikey() }
	w := blockWriter{interval: 2}
	for _, s := range []string{"aa", "ab", "ac", "ad"} {
		w.add(key(s), w.shared(key(s)), []byte(s))
	}
	var b block
	if err := b.init(bytes.Clone(w.finish())); err != nil || b.restarts != 2 {
		t.Fatalf("%d restarts, %v", b.restarts, err)
	}
	second, ok := b.decode(0)
	if !ok {
		t.Fatal("no entry")
	}
	// The second restart points to the second entry, which shares a byte with the first.
	data := bytes.Clone(b.data)
	at := len(data) - 8
	data[at] = byte(second.end)
	var shares block
	if err := shares.init(data); err != nil {
		t.Fatal(err)
	}
	if err := shares.walk(func(entry, []byte) error { return nil }); err != errRestarts {
		t.Errorf("walk: %v", err)
	}
	// It points into the third entry.
	data = bytes.Clone(b.data)
	data[at]++
	table := handmadeTable(data, key("ad"))
	r := openTable(t, table, nil)
	it := r.NewIter(nil)
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	if n != 4 {
		t.Fatalf("%d entries, %v", n, it.Err())
	}
	var faults []error
	if err := r.Verify(t.Context(), func(err error) { faults = append(faults, err) }); err != nil || !errors.Is(errors.Join(faults...), base.ErrCorruption) {
		t.Errorf("Verify: %v, %v", err, faults)
	}
	for ok := it.Last(); ok; ok = it.Prev() {
		if n--; n < 0 {
			t.Fatal("Prev does not stop")
		}
	}
	if !errors.Is(it.Err(), base.ErrCorruption) {
		t.Errorf("Prev: %v after %d entries", it.Err(), 4-n)
	}
}

// TestRestartPastEntry checks that moving back from an entry fails if no entry that is decoded from
// the restart before it ends where the entry begins: then the block is damaged.
func TestRestartPastEntry(t *testing.T) {
	key := func(s string) []byte { return kv{s, 1, KindSet, ""}.ikey() }
	build := func(inner []byte) *block {
		w := blockWriter{interval: 2}
		for _, s := range []string{"aa", "ab", "ac", "ad"} {
			value := []byte(s)
			if s == "ac" {
				value = inner
			}
			w.add(key(s), w.shared(key(s)), value)
		}
		b := new(block)
		if err := b.init(bytes.Clone(w.finish())); err != nil {
			t.Fatal(err)
		}
		return b
	}
	// The value of the third entry is the beginning of an entry that ends with the block.
	inner := append([]byte{0, 9, 0}, key("x")...)
	b := build(inner)
	third, ok := b.decode(b.restart(1))
	if !ok {
		t.Fatal("no entry")
	}
	inner[2] = byte(b.entries - third.end)
	b = build(inner)
	at := len(b.data) - 8
	b.data[at] = byte(third.value) // the second restart
	r := openTable(t, handmadeTable(b.data, key("ad")), nil)
	it := r.NewIter(nil)
	n := 0
	for ok := it.First(); ok && n < 3; ok = it.Next() {
		n++
	}
	if string(base.UserKey(it.Key())) != "ad" || it.Prev() || !errors.Is(it.Err(), base.ErrCorruption) {
		t.Errorf("before the last entry is %q, %v", it.Key(), it.Err())
	}
}

// TestHashedShortKey checks that a key that is shorter than the common prefix of a block's keys is
// not in the block, and that ranOff is set for it.
func TestHashedShortKey(t *testing.T) {
	v := strings.Repeat("v", 100)
	var list []kv
	for i := range 20 {
		list = append(list, kv{fmt.Sprintf("shared-by-all-%04d", i), 1, KindSet, v})
	}
	list = append(list, kv{"z", 1, KindSet, v})
	data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 4 << 10})
	r := openTable(t, data, &ReaderOptions{Cache: NewBlockCache(1 << 20)})
	for range 3 { // from the cache, with a hash index
		for _, key := range []string{"a", "shared", "shared-by-all-", "shared-by-all-0003", "shared-by-all-0003x", "y", "z"} {
			if err := checkGet(r, list, key, 5); err != nil {
				t.Error(err)
			}
		}
	}
	b := blockOf(t, 16, list[:20]...)
	b.shared = uint32(len("shared-by-all-00"))
	if _, ranOff, err := b.getHashed([]byte("shared"), math.MaxUint64); !ranOff || err != nil {
		t.Errorf("getHashed: %t, %v", ranOff, err)
	}
}

// TestAdmittedFromBuffer checks that a block in a buffer is admitted to the cache when it is needed
// again, without another read.
func TestAdmittedFromBuffer(t *testing.T) {
	list := numbered(3000)
	data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 1000, DisableCompression: true})
	c := NewBlockCache(20000)
	var io BlockIO
	r := openTable(t, data, &ReaderOptions{Cache: c, IO: &io})
	var buf Buffer
	defer buf.Release()
	for _, e := range list { // until the cache is full
		if err := checkGet(r, []kv{e}, e.key, e.seq); err != nil {
			t.Fatal(err)
		}
	}
	x := r.index.Load()
	last := list[0]
	reads := io.Load().Reads
	for n := 0; ; n++ {
		if n == 100 {
			t.Fatal("the block is never admitted")
		}
		value, _, _, ok, err := r.GetIn(&buf, []byte(last.key), last.seq)
		if !ok || err != nil || string(value) != last.value {
			t.Fatalf("%q, %t, %v", value, ok, err)
		}
		if x.inCache(0) != nil {
			break
		}
	}
	if now := io.Load().Reads; now != reads+1 {
		t.Errorf("%d reads", now-reads)
	}
	if err := checkGet(r, []kv{last}, last.key, last.seq); err != nil || io.Load().Reads != reads+1 {
		t.Errorf("%v, %d reads", err, io.Load().Reads-reads)
	}
}

// otherRange is a range filter policy of another package, whose writer or reader may fail.
type otherRange struct {
	filter.RangePolicy
	finish, open error
}

func (otherRange) Name() string   { return "other" }
func (otherRange) Family() string { return "other.Range" }

func (p otherRange) NewWriter() filter.RangeWriter {
	return otherRangeWriter{p.RangePolicy.NewWriter(), p.finish}
}

func (p otherRange) Open(block []byte) (filter.RangeReader, error) {
	if p.open != nil {
		return nil, p.open
	}
	return p.RangePolicy.Open(block)
}

type otherRangeWriter struct {
	filter.RangeWriter
	err error
}

func (w otherRangeWriter) Finish() ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	return w.RangeWriter.Finish()
}

// TestRangeFilterOfAnother checks that a range filter of another package is loaded as a whole. One
// that cannot be built is left out, one that its policy does not know is unknown, and one that it
// rejects is damaged; none of them hides a key.
func TestRangeFilterOfAnother(t *testing.T) {
	list := numbered(100)
	policy := otherRange{RangePolicy: filter.Range(14, 0)}
	for _, fails := range []error{nil, errDisk} {
		p := policy
		p.finish = fails
		data, info := buildTable(t, list, &WriterOptions{Range: p})
		if (fails == nil) != (info.FilterErr == nil) || fails != nil && !errors.Is(info.FilterErr, fails) {
			t.Errorf("Finish fails with %v: %v", fails, info.FilterErr)
		}
		r := openTable(t, data, &ReaderOptions{RangePolicies: []filter.RangePolicy{policy}})
		want := FilterOK
		if fails != nil {
			want = FilterNone
		}
		if state, err := r.RangeFilterStatus(); state != want || err != nil {
			t.Errorf("Finish fails with %v: %v, %v", fails, state, err)
		}
		if steps := r.RangeSteps(1); (len(steps) == 1) != (fails == nil) || fails == nil && (steps[0].FPR != foreignRangeFPR || steps[0].Bytes != int64(r.props.RangeBytes)) {
			t.Errorf("Finish fails with %v: steps %v", fails, steps)
		}
	}
	data, _ := buildTable(t, list, &WriterOptions{Range: policy})
	for _, c := range []struct {
		policies []filter.RangePolicy
		want     FilterState
	}{
		{nil, FilterUnknown},
		{[]filter.RangePolicy{otherRange{policy.RangePolicy, nil, fmt.Errorf("another key: %w", filter.ErrUnknownFamily)}}, FilterUnknown},
		{[]filter.RangePolicy{otherRange{policy.RangePolicy, nil, errors.New("rejected")}}, FilterDamaged},
	} {
		r := openTable(t, data, &ReaderOptions{RangePolicies: c.policies})
		state, err := r.RangeFilterStatus()
		if state != c.want || err == nil || errors.Is(err, base.ErrCorruption) != (c.want == FilterDamaged) {
			t.Errorf("%v: %v, %v", c.policies, state, err)
		}
		if !r.MayContainRange([]byte("a"), []byte("b")) {
			t.Errorf("%v: a range is excluded", c.policies)
		}
		var faults []error
		if err := r.Verify(t.Context(), func(err error) { faults = append(faults, err) }); err != nil || (len(faults) > 0) != (c.want == FilterDamaged) {
			t.Errorf("%v: Verify: %v, %v", c.policies, err, faults)
		}
	}
	// The properties say that there is a range filter, and the metaindex does not.
	r := openTable(t, data, &ReaderOptions{RangePolicies: []filter.RangePolicy{policy}, MaxFilterUnits: -1})
	r.meta = slices.DeleteFunc(r.meta, func(m MetaBlock) bool { return strings.HasPrefix(m.Name, rangePrefix) })
	if state, err := r.RangeFilterStatus(); state != FilterNone || err != nil {
		t.Errorf("without a block: %v, %v", state, err)
	}
}

// TestVerifyOpensFilter checks that Verify opens the filter again: units whose family has become
// unknown are no fault, and those that have become malformed are one.
func TestVerifyOpensFilter(t *testing.T) {
	data, _ := buildTable(t, numbered(50), &WriterOptions{Filter: hashList{}})
	for _, c := range []struct {
		err  error
		want bool
	}{{nil, false}, {fmt.Errorf("another key: %w", filter.ErrUnknownFamily), false}, {errors.New("malformed"), true}} {
		r := openTable(t, data, &ReaderOptions{Policies: []filter.Policy{hashList{}}})
		if open := r.filterOpen; c.err != nil {
			r.filterOpen = func([][]byte) (filter.Reader, error) { return nil, c.err }
		} else if open == nil {
			t.Fatal("no filter")
		}
		var faults []error
		if err := r.Verify(t.Context(), func(err error) { faults = append(faults, err) }); err != nil || (len(faults) > 0) != c.want {
			t.Errorf("%v: %v, %v", c.err, err, faults)
		}
		if c.want && !errors.Is(errors.Join(faults...), base.ErrCorruption) {
			t.Errorf("%v: %v", c.err, faults)
		}
	}
}

// TestPropertiesOfEmptyTable checks that Verify reports properties that name keys in a table
// without entries.
func TestPropertiesOfEmptyTable(t *testing.T) {
	data, _ := buildTable(t, nil, nil)
	r := openTable(t, data, nil)
	r.props.Smallest, r.props.Largest = kv{"a", 1, KindSet, ""}.ikey(), kv{"b", 1, KindSet, ""}.ikey()
	var faults []error
	if err := r.Verify(t.Context(), func(err error) { faults = append(faults, err) }); err != nil || len(faults) != 1 || !strings.Contains(faults[0].Error(), `"a" to "b", but the keys are "" to ""`) {
		t.Errorf("%v, %v", err, faults)
	}
}

// TestGarbageOfNewPool checks that a pool that has never allocated anything has no garbage.
func TestGarbageOfNewPool(t *testing.T) {
	if new(FilterPool).muchGarbage() {
		t.Error("muchGarbage is true")
	}
}

// TestLastOfLongSharedKeys checks that going back in a block of many keys that share a long
// beginning does not copy all of them.
func TestLastOfLongSharedKeys(t *testing.T) {
	const n = 1_000_000 // copying takes 1 TB
	key := append(bytes.Repeat([]byte{'k'}, 1<<20), 1, 1, 0, 0, 0, 0, 0, 0)
	b := binary.AppendUvarint([]byte{0}, uint64(len(key)))
	b = append(append(b, 0), key...)
	for range n {
		b = append(binary.AppendUvarint(b, uint64(len(key))), 0, 0)
	}
	b = append(b, 0, 0, 0, 0, 1, 0, 0, 0)
	var blk block
	if err := blk.init(b); err != nil {
		t.Fatal(err)
	}
	it := &Iter{blk: &blk}
	done := make(chan error, 1)
	go func() { done <- it.collect(0, func() bool { return false }) }()
	select {
	case err := <-done:
		if err != nil || !it.backTo(len(it.back)-1) || !bytes.Equal(it.Key(), key) {
			t.Fatal(err, len(it.back))
		}
	case <-time.After(30 * time.Second):
		t.Fatal("Last takes time out of proportion to the block")
	}
}
