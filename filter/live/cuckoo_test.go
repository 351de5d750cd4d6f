package live

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// newCuckooWidth returns a filter with fingerprints of a given width.
func newCuckooWidth(buckets int, width uint, seed uint64) *Cuckoo[int] {
	return &Cuckoo[int]{key: must(newKey[int](nil)), cuckoo: newCuckoo(uint64(buckets), width, seed)}
}

func TestLanes(t *testing.T) {
	r := seededRand(t)
	for _, s := range cuckooSizes {
		l := lanesOf(s.width)
		for range 20_000 {
			var w uint64
			var slots [8]uint32
			for i := range l.slots {
				// Many zeros, ones, and values that differ only in the highest bit.
				v := [...]uint64{0, 1, 1 << (s.width - 1), 1<<(s.width-1) | 1, 1<<s.width - 1, r.Uint64N(1 << s.width)}[r.IntN(6)]
				slots[i] = uint32(v)
				w |= v << (uint(i) * s.width)
			}
			fp := slots[r.IntN(l.slots)]
			found := l.find(w, fp)
			first := true
			for i := range l.slots {
				shift := uint(i) * s.width
				marked := found>>(shift+s.width-1)&1 != 0
				if l.get(w, shift) != slots[i] || marked != (slots[i] == fp) {
					t.Fatalf("width %d, word %x: slot %d is %x, find(%x) gives %x", s.width, w, i, slots[i], fp, found)
				}
				if marked && first {
					if l.lowest(found) != shift {
						t.Fatalf("width %d: first of %x is %d", s.width, found, l.lowest(found))
					}
					first = false
				}
			}
		}
	}
}

func TestCuckooOtherBucket(t *testing.T) {
	r := seededRand(t)
	for _, buckets := range []int{1, 2, 3, 7, 1000, 1 << 16} {
		c := newCuckoo(uint64(buckets), 12, 0)
		for range 1000 {
			fp, a, b := c.place(r.Uint64())
			if fp == 0 || a >= uint64(buckets) || b >= uint64(buckets) || c.other(b, fp) != a {
				t.Fatalf("%d buckets: fingerprint %d in %d and %d, back to %d", buckets, fp, a, b, c.other(b, fp))
			}
		}
	}
}

// Full tables of every width reach the load that NewCuckoo assumes, and have all elements that
// were added, even after ErrFull.
func TestCuckooFull(t *testing.T) {
	t.Parallel()
	sizes := []int{300, sized(100_000)}
	if *million {
		sizes = append(sizes, 1_000_000)
	}
	for _, s := range cuckooSizes {
		for _, slots := range sizes {
			f := newCuckooWidth(slots/lanesOf(s.width).slots, s.width, 0)
			n := 0
			for addErr(f, n) == nil {
				n++
			}
			load := float64(n) / float64(f.Capacity())
			t.Logf("width %d, %d slots: full at %.3f", s.width, slots, load)
			if load < s.load-0.15 || (slots > 1000 && load < s.load) {
				t.Errorf("width %d, %d slots: full at %.3f, want %v", s.width, slots, load, s.load)
			}
			if uint64(n) != f.ApproxCount() {
				t.Errorf("width %d: %d added, ApproxCount %d", s.width, n, f.ApproxCount())
			}
			words, halfs := slices.Clone(f.words), slices.Clone(f.halfs)
			if err := addErr(f, n); !errors.Is(err, ErrFull) || !slices.Equal(words, f.words) || !slices.Equal(halfs, f.halfs) {
				t.Errorf("width %d: an Add that fails (%v) has changed the table", s.width, err)
			}
			for i := range n {
				if !f.MayContain(i) {
					t.Fatalf("width %d: %d of %d lost", s.width, i, n)
				}
			}
			for i := range n {
				if !f.Delete(i) {
					t.Fatalf("width %d: %d of %d not deleted", s.width, i, n)
				}
			}
			if f.ApproxCount() != 0 {
				t.Errorf("width %d: %d left", s.width, f.ApproxCount())
			}
		}
	}
}

