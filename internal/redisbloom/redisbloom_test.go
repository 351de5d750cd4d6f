package redisbloom

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func items(prefix string, n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = fmt.Appendf(nil, "%s%d", prefix, i)
	}
	return out
}

// dump returns the parts of a filter's dump.
func dump(f interface {
	Dump(int64) (int64, []byte)
}) (parts [][]byte, iters []int64) {
	for iter := int64(0); ; {
		next, part := f.Dump(iter)
		if next == 0 {
			return parts, iters
		}
		parts = append(parts, bytes.Clone(part))
		iters = append(iters, next)
		iter = next
	}
}

// The dumps were recorded from RedisBloom.
func TestBloomDumpIsRedis(t *testing.T) {
	f, err := NewBloom(BloomOptions{Capacity: 20, Error: 0.01, Expansion: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items("x", 60) {
		if added, err := f.Add(item, 1<<20); err != nil || !added {
			t.Fatalf("Add(%s) = %v, %v", item, added, err)
		}
	}
	parts, iters := dump(f)
	want := []string{
		`3c00000000000000 02000000 05000000 02000000
		 2000000000000000 0001000000000000 1400000000000000 7b14ae47e17a743f e9862fb2350e2640 08000000 1400000000000000 00
		 4000000000000000 0002000000000000 2800000000000000 7b14ae47e17a643f 4af7d49edef02840 09000000 2800000000000000 00`,
		"30cd563980f4ca11d7fc62e2c1ecff7f40a108a2e0f386b824d411c52ba43c4e",
		`08861ad89c046a9b61d3adf690e3bf45bc27e926aee4a6d5fc9966bae5efaf3a
		 82f75f5bfca18ee9c20c3ed9b22e3e1af686cd1ceb610a7189955f8dedd3088e`,
	}
	if len(parts) != len(want) || fmt.Sprint(iters) != "[1 33 97]" {
		t.Fatalf("%d parts, iters %v", len(parts), iters)
	}
	for i := range want {
		if !bytes.Equal(parts[i], unhex(t, want[i])) {
			t.Errorf("part %d\n got %x\nwant %x", i, parts[i], unhex(t, want[i]))
		}
	}
	g, err := ParseBloom(parts[0], 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(parts); i++ {
		if err := g.Load(iters[i], parts[i]); err != nil {
			t.Fatal(err)
		}
	}
	for _, item := range items("x", 60) {
		if !g.Contains(item) {
			t.Errorf("%s is gone", item)
		}
	}
	if again, _ := dump(g); !bytes.Equal(bytes.Join(again, nil), bytes.Join(parts, nil)) {
		t.Error("the dump of a loaded filter differs")
	}
}

func TestCuckooDumpIsRedis(t *testing.T) {
	f, err := NewCuckoo(CuckooOptions{Capacity: 32, BucketSize: 2, MaxIterations: 20, Expansion: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items("x", 40) {
		if err := f.Add(item, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	parts, iters := dump(f)
	want := []string{
		"2800000000000000 1000000000000000 0000000000000000 0200000000000000 0200 1400 0100",
		"a00041e21c00c2c5651d86da4d003f7ca16214eac07bb228fcb3472836ce12ac",
		"000000000000de000000b5fbf83000000000cf5c0000140072005d00b1000000",
	}
	if len(parts) != len(want) || fmt.Sprint(iters) != "[1 33 65]" {
		t.Fatalf("%d parts, iters %v", len(parts), iters)
	}
	for i := range want {
		if !bytes.Equal(parts[i], unhex(t, want[i])) {
			t.Errorf("part %d\n got %x\nwant %x", i, parts[i], unhex(t, want[i]))
		}
	}
	g, err := ParseCuckoo(parts[0], 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(parts); i++ {
		if err := g.Load(iters[i], parts[i]); err != nil {
			t.Fatal(err)
		}
	}
	if again, _ := dump(g); !bytes.Equal(bytes.Join(again, nil), bytes.Join(parts, nil)) {
		t.Error("the dump of a loaded filter differs")
	}
}

// The header of a dump may count too few items, as when some were added between the parts of the
// dump, or too many. The filter loaded from it has a header that can be loaded in turn, and it can
// be dumped until it is empty.
func TestCuckooMiscounted(t *testing.T) {
	f, err := NewCuckoo(CuckooOptions{Capacity: 4, BucketSize: 2, MaxIterations: 20})
	if err != nil {
		t.Fatal(err)
	}
	header := f.Header()
	for _, item := range []string{"a", "b"} {
		if err := f.Add([]byte(item), 0); err != nil {
			t.Fatal(err)
		}
	}
	parse := func(items uint64) *Cuckoo {
		binary.LittleEndian.PutUint64(header, items)
		g, err := ParseCuckoo(header, 1<<10)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	few, many := parse(1), parse(4)
	if err := few.Load(5, f.Data(0)); err != nil {
		t.Fatal(err)
	}
	if err := many.Add([]byte("a"), 0); err != nil {
		t.Fatal(err)
	}
	few.Delete([]byte("a"))
	if next, _ := few.Dump(0); next == 0 {
		t.Error("a filter with an item has no dump")
	}
	few.Delete([]byte("b"))
	if next, _ := few.Dump(0); next != 0 {
		t.Error("an empty filter has a dump")
	}
	for _, g := range []*Cuckoo{few, many} {
		if _, err := ParseCuckoo(g.Header(), 1<<10); err != nil {
			t.Errorf("%d items: %v", g.Items(), err)
		}
	}
}

// HyperLogLog in Redis uses the same hash: PFDEBUG GETREG shows the register, which is the low
// 14 bits, and the position of the lowest 1 above them.
func TestMurmur(t *testing.T) {
	text := strings.Repeat("abcdefghijklmnopqrstuvwxyz0123456789", 3)
	for _, c := range []struct {
		n, register, rank int
	}{
		{0, 5938, 2},
		{1, 12711, 2},
		{3, 9474, 1},
		{7, 5634, 2},
		{8, 1383, 1},
		{9, 6903, 1},
		{15, 12377, 4},
		{16, 9328, 1},
		{17, 4271, 1},
		{24, 2894, 1},
		{31, 10582, 1},
		{64, 16229, 3},
		{100, 9860, 3},
	} {
		h := murmur64A([]byte(text[:c.n]), 0xadc83b19)
		if got := int(h & 16383); got != c.register {
			t.Errorf("%d bytes: register %d, want %d", c.n, got, c.register)
		}
		if got := bits.TrailingZeros64(h>>14) + 1; got != c.rank {
			t.Errorf("%d bytes: rank %d, want %d", c.n, got, c.rank)
		}
	}
}

// Redo alone, and redo after an incomplete checkpoint, bring a second filter to the same state.
func TestRedo(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, layout := range []Layout{Redis, Tight} {
		f, _ := NewBloom(BloomOptions{Capacity: 2000, Error: 0.01, Expansion: 2, Layout: layout})
		start := f.Header()
		g, _ := ParseBloom(start, 1<<30)
		torn, _ := ParseBloom(start, 1<<30)
		var all []byte
		for i := range 30000 {
			if _, err := f.Add(fmt.Appendf(nil, "i%d", i), 1<<30); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(100) == 0 {
				redo := f.TakeRedo(nil)
				all = append(all, redo...)
				if err := g.Replay(redo, 1<<30); err != nil {
					t.Fatal(err)
				}
			}
			if i == 15000 {
				left := 5
				f.TakeDirty(0, 0, func(link, page int, data []byte) bool {
					if err := torn.SetPage(link, page, data); err != nil {
						t.Fatal(err)
					}
					left--
					return left > 0
				})
			}
		}
		redo := f.TakeRedo(nil)
		all = append(all, redo...)
		if err := g.Replay(redo, 1<<30); err != nil {
			t.Fatal(err)
		}
		sameDump(t, f, g)
		if err := torn.Replay(all, 1<<30); err != nil {
			t.Fatal(err)
		}
		sameDump(t, f, torn)
	}
}

func TestCuckooRedo(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	f, _ := NewCuckoo(CuckooOptions{Capacity: 1000, BucketSize: 4, MaxIterations: 20, Expansion: 2})
	start := f.Header()
	g, _ := ParseCuckoo(start, 1<<30)
	torn, _ := ParseCuckoo(start, 1<<30)
	var all []byte
	drops := 0
	for i := range 60000 {
		item := fmt.Appendf(nil, "i%d", rng.IntN(8000))
		links := f.Links()
		if phase := i / 10000; phase%4 == 0 {
			if err := f.Add(item, 1<<30); err != nil {
				t.Fatal(err)
			}
		} else {
			f.Delete(item)
		}
		if f.Links() < links {
			drops++
		}
		if rng.IntN(50) == 0 {
			redo := f.TakeRedo(nil)
			all = append(all, redo...)
			if err := g.Replay(redo, 1<<30); err != nil {
				t.Fatal(err)
			}
			sameDump(t, f, g)
		}
		if i == 35000 {
			left := 3
			f.TakeDirty(0, 0, func(link, page int, data []byte) bool {
				if err := torn.SetPage(link, page, data); err != nil {
					t.Fatal(err)
				}
				left--
				return left > 0
			})
		}
	}
	if drops == 0 {
		t.Error("no link was ever dropped")
	}
	all = f.TakeRedo(all)
	if err := torn.Replay(all, 1<<30); err != nil {
		t.Fatal(err)
	}
	sameDump(t, f, torn)
}

func sameDump(t *testing.T, f, g interface {
	Dump(int64) (int64, []byte)
}) {
	t.Helper()
	a, _ := dump(f)
	b, _ := dump(g)
	if !bytes.Equal(bytes.Join(a, nil), bytes.Join(b, nil)) {
		t.Fatal("the filters differ")
	}
}

// A failed add does not change the filter.
func TestCuckooFull(t *testing.T) {
	f, _ := NewCuckoo(CuckooOptions{Capacity: 64, BucketSize: 2, MaxIterations: 20})
	full := 0
	for i := range 500 {
		before, _ := dump(f)
		if err := f.Add(fmt.Appendf(nil, "g%d", i), 1<<30); errors.Is(err, ErrFull) {
			full++
			if after, _ := dump(f); !bytes.Equal(bytes.Join(before, nil), bytes.Join(after, nil)) {
				t.Fatal("a failed add changed the filter")
			}
		}
	}
	if full < 400 || f.Items() > 64 {
		t.Errorf("%d adds failed, %d items", full, f.Items())
	}
}

// Tight keeps the requested rate when it grows, and takes less memory.
func TestTightKeepsItsPromise(t *testing.T) {
	const n, probes = 50_000, 100_000
	for _, e := range []float64{0.01, 0.001} {
		var bytes [2]uint64
		for _, layout := range []Layout{Redis, Tight} {
			f, _ := NewBloom(BloomOptions{Capacity: 100, Error: e, Expansion: 2, Layout: layout})
			for i := range n {
				if _, err := f.Add(fmt.Appendf(nil, "in%d", i), 1<<30); err != nil {
					t.Fatal(err)
				}
			}
			hits := 0
			for i := range probes {
				if f.Contains(fmt.Appendf(nil, "out%d", i)) {
					hits++
				}
			}
			for i := range n {
				if !f.Contains(fmt.Appendf(nil, "in%d", i)) {
					t.Fatalf("in%d is gone", i)
				}
			}
			fpr := float64(hits) / probes
			bytes[layout] = f.Bytes()
			t.Logf("layout %d at %g: FPR %.5f, expected %.5f, %.2f bytes per item, %d links", layout, e, fpr, f.ExpectedFPR(), float64(f.Bytes())/n, f.Links())
			if layout == Tight && fpr > e*1.15 {
				t.Errorf("FPR %g above %g", fpr, e)
			}
		}
		if bytes[Tight] >= bytes[Redis] {
			t.Errorf("%d bytes, %d in the layout of RedisBloom", bytes[Tight], bytes[Redis])
		}
	}
}

// TestMillion measures rates and sizes with a million items and a million probes;
// SIFT_LONG=1 runs it.
func TestMillion(t *testing.T) {
	if os.Getenv("SIFT_LONG") == "" {
		t.Skip("takes half a minute; SIFT_LONG=1 runs it")
	}
	const n = 1_000_000
	for _, e := range []float64{0.01, 0.001} {
		for _, c := range []struct {
			desc      string
			capacity  uint64
			expansion uint32
		}{{"reserved", n, 2}, {"fixed", n, 0}, {"grown from 100", 100, 2}} {
			for layout, name := range []string{"redis", "tight"} {
				f, err := NewBloom(BloomOptions{Capacity: c.capacity, Error: e, Expansion: c.expansion, Layout: Layout(layout)})
				if err != nil {
					t.Fatal(err)
				}
				for i := range n {
					if _, err := f.Add(fmt.Appendf(nil, "in%d", i), 1<<30); err != nil && c.expansion != 0 {
						t.Fatal(err)
					}
				}
				hits := 0
				for i := range n {
					if f.Contains(fmt.Appendf(nil, "out%d", i)) {
						hits++
					}
				}
				fpr := float64(hits) / n
				t.Logf("%g %-14s %s: FPR %.5f, %.3f bytes per item, %d links", e, c.desc, name, fpr, float64(f.Bytes())/n, f.Links())
				if Layout(layout) == Tight && fpr > e+4*math.Sqrt(e/n) {
					t.Errorf("tight exceeds the requested %g", e)
				}
			}
		}
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		e      float64
		n      uint64
		ns     bool
		bytes  uint64
		hashes uint32
	}{
		{0.9, 1000, false, 544, 4},
		{1e-9, 1000, false, 5576, 31},
		{1e-300, 10, false, 1800, 998},
		{0.01, 1, false, 8, 8},
		{0.01, 1_000_000, false, 1378472, 8},
		{0.001, 1_000_000, true, 1797200, 10},
	} {
		o := BloomOptions{Capacity: c.n, Error: c.e, Expansion: 2}
		if c.ns {
			o.Expansion = 0
		}
		f, err := NewBloom(o)
		if err != nil {
			t.Fatal(err)
		}
		if l := f.Link(0); l.Bytes != c.bytes || l.Hashes != c.hashes {
			t.Errorf("%+v: %d bytes, %d hashes", c, l.Bytes, l.Hashes)
		}
	}
	if _, err := NewBloom(BloomOptions{Capacity: 1 << 30, Error: 1e-9, Expansion: 2, MaxBytes: 1 << 20}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("err = %v", err)
	}
	if _, err := NewCuckoo(CuckooOptions{Capacity: 1 << 30, BucketSize: 2, MaxIterations: 1, MaxBytes: 1 << 20}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("err = %v", err)
	}
}

func FuzzParse(f *testing.F) {
	b, _ := NewBloom(BloomOptions{Capacity: 5, Error: 0.01, Expansion: 2})
	tight, _ := NewBloom(BloomOptions{Capacity: 5, Error: 0.01, Expansion: 2, Layout: Tight})
	c, _ := NewCuckoo(CuckooOptions{Capacity: 32, BucketSize: 2, MaxIterations: 20, Expansion: 1})
	for i := range 40 {
		b.Add([]byte{byte(i)}, 1<<20)
		tight.Add([]byte{byte(i)}, 1<<20)
		c.Add([]byte{byte(i)}, 1<<20)
	}
	f.Add(b.Header(), b.TakeRedo(nil))
	f.Add(tight.Header(), tight.TakeRedo(nil))
	f.Add(c.Header(), c.TakeRedo(nil))
	f.Fuzz(func(t *testing.T, header, redo []byte) {
		const room = 1 << 16
		if f, err := ParseBloom(header, room); err == nil {
			if f.Bytes() > room || !bytes.Equal(f.Header(), header) {
				t.Fatal("header does not round-trip")
			}
			if f.Replay(redo, room) == nil && f.Bytes() > room {
				t.Fatal("too large")
			}
			f.Load(int64(len(redo)), redo)
			f.Add(redo, room)
			f.Contains(header)
			dump(f)
		}
		if f, err := ParseCuckoo(header, room); err == nil {
			if f.Bytes() > room || !bytes.Equal(f.Header(), header) {
				t.Fatal("header does not round-trip")
			}
			if f.Replay(redo, room) == nil && f.Bytes() > room {
				t.Fatal("too large")
			}
			f.Load(int64(len(redo)), redo)
			f.Add(redo, room)
			f.Delete(header)
			f.Compact()
			dump(f)
		}
	})
}

// AddMany has the same effect as Add item by item, even if the filter grows, may not grow, or is
// full.
func TestAddMany(t *testing.T) {
	for _, o := range []BloomOptions{
		{Capacity: 50, Error: 0.01, Expansion: 2},
		{Capacity: 50, Error: 0.01},
		{Capacity: 50, Error: 0.01, Expansion: 2, Layout: Tight},
		{Capacity: 1_000_000, Error: 0.01, Expansion: 2},
		{Capacity: 1_000_000, Error: 0.01, Expansion: 2, Layout: Tight},
	} {
		one, err := NewBloom(o)
		if err != nil {
			t.Fatal(err)
		}
		many, err := NewBloom(o)
		if err != nil {
			t.Fatal(err)
		}
		if large := len(one.links[0].data) >= largeLink; large != (o.Capacity > 50) {
			t.Fatalf("a filter of %d bytes: large is %v", len(one.links[0].data), large)
		}
		r := rand.New(rand.NewPCG(1, 2))
		for n, failed := 0, 0; n < 1000 && failed < 10; n++ {
			var items [][]byte
			for range r.IntN(3 * addBatch) {
				items = append(items, binary.AppendUvarint(nil, r.Uint64N(1000)))
			}
			room := uint64(r.IntN(2)) << 20
			want, got := []bool{true}, []bool{true}
			var wantErr, gotErr error
			for _, item := range items {
				var isNew bool
				if isNew, wantErr = one.Add(item, room); wantErr != nil {
					break
				}
				want = append(want, isNew)
			}
			if got, gotErr = many.AddMany(items, room, got); gotErr != wantErr || !slices.Equal(got, want) {
				t.Fatalf("%+v: AddMany: %v, %v; Add: %v, %v", o, got, gotErr, want, wantErr)
			}
			if a, b := one.TakeRedo(nil), many.TakeRedo(nil); !bytes.Equal(a, b) {
				t.Fatalf("%+v: the redo logs differ", o)
			}
			if gotErr != nil {
				failed++
			}
		}
		if !bytes.Equal(one.Header(), many.Header()) || one.size < 40 {
			t.Errorf("%+v: headers differ after %d items", o, one.size)
		}
		for i := range one.links {
			if !bytes.Equal(one.links[i].data, many.links[i].data) {
				t.Errorf("%+v: link %d differs", o, i)
			}
		}
	}
}

// A compaction drains its redo log several times, and replaying the parts gives the same filter.
func TestCompactionDrains(t *testing.T) {
	const slots = 1 << 18 // of each link; the first is empty, the second full
	le := binary.LittleEndian
	var header []byte
	for _, n := range []uint64{slots, slots / 2, 0, 2} {
		header = le.AppendUint64(header, n)
	}
	for _, n := range []uint16{2, 20, 1} {
		header = le.AppendUint16(header, n)
	}
	var filters [2]*Cuckoo
	for i := range filters {
		f, err := ParseCuckoo(header, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Load(2*slots+1, bytes.Repeat([]byte{7}, slots)); err != nil {
			t.Fatal(err)
		}
		f.TakeRedo(nil)
		filters[i] = f
	}
	f, again := filters[0], filters[1]
	parts := 0
	replay := func() {
		part := f.TakeRedo(nil)
		if parts++; len(part) > drainBytes+64 {
			t.Errorf("a part has %d bytes", len(part))
		}
		if err := again.Replay(part, 1<<30); err != nil {
			t.Error(err)
		}
	}
	f.Drain = replay
	f.Compact()
	replay()
	if parts < 3 {
		t.Errorf("%d parts", parts)
	}
	if f.Links() != again.Links() || f.Items() != again.Items() || f.Deletes() != again.Deletes() {
		t.Errorf("%d and %d links, %d and %d items, %d and %d deletions", f.Links(), again.Links(), f.Items(), again.Items(), f.Deletes(), again.Deletes())
	}
	for i := range min(f.Links(), again.Links()) {
		if !bytes.Equal(f.Data(i), again.Data(i)) {
			t.Errorf("link %d differs", i)
		}
	}
}

// TestLargerThanAnInt checks that a filter which the system cannot address is too large.
func TestLargerThanAnInt(t *testing.T) {
	if math.MaxInt > math.MaxInt32 {
		t.Skip("64 bits")
	}
	if _, err := NewBloom(BloomOptions{Capacity: 2_000_000_000, Error: 0.01, MaxBytes: 1 << 40}); err != ErrTooLarge {
		t.Errorf("Bloom: %v", err)
	}
	if _, err := NewCuckoo(CuckooOptions{Capacity: 1 << 33, BucketSize: 2, MaxIterations: 20, MaxBytes: 1 << 40}); err != ErrTooLarge {
		t.Errorf("Cuckoo: %v", err)
	}
}
