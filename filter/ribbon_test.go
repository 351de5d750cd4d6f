package filter

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/siftdb/sift/filter/internal/ribbon"
)

// ribbonKeys returns n keys with random hashes.
func ribbonKeys(seed uint64, n int) []Key {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	keys := make([]Key, n)
	for i := range keys {
		keys[i].Hash = rng.Uint64()
	}
	return keys
}

func finish(t testing.TB, p Policy, keys []Key) [][]byte {
	t.Helper()
	w := p.NewWriter()
	for _, k := range keys {
		w.Add(k)
	}
	units, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return units
}

func open(t testing.TB, p Policy, units [][]byte) Reader {
	t.Helper()
	r, err := p.Open(units)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// absentFPR returns the fraction of false positives among n absent keys.
func absentFPR(r Reader, n int) float64 {
	var positive [1024]bool
	hits := 0
	for i := 0; i < n; i += len(positive) {
		r.MayContainMany(ribbonKeys(uint64(i)+1<<40, len(positive)), positive[:])
		for _, m := range positive {
			if m {
				hits++
			}
		}
	}
	return float64(hits) / float64(n)
}

func TestRibbonExample(t *testing.T) {
	const want = "0100000000000000" + "0300000000000000" + "01000000" +
		"0100000000000000" + "02010000" + "ef25d4cc"
	units := build(t, RibbonFPR(0.25), "one", "two", "three")
	if len(units) != 1 || hex.EncodeToString(units[0]) != want {
		t.Errorf("got  %x\nwant %s", units, want)
	}
}

// TestRibbonFlags checks that the flags of a filter tell whether its first layer bumps a whole
// bucket, as it does over consecutive hashes.
func TestRibbonFlags(t *testing.T) {
	consecutive := make([]Key, 2200)
	for i := range consecutive {
		consecutive[i].Hash = uint64(i)
	}
	for _, c := range []struct {
		desc string
		keys []Key
		want byte
	}{{"consecutive", consecutive, 1}, {"random", ribbonKeys(1, 2200), 0}} {
		units := finish(t, RibbonFPR(0.5), c.keys)
		if got := units[0][len(units[0])-ribbonTrailerSize+11]; len(units) != 1 || got != c.want {
			t.Errorf("%s hashes: %d units, flags %d, want %d", c.desc, len(units), got, c.want)
		}
		if err := verify(open(t, RibbonFPR(0.5), units), c.keys); err != nil {
			t.Errorf("%s hashes: %v", c.desc, err)
		}
	}
}

// TestRibbonPortable pins the bytes of filters with several layers, chunks and units,
// which are the same on every machine.
func TestRibbonPortable(t *testing.T) {
	for _, c := range []struct {
		p     Policy
		keys  int
		units int
		want  uint64
	}{
		{Ribbon(10), 0, 1, 0xbf4255fee81e9a8},
		{Ribbon(10), 3000, 1, 0x7e1a169f98c0acff},
		{Ribbon(7.3), 40_000, 2, 0x20154be5567ca212},
		{RibbonFPR(0.001), 200_000, 3, 0x24e266c6533fe197},
	} {
		units := finish(t, c.p, ribbonKeys(1, c.keys))
		sum := xxhash.Sum64(bytes.Join(units, nil))
		if len(units) != c.units || sum != c.want {
			t.Errorf("%s, %d keys: %d units, checksum %#x, want %d, %#x", c.p.Name(), c.keys, len(units), sum, c.units, c.want)
		}
	}
}

// TestRibbonSplit checks that filters have several units once the columns take ribbonSplit bytes,
// each of 4 columns except the last, which has 2 to 5.
func TestRibbonSplit(t *testing.T) {
	segments := func(n int) int {
		s, _, _ := ribbon.Estimate(n).Sizes()
		return int(s)
	}
	const want = ribbonSplit / 8 / 8 // with 8 columns
	first := sort.Search(30_000, func(n int) bool { return segments(n) >= want })
	if segments(first) != want || segments(first-1) >= want {
		t.Fatalf("%d keys have %d segments", first, segments(first))
	}
	for _, c := range []struct {
		p     Policy
		n     int
		units []int // columns
	}{
		{RibbonFPR(1.0 / 256), first - 1, []int{8}},
		{RibbonFPR(1.0 / 256), first, []int{4, 4}},
		{RibbonFPR(1.0 / 16), 50_000, []int{4}},
		{RibbonFPR(1.0 / 32), 50_000, []int{5}},
		{RibbonFPR(1.0 / 64), 50_000, []int{4, 2}},
		{RibbonFPR(1.0 / 512), 50_000, []int{4, 5}},
		{Ribbon(1), 0, []int{1}},
		{Ribbon(20), 2075, []int{20}}, // 20 bits per key would be 20.15 columns
		{Ribbon(20), 50_000, []int{4, 4, 4, 4, 4}},
	} {
		var got []int
		for _, columns := range c.p.(ribbonPolicy).columns(c.n) {
			got = append(got, columns.Count)
		}
		if !slices.Equal(got, c.units) {
			t.Errorf("%s, %d keys: units of %v columns, want %v", c.p.Name(), c.n, got, c.units)
		}
	}
	// From this size on, space is reserved for the trailers of several units.
	const n = 8 * ribbonSplit / 8
	before, at := Ribbon(8).(ribbonPolicy).columns(n-1), Ribbon(8).(ribbonPolicy).columns(n)
	if more := at[len(at)-1].Cut - before[len(before)-1].Cut; more < 3 {
		t.Errorf("at %d keys %d more segments have one column fewer, want 3 or more", n, more)
	}
}

// TestRibbonBlockCounts checks that joined units whose count is wrong or whose parts contradict
// each other exclude no key, and that a filter over no keys excludes all.
func TestRibbonBlockCounts(t *testing.T) {
	empty := finish(t, Ribbon(10), nil)[0]
	unit := func(layers []byte, segments uint32, body int) []byte {
		u := append(make([]byte, body), layers...)
		return append(binary.LittleEndian.AppendUint32(u, segments), 0, 0, 0, 0, 1, byte(len(layers)/4), 0, 0, 0, 0, 0, 0)
	}
	for _, c := range []struct {
		desc  string
		unit  []byte
		count byte
		want  bool
	}{
		{"no keys", empty, 1, false},
		{"no keys, no units", empty, 0, true},
		{"no keys, two units of which one is missing", empty, 2, true},
		{"no keys, the maximum number of units", empty, maxRibbonUnits, true},
		{"no keys, one unit too many", empty, maxRibbonUnits + 1, true},
		{"no keys, but columns", unit(nil, 0, 8), 1, true},
		{"no keys, but segments", unit(nil, 1, 0), 1, true},
		{"nine layers", unit(make([]byte, 36), 0, 64), 1, true},
		{"a layer without segments", unit(make([]byte, 4), 0, 64), 1, true},
		{"layers without segments", unit(make([]byte, 8), 0, 64), 1, true},
	} {
		block, err := JoinUnits([][]byte{c.unit})
		if err != nil {
			t.Fatal(err)
		}
		block[len(block)-8] = c.count
		for i := range byte(20) {
			key := []byte{i}
			if got := ribbonMayContainBlock(block, NewKey(key)); got != c.want || ribbonBlockMayContainBytes(block, key) != got {
				t.Errorf("%s: key %d is %v", c.desc, i, got)
			}
		}
		if ok := c.count >= 1 && c.count <= maxRibbonUnits; hasRibbonTail(block) != ok {
			t.Errorf("%s: hasRibbonTail is %v", c.desc, !ok)
		}
	}
}

// TestRibbonBlockMayContainBytes checks that a probe for the bytes of a key, of any length, has the
// result of a probe for the key.
func TestRibbonBlockMayContainBytes(t *testing.T) {
	var keys []Key
	key := func(n, i int) []byte { return append(fmt.Appendf(nil, "%03d", i), make([]byte, n)...) }
	const n = 20_000 // enough for several layers
	for i := range n {
		keys = append(keys, NewKey(key(i%40, i)))
	}
	block, err := JoinUnits(finish(t, Ribbon(8), keys))
	if err != nil {
		t.Fatal(err)
	}
	excluded := 0
	for i := range 300 {
		i += n - 150
		k := key(i%40, i)
		may := ribbonMayContainBlock(block, NewKey(k))
		if ribbonBlockMayContainBytes(block, k) != may || !may && i < n {
			t.Errorf("key %d: %t, by its bytes %t", i, may, !may)
		}
		if !may {
			excluded++
		}
	}
	if excluded < 120 {
		t.Errorf("only %d of 150 absent keys are excluded", excluded)
	}
}

// TestRibbonBlockOfShortUnits checks that a unit after a trimmed one is not probed, since its
// columns are unknown.
func TestRibbonBlockOfShortUnits(t *testing.T) {
	p := Ribbon(8)
	keys := ribbonKeys(21, 30_000)
	units := finish(t, p, keys)
	short, err := Trim(nil, p.Family(), units[:1], 2)
	if err != nil {
		t.Fatal(err)
	}
	block, err := JoinUnits([][]byte{short, units[1]})
	if err != nil {
		t.Fatal(err)
	}
	positives := 0
	const probed = 2000
	for i, k := range slices.Concat(keys[:probed], ribbonKeys(22, probed)) {
		if ribbonMayContainBlock(block, k) {
			positives++
		} else if i < probed {
			t.Fatalf("key %d is excluded", i)
		}
	}
	if positives < probed+probed/5 {
		t.Errorf("%d of %d absent keys may be contained: a plane with unknown columns was probed", positives-probed, probed)
	}
}

// TestRibbonSize compares sizes with the information-theoretic limit, and with the bits per
// key or the FPR of the policy.
func TestRibbonSize(t *testing.T) {
	for _, c := range []struct {
		keys              int
		powerOfTwo, other float64 // times the limit, by the FPR
		bits              float64 // times the bits per key
	}{
		{2000, 1.036, 1.049, 1.001},
		{10_000, 1.018, 1.03, 1.007},
		{100_000, 1.005, 1.017, 1.001},
		{1_000_000, 1.0033, 1.015, 1},
	} {
		if c.keys > 100_000 && testing.Short() {
			continue
		}
		keys := ribbonKeys(2, c.keys)
		for _, p := range []ribbonPolicy{
			{fpr: 1.0 / 128}, {fpr: 1.0 / 256}, {fpr: 1.0 / 1024}, {fpr: 1.0 / (1 << 14)},
			{fpr: 0.01}, {fpr: 0.003}, {fpr: 0.001}, {fpr: 0.0001},
			{bitsPerKey: 7}, {bitsPerKey: 10}, {bitsPerKey: 13.5}, {bitsPerKey: 20},
		} {
			units := finish(t, p, keys)
			r := open(t, p, units)
			bits, limit := float64(r.SizeBytes()*8)/float64(c.keys), -math.Log2(r.FPR())
			t.Logf("%-26s %8d keys, %d units: %7.4f bits per key, FPR %.6f%%, %.4f × the limit",
				p.Name(), c.keys, len(units), bits, 100*r.FPR(), bits/limit)
			over := c.other
			if frac, _ := math.Frexp(p.fpr); frac == 0.5 {
				over = c.powerOfTwo
			}
			if bits > over*limit {
				t.Errorf("%s, %d keys: %.4f bits per key, %.4f × the limit, want %.4f", p.Name(), c.keys, bits, bits/limit, over)
			}
			if p.fpr != 0 && r.FPR() > p.fpr*1.002 {
				t.Errorf("%s, %d keys: FPR %.5f%%", p.Name(), c.keys, 100*r.FPR())
			}
			if bits > p.bitsPerKey*c.bits && p.fpr == 0 {
				t.Errorf("%s, %d keys: %.4f bits per key", p.Name(), c.keys, bits)
			}
		}
	}
	// 10 bits per key.
	p := Ribbon(10)
	if fpr := absentFPR(open(t, p, finish(t, p, ribbonKeys(3, 100_000))), 1<<21); fpr > 0.00108 {
		t.Errorf("10 bits per key: FPR %.4f%%", 100*fpr)
	}
}

// TestRibbonUnits opens every prefix of the units: it must exclude no key and have the expected
// FPR. Other combinations of units must be rejected.
func TestRibbonUnits(t *testing.T) {
	const n = 50_000
	keys := ribbonKeys(4, n)
	p := RibbonFPR(0.0003)
	units := finish(t, p, keys)
	if len(units) != 3 {
		t.Fatalf("%d units, want 3", len(units))
	}
	for k := 1; k <= len(units); k++ {
		r := open(t, p, units[:k])
		if err := verify(r, keys); err != nil {
			t.Fatalf("%d units: %v", k, err)
		}
		want := math.Exp2(-4 * float64(k))
		if k == len(units) {
			want = 0.0003
		}
		if got := r.FPR(); math.Abs(got-want) > 0.002*want {
			t.Errorf("%d units: FPR() is %.6f, want %.6f", k, got, want)
		}
		const probed = 1 << 20
		got := absentFPR(r, probed)
		if dev := (got - want) / math.Sqrt(want/probed); math.Abs(dev) > 5 {
			t.Errorf("%d units: measured FPR %.6f, want %.6f: %.1f standard deviations", k, got, want, dev)
		}
		size := 0
		for _, u := range units[:k] {
			size += len(u)
		}
		if r.SizeBytes() != size {
			t.Errorf("%d units: size %d, want %d", k, r.SizeBytes(), size)
		}
	}

	other := finish(t, p, ribbonKeys(5, n))
	coarse := finish(t, RibbonFPR(0.01), keys)
	for _, c := range []struct {
		desc  string
		units [][]byte
	}{
		{"no units", nil},
		{"without unit 0", units[1:]},
		{"without unit 1", [][]byte{units[0], units[2]}},
		{"in another order", [][]byte{units[0], units[2], units[1]}},
		{"unit 0 twice", [][]byte{units[0], units[0]}},
		{"a unit of other keys", [][]byte{units[0], other[1]}},
		{"another unit 0", [][]byte{other[0], units[1], units[2]}},
		{"a unit after the last one", [][]byte{coarse[0], coarse[1], units[2]}},
		{"one too many", append(slices.Clone(units), units[2])},
		{"far too many", slices.Repeat(units, 10)},
	} {
		if _, err := p.Open(c.units); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", c.desc, err)
		}
	}
	// The first unit depends on the keys, not on the number of columns.
	if !bytes.Equal(units[0], coarse[0]) {
		t.Error("unit 0 depends on the columns of later units")
	}
	open(t, p, [][]byte{coarse[0], units[1], units[2]})
}

