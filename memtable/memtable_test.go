package memtable

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/siftdb/sift/internal/base"
)

type entry struct{ ikey, value []byte }

func add(t testing.TB, m *Memtable, seq uint64, kind base.Kind, key, value []byte) {
	t.Helper()
	if err := m.Add(xxhash.Sum64(key), seq, kind, key, value); err != nil {
		t.Fatalf("Add(%q, %d): %v", key, seq, err)
	}
}

// randomKey returns one of few keys, so that keys repeat, of all lengths around the eight bytes
// that are compared first, with bytes that would reveal wrong padding of short keys.
func randomKey(r *rand.Rand) []byte {
	alphabet := []byte{0, 1, 'a', 0xff}
	k := make([]byte, r.IntN(12))
	for i := range k {
		k[i] = alphabet[r.IntN(2)*r.IntN(len(alphabet))]
	}
	if r.IntN(2) == 0 {
		k = append([]byte("sameprefix"), k...)
	}
	return k
}

func fill(t testing.TB, m *Memtable, r *rand.Rand, n int) []entry {
	var model []entry
	for i := range n {
		key, seq, kind := randomKey(r), uint64(i+1), base.Kind(r.IntN(2))
		if r.IntN(20) == 0 {
			seq = base.MaxSequence - seq
		}
		value := make([]byte, r.IntN(20))
		for j := range value {
			value[j] = byte(r.Uint32())
		}
		add(t, m, seq, kind, key, value)
		model = append(model, entry{base.AppendInternalKey(nil, key, seq, kind), value})
	}
	slices.SortFunc(model, func(a, b entry) int { return base.CompareInternal(a.ikey, b.ikey) })
	return model
}

func check(t *testing.T, it base.Iterator, ok bool, model []entry, i int) {
	t.Helper()
	if it.Err() != nil {
		t.Fatal(it.Err())
	}
	if want := i >= 0 && i < len(model); ok != want || it.Valid() != want {
		t.Fatalf("at %d of %d: moved %v, valid %v", i, len(model), ok, it.Valid())
	} else if !want {
		return
	}
	if !bytes.Equal(it.Key(), model[i].ikey) || !bytes.Equal(it.Value(), model[i].value) {
		t.Fatalf("at %d: %q=%q, want %q=%q", i, it.Key(), it.Value(), model[i].ikey, model[i].value)
	}
}

func find(model []entry, ikey []byte) int {
	i, _ := slices.BinarySearchFunc(model, ikey, func(e entry, k []byte) int { return base.CompareInternal(e.ikey, k) })
	return i
}

func TestIterAgainstModel(t *testing.T) {
	for _, n := range []int{0, 1, 2, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(n)))
			m := New(1 << 20)
			model := fill(t, m, r, n)
			if m.Len() != n || m.Empty() != (n == 0) {
				t.Fatalf("Len %d, Empty %v, want %d", m.Len(), m.Empty(), n)
			}
			it := m.NewIter()
			if it.Valid() {
				t.Fatal("a new iterator is at an entry")
			}
			i := 0
			for ok := it.First(); ; ok = it.Next() {
				check(t, it, ok, model, i)
				if !ok {
					break
				}
				i++
			}
			i = n - 1
			for ok := it.Last(); ; ok = it.Prev() {
				check(t, it, ok, model, i)
				if !ok {
					break
				}
				i--
			}
			for range 3 * n {
				k := base.AppendInternalKey(nil, randomKey(r), uint64(r.IntN(n+2)), base.Kind(r.IntN(2)))
				i := find(model, k)
				check(t, it, it.SeekLT(k), model, i-1)
				check(t, it, it.SeekGE(k), model, i)
				for it.Valid() && r.IntN(8) != 0 {
					if r.IntN(2) == 0 {
						i++
						check(t, it, it.Next(), model, i)
					} else {
						i--
						check(t, it, it.Prev(), model, i)
					}
				}
			}
			if it.Close() != nil || it.Valid() || it.Close() != nil {
				t.Fatal("Close")
			}
		})
	}
}

