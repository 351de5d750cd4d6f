package sstable

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/siftdb/sift/internal/base"
)

// readAheadFile records what is prefetched and read.
type readAheadFile struct {
	io.ReaderAt
	prefetched, read []extent
}

type extent struct{ off, end int64 }

func (f *readAheadFile) Prefetch(off, n int64) bool {
	f.prefetched = append(f.prefetched, extent{off, off + n})
	return true
}

func (f *readAheadFile) ReadAt(p []byte, off int64) (int, error) {
	f.read = append(f.read, extent{off, off + int64(len(p))})
	return f.ReaderAt.ReadAt(p, off)
}

// openReadAhead returns a table of n entries of 110 bytes, its file and its entries.
func openReadAhead(t *testing.T, n int, o *ReaderOptions) (*Reader, *readAheadFile, []kv) {
	t.Helper()
	var list []kv
	for i := range n {
		list = append(list, kv{fmt.Sprintf("key%07d", i), 1, KindSet, fmt.Sprintf("%0100d", i)})
	}
	data, _ := buildTable(t, list, &WriterOptions{DisableCompression: true})
	f := &readAheadFile{ReaderAt: bytes.NewReader(data)}
	r, err := NewReader(f, int64(len(data)), o)
	if err != nil {
		t.Fatal(err)
	}
	f.read = nil
	return r, f, list
}

// TestPrefetch checks that Get and SeekGE read exactly what was prefetched for the key, and that
// nothing is prefetched if the block is in the cache.
func TestPrefetch(t *testing.T) {
	cache := NewBlockCache(1 << 20)
	r, f, list := openReadAhead(t, 1000, &ReaderOptions{Cache: cache})
	for _, i := range []int{0, 500, 999} {
		f.prefetched, f.read = nil, nil
		key := list[i]
		it := r.NewIter(&IterOptions{DontFillCache: true})
		it.PrefetchGE(key.ikey())
		if !it.SeekGE(key.ikey()) || string(base.UserKey(it.Key())) != key.key {
			t.Fatalf("SeekGE(%q): %v", key.key, it.Err())
		}
		if len(f.prefetched) != 1 || !slices.Equal(f.prefetched, f.read) {
			t.Errorf("SeekGE(%q): prefetched %v, read %v", key.key, f.prefetched, f.read)
		}
		it.Close()
		for cached := range 2 {
			f.prefetched, f.read = nil, nil
			if !r.Prefetch([]byte(key.key), base.MaxSequence) {
				t.Errorf("Prefetch(%q) = false", key.key)
			}
			if _, _, _, found, err := r.Get([]byte(key.key), base.MaxSequence); !found || err != nil {
				t.Fatalf("Get(%q): %v", key.key, err)
			}
			if len(f.prefetched) != 1-cached || !slices.Equal(f.prefetched, f.read) {
				t.Errorf("Get(%q), cached %d: prefetched %v, read %v", key.key, cached, f.prefetched, f.read)
			}
		}
	}
	// Another move discards the prefetched position.
	it := r.NewIter(nil)
	defer it.Close()
	it.PrefetchGE(list[900].ikey())
	if !it.First() || !it.SeekGE(list[100].ikey()) || string(base.UserKey(it.Key())) != list[100].key {
		t.Errorf("SeekGE after First: at %q, %v", it.Key(), it.Err())
	}
}

// TestPrefetchNothing checks that nothing is prefetched if nothing would be read, and that a
// prefetch that is impossible has no effect.
func TestPrefetchNothing(t *testing.T) {
	cache := NewBlockCache(1 << 20)
	r, f, list := openReadAhead(t, 1000, &ReaderOptions{Cache: cache})
	it := r.NewIter(nil)
	defer it.Close()
	it.PrefetchGE(kv{"z", 1, KindSet, ""}.ikey())
	if it.SeekGE(kv{"z", 1, KindSet, ""}.ikey()) || len(f.prefetched) != 0 {
		t.Errorf("after the last key: prefetched %v", f.prefetched)
	}
	if !r.Prefetch([]byte("z"), base.MaxSequence) || len(f.prefetched) != 0 {
		t.Errorf("Get after the last key: prefetched %v", f.prefetched)
	}
	scan := r.NewIter(&IterOptions{DontFillCache: true})
	defer scan.Close()
	scan.PrefetchFirst()
	if len(f.prefetched) != 1 {
		t.Errorf("PrefetchFirst: %v", f.prefetched)
	}
	scan.First()
	scan.PrefetchFirst()
	scan.PrefetchGE(list[1].ikey())
	if len(f.prefetched) != 1 {
		t.Errorf("at the block: prefetched %v", f.prefetched)
	}
	it.First() // puts the block into the cache
	for range 2 {
		it = r.NewIter(nil)
		defer it.Close()
		it.First()
	}
	f.prefetched = nil
	it = r.NewIter(nil)
	defer it.Close()
	it.PrefetchFirst()
	if len(f.prefetched) != 0 {
		t.Errorf("in the cache: prefetched %v", f.prefetched)
	}

	// A file that cannot prefetch.
	data, _ := buildTable(t, list, nil)
	plain := openTable(t, data, nil)
	it = plain.NewIter(nil)
	defer it.Close()
	it.PrefetchFirst()
	it.PrefetchGE(list[500].ikey())
	if plain.Prefetch([]byte(list[500].key), base.MaxSequence) || !it.SeekGE(list[500].ikey()) || !bytes.Equal(it.Key(), list[500].ikey()) {
		t.Errorf("without Prefetch: at %q, %v", it.Key(), it.Err())
	}

	// An index that cannot be read.
	r.index.Store(nil)
	f.ReaderAt = bytes.NewReader(nil)
	it = r.NewIter(nil)
	defer it.Close()
	it.PrefetchFirst()
	it.PrefetchGE(list[500].ikey())
	if r.Prefetch([]byte(list[500].key), base.MaxSequence) || it.Valid() || len(f.prefetched) != 0 {
		t.Errorf("without an index: prefetched %v", f.prefetched)
	}
}