func TestRibbonResize(t *testing.T) {
	p := Ribbon(10)
	keys, others := ribbonKeys(6, 20_000), ribbonKeys(7, 20_000)
	units := finish(t, p, keys)
	all := open(t, p, units).(Resizer)
	r := all
	for _, n := range []int{1, 3, 2, 1, 2, 3} {
		next, err := r.Resize(units[:n])
		if err != nil {
			t.Fatal(err)
		}
		r = next.(Resizer)
		if err := verify(r, keys); err != nil {
			t.Fatalf("%d units: %v", n, err)
		}
		if want := open(t, p, units[:n]); r.FPR() != want.FPR() || r.SizeBytes() != want.SizeBytes() {
			t.Errorf("%d units: FPR %v, size %d, want %v, %d", n, r.FPR(), r.SizeBytes(), want.FPR(), want.SizeBytes())
		}
	}
	if err := verify(all, keys); err != nil {
		t.Error(err)
	}
	first, err := all.Resize(units[:1])
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(units[1])
	flipped[100] ^= 4
	other := finish(t, p, others)
	for _, bad := range [][][]byte{nil, {units[0], flipped}, {units[0], other[1]}, {other[0], units[1]}, {flipped}} {
		for _, r := range []Reader{all, first} {
			if _, err := r.(Resizer).Resize(bad); !errors.Is(err, ErrDamaged) {
				t.Errorf("Resize to %d bad units: %v", len(bad), err)
			}
		}
	}
	// All units of another filter are accepted.
	if next, err := all.Resize(other); err != nil {
		t.Error(err)
	} else if err := verify(next, others); err != nil {
		t.Error(err)
	}
	// Dropping a unit does not read the others.
	if n := testing.AllocsPerRun(10, func() {
		if _, err := all.Resize(units[:2]); err != nil {
			t.Fatal(err)
		}
	}); n > 5 {
		t.Errorf("%v allocations", n)
	}
}