// At every size, Items elements fit.
func TestCuckooItemsFit(t *testing.T) {
	for _, fpr := range []float64{0.5, 0.03, 0.02, 0.01, 0.001, 1e-5, 1e-9} {
		for _, items := range []int{1, 2, 3, 5, 8, 13, 30, 100, 300, 1000, 10_000} {
			for seed := range uint64(max(3, min(200, 30_000/(items+1)))) {
				f := must(NewCuckoo(CuckooOptions[int]{Items: uint64(items), FPR: fpr, Seed: seed}))
				for i := range items {
					if err := addErr(f, i); err != nil {
						t.Fatalf("FPR %v, items %d, seed %d: %v after %d", fpr, items, seed, err, i)
					}
				}
			}
		}
	}
}

func TestCuckooFPR(t *testing.T) {
	t.Parallel()
	n, probes := 1_000_000, 1_000_000
	if !*million {
		n, probes = 20_000, sized(200_000)
	}
	for _, fpr := range []float64{0.1, 0.03, 0.02, 0.01, 0.001, 0.0001} {
		f := must(NewCuckoo(CuckooOptions[string]{Items: uint64(n), FPR: fpr}))
		for i := range n {
			if err := addErr(f, member(i)); err != nil {
				t.Fatalf("%v after %d", err, i)
			}
		}
		got := measureFPR(probes, f.MayContain)
		t.Logf("FPR %.3g for %v, %d bits, %.2f per element", got, fpr, f.FingerprintBits(), float64(f.MemoryBytes()*8)/float64(n))
		checkFPR(t, fmt.Sprint("FPR() for ", fpr), got, f.FPR(), probes, 0.01)
		checkFPRBelow(t, fmt.Sprint(fpr), got, fpr, probes)
		if f.ApproxCount() != uint64(n) {
			t.Errorf("ApproxCount %d", f.ApproxCount())
		}
	}
}

func TestCuckooOptions(t *testing.T) {
	for _, o := range []CuckooOptions[string]{
		{Items: 10}, {Items: 10, FPR: 1}, {Items: 10, FPR: math.NaN()}, {Items: 10, FPR: 1e-10}, {Items: 1 << 60, FPR: 0.1},
	} {
		if _, err := NewCuckoo(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

func TestCuckooModel(t *testing.T) {
	for _, s := range cuckooSizes {
		r := seededRand(t)
		f := newCuckooWidth(200, s.width, 1)
		model := map[int]int{}
		total := 0
		for range sized(60_000) {
			v := r.IntN(1200)
			switch {
			case r.IntN(2) == 0:
				err := addErr(f, v)
				if err == nil {
					model[v]++
					total++
				} else if load := float64(total) / float64(f.Capacity()); load < s.load-0.15 && model[v] < f.slots {
					t.Fatalf("width %d: %v at %.2f", s.width, err, load)
				}
			case model[v] > 0:
				if !f.Delete(v) {
					t.Fatalf("width %d: %d not deleted", s.width, v)
				}
				model[v]--
				total--
			}
			if !f.MayContain(v) && model[v] > 0 || f.CountOf(v) < model[v] {
				t.Fatalf("width %d: %d was added %d times, counted %d", s.width, v, model[v], f.CountOf(v))
			}
		}
		for v, n := range model {
			if n > 0 && !f.MayContain(v) {
				t.Fatalf("width %d: %d lost", s.width, v)
			}
		}
		if f.ApproxCount() != uint64(total) {
			t.Errorf("width %d: ApproxCount %d of %d", s.width, f.ApproxCount(), total)
		}
	}
}

// One element can fill only its two buckets; the other elements stay.
func TestCuckooSameElement(t *testing.T) {
	f := newCuckooWidth(100, 16, 0)
	for i := 1; i < 200; i++ {
		f.Add(i)
	}
	n := 0
	for ; addErr(f, 0) == nil; n++ {
		if n > 8 {
			t.Fatal("more copies than slots")
		}
	}
	if f.CountOf(0) < n || n < 4 {
		t.Errorf("%d copies, counted %d", n, f.CountOf(0))
	}
	for i := range 200 {
		if !f.MayContain(i) {
			t.Errorf("%d lost", i)
		}
	}
}

// Sixteen goroutines add, move, look up and delete in a table that is nearly full: elements
// that were added are found at any time.
func TestCuckooConcurrent(t *testing.T) {
	const workers, perWorker = 16, 600
	for _, s := range cuckooSizes {
		slots := int(float64(2*workers*perWorker) / (s.load - 0.03))
		f := newCuckooWidth(slots/lanesOf(s.width).slots+1, s.width, 0)
		for i := range workers * perWorker {
			if err := addErr(f, -1-i); err != nil { // these stay
				t.Fatal(err)
			}
		}
		rounds := 4
		if testing.Short() {
			rounds = 1
		}
		var full atomic.Int32
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for range rounds {
					added := 0
					for i := range perWorker {
						if addErr(f, w*perWorker+i) != nil {
							full.Add(1)
							break
						}
						added++
						if !f.MayContain(w*perWorker+i/2) || !f.MayContain(-1-(w*perWorker+i*7)%(workers*perWorker)) {
							t.Errorf("width %d: lost", s.width)
							return
						}
					}
					for i := range added {
						if !f.Delete(w*perWorker + i) {
							t.Errorf("width %d: not deleted", s.width)
							return
						}
					}
				}
			})
		}
		wg.Wait()
		if f.ApproxCount() != workers*perWorker {
			t.Errorf("width %d: %d elements left of %d", s.width, f.ApproxCount(), workers*perWorker)
		}
		for i := range workers * perWorker {
			if !f.MayContain(-1 - i) {
				t.Fatalf("width %d: %d lost", s.width, -1-i)
			}
		}
		t.Logf("width %d: full %d times", s.width, full.Load())
	}
}