func TestGet(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	m := New(1 << 20)
	model := fill(t, m, r, 2000)
	for range 5000 {
		key, seq := randomKey(r), uint64(r.IntN(2100))
		if r.IntN(10) == 0 {
			seq = base.MaxSequence
		}
		value, kind, entrySeq, found := m.Get(key, seq)
		if v, k, s, ok := m.Find(xxhash.Sum64(key), key, seq); !bytes.Equal(v, value) || k != kind || s != entrySeq || ok != found {
			t.Fatalf("Find(%q, %d) = %q, %d, %d, %v; Get: %q, %d, %d, %v", key, seq, v, k, s, ok, value, kind, entrySeq, found)
		}
		i := find(model, base.AppendInternalKey(nil, key, seq, base.KindSeek))
		want := i < len(model) && bytes.Equal(base.UserKey(model[i].ikey), key)
		if found != want {
			t.Fatalf("Get(%q, %d): found %v, want %v", key, seq, found, want)
		}
		if found && (!bytes.Equal(value, model[i].value) || base.Trailer(entrySeq, kind) != base.KeyTrailer(model[i].ikey)) {
			t.Fatalf("Get(%q, %d) = %q kind %d seq %d, want %q", key, seq, value, kind, entrySeq, model[i].ikey)
		}
	}
	key := base.UserKey(model[0].ikey)
	if n := testing.AllocsPerRun(100, func() { m.Get(key, base.MaxSequence) }); n != 0 {
		t.Errorf("Get allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { m.MayContain(1) }); n != 0 {
		t.Errorf("MayContain allocates %v times", n)
	}
}

// TestFind looks up keys that were added in order of sequence numbers: with few keys per bucket,
// with many, and one with more versions than a lookup passes.
func TestFind(t *testing.T) {
	for _, hashes := range []uint64{1 << 63, 50, 1} {
		m := New(1 << 20)
		r := rand.New(rand.NewPCG(3, hashes))
		hash := func(key []byte) uint64 { return xxhash.Sum64(key) % hashes << 32 }
		versions := map[string][]uint64{}
		const n = 4000
		for seq := uint64(1); seq <= n; seq++ {
			key := fmt.Appendf(nil, "key%d", r.IntN(500)*r.IntN(2))
			if err := m.Add(hash(key), seq, base.KindSet, key, fmt.Append(nil, seq)); err != nil {
				t.Fatal(err)
			}
			versions[string(key)] = append(versions[string(key)], seq)
		}
		if m.unordered.Load() || len(versions["key0"]) < 10*maxChain {
			t.Fatal("too few versions, or out of order: this tests nothing")
		}
		for i := range 20_000 {
			key, seq := fmt.Appendf(nil, "key%d", i%700), uint64(r.IntN(n+100))
			var want uint64
			for _, s := range versions[string(key)] {
				if s <= seq {
					want = s
				}
			}
			value, _, got, found := m.Find(hash(key), key, seq)
			if found != (want > 0) || found && (got != want || string(value) != fmt.Sprint(want)) {
				t.Fatalf("%d hashes: Find(%q, %d) = %q of %d, %v; want %d", hashes, key, seq, value, got, found, want)
			}
		}
		if allocs := testing.AllocsPerRun(100, func() { m.Find(hash([]byte("key0")), []byte("key0"), n) }); allocs != 0 {
			t.Errorf("Find allocates %v times", allocs)
		}
	}
}

// TestFindNeedsNoOrder checks that a lookup does not cause entries to be sorted if the key is
// absent, or is among as many nodes of its bucket as a lookup passes. Sequence numbers may be
// equal.
func TestFindNeedsNoOrder(t *testing.T) {
	const hash = 1 << 40
	key := func(i int) []byte { return fmt.Appendf(nil, "key%d", i) }
	for _, c := range []struct {
		desc      string
		nodes     int // in the bucket
		find      int
		hash      uint64
		seq       func(i int) uint64
		wantOrder bool
	}{
		{"the newest", 10, 9, hash, func(i int) uint64 { return uint64(i) }, false},
		{"equal sequence numbers", 10, 3, hash, func(i int) uint64 { return 7 }, false},
		{"descending sequence numbers", 10, 3, hash, func(i int) uint64 { return uint64(50 - i) }, true},
		{"an absent key", 10, 3, ^uint64(0), func(i int) uint64 { return uint64(50 - i) }, false},
		{"after maxChain", maxChain + 1, 0, hash, func(i int) uint64 { return uint64(i) }, false},
		{"the last node that a lookup passes", maxUnsortedChain, 0, hash, func(i int) uint64 { return uint64(i) }, false},
		{"the node after it", maxUnsortedChain + 1, 0, hash, func(i int) uint64 { return uint64(i) }, true},
	} {
		m := New(1 << 20)
		for i := range c.nodes {
			if err := m.Add(hash, c.seq(i), base.KindSet, key(i), nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, _, found := m.Find(c.hash, key(c.find), base.MaxSequence); found != (c.hash == hash) {
			t.Errorf("%s: found %v", c.desc, found)
		}
		if sorted := m.sorted.Load(); sorted != c.wantOrder {
			t.Errorf("%s: sorted %v, want %v", c.desc, sorted, c.wantOrder)
		}
	}
}

func TestEntrySize(t *testing.T) {
	for _, c := range []struct{ key, value, want int }{
		{0, 0, maxEntryOverhead},
		{3, 4, maxEntryOverhead + 7},
		{0, MaxCapacity - maxEntryOverhead - 1, MaxCapacity - 1},
		{0, MaxCapacity - maxEntryOverhead, MaxCapacity},
		{0, MaxCapacity - maxEntryOverhead + 1, MaxCapacity + 1},
		{1, MaxCapacity - maxEntryOverhead + 1, MaxCapacity + 1},
		{MaxCapacity, MaxCapacity, MaxCapacity + 1},
	} {
		if got := EntrySize(c.key, c.value); got != c.want {
			t.Errorf("a key of %d bytes and a value of %d take %d, want %d", c.key, c.value, got, c.want)
		}
	}
}

func TestAddDoesNotAllocate(t *testing.T) {
	m := New(1 << 20)
	seq := uint64(0)
	key, value := []byte("some key or other"), []byte("value")
	if n := testing.AllocsPerRun(1000, func() {
		seq++
		key[3] = byte(seq * 37)
		_ = m.Add(seq, seq, base.KindSet, key, value)
	}); n != 0 {
		t.Errorf("Add allocates %v times", n)
	}
}

// TestAscendingInsertsUseTheTails checks that ascending inserts never search, as the tails are the
// last nodes of their levels after each.
func TestAscendingInsertsUseTheTails(t *testing.T) {
	m := New(1 << 20)
	m.inOrder()
	var s splice
	for i := range 5000 {
		key := fmt.Appendf(nil, "key%08d", i)
		tgt := newTarget(key, base.Trailer(1, base.KindSet))
		if !m.list.searchEnd(&tgt, int(m.list.height.Load()), &s) {
			t.Fatalf("insert %d would search", i)
		}
		add(t, m, 1, base.KindSet, key, nil)
		// An insert in the middle must not disturb them.
		if i%10 == 0 {
			add(t, m, 2, base.KindSet, key, nil)
		}
	}
	it, n := m.NewIter(), 0
	var last []byte
	for ok := it.First(); ok; ok = it.Next() {
		if last != nil && base.CompareInternal(last, it.Key()) >= 0 {
			t.Fatalf("%q after %q", it.Key(), last)
		}
		last = it.Key()
		n++
	}
	if n != m.Len() || n != 5500 {
		t.Fatalf("%d entries, Len %d", n, m.Len())
	}
}

func TestReserveIsEnough(t *testing.T) {
	for _, tc := range []struct{ capacity, key, value int }{
		{0, 0, 0}, {100, 0, 0}, {1 << 16, 0, 0}, {1 << 16, 1, 0}, {1 << 16, 8, 3}, {1 << 20, 16, 100}, {1 << 20, 5, 70000},
	} {
		for seed := range 4 {
			m := New(tc.capacity)
			key, value := make([]byte, tc.key), make([]byte, tc.value)
			n := 0
			for m.Reserve(EntrySize(tc.key, tc.value)) {
				add(t, m, uint64(n*997+seed), base.KindSet, key, value)
				n++
			}
			if want := tc.capacity / EntrySize(tc.key, tc.value); n != want {
				t.Fatalf("%+v: %d entries fit, want %d", tc, n, want)
			}
			if used, _ := m.list.used(); used > m.Capacity()+m.Capacity()/16+1024 || used < n*(tc.key+tc.value) {
				t.Fatalf("%+v: %d bytes are used by %d entries", tc, used, n)
			}
		}
	}
}

func TestFull(t *testing.T) {
	m := New(10000)
	var n int
	for ; ; n++ {
		if err := m.Add(0, uint64(n), base.KindSet, []byte("key"), make([]byte, 100)); err == ErrFull {
			break
		} else if err != nil || n > 1000 {
			t.Fatalf("entry %d: %v", n, err)
		}
	}
	if n < 70 || m.Len() != n {
		t.Fatalf("%d entries fit, Len %d", n, m.Len())
	}
	if err := m.Add(0, 5000, base.KindSet, nil, make([]byte, 1<<20)); err != ErrFull {
		t.Fatalf("an entry larger than the memtable: %v", err)
	}
	if m.Reserve(-1) || m.Reserve(EntrySize(MaxCapacity, MaxCapacity)) || !m.Reserve(10000) || m.Reserve(1) || !m.Reserve(0) {
		t.Fatal("Reserve")
	}
	if it := m.NewIter(); !it.First() || !it.Last() {
		t.Fatal("a full memtable reads as empty")
	}
}

// TestTowersRunOut leaves almost no space for links above level 0: all entries must still be found.
func TestTowersRunOut(t *testing.T) {
	m := New(1 << 16)
	m.list.towers.Store(6)
	r := rand.New(rand.NewPCG(3, 3))
	model := fill(t, m, r, 500)
	if h := m.list.height.Load(); h > 2 {
		t.Fatalf("height %d", h)
	}
	it := m.NewIter()
	i := 0
	for ok := it.First(); ok; ok = it.Next() {
		check(t, it, ok, model, i)
		i++
	}
	if i != 500 {
		t.Fatalf("%d entries", i)
	}
}

// TestPending adds, reads and sorts at random, and compares with a sorted slice.
func TestPending(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(4, seed))
		m := New(1 << 20)
		m.pending.limit = 1 << 16 // no sorting in the background
		var model []entry
		last := uint64(0)
		for seq := uint64(1); seq <= 1500; seq++ {
			key := randomKey(r)
			if r.IntN(3) == 0 {
				last++
				key = fmt.Appendf(nil, "\xff\xff%08d", last) // often after all others
			}
			value := fmt.Append(nil, seq)
			add(t, m, seq, base.KindSet, key, value)
			e := entry{base.AppendInternalKey(nil, key, seq, base.KindSet), value}
			i := find(model, e.ikey)
			model = slices.Insert(model, i, e)
			if v, _, _, ok := m.Find(xxhash.Sum64(key), key, seq); !ok || !bytes.Equal(v, value) {
				t.Fatalf("seed %d: entry %d is not found", seed, seq)
			}
			it := m.NewIter()
			switch r.IntN(40) {
			case 0:
				m.sort()
			case 1:
				check(t, it, it.First(), model, 0)
				check(t, it, it.Last(), model, len(model)-1)
			case 2:
				check(t, it, it.SeekGE(e.ikey), model, i)
				check(t, it, it.Prev(), model, i-1)
			case 3:
				check(t, it, it.SeekLT(e.ikey), model, i-1)
			case 4:
				if v, _, _, ok := m.Get(key, seq); !ok || !bytes.Equal(v, value) {
					t.Fatalf("seed %d: entry %d is not found in order", seed, seq)
				}
			}
		}
		it, i := m.NewIter(), len(model)
		for ok := it.Last(); ok; ok = it.Prev() {
			i--
			check(t, it, ok, model, i)
		}
		for ok := it.First(); ok; ok = it.Next() {
			check(t, it, ok, model, i)
			i++
		}
		if i != len(model) {
			t.Fatalf("seed %d: %d of %d entries", seed, i, len(model))
		}
	}
}

// TestSortRun sorts runs of lengths around the one from which the radix sort is used. Their keys
// share a prefix, or all bytes but one, or in groups more than all of them do, or differ only in
// zeros at the end.
func TestSortRun(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	key := map[string]func() []byte{
		"short":  func() []byte { return randomKey(r) },
		"binary": func() []byte { return binary.BigEndian.AppendUint64(nil, r.Uint64()) },
		"middle": func() []byte { return []byte{'k', 0, byte(r.Uint32()), 0, 0, 1, 2, 3, 4, 5} },
		"text":   func() []byte { return fmt.Appendf(nil, "key:%012d", r.IntN(1000)) },
		"same":   func() []byte { return []byte("same") },
		"zeros":  func() []byte { return make([]byte, r.IntN(40)) },
		"groups": func() []byte {
			if r.IntN(1000) == 0 {
				return []byte("m")
			}
			return fmt.Appendf(nil, "group of keys %02d:%0*d", r.IntN(3), 5+r.IntN(3), r.IntN(1000))
		},
	}
	for name, key := range key {
		for _, n := range []int{1, 2, 255, 256, 257, 5000} {
			for _, ordered := range []bool{false, true} {
				m := New(1 << 20)
				for i := range uint64(n) {
					k, seq := key(), i
					if !ordered {
						seq = i ^ 7
					}
					h := m.list.newHeight()
					tgt := newTarget(k, base.Trailer(seq, base.KindSet))
					if !m.postpone(m.list.newNode(h, &tgt, nil), h) {
						t.Fatal("not pending")
					}
				}
				newest := uint32(m.pending.newest.Load())
				run := m.list.appendRun(nil, newest)
				m.list.sortRun(run, make([]pendingNode, len(run)), 0, ordered)
				nodes := map[uint32]bool{}
				for i, e := range run {
					nodes[e.node] = true
					if i > 0 && base.CompareInternal(m.list.key(run[i-1].node), m.list.key(e.node)) >= 0 {
						t.Fatalf("%s, ordered %t: %d of %d is out of order", name, ordered, i, n)
					}
				}
				if len(nodes) != n {
					t.Fatalf("%s: %d nodes of %d", name, len(nodes), n)
				}
			}
		}
	}
}

// waiting returns the number of pending entries.
func waiting(m *Memtable) uint64 {
	if newest := m.pending.newest.Load(); newest != inserted {
		return newest >> 32
	}
	return 0
}

// TestWhatIsPending checks that keys after all others are never pending, and that none are once the
// order has been needed.
func TestWhatIsPending(t *testing.T) {
	m := New(1 << 20)
	for i := range 1000 {
		key := fmt.Appendf(nil, "key%08d", i)
		before := waiting(m)
		add(t, m, 1, base.KindSet, key, nil)
		if waiting(m) != before {
			t.Fatalf("key %d is pending", i)
		}
		if i%10 == 0 {
			add(t, m, 2, base.KindSet, key, nil) // before the first
		}
	}
	if waiting(m) != 100 {
		t.Fatalf("%d entries are pending, want the 100 that were not last", waiting(m))
	}
	it, n := m.NewIter(), 0
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	add(t, m, 3, base.KindSet, []byte("a"), nil)
	if n != 1100 || waiting(m) != 0 || !it.First() || string(base.UserKey(it.Key())) != "a" {
		t.Fatalf("%d entries, %d pending", n, waiting(m))
	}
}

// TestFollow checks which memtables leave entries pending if they follow one another and two of
// them are iterated over, one with few entries and one with many.
func TestFollow(t *testing.T) {
	m := New(1 << 20)
	for i := range 20 {
		if i == 3 {
			m.NewIter().First() // with few entries
		}
		for k := range many {
			add(t, m, 1, base.KindSet, binary.BigEndian.AppendUint32(nil, uint32(many-k)), nil)
		}
		want := i != 3 && (i < 8 || i > 7+eagerly)
		if pends := waiting(m) > 0; pends != want {
			t.Fatalf("memtable %d: pending %v", i, pends)
		}
		if i == 7 {
			m.NewIter().First()
		}
		next := New(1 << 20)
		next.Follow(m)
		m.NewIter().First() // as a flush does, later
		m = next
	}
}

// TestBacklog checks that, without sorting in the background, the writer sorts before it adds a
// batch if too many entries are pending, and not within a batch.
func TestBacklog(t *testing.T) {
	const limit = 100
	m := New(1 << 20)
	const batch = backlog*limit + 7
	m.pending.limit = limit
	most := uint64(0)
	var added atomic.Int32
	done := make(chan bool)
	m.pending.mu.Lock()
	go func() {
		defer close(done)
		for i := 2 * batch; i > 0; i-- {
			if i%batch == 0 {
				m.KeepUp()
			}
			add(t, m, uint64(i), base.KindSet, binary.BigEndian.AppendUint32(nil, uint32(i)), nil)
			most = max(most, waiting(m))
			added.Add(1)
		}
	}()
	for added.Load() < batch {
		runtime.Gosched()
	}
	for range 1000 {
		runtime.Gosched() // a writer that did not wait would continue
	}
	m.pending.mu.Unlock()
	<-done
	// The very first entry is inserted at once, as it is the greatest.
	if most != batch-1 && most != batch {
		t.Errorf("up to %d entries are pending, want about %d", most, batch)
	}
	if m.Len() != 2*batch {
		t.Errorf("%d entries", m.Len())
	}
}

func TestMayContain(t *testing.T) {
	const n = 20000
	m := New(n * EntrySize(16, 24)) // 71 bytes per entry
	key := func(i uint64) []byte { return fmt.Appendf(nil, "%016x", i*0x9e3779b97f4a7c15) }
	for i := range uint64(n) {
		add(t, m, i, base.KindSet, key(i), make([]byte, 24))
	}
	wrong := 0
	for i := range uint64(n) {
		if !m.MayContain(xxhash.Sum64(key(i))) {
			t.Fatalf("excludes key %d", i)
		}
		if m.MayContain(xxhash.Sum64(key(i + n))) {
			wrong++
		}
	}
	// With fewer than two keys per bucket: about 0.8%.
	if rate := float64(wrong) / n; rate > 0.015 {
		t.Fatalf("%.2f%% of absent keys are false positives", 100*rate)
	}
}

// TestConcurrent has writers insert random and ascending keys while readers check that lookups and
// iterators find all acknowledged entries, in order in both directions and whole.
func TestConcurrent(t *testing.T) {
	for _, limit := range []uint64{1, 50, maxPending} {
		t.Run(fmt.Sprintf("pending=%d", limit), func(t *testing.T) { testConcurrent(t, limit, 500) })
	}
	t.Run("inserted", func(t *testing.T) { testConcurrent(t, 1, 0) })
}

// testConcurrent needs no order of keys before a writer has added unordered entries.
func testConcurrent(t *testing.T, limit uint64, unordered int) {
	const writers, readers, perWriter = 4, 3, 1500
	m := New(writers * perWriter * EntrySize(20, 8))
	m.pending.limit = limit
	var acked [writers]atomic.Int64
	keyOf := func(w, i int) []byte {
		if w%2 == 0 {
			return fmt.Appendf(nil, "asc%08d.%d", i, w)
		}
		return fmt.Appendf(nil, "%08x.%d", uint32(i)*2654435761, w)
	}
	var writing, reading sync.WaitGroup
	var stop atomic.Bool
	for w := range writers {
		writing.Go(func() {
			for i := range perWriter {
				key := keyOf(w, i)
				if !m.Reserve(EntrySize(len(key), 8)) {
					t.Error("Reserve fails")
					return
				}
				value := binary.BigEndian.AppendUint64(nil, xxhash.Sum64(key))
				if err := m.Add(xxhash.Sum64(key), uint64(i), base.KindSet, key, value); err != nil {
					t.Error(err)
					return
				}
				acked[w].Store(int64(i + 1))
			}
		})
	}
	whole := func(it *Iter) bool {
		return binary.BigEndian.Uint64(it.Value()) == xxhash.Sum64(base.UserKey(it.Key()))
	}
	for g := range readers {
		reading.Go(func() {
			r := rand.New(rand.NewPCG(4, uint64(g)))
			it := m.NewIter()
			for !stop.Load() && !t.Failed() {
				w := r.IntN(writers)
				if n := int(acked[w].Load()); n > 0 {
					key := keyOf(w, n-1-r.IntN(n)*r.IntN(2))
					_, _, _, indexed := m.Find(xxhash.Sum64(key), key, base.MaxSequence)
					if !indexed || !m.MayContain(xxhash.Sum64(key)) {
						t.Errorf("%q was added, but Find or MayContain does not find it", key)
					}
					if n <= unordered {
						continue
					}
					found := false
					at := base.AppendInternalKey(nil, key, base.MaxSequence, base.KindSeek)
					after := base.AppendInternalKey(nil, key, 0, base.KindDelete)
					switch r.IntN(3) {
					case 0:
						_, _, _, found = m.Get(key, base.MaxSequence)
					case 1:
						found = it.SeekGE(at) && bytes.Equal(base.UserKey(it.Key()), key)
					case 2:
						it := m.NewIter()
						found = it.SeekLT(after) && bytes.Equal(base.UserKey(it.Key()), key)
					}
					if !found {
						t.Errorf("%q was added, but is not found", key)
					}
				}
				it.SeekGE(base.AppendInternalKey(nil, keyOf(r.IntN(writers), r.IntN(perWriter)), 0, base.KindSet))
				forward := r.IntN(2) == 0
				for range 50 {
					if !it.Valid() {
						break
					}
					at := it.Key()
					if !whole(it) {
						t.Errorf("torn entry at %q", at)
					}
					if forward && it.Next() && base.CompareInternal(at, it.Key()) >= 0 ||
						!forward && it.Prev() && base.CompareInternal(at, it.Key()) <= 0 {
						t.Errorf("%q is out of order with %q", it.Key(), at)
					}
				}
			}
		})
	}
	writing.Wait()
	stop.Store(true)
	reading.Wait()
	if m.Len() != writers*perWriter {
		t.Fatalf("Len %d", m.Len())
	}
	var forward, backward [][]byte
	it := m.NewIter()
	for ok := it.First(); ok; ok = it.Next() {
		forward = append(forward, it.Key())
	}
	for ok := it.Last(); ok; ok = it.Prev() {
		backward = append(backward, it.Key())
	}
	slices.Reverse(backward)
	if len(forward) != m.Len() || !slices.EqualFunc(forward, backward, bytes.Equal) {
		t.Fatalf("%d entries forward, %d backward", len(forward), len(backward))
	}
	if !slices.IsSortedFunc(forward, base.CompareInternal) {
		t.Fatal("not sorted")
	}
}

// TestSortYields checks that, on one processor, other goroutines run while pending entries are
// sorted.
func TestSortYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const n = 100_000
	m := New(n * EntrySize(8, 0))
	m.pending.limit = n + 1
	r := rand.New(rand.NewPCG(1, 1))
	for i := range n {
		key := binary.BigEndian.AppendUint64(nil, r.Uint64())
		if err := m.Add(xxhash.Sum64(key), uint64(i), base.KindSet, key, nil); err != nil {
			t.Fatal(err)
		}
	}
	var sorted atomic.Bool
	go func() {
		m.sort()
		sorted.Store(true)
	}()
	turns := 0
	for ; !sorted.Load(); turns++ {
		runtime.Gosched()
	}
	if turns < 10 { // the scheduler alone gives one every 10 ms
		t.Errorf("other goroutines ran %d times", turns)
	}
}