// resealRibbon gives unit i a valid checksum, in a filter whose unit 0 is first.
func resealRibbon(unit, first []byte, i int) []byte {
	if len(unit) < ribbonTrailerSize || i > 0 && len(first) < ribbonTrailerSize {
		return unit
	}
	unit = bytes.Clone(unit)
	seed := uint32(0)
	if i > 0 {
		seed = binary.LittleEndian.Uint32(first[len(first)-ribbonSumSize:])
	}
	end := len(unit) - ribbonSumSize
	binary.LittleEndian.PutUint32(unit[end:], ribbonSum(unit[:end], seed))
	return unit
}

// TestRibbonContradictions damages filters and gives them valid checksums: Open must reject them.
func TestRibbonContradictions(t *testing.T) {
	p := Ribbon(6)
	good := finish(t, p, ribbonKeys(8, 40_000))
	if len(good) != 2 {
		t.Fatalf("%d units, want 2", len(good))
	}
	trailer := func(u []byte) []byte { return u[len(u)-ribbonTrailerSize:] }
	le := binary.LittleEndian
	for _, c := range []struct {
		desc   string
		unit   int
		damage func(u []byte) []byte
	}{
		{"one segment more", 0, func(u []byte) []byte { le.PutUint32(trailer(u), le.Uint32(trailer(u))+1); return u }},
		{"one segment fewer", 1, func(u []byte) []byte { le.PutUint32(trailer(u), le.Uint32(trailer(u))-1); return u }},
		{"cut in unit 0", 0, func(u []byte) []byte { trailer(u)[4] = 1; return u[8:] }},
		{"cut above the segments", 1, func(u []byte) []byte { le.PutUint32(trailer(u)[4:], 1e9); return u }},
		{"cut with all bits set", 1, func(u []byte) []byte { le.PutUint32(trailer(u)[4:], math.MaxUint32); return u }},
		{"no columns", 0, func(u []byte) []byte { trailer(u)[8] = 0; return u }},
		{"three columns, and a unit after them", 0, func(u []byte) []byte {
			s := int(le.Uint32(trailer(u)))
			trailer(u)[8] = 3
			return u[8*s:]
		}},
		{"more columns than a fingerprint has", 1, func(u []byte) []byte {
			s := int(le.Uint32(trailer(u)))
			trailer(u)[8] = ribbon.MaxColumns - 3
			le.PutUint32(trailer(u)[4:], 0)
			return append(make([]byte, 8*s*(ribbon.MaxColumns-3)), u[len(u)-ribbonTrailerSize-int(trailer(u)[9])*4:]...)
		}},
		{"no layers", 0, func(u []byte) []byte { trailer(u)[9] = 0; return u }},
		{"nine layers", 0, func(u []byte) []byte { trailer(u)[9] = 9; return u }},
		{"255 layers", 1, func(u []byte) []byte { trailer(u)[9] = 255; return u }},
		{"the number of another unit", 1, func(u []byte) []byte { trailer(u)[10] = 2; return u }},
		{"unknown flags", 1, func(u []byte) []byte { trailer(u)[11] = 2; return u }},
		{"the wrong flag", 0, func(u []byte) []byte { trailer(u)[11] ^= 1; return u }},
		{"another flag than unit 0", 1, func(u []byte) []byte { trailer(u)[11] ^= 1; return u }},
		{"a huge first layer", 0, func(u []byte) []byte {
			le.PutUint32(u[len(u)-ribbonTrailerSize-int(trailer(u)[9])*4:], math.MaxUint32)
			return u
		}},
		{"an empty first layer", 0, func(u []byte) []byte {
			le.PutUint32(u[len(u)-ribbonTrailerSize-int(trailer(u)[9])*4:], 0)
			return u
		}},
		{"a last layer with one segment more", 0, func(u []byte) []byte { u[len(u)-ribbonTrailerSize-4]++; return u }},
		{"other layers", 1, func(u []byte) []byte { u[len(u)-ribbonTrailerSize-4]++; return u }},
		{"columns cut short", 0, func(u []byte) []byte { return u[32:] }},
		{"columns cut short", 1, func(u []byte) []byte { return u[1:] }},
		{"one byte of thresholds", 0, func(u []byte) []byte { return u[len(u)-ribbonTrailerSize-int(trailer(u)[9])*4-1:] }},
		{"only a trailer", 1, func(u []byte) []byte { return trailer(u) }},
		{"half a trailer", 1, func(u []byte) []byte { return u[len(u)-8:] }},
	} {
		units := [][]byte{bytes.Clone(good[0]), bytes.Clone(good[1])}
		units[c.unit] = c.damage(units[c.unit])
		units[0] = resealRibbon(units[0], nil, 0)
		units[1] = resealRibbon(units[1], units[0], 1)
		if _, err := p.Open(units); !errors.Is(err, ErrDamaged) {
			t.Errorf("unit %d with %s: %v", c.unit, c.desc, err)
		}
		if c.unit == 0 && c.desc != "three columns, and a unit after them" && c.desc != "cut in unit 0" {
			if _, err := p.Open(units[:1]); !errors.Is(err, ErrDamaged) {
				t.Errorf("unit 0 alone with %s: %v", c.desc, err)
			}
		}
		// A probe of the block must not panic; it does not compare unit 1 with unit 0.
		block, err := JoinUnits(units)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range ribbonKeys(9, 300) {
			p.(BlockPolicy).MayContainBlock(block, k)
		}
	}
}

