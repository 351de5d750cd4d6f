package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/siftdb/sift/internal/base"
)

// switchReader fails while fail is set.
type switchReader struct {
	io.ReaderAt
	fail atomic.Bool
}

var errSwitched = errors.New("read failed")

func (f *switchReader) ReadAt(p []byte, off int64) (int, error) {
	if f.fail.Load() {
		return 0, errSwitched
	}
	return f.ReaderAt.ReadAt(p, off)
}

// unshortened returns n entries whose keys yield long separators, so that their index is not small.
func unshortened(n int) []kv {
	list := make([]kv, n)
	for i := range list {
		list[i] = kv{fmt.Sprintf("%c-the-same-for-long-%08d", 'a'+2*i/n, i), uint64(i + 1), KindSet, "value"}
	}
	return list
}

// TestIndexPool checks concurrent lookups and scans of tables while the limit allows a third of
// their indexes: all keys are found, the pool stays within its limit, and it is empty in the end.
func TestIndexPool(t *testing.T) {
	list := unshortened(3000)
	data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 300})
	c := NewBlockCache(80 << 10)
	one := openTable(t, data, &ReaderOptions{Cache: c}).index.Load().bytesHeld()
	pool := new(IndexPool)
	pool.SetLimit(3 * one)
	var readers []*Reader
	for range 9 {
		readers = append(readers, openTable(t, data, &ReaderOptions{Cache: c, IndexPool: pool}))
	}
	heldBytes := func() (n int64) {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		for _, x := range pool.ring {
			n += x.held.bytes
		}
		return n
	}
	if n := heldBytes(); n != 3*one {
		t.Fatalf("%d bytes are held at first, want %d", n, 3*one)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(8, uint64(g)))
			for i := range 3000 {
				r, e := readers[rng.IntN(len(readers))], list[rng.IntN(len(list))]
				v, _, _, found, err := r.Get([]byte(e.key), base.MaxSequence)
				if err != nil || !found || string(v) != e.value {
					t.Errorf("Get(%q): %q, %v, %v", e.key, v, found, err)
					return
				}
				if n := heldBytes(); n > 4*one { // one may be in transit
					t.Errorf("%d bytes are held, want %d", n, 3*one)
					return
				}
				if i%1000 == 0 {
					if err := checkScan(r, list, nil); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if pool.Loads() == 0 {
		t.Error("no index had to be loaded again")
	}
	held := 0
	for _, r := range readers {
		if r.index.Load() != nil {
			held++
		}
		r.Release()
		if err := checkScan(r, list, nil); err != nil {
			t.Error(err)
		}
	}
	if held > 3 {
		t.Errorf("%d indexes are held", held)
	}
	if n := pool.HeldBytes(); n != 0 || len(pool.ring) != 0 {
		t.Errorf("%d bytes are left, %d indexes", n, len(pool.ring))
	}
	if sum, blocks := ringBytes(t, c); sum != 0 || blocks != 0 {
		t.Errorf("%d blocks are left in the cache", blocks)
	}
}

// TestIndexPoolClock checks that the index that was not used is evicted.
func TestIndexPoolClock(t *testing.T) {
	list := unshortened(3000)
	data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 300})
	pool := new(IndexPool)
	var readers []*Reader
	for range 4 {
		readers = append(readers, openTable(t, data, &ReaderOptions{IndexPool: pool}))
	}
	one := readers[0].index.Load().bytesHeld()
	pool.SetLimit(4*one - 1) // clears all marks, and evicts one
	var gone []int
	for i, r := range readers {
		if r.index.Load() == nil {
			gone = append(gone, i)
		}
	}
	if len(gone) != 1 {
		t.Fatalf("indexes %v were evicted, want one", gone)
	}
	cold := (gone[0] + 1) % 4
	for i, r := range readers {
		if i != cold && i != gone[0] {
			if err := checkGet(r, list, list[5].key, base.MaxSequence); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := checkScan(readers[gone[0]], list, nil); err != nil {
		t.Fatal(err)
	}
	for i, r := range readers {
		if (r.index.Load() == nil) != (i == cold) {
			t.Errorf("index %d is held: %v", i, r.index.Load() != nil)
		}
	}
}

// TestIndexPoolErrors checks that each read that needs an index returns an error while the index
// cannot be read again or is damaged.
func TestIndexPoolErrors(t *testing.T) {
	list := unshortened(3000)
	data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 300, DisableCompression: true})
	damaged := bytes.Clone(data)
	pool := new(IndexPool)
	pool.SetLimit(1)
	file := &switchReader{ReaderAt: bytes.NewReader(damaged)}
	r, err := NewReader(file, int64(len(data)), &ReaderOptions{Path: "table", IndexPool: pool})
	if err != nil {
		t.Fatal(err)
	}
	if r.index.Load() != nil || pool.HeldBytes() != 0 {
		t.Fatal("an index that exceeds the limit is held")
	}
	calls := map[string]func() error{
		"Get": func() error { _, _, _, _, err := r.Get([]byte(list[7].key), base.MaxSequence); return err },
		"scan": func() error {
			it := r.NewIter(nil)
			defer it.Close()
			it.First()
			return it.Err()
		},
		"seek": func() error {
			it := r.NewIter(nil)
			defer it.Close()
			it.SeekLT(base.AppendInternalKey(nil, []byte("zz"), 1, base.KindSeek))
			return it.Err()
		},
		"DataBlock": func() error { _, err := r.DataBlock(0); return err },
		"Verify": func() error {
			var fault error
			_ = r.Verify(t.Context(), func(err error) { fault = err })
			return fault
		},
	}
	for name, call := range calls {
		file.fail.Store(true)
		if err := call(); !errors.Is(err, errSwitched) {
			t.Errorf("%s while reads fail: %v", name, err)
		}
		file.fail.Store(false)
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		h := r.footer.index
		damaged[h.Offset] ^= 1
		pool.SetLimit(0)
		pool.SetLimit(1)
		if x := r.index.Load(); x != nil {
			t.Fatal("the index is still held")
		}
		if err := call(); !errors.Is(err, base.ErrCorruption) {
			t.Errorf("%s with a damaged index: %v", name, err)
		}
		if got := r.ApproximateOffset([]byte(list[7].key)); got != -1 {
			t.Errorf("an offset of %d without an index", got)
		}
		damaged[h.Offset] ^= 1
	}
}