// TestIterWaitsForSort opens an iterator while the entries are being sorted in the background: it
// must find all of them.
func TestIterWaitsForSort(t *testing.T) {
	const n = 2000
	for range 100 {
		m := New(n * EntrySize(8, 8))
		m.pending.limit = n
		for i := range uint64(n) { // the last one starts the sort
			key := binary.BigEndian.AppendUint64(nil, i*0x9e3779b97f4a7c15)
			add(t, m, i+1, base.KindSet, key, key)
		}
		runtime.Gosched()
		found := 0
		it := m.NewIter()
		for ok := it.First(); ok; ok = it.Next() {
			found++
		}
		if found != n {
			t.Fatalf("an iterator finds %d of %d entries", found, n)
		}
	}
}

// TestOrderConcurrent checks that concurrent Adds leave the highest sequence number, with which
// later ones are compared.
func TestOrderConcurrent(t *testing.T) {
	const writers, each = 4, 2000
	for range 20 {
		m := New(1 << 10)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					m.order(uint64(1 + i*writers + w))
				}
			})
		}
		wg.Wait()
		if last := m.lastSeq.Load(); last != writers*each {
			t.Fatalf("the last sequence number is %d, want %d", last, writers*each)
		}
	}
}

// TestTombstoneValue checks that a tombstone keeps its value, which may say where a deletion is.
func TestTombstoneValue(t *testing.T) {
	m := New(1 << 10)
	key := []byte("k")
	add(t, m, 1, base.KindDelete, key, []byte("value"))
	if value, kind, _, found := m.Find(xxhash.Sum64(key), key, 1); string(value) != "value" || kind != base.KindDelete || !found {
		t.Errorf("%q, kind %d, %t", value, kind, found)
	}
}

// TestSequencesBeyondTheMaximum checks that a lookup at a number above all sequence numbers, which
// have 56 bits, finds the newest entry.
func TestSequencesBeyondTheMaximum(t *testing.T) {
	m := New(1 << 12)
	add(t, m, 5, base.KindSet, []byte("k"), []byte("old"))
	add(t, m, 7, base.KindSet, []byte("k"), []byte("new"))
	const most = base.MaxSequence
	for _, seq := range []uint64{7, most, most + 1, most + 6, 1 << 60, math.MaxUint64} {
		if v, _, at, ok := m.Get([]byte("k"), seq); !ok || at != 7 || string(v) != "new" {
			t.Errorf("Get at %d: %q at %d, found: %t", seq, v, at, ok)
		}
	}
}
