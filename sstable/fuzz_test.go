package sstable

import (
	"bytes"
	"context"
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// FuzzReader checks that arbitrary bytes, opened as a table, cause no panic and allocate a bounded
// amount of memory. With fix, the checksums of the blocks that the footer and the index refer to
// are made valid, so that inputs get past them. Coverage varies slightly from run to run, so use
// -fuzzminimizetime 1x.
func FuzzReader(f *testing.F) {
	data, _ := damageTable(f)
	f.Add(data, "key00000004", true)
	plain, _ := buildTable(f, numbered(20), &WriterOptions{DisableCompression: true, BlockBytes: 100})
	f.Add(plain, "key00000004", true)
	f.Add(plain, "", false)
	f.Add(handmadeTable([]byte{0, 0, 0, 0, 1, 0, 0, 0}, make([]byte, 8)), "a", true)
	f.Fuzz(func(t *testing.T, data []byte, key string, fix bool) {
		if fix {
			data = bytes.Clone(data)
			fixChecksums(data)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		useTable(data, key, nil)
		useTable(data, key, NewBlockCache(1<<20))
		runtime.ReadMemStats(&after)
		// A block may decompress to 22 times its length, and each is read several times.
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(len(data))*1000+64<<20 {
			t.Errorf("%d bytes allocated for a table of %d", n, len(data))
		}
	})
}

// useTable reads a table in every way.
func useTable(data []byte, key string, cache *BlockCache) {
	r, err := NewReader(bytes.NewReader(data), int64(len(data)), &ReaderOptions{Policies: []filter.Policy{hashList{}}, Cache: cache})
	if err != nil {
		return
	}
	ikey := base.AppendInternalKey(nil, []byte(key), 1000, KindSet)
	r.MayContain(filter.NewKey([]byte(key)))
	r.ApproximateOffset([]byte(key))
	for _, seq := range []uint64{0, 3, base.MaxSequence} {
		_, _, _, _, _ = r.Get([]byte(key), seq)
	}
	it := r.NewIter(nil)
	defer it.Close()
	const limit = 2000
	n := 0
	for ok := it.First(); ok && n < limit; ok = it.Next() {
		n += len(it.Value())*0 + 1
	}
	for ok := it.Last(); ok && n < 2*limit; ok = it.Prev() {
		n++
	}
	if it.SeekGE(ikey) {
		it.Prev()
	}
	if it.SeekLT(ikey) {
		it.Next()
	}
	_ = r.Verify(context.Background(), func(error) {})
	_, _ = r.RawProperties()
	for i := range min(r.NumDataBlocks(), 100) {
		_, _ = r.DataBlock(i)
	}
}

// FuzzPointTable checks that the copy of any block for the cache, with any bounds, has the same
// entries and gives the same answers.
func FuzzPointTable(f *testing.F) {
	entries := numbered(12)
	for i := range entries {
		entries[i].value = "a value of some length, so that there is space for a table"
	}
	good := blockOf(f, 4, entries...)
	f.Add(good.data, []byte("key00000001"), []byte("key0000003"), []byte("key00000004"))
	f.Add(good.data, []byte(nil), []byte("l"), []byte("key00000004"))
	f.Fuzz(func(t *testing.T, data, before, last, key []byte) {
		b := new(block)
		if b.init(data) != nil {
			return
		}
		if before != nil {
			before = base.AppendInternalKey(nil, before, base.MaxSequence, base.KindSeek)
		}
		last = base.AppendInternalKey(nil, last, 0, KindDelete)
		k := b.keep(before, last)
		if k.slots == nil {
			if !bytes.Equal(k.data, b.data) {
				t.Error("a block without a table was changed")
			}
			return
		}
		if err := sameEntries(b, k); err != nil {
			t.Error(err)
		}
		targets := [][]byte{key}
		_ = b.each(func(key, _ []byte) error {
			targets = append(targets, bytes.Clone(base.UserKey(key)))
			return nil
		})
		if err := sameAnswers(b, k, before, last, targets, []uint64{0, base.Trailer(5, base.KindSeek), base.Trailer(base.MaxSequence, base.KindSeek)}); err != nil {
			t.Error(err)
		}
	})
}

// fixChecksums makes the checksums of all blocks that it can find valid.
func fixChecksums(data []byte) {
	size := int64(len(data))
	if size < footerLen {
		return
	}
	copy(data[size-8:], []byte{0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb})
	f, metaErr, err := decodeFooter(data[size-footerLen:], size)
	if err != nil {
		return
	}
	fix := func(h Handle) *block {
		end := h.Offset + h.Length
		binary.LittleEndian.PutUint32(data[end+1:], base.Checksum(data[h.Offset:end+1]))
		b := new(block)
		if contents, err := decompress(nil, data[h.Offset:end], data[end]); err != nil || b.init(contents) != nil {
			return nil
		}
		return b
	}
	fixReferenced := func(b *block) {
		if b == nil {
			return
		}
		n := 0
		_ = b.each(func(_, value []byte) error {
			c := base.NewCursor(value)
			if h, err := readHandle(&c, uint64(size-footerLen)); err == nil {
				fix(h)
			}
			if n++; n > 1000 {
				return errBlockShort
			}
			return nil
		})
	}
	fixReferenced(fix(f.index))
	if metaErr == nil {
		fixReferenced(fix(f.metaindex))
		fix(f.metaindex) // a block that it refers to may overlap it
	}
	fix(f.index)
}