// TestSmallIndexes checks that small indexes may exceed the limit by three quarters and no more,
// that others stay within it beside them, and that a table whose index does not fit does not keep
// it when it is opened.
func TestSmallIndexes(t *testing.T) {
	list, long := numbered(3000), unshortened(3000)
	data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 300})
	large, _ := buildTable(t, long, &WriterOptions{BlockBytes: 300})
	pool := new(IndexPool)
	o := &ReaderOptions{IndexPool: pool, Cache: NewBlockCache(1 << 20)}
	small := []*Reader{openTable(t, data, o)}
	one := pool.HeldBytes()
	pool.SetLimit(4 * one)
	for range 9 {
		small = append(small, openTable(t, data, o))
	}
	other := openTable(t, large, o)
	held := func() (n int64) {
		for _, r := range small {
			if r.index.Load() != nil {
				n++
			}
		}
		return n
	}
	if held() != 7 || pool.HeldBytes() != 7*one || other.index.Load() != nil || pool.Loads() != 0 {
		t.Fatalf("%d small indexes are held at first, %d bytes, the large one: %v", held(), pool.HeldBytes(), other.index.Load() != nil)
	}
	for range 2 {
		for i, r := range small {
			if err := checkScan(r, list, nil); err != nil {
				t.Fatal(err)
			}
			if held() != 7 || pool.HeldBytes() != 7*one || r.index.Load() == nil {
				t.Errorf("%d small indexes are held after scan %d, %d bytes", held(), i, pool.HeldBytes())
			}
		}
	}
	// One eviction makes room for the next one: the hand goes no further.
	for i, x := range pool.ring {
		x.used.Store(i != pool.hand%len(pool.ring))
	}
	missing := slices.IndexFunc(small, func(r *Reader) bool { return r.index.Load() == nil })
	if err := checkScan(small[missing], list, nil); err != nil {
		t.Fatal(err)
	}
	for _, x := range pool.ring {
		if !x.used.Load() {
			t.Error("the hand has passed an index for which there is room")
		}
	}
	// The large index is evicted when the next one is loaded, while small ones stay.
	if err := checkScan(other, long, nil); err != nil {
		t.Fatal(err)
	}
	other.index.Load().used.Store(false)
	if pool.SetLimit(4 * one); other.index.Load() != nil || held() == 0 || pool.HeldBytes() != held()*one {
		t.Errorf("%d small indexes are held beside the large one, %d bytes", held(), pool.HeldBytes())
	}
	for _, r := range append(small, other) {
		r.Release()
	}
	if n := pool.HeldBytes(); n != 0 || len(pool.ring) != 0 {
		t.Errorf("%d bytes are held in the end", n)
	}
}

// TestIndexPoolLimit checks that indexes may take exactly the limit, and that all stay if there is
// no limit.
func TestIndexPoolLimit(t *testing.T) {
	data, _ := buildTable(t, unshortened(3000), &WriterOptions{BlockBytes: 300})
	pool := new(IndexPool)
	var readers []*Reader
	for range 3 {
		readers = append(readers, openTable(t, data, &ReaderOptions{IndexPool: pool}))
	}
	held := pool.HeldBytes()
	for _, tt := range []struct {
		limit int64
		held  int
	}{{0, 3}, {held, 3}, {held - 1, 2}, {0, 2}, {1, 0}} {
		pool.SetLimit(tt.limit)
		n := 0
		for _, r := range readers {
			if r.index.Load() != nil {
				n++
			}
		}
		if n != tt.held {
			t.Errorf("with a limit of %d bytes and %d in all, %d indexes are held, want %d", tt.limit, held, n, tt.held)
		}
	}
}