// TestRibbonBlock compares the answers of a block with those of its reader.
func TestRibbonBlock(t *testing.T) {
	for _, p := range []Policy{Ribbon(1), RibbonFPR(1.0 / 16), Ribbon(6), RibbonFPR(0.001), Ribbon(20)} {
		bp := p.(BlockPolicy)
		if bp.BlockFamily() == p.Family() {
			t.Errorf("the block family of %s is its family", p.Name())
		}
		for _, n := range []int{0, 1, 3, 500, 5000, 30_000, 200_000} {
			keys := ribbonKeys(10, n)
			units := finish(t, p, keys)
			r := open(t, p, units)
			block, err := JoinUnits(units)
			if err != nil {
				t.Fatal(err)
			}
			for i, k := range keys[:min(n, 20_000)] {
				if !bp.MayContainBlock(block, k) {
					t.Fatalf("%s: key %d of %d is excluded", p.Name(), i, n)
				}
			}
			absent := ribbonKeys(11, 20_000)
			for _, k := range absent {
				if got, want := bp.MayContainBlock(block, k), r.MayContain(k); got != want {
					t.Fatalf("%s, %d keys: hash %016x is %v in the block, %v in the reader", p.Name(), n, k.Hash, got, want)
				}
			}
			i := 0
			if n := testing.AllocsPerRun(100, func() { bp.MayContainBlock(block, absent[i]); i++ }); n != 0 {
				t.Errorf("%s: %v allocations", p.Name(), n)
			}
		}
	}
}

