package filter

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// rangeOver returns a filter over places in a universe of r.
func rangeOver(t *testing.T, r uint64, p rangePolicy, places ...uint64) *rangeReader {
	t.Helper()
	f, err := p.Open(appendRange(places, &rangeHash{universe: r}, p))
	if err != nil {
		t.Fatal(err)
	}
	return f.(*rangeReader)
}

// TestRangeKeyedFormat checks the bytes of the filter over 1, 2 and 100 with an empty prefix at 4
// bits per key, under the secret 00 01 .. 0f with a salt of 1: places 4, 10 and 11 of 12.
func TestRangeKeyedFormat(t *testing.T) {
	const want = "1a00000000000000" + // upper
		"3800000000000000" + // lower
		"0300000000000000" + "0c00000000000000" + // n, r
		"0100000000000000" + "8bf68f01f7b2a59d" + // salt, check
		"02000100" + "dd4e1555"
	s := countedSecret()
	h := rangeHash{universe: 12, salt: 1, secret: &s}
	numbers := []uint64{1, 2, 100}
	var places []uint64
	for _, x := range numbers {
		places = append(places, h.place(h.prefix(nil), x))
	}
	slices.Sort(places)
	block := appendRange(places, &h, rangePolicy{bits: 4})
	if got := hex.EncodeToString(block); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	written, err := hex.DecodeString(want)
	if err != nil {
		t.Fatal(err)
	}
	r, err := keyedRangePolicy{rangePolicy{bits: 4}, &s}.Open(written)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range numbers {
		if !r.MayContainRange(nil, x, x) {
			t.Errorf("%d is excluded", x)
		}
	}
}

// TestRangeExhaustive compares small filters with the list of their places, for all ranges: places
// far apart and in clusters, at the ends of the universe and of words.
func TestRangeExhaustive(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, c := range []struct {
		r      uint64
		bits   int
		places []uint64
	}{
		{1, 4, []uint64{0}},
		{4, 4, []uint64{0, 1, 2, 3}},
		{12, 4, []uint64{3, 8, 9}},
		{13, 4, []uint64{0, 12}},
		{64, 7, []uint64{0, 1, 2, 3, 4, 5, 31, 32, 33, 34, 35, 36, 62, 63}},
		{300, 4, []uint64{0, 299}},
		{700, 4, []uint64{1, 650}},
		{256, 8, nil},
		{300, 5, nil},
	} {
		if c.places == nil {
			for x := range c.r {
				if rng.IntN(3) == 0 {
					c.places = append(c.places, x)
				}
			}
		}
		f := rangeOver(t, c.r, rangePolicy{bits: c.bits}, c.places...)
		if got := slices.Collect(f.places()); !slices.Equal(got, c.places) {
			t.Fatalf("%v of %d: places %v", c.places, c.r, got)
		}
		within := func(lo, hi uint64) bool {
			i, _ := slices.BinarySearch(c.places, lo)
			return i < len(c.places) && c.places[i] <= hi
		}
		for lo := range c.r {
			for hi := lo; hi < c.r; hi++ {
				if got, want := f.any(lo, hi), within(lo, hi); got != want {
					t.Fatalf("%v of %d: any(%d, %d) = %v", c.places, c.r, lo, hi, got)
				}
			}
			for length := range c.r { // often beyond the end of the universe
				end := lo + length
				want := within(lo, min(end, c.r-1)) || end >= c.r && within(0, end-c.r)
				if got := f.from(lo, length); got != want {
					t.Fatalf("%v of %d: from(%d, %d) = %v", c.places, c.r, lo, length, got)
				}
			}
		}
	}
}