func TestCuckooAddNew(t *testing.T) {
	const workers, n = 16, 2000
	f := must(NewCuckoo(CuckooOptions[int]{Items: n, FPR: 1e-9}))
	var added atomic.Int32
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range n {
				switch ok, err := f.AddNew(i); {
				case err != nil:
					t.Error(err)
				case ok:
					added.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if added.Load() != n || f.ApproxCount() != n {
		t.Errorf("%d added, ApproxCount %d, want %d", added.Load(), f.ApproxCount(), n)
	}
	if ok, err := must(NewCuckoo(CuckooOptions[int]{Items: 1, FPR: 0.01})).AddNew(1); !ok || err != nil {
		t.Errorf("into an empty filter: %v %v", ok, err)
	}
}

// A filter that is saved while fingerprints are moved has all of them.
func TestCuckooWriteWhileMoving(t *testing.T) {
	const n = 5000
	f := newCuckooWidth(n*2/4+100, 16, 0)
	for i := range n {
		f.Add(i)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := n; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if addErr(f, i) != nil {
				for j := n; j < i; j++ {
					f.Delete(j)
				}
				i = n
			}
		}
	})
	for range 30 {
		var b bytes.Buffer
		if _, err := f.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		g := must(ReadCuckoo(&b, ReadOptions[int]{MaxBytes: 1 << 20}))
		for i := range n {
			if !g.MayContain(i) {
				t.Fatalf("%d is not in the saved form", i)
			}
		}
	}
	close(stop)
	wg.Wait()
}

func TestReadCuckooMalformed(t *testing.T) {
	f := newCuckooWidth(3, 12, 0)
	f.Add(1)
	var b bytes.Buffer
	f.WriteTo(&b)
	for _, tc := range []struct {
		desc   string
		change func(b []byte)
	}{
		{"11-bit fingerprints", func(b []byte) { b[12] = 11 }},
		{"2^32+12-bit fingerprints", func(b []byte) { b[15] = 1 }},
		{"no words", func(b []byte) { b[16] = 0 }},
		{"scheme", func(b []byte) { b[10] = 1 }},
		{"bits above the slots", func(b []byte) { b[recordSize+7] |= 0x80 }},
	} {
		bad := bytes.Clone(b.Bytes())
		tc.change(bad)
		resealAll(bad)
		if _, err := ReadCuckoo(bytes.NewReader(bad), ReadOptions[int]{MaxBytes: 1 << 20}); !isFormat(err) {
			t.Errorf("%s: %v", tc.desc, err)
		}
	}
}