// TestRibbonBlockDamage checks that truncated blocks exclude no key, and that corrupt ones cause no
// panic.
func TestRibbonBlockDamage(t *testing.T) {
	for _, n := range []int{0, 1, 2100, 40_000} {
		p := Ribbon(6).(BlockPolicy)
		keys := ribbonKeys(12, n)
		probed := append(ribbonKeys(13, 20), keys[:min(n, 20)]...)
		block, err := JoinUnits(finish(t, p, keys))
		if err != nil {
			t.Fatal(err)
		}
		for cut := range len(block) {
			if cut > 200 && cut < len(block)-200 && cut%97 != 0 {
				continue
			}
			for _, k := range probed {
				if !p.MayContainBlock(block[:cut], k) {
					t.Fatalf("%d keys: the first %d of %d bytes exclude a key", n, cut, len(block))
				}
			}
		}
		for i := range block {
			if i > 200 && i < len(block)-300 && i%97 != 0 {
				continue
			}
			for _, flip := range []byte{1, 2, 4, 8, 16, 32, 64, 128, 255} {
				block[i] ^= flip
				for _, k := range probed {
					p.MayContainBlock(block, k)
				}
				block[i] ^= flip
			}
		}
	}
}

func TestRibbonNames(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, b := range []float64{-inf, -1, 0, 1, 1.5, 7.1, 10, 19.99, 20, 21, inf, nan, 1.0 / 3} {
		for _, p := range []Policy{Ribbon(b), RibbonFPR(b), RibbonFPR(math.Exp2(-b)), RibbonFPR(0.001 * b)} {
			if again, err := Parse(p.Name()); err != nil || again != p {
				t.Errorf("Parse(%q) = %v, %v", p.Name(), again, err)
			}
		}
	}
	for _, name := range []string{"ribbon(8)", "ribbon(fpr=0.001)", " ribbon( fpr=1e-3 )"} {
		if _, err := Parse(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"ribbon", "ribbon()", "ribbon(0.5)", "ribbon(20.1)", "ribbon(fpr)", "ribbon(fpr=)", "ribbon(fpr=0.6)",
		"ribbon(fpr=0)", "ribbon(fpr=1e-7)", "ribbon(fpr=NaN)", "ribbon(8,fpr=0.1)", "ribbon(bits=8)"} {
		if p, err := Parse(name); err == nil {
			t.Errorf("Parse(%q) = %s", name, p.Name())
		}
	}
}

// FuzzRibbon opens bytes as joined units, as they are and with valid checksums.
func FuzzRibbon(f *testing.F) {
	p := Ribbon(10)
	for _, n := range []int{0, 1, 100, 2100, 20_000} {
		units := finish(f, p, ribbonKeys(1, n))
		for k := 1; k <= len(units); k++ {
			block, err := JoinUnits(units[:k])
			if err != nil {
				f.Fatal(err)
			}
			f.Add(block)
			f.Add(block[:len(block)/2])
			f.Add(append(bytes.Clone(block[8:]), 0))
		}
	}
	keys := ribbonKeys(2, 70)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, k := range keys {
			p.(BlockPolicy).MayContainBlock(b, k)
		}
		units, err := SplitUnits(b)
		if err != nil {
			units = [][]byte{b}
		}
		fuzzRibbonOpen(t, units, keys)
		for i := range units {
			units[i] = resealRibbon(units[i], units[0], i)
		}
		fuzzRibbonOpen(t, units, keys)
	})
}