// TestRangeAnswersAreExact checks that a range is excluded if and only if the filter holds the
// place of none of its numbers, even across the ends of blocks.
func TestRangeAnswersAreExact(t *testing.T) {
	for _, drop := range []int{0, 3} {
		p := rangePolicy{bits: 6, drop: drop}
		w := p.NewWriter().(*rangeWriter)
		for _, x := range []uint64{0, 5, 99, 100, 4000} {
			w.Add([]byte("p"), x<<drop)
		}
		block, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		opened, err := p.Open(block)
		if err != nil {
			t.Fatal(err)
		}
		f := opened.(*rangeReader)
		taken := map[uint64]bool{}
		for place := range f.places() {
			taken[place] = true
		}
		for place := range f.places() {
			if !taken[place] {
				t.Errorf("the first place is %d", place)
			}
			break
		}
		if f.r != 5<<4 {
			t.Fatalf("the universe is %d", f.r)
		}
		prefix := f.hash.prefix([]byte("p"))
		for lo := range uint64(400) {
			want := false
			for hi := lo; hi <= lo+100; hi++ {
				want = want || taken[f.hash.place(prefix, hi)]
				if got := f.MayContainRange([]byte("p"), lo<<drop, (hi+1)<<drop-1); got != want {
					t.Fatalf("MayContainRange from %d to %d, %d bits dropped: %v", lo, hi, drop, got)
				}
			}
		}
		if f.MayContainRange([]byte("p"), 1<<drop, 0) {
			t.Error("a range that ends before it begins is not excluded")
		}
	}
}

// TestRangeSamples looks up each zero of upper parts of several samples, with places far apart and
// in clusters, and checks that the memory of the samples is counted.
func TestRangeSamples(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for _, c := range []struct {
		desc    string
		r       uint64
		holds   func(place uint64) bool
		samples int
	}{
		{"few", 20_000, func(x uint64) bool { return x%5000 == 1 }, 10},
		{"each", 6000, func(uint64) bool { return true }, 15},
		{"the first", 20_000, func(x uint64) bool { return x < 3000 }, 16},
		{"the last", 20_000, func(x uint64) bool { return x >= 17_000 }, 16},
		{"a third", 12_000, func(uint64) bool { return rng.IntN(3) == 0 }, 14},
	} {
		var places []uint64
		for x := range c.r {
			if c.holds(x) {
				places = append(places, x)
			}
		}
		f := rangeOver(t, c.r, rangePolicy{bits: 4}, places...)
		if len(f.ranks) != c.samples || f.SizeBytes() != len(f.bytes)+4*c.samples {
			t.Errorf("%s: %d samples, %d bytes of memory for %d bytes, want %d samples", c.desc, len(f.ranks), f.SizeBytes(), len(f.bytes), c.samples)
		}
		zeros := uint64(0)
		for pos := range f.upperBits() {
			if f.bytes[pos/8]>>(pos%8)&1 != 0 {
				continue
			}
			zeros++
			if got := f.afterZeros(zeros); got != pos+1 {
				t.Fatalf("%s: %d zeros end at %d, want %d", c.desc, zeros, got, pos+1)
			}
		}
	}
}

func TestRangeHashAdd(t *testing.T) {
	h := rangeHash{universe: 10}
	for a := range uint64(10) {
		for b := range uint64(10) {
			if got := h.add(a, b); got != (a+b)%10 {
				t.Errorf("%d + %d is %d", a, b, got)
			}
		}
	}
}

// TestRangeShape checks sizes around the ends of words.
func TestRangeShape(t *testing.T) {
	for _, c := range []struct {
		n, r         uint64
		l            uint
		upper, lower int
		samples      int // bytes
	}{
		{0, 0, 2, 0, 0, 0},
		{0, 100, 2, 0, 0, 0},
		{32, 32 << 2, 2, 1, 1, 4},   // 64 bits each
		{32, 32<<2 + 1, 2, 2, 1, 4}, // 65 of upper
		{33, 32 << 2, 2, 2, 2, 4},   // 65 and 66
		{256, 256 << 2, 2, 8, 8, 4}, // one sample's bits
		{257, 256 << 2, 2, 9, 9, 8}, // one bit more
		{13, 13 << 5, 5, 1, 2, 4},   // 65 of lower
		{64, 64 << 30, 30, 2, 30, 4},
	} {
		s := newRangeShape(c.n, c.r, c.l)
		if s.upper != c.upper || s.lower != c.lower || s.sampleBytes() != c.samples {
			t.Errorf("%d places of %d in %d bits: %d words, %d words, %d bytes, want %d, %d, %d", c.n, c.r, c.l, s.upper, s.lower, s.sampleBytes(), c.upper, c.lower, c.samples)
		}
	}
}