func FuzzReadCuckoo(f *testing.F) {
	for _, s := range cuckooSizes {
		c := newCuckooWidth(3, s.width, 0)
		c.Add(1)
		var buf bytes.Buffer
		c.WriteTo(&buf)
		f.Add(buf.Bytes())
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		resealAll(file)
		g, err := ReadCuckoo(bytes.NewReader(file), ReadOptions[int]{MaxBytes: 1 << 20})
		if err != nil {
			return
		}
		for i := range 20 {
			if addErr(g, i) == nil && (!g.MayContain(i) || !g.Delete(i)) {
				t.Error("the filter does not work after it was read")
			}
		}
		if g.FPR() < 0 || g.FPR() > 1 {
			t.Errorf("FPR %v", g.FPR())
		}
	})
}

// Goroutines add and delete elements with few different fingerprints while others are moved: no
// element that stays is lost, and no deleted one remains.
func TestCuckooDeleteWhileMoving(t *testing.T) {
	const workers, each = 4, 40
	f := newCuckooWidth(48, 8, 0)
	kept := 0
	for i := range 20 {
		if addErr(f, 1_000_000+i) == nil {
			kept++
		}
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for round := range sized(2000) {
				var mine []int
				for i := range each {
					v := w*each + (i+round)%each
					if addErr(f, v) == nil {
						mine = append(mine, v)
					}
					if !f.MayContain(1_000_000 + i%20) {
						t.Errorf("%d is lost while others are added and deleted", i%20)
						return
					}
				}
				for _, v := range mine {
					if !f.MayContain(v) || !f.Delete(v) {
						t.Errorf("%d was added and is lost", v)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if n := f.ApproxCount(); n != uint64(kept) {
		t.Errorf("%d elements are left, want %d", n, kept)
	}
}

// If a fingerprint is deleted after a move has copied it, the move removes the copy.
func TestCuckooDeleteDuringMove(t *testing.T) {
	for _, width := range []uint{8, 16} {
		f := newCuckooWidth(50, width, 0)
		v := 1
		fp, a, b := f.place(f.key.Sum64(v))
		for a == b {
			v++
			fp, a, b = f.place(f.key.Sum64(v))
		}
		f.Add(v)
		f.put(b, fp) // what a move does first
		if !f.take(a, fp) {
			t.Fatal("a delete does not find it")
		}
		f.clear(a, 0, fp, b) // and last
		if n := f.CountOf(v); n != 0 {
			t.Errorf("width %d: counted %d times after it was deleted", width, n)
		}
		f.Add(v)
		f.put(b, fp)
		f.clear(a, 0, fp, b)
		if n := f.CountOf(v); n != 1 || f.take(a, fp) {
			t.Errorf("width %d: counted %d times after a move", width, n)
		}
	}
}

// If both buckets have a fingerprint, a delete that takes one of them does not hide the other from
// a reader, or from a copy, that examined the other bucket earlier.
func TestCuckooDeleteOneOfTwo(t *testing.T) {
	for _, width := range []uint{8, 16} {
		f := newCuckooWidth(50, width, 0)
		v := 1
		fp, a, b := f.place(f.key.Sum64(v))
		for a == b {
			v++
			fp, a, b = f.place(f.key.Sum64(v))
		}
		f.put(a, fp) // of an element that stays
		version := f.lock(fp).Load()
		f.put(b, fp) // of v, when its first bucket is full
		deleted := f.Delete(v)
		if f.lock(fp).Load() == version { // CountOf changes it, too
			t.Errorf("width %d: readers do not notice the delete", width)
		}
		if n := f.CountOf(v); !deleted || n != 1 {
			t.Errorf("width %d: counted %d times after a delete (%v)", width, n, deleted)
		}

		f = newCuckooWidth(50, width, 0)
		f.put(a, fp)
		f.moves.Lock() // as cut does
		copied := f.load(b)
		f.put(b, fp)
		done := make(chan bool)
		go func() { done <- f.Delete(v) }()
		for range 1000 {
			runtime.Gosched()
		}
		if !f.pairHas(f.load(a), copied, fp) {
			t.Errorf("width %d: a copy has lost the element that stays", width)
		}
		f.moves.Unlock()
		if !<-done || f.CountOf(v) != 1 {
			t.Errorf("width %d: counted %d times after a delete", width, f.CountOf(v))
		}
	}
}
