package table

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/syndtr/goleveldb/leveldb/errors"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"
)

func key(i int) []byte { return fmt.Appendf(nil, "key%06d", i) }

// write returns a table of every second key below 2n.
func write(t *testing.T, n int, o *opt.Options) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := NewWriter(&buf, o, nil, 0)
	for i := range n {
		if err := w.Append(key(2*i), bytes.Repeat(key(i), 5)); err != nil {
			t.Fatal(err)
		}
	}
	if n > 0 {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if w.BytesLen() != buf.Len() || w.EntriesLen() != n {
		t.Fatalf("%d bytes, %d entries, want %d, %d", w.BytesLen(), w.EntriesLen(), buf.Len(), n)
	}
	return buf.Bytes()
}

func open(t *testing.T, data []byte, o *opt.Options) *Reader {
	t.Helper()
	r, err := NewReader(bytes.NewReader(data), int64(len(data)), storage.FileDesc{Type: storage.TypeTable, Num: 7}, nil, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestTable checks that everything written is found, with various options for blocks, and that the
// filters give no false negatives.
func TestTable(t *testing.T) {
	for _, o := range []*opt.Options{
		nil,
		{Compression: opt.NoCompression, BlockSize: 200, BlockRestartInterval: 1},
		{Filter: filter.NewBloomFilter(10)},
		{Filter: filter.NewBloomFilter(10), BlockSize: 10000, FilterBaseLg: 9},
	} {
		const n = 3000
		r := open(t, write(t, n, o), o)
		excluded := 0
		for i := range n {
			if v, err := r.Get(key(2*i), nil); err != nil || !bytes.Equal(v, bytes.Repeat(key(i), 5)) {
				t.Fatalf("Get %d: %q, %v", i, v, err)
			}
			if k, err := r.FindKey(key(2*i), true, nil); err != nil || !bytes.Equal(k, key(2*i)) {
				t.Fatalf("FindKey %d: %q, %v", i, k, err)
			}
			if _, err := r.Get(key(2*i+1), nil); err != ErrNotFound {
				t.Fatalf("absent key: %v", err)
			}
			if _, err := r.FindKey(key(2*i+1), true, nil); err == ErrNotFound {
				excluded++
			}
		}
		if has := o.GetFilter() != nil; has != (excluded > n*9/10) {
			t.Errorf("%d of %d absent keys were excluded", excluded, n)
		}
		it := r.NewIterator(&util.Range{Start: key(101), Limit: key(5000)}, nil)
		first, count := true, 0
		for it.Next() {
			if first && !bytes.Equal(it.Key(), key(102)) {
				t.Errorf("the range begins with %q", it.Key())
			}
			first = false
			count++
		}
		if count != (5000-102)/2 || it.Error() != nil {
			t.Errorf("%d keys, %v", count, it.Error())
		}
		if !it.Last() || !bytes.Equal(it.Key(), key(4998)) || !it.Prev() || !bytes.Equal(it.Key(), key(4996)) {
			t.Errorf("backward from the end of the range: %q", it.Key())
		}
		it.Release()
		r.Release()
		if _, err := r.Get(key(0), nil); err != ErrReaderReleased {
			t.Errorf("Get after Release: %v", err)
		}
	}
}

// TestDamage checks that a changed byte never makes Get return a wrong value.
func TestDamage(t *testing.T) {
	o := &opt.Options{BlockSize: 300, Filter: filter.NewBloomFilter(10)}
	good := write(t, 40, o)
	for at := range good {
		data := bytes.Clone(good)
		data[at] ^= 0x11
		r := open(t, data, o)
		for i := range 40 {
			v, err := r.Get(key(2*i), nil)
			if err != nil && !errors.IsCorrupted(err) || err == nil && !bytes.Equal(v, bytes.Repeat(key(i), 5)) {
				t.Fatalf("byte %d, key %d: %q, %v", at, i, v, err)
			}
		}
	}
}

// TestBlockOfManyLongKeys checks that a block is read whose keys are long but share nothing, such
// as an index of long keys.
func TestBlockOfManyLongKeys(t *testing.T) {
	w := blockWriter{interval: 1}
	key := make([]byte, 1<<20)
	const n = 260
	for i := range n {
		binary.BigEndian.PutUint32(key, uint32(i))
		w.add(key, nil)
	}
	if entries, err := decodeBlock(w.finish()); err != nil || len(entries) != n {
		t.Errorf("%d entries of %d: %v", len(entries), n, err)
	}
}

// TestBlockOfLongKeys checks that a small block whose keys would take much memory is refused.
func TestBlockOfLongKeys(t *testing.T) {
	const n = 1 << 20
	b := append([]byte{0}, binary.AppendUvarint(nil, n)...)
	b = append(append(b, 0), make([]byte, n)...)
	for range 300 {
		b = append(binary.AppendUvarint(b, n), 0, 0)
	}
	b = append(b, 0, 0, 0, 0, 1, 0, 0, 0) // one restart
	if _, err := decodeBlock(b); err == nil {
		t.Error("300 MiB of keys in a block of 1 MiB")
	}
}