// TestRangeTrailer opens filters whose trailers are at a bound or beyond it, with matching lengths
// and checksums unless stated otherwise.
func TestRangeTrailer(t *testing.T) {
	le := binary.LittleEndian
	for _, c := range []struct {
		desc string
		n, r uint64
		l    int
		edit func(b, trailer []byte)
		ok   bool
	}{
		{desc: "no places", r: 0, l: 2, ok: true},
		{desc: "no places in a universe of 100", r: 100, l: 2, ok: true},
		{desc: "one place", n: 1, r: 64, l: 2, ok: true},
		{desc: "every place of the universe", n: 8, r: 8, l: 2, ok: true},
		{desc: "more places than the universe", n: 9, r: 8, l: 2},
		{desc: "the fewest bits", n: 4, r: 64, l: 2, ok: true},
		{desc: "one bit", n: 4, r: 64, l: 1},
		{desc: "the most bits", n: 4, r: 64, l: 30, ok: true},
		{desc: "31 bits", n: 4, r: 64, l: 31},
		{desc: "56 bits dropped", n: 4, r: 64, l: 2, edit: func(_, t []byte) { t[33] = 56 }, ok: true},
		{desc: "57 bits dropped", n: 4, r: 64, l: 2, edit: func(_, t []byte) { t[33] = 57 }},
		{desc: "version 2", n: 4, r: 64, l: 2, edit: func(_, t []byte) { t[34] = 2 }},
		{desc: "the zero byte is 1", n: 4, r: 64, l: 2, edit: func(_, t []byte) { t[35] = 1 }},
		{desc: "a salt", n: 4, r: 64, l: 2, edit: func(_, t []byte) { t[16] = 1 }},
		{desc: "a check", n: 4, r: 64, l: 2, edit: func(_, t []byte) { t[24] = 1 }},
		{desc: "one set bit too few", n: 4, r: 64, l: 2, edit: func(b, _ []byte) { b[0] = 0b111 }},
		{desc: "one set bit too many", n: 4, r: 64, l: 2, edit: func(b, _ []byte) { b[0] = 0b11111 }},
		{desc: "a set bit at the last position", n: 4, r: 64, l: 2, edit: func(b, _ []byte) { le.PutUint64(b, 0b111|1<<19) }, ok: true},
		{desc: "a set bit after the last position", n: 4, r: 64, l: 2, edit: func(b, _ []byte) { le.PutUint64(b, 0b111|1<<20) }},
		{desc: "a word filled to its end", n: 32, r: 128, l: 2, ok: true},
	} {
		s := newRangeShape(c.n, c.r, uint(c.l))
		b := make([]byte, s.size())
		for i := range c.n {
			b[i/8] |= 1 << (i % 8)
		}
		trailer := b[len(b)-rangeTrailer:]
		le.PutUint64(trailer, c.n)
		le.PutUint64(trailer[8:], c.r)
		trailer[32], trailer[34] = byte(c.l), rangeVersion
		if c.edit != nil {
			c.edit(b, trailer)
		}
		le.PutUint32(trailer[36:], crc32.Checksum(b[:len(b)-4], castagnoli))
		r, err := Range(10, 0).Open(b)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", c.desc, err)
		}
		if err == nil && r.MayContainRange(nil, 0, ^uint64(0)) != (c.n > 0) {
			t.Errorf("%s: MayContainRange of all numbers is %v", c.desc, c.n == 0)
		}
		if c.desc == "version 2" && err != nil && !strings.HasSuffix(err.Error(), c.desc) {
			t.Errorf("%s: %v", c.desc, err)
		}
	}
	// A word more, or less, than the trailer requires.
	good := appendRange([]uint64{1, 40}, &rangeHash{universe: 64}, rangePolicy{bits: 4})
	for _, b := range [][]byte{slices.Insert(slices.Clone(good), 0, make([]byte, 8)...), slices.Clone(good)[8:]} {
		le.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
		if _, err := Range(10, 0).Open(b); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes instead of %d: %v", len(b), len(good), err)
		}
	}
	// 48 bytes for places that take 48 bytes more than 4 GiB, which is the same in 32 bits.
	b := make([]byte, 48)
	trailer := b[len(b)-rangeTrailer:]
	le.PutUint64(trailer, maxRangeCodes)
	le.PutUint64(trailer[8:], maxRangeCodes<<30+1)
	trailer[32], trailer[34] = 30, rangeVersion
	le.PutUint32(trailer[36:], crc32.Checksum(b[:len(b)-4], castagnoli))
	if _, err := Range(10, 0).Open(b); !errors.Is(err, ErrDamaged) {
		t.Errorf("48 bytes instead of 4 GiB and 48: %v", err)
	}
	for n := range rangeTrailer {
		if _, err := Range(10, 0).Open(make([]byte, n)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// TestRangeTrimBounds trims filters to the same size, to the fewest bits and to fewer. One of them
// has a universe that cannot be halved.
func TestRangeTrimBounds(t *testing.T) {
	even := rangeOver(t, 64, rangePolicy{bits: 6}, 1, 2, 20, 63)
	odd := rangeOver(t, 63, rangePolicy{bits: 6}, 1, 2, 20, 62)
	for _, c := range []struct {
		f    *rangeReader
		bits int
		want string
	}{
		{even, 7, "itself"}, {even, 6, "itself"}, {even, 5, "[1 2 20 31] of 32"}, {even, 4, "[1 2 4 15] of 16"}, {even, 3, "nothing"},
		{odd, 6, "itself"}, {odd, 5, "itself"}, {odd, 3, "nothing"},
	} {
		got := "nothing"
		if f, ok := c.f.Trim(c.bits).(*rangeReader); ok {
			got = fmt.Sprint(slices.Collect(f.places()), " of ", f.r)
			if f == c.f {
				got = "itself"
			}
		}
		if got != c.want {
			t.Errorf("%d places of %d trimmed to %d bits: %s, want %s", c.f.n, c.f.r, c.bits, got, c.want)
		}
	}
}

func TestRangeStepsBounds(t *testing.T) {
	for _, c := range []struct {
		policy string
		length uint64
		want   []int // bits
	}{
		{"range(6)", 1, []int{4, 5, 6}}, // a quarter at 4
		{"range(6)", 2, []int{4, 5, 6}}, // a half
		{"range(6)", 3, []int{5, 6}},
		{"range(6)", 1000, []int{6}}, // the whole filter
		{"range(4)", 1, []int{4}},
		{"keyed(range(5))", 1, []int{4, 5}},
		{"bloom(10)", 1, nil},
	} {
		var got []int
		for _, s := range RangeSteps(c.policy, 1000, c.length) {
			got = append(got, s.BitsPerKey)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s, ranges of %d: %v, want %v", c.policy, c.length, got, c.want)
		}
	}
}

// TestRangeStepsBytes checks the memory of filters over 1,000 keys: some 1,000 zeros and as many
// ones, the lower bits, the trailer and the samples.
func TestRangeStepsBytes(t *testing.T) {
	want := []RangeStep{
		{4, 8*(32+32) + 40 + 4*4, 0.25},
		{5, 8*(32+47) + 40 + 4*4, 0.125},
		{6, 8*(32+63) + 40 + 4*4, 0.0625},
	}
	if got := RangeSteps("range(6)", 1000, 1); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestRangeRateOfLength checks that the FPR counts the units at both ends of a range and those
// between.
func TestRangeRateOfLength(t *testing.T) {
	for _, c := range []struct {
		drop   int
		length uint64
		want   float64 // places
	}{{0, 1, 1}, {0, 2, 2}, {0, 8, 8}, {3, 1, 2}, {3, 8, 2}, {3, 9, 3}, {0, 1 << 60, 32}} {
		f := rangeOver(t, 64, rangePolicy{bits: 6, drop: c.drop}, 1, 2)
		if got := f.FPR(c.length); got != c.want*2/64 {
			t.Errorf("%d bits dropped, ranges of %d: FPR %v, want %v", c.drop, c.length, got, c.want*2/64)
		}
	}
	if got := rangeOver(t, 64, rangePolicy{bits: 6}).FPR(1000); got != 0 {
		t.Errorf("FPR of a filter over no keys: %v", got)
	}
}
