package sstable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/siftdb/sift/internal/base"
)

// sparseReader returns a reader whose index is not in memory, nor would be.
func sparseReader(t testing.TB, data []byte) *Reader {
	pool := new(IndexPool)
	pool.SetLimit(1)
	r := openTable(t, data, &ReaderOptions{IndexPool: pool})
	if r.index.Load() != nil {
		t.Fatal("the index is held")
	}
	return r
}

// TestSparseIndex: lookups with a sparse index find what lookups with the whole one find, also
// in tables whose keys come in many versions, which lie in several blocks, and read about as
// many blocks.
func TestSparseIndex(t *testing.T) {
	rng := rand.New(rand.NewPCG(14, 1))
	random := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return string(b)
	}
	sets := map[string]func(i int) string{
		"random":       func(int) string { return random(16) },
		"short random": func(int) string { return random(1 + rng.IntN(3)) },
		"decimal":      func(i int) string { return fmt.Sprintf("%016d", 7*i) },
		"edges":        func(i int) string { return string(binary.BigEndian.AppendUint64(nil, uint64(3*i)<<47)) },
		"few":          func(i int) string { return fmt.Sprintf("entry %d", i/9) },
	}
	for name, key := range sets {
		t.Run(name, func(t *testing.T) {
			var list []kv
			for i := range 6000 {
				list = append(list, kv{key(i), uint64(i + 1), KindSet, fmt.Sprint("value", i)})
			}
			list = sortEntries(list)
			data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 250})
			whole, r := openTable(t, data, nil), sparseReader(t, data)
			s := r.sparse.Load()
			if s == nil {
				t.Fatal("there is no sparse index")
			}
			x := whole.index.Load()
			for i := range x.numBlocks() {
				if h := s.handle(i); h != x.handle(i) {
					t.Fatalf("block %d is at %v, not %v", i, h, x.handle(i))
				}
			}
			if per := float64(s.bytesHeld()) / float64(r.numBlocks); per > 7.5 {
				t.Errorf("%.2f bytes per block", per)
			}
			for range 20_000 {
				e := list[rng.IntN(len(list))]
				k, seq := []byte(e.key), e.seq+uint64(rng.IntN(3))-1
				switch rng.IntN(6) {
				case 0:
					k = append(k, byte(rng.IntN(256)))
				case 1:
					k = k[:rng.IntN(len(k)+1)]
				case 2:
					k[rng.IntN(len(k))] += byte(rng.IntN(5)) - 2
				}
				r.sparseUses.Store(0)
				v, kind, at, found, err := r.Get(k, seq)
				wv, wkind, wat, wfound, werr := whole.Get(k, seq)
				if err != nil || werr != nil || found != wfound || kind != wkind || at != wat || string(v) != string(wv) {
					t.Fatalf("Get(%q, %d) = %q %d %d %t %v, with the whole index %q %d %d %t %v", k, seq, v, kind, at, found, err, wv, wkind, wat, wfound, werr)
				}
			}
			if n, w := r.io.Load().Reads, whole.io.Load().Reads; n > w+w/3 {
				t.Errorf("%d blocks were read, and %d with the whole index", n, w)
			}
			if r.indexes.Loads() != 0 {
				t.Error("the index was read")
			}
			r.Release()
			if n := r.indexes.HeldBytes(); n != 0 {
				t.Errorf("%d bytes are still counted", n)
			}
		})
	}
}

// TestSparseIndexTies: a table whose separators differ late has no sparse index, and a large
// block leaves none either; lookups then read the index.
func TestSparseIndexTies(t *testing.T) {
	late := make([]kv, 3000)
	for i := range late {
		late[i] = kv{fmt.Sprintf("%c-the-same-for-long-%08d", 'a'+i/1500, i), uint64(i + 1), KindSet, "value"}
	}
	large := numbered(3000)
	large[100].value = string(make([]byte, 70_000))
	for desc, list := range map[string][]kv{"late": late, "large": large} {
		data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 250, DisableCompression: true})
		r := sparseReader(t, data)
		if r.sparse.Load() != nil {
			t.Errorf("%s: there is a sparse index", desc)
		}
		for _, e := range list[:200] {
			if v, _, _, found, err := r.Get([]byte(e.key), e.seq); err != nil || !found || string(v) != e.value {
				t.Fatalf("%s: Get(%q) = %q, %t, %v", desc, e.key, v, found, err)
			}
		}
	}
}

// TestSparseIndexBounds: an intact block in the wrong place is damage, not the absence of keys.
func TestSparseIndexBounds(t *testing.T) {
	list := numbered(3000)
	data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 250, DisableCompression: true})
	x := openTable(t, data, nil).index.Load()
	swapped := 0
	for i := range x.numBlocks() - 2 {
		a, b := x.handle(i), x.handle(i+1)
		if a.Length != b.Length {
			continue
		}
		d := slices.Clone(data)
		copy(d[a.Offset:b.Offset], data[b.Offset:])
		copy(d[b.Offset:], data[a.Offset:b.Offset])
		r := sparseReader(t, d)
		var before []byte
		if i > 0 {
			before = base.UserKey(x.separator(new(separatorBuf), i-1))
		}
		for _, e := range list {
			if e.key <= string(before) || e.key > string(base.UserKey(x.separator(new(separatorBuf), i+1))) {
				continue
			}
			_, _, _, _, err := r.Get([]byte(e.key), base.MaxSequence)
			var ce *base.CorruptionError
			if !errors.As(err, &ce) || ce.Offset != int64(a.Offset) && ce.Offset != int64(b.Offset) {
				t.Fatalf("blocks %d and %d changed places: Get(%q) returns %v", i, i+1, e.key, err)
			}
		}
		if swapped++; swapped == 20 {
			break
		}
	}
	if swapped < 5 {
		t.Fatalf("%d pairs of blocks changed places", swapped)
	}
}

// TestSparseIndexGivesWay: a table that is searched often enough gets its index back.
func TestSparseIndexGivesWay(t *testing.T) {
	list := numbered(3000)
	data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 250})
	pool := new(IndexPool)
	first := openTable(t, data, &ReaderOptions{IndexPool: pool})
	pool.SetLimit(first.indexBytes + first.indexBytes/2)
	second := openTable(t, data, &ReaderOptions{IndexPool: pool})
	for i := 0; second.index.Load() == nil; i++ {
		if i > second.numBlocks {
			t.Fatalf("%d lookups, and the index is not back", i)
		}
		if _, _, _, _, err := second.Get([]byte(list[i].key), base.MaxSequence); err != nil {
			t.Fatal(err)
		}
	}
	if first.index.Load() != nil || first.sparse.Load() == nil {
		t.Error("the other index has not gone")
	}
	first.Release() // its sparse index and the other one leave room for an index
	second.Release()
	if n := pool.HeldBytes(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}