func fuzzRibbonOpen(t *testing.T, units [][]byte, keys []Key) {
	r, err := Ribbon(10).Open(units)
	if err != nil {
		if !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		return
	}
	positive := make([]bool, len(keys))
	r.MayContainMany(keys, positive)
	block, err := JoinUnits(units)
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range keys {
		if r.MayContain(k) != positive[i] {
			t.Fatalf("MayContain and MayContainMany differ for key %d", i)
		}
		if Ribbon(10).(BlockPolicy).MayContainBlock(block, k) != positive[i] {
			t.Fatalf("MayContain and MayContainBlock differ for key %d", i)
		}
	}
	if fpr := r.FPR(); !(fpr >= 0 && fpr <= 1) {
		t.Fatalf("FPR %v", fpr)
	}
}

// FuzzRibbonKeys checks that filters over hashes cut out of the input exclude none of them.
func FuzzRibbonKeys(f *testing.F) {
	f.Add([]byte("hashes, hashes, and more of them."), 0.01, uint8(1))
	f.Add(make([]byte, 200), 0.4, uint8(100))
	f.Fuzz(func(t *testing.T, b []byte, fpr float64, times uint8) {
		var keys []Key
		for ; len(b) >= 8; b = b[8:] {
			h := binary.LittleEndian.Uint64(b)
			for i := range uint64(times) {
				keys = append(keys, Key{Hash: h + i<<(h%64)})
			}
		}
		p := RibbonFPR(fpr)
		if err := verify(open(t, p, finish(t, p, keys)), keys); err != nil {
			t.Fatal(err)
		}
	})
}
