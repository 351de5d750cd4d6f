package filter

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestJoinUnits(t *testing.T) {
	block, err := JoinUnits([][]byte{[]byte("ab"), []byte("c")})
	if err != nil {
		t.Fatal(err)
	}
	const want = "63" + "0000000000000000000000000000000000000000000000" + "0100000000000000" +
		"6162" + "2000000000000000" + "020000006a756e74"
	if got := hex.EncodeToString(block); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	units, err := SplitUnits(block)
	if err != nil || len(units) != 2 || string(units[0]) != "ab" || string(units[1]) != "c" {
		t.Errorf("split gives %q, %v", units, err)
	}
	for n := range len(block) {
		if units, err := SplitUnits(block[:n]); err == nil {
			t.Errorf("the first %d bytes split into %q", n, units)
		}
	}
	for i := range block {
		b := bytes.Clone(block)
		for _, flip := range []byte{0x01, 0x80, 0xff} {
			b[i] = block[i] ^ flip
			units, err := SplitUnits(b)
			if err != nil {
				continue
			}
			again, err := JoinUnits(units)
			if err != nil || !bytes.Equal(again, b) {
				t.Errorf("byte %d flipped: split into %q, which join to other bytes", i, units)
			}
		}
	}
	if _, err := JoinUnits(nil); err == nil {
		t.Error("JoinUnits joins no units")
	}
	if _, err := JoinUnits(make([][]byte, 65)); err == nil {
		t.Error("JoinUnits joins 65 units")
	}
}

// TestJoinUnitsBounds joins units whose lengths are just below and above what fits before the next
// one, and checks where unit 0 and the block end, which are part of the format.
func TestJoinUnitsBounds(t *testing.T) {
	for _, c := range []struct {
		lengths    []int
		begin, end int
	}{
		{[]int{0}, 0, 0},
		{[]int{5}, 0, 5},
		{[]int{0, 0}, 32, 32},
		{[]int{0, 1}, 32, 32},
		{[]int{1, 23}, 32, 33},
		{[]int{0, 24}, 32, 32},
		{[]int{0, 25}, 64, 64},
		{[]int{3, 32}, 64, 67},
		{[]int{2, 0, 16}, 64, 66},
		{[]int{2, 16, 32}, 64, 66},
		{[]int{2, 17, 32}, 96, 98},
		{make([]int, 64), 512, 512}, // 63 ends
	} {
		units := make([][]byte, len(c.lengths))
		for i, n := range c.lengths {
			units[i] = bytes.Repeat([]byte{byte(i + 1)}, n)
		}
		block, err := JoinUnits(units)
		if err != nil {
			t.Fatal(err)
		}
		if begin := int(binary.LittleEndian.Uint64(block[len(block)-joinedTrailer:])); begin != c.begin || len(block) != c.end+joinedTrailer {
			t.Errorf("%v: unit 0 begins at %d and ends at %d, want %d and %d", c.lengths, begin, len(block)-joinedTrailer, c.begin, c.end)
		}
		got, err := SplitUnits(block)
		if err != nil || !slices.EqualFunc(got, units, bytes.Equal) {
			t.Errorf("%v: split gives %q, %v", c.lengths, got, err)
		}
	}
}

func TestSplitUnitsRejects(t *testing.T) {
	joined := func(n int) []byte {
		units := make([][]byte, n)
		units[n-1] = []byte("c")
		block, err := JoinUnits(units)
		if err != nil {
			t.Fatal(err)
		}
		return block
	}
	trailer := func(b []byte) []byte { return b[len(b)-joinedTrailer:] }
	for _, c := range []struct {
		desc  string
		block []byte
	}{
		{"nothing", nil},
		{"half a trailer", trailer(joined(1))[8:]},
		{"count 0", func() []byte { b := joined(1); trailer(b)[8] = 0; return b }()},
		{"count 65", func() []byte {
			b := append(make([]byte, 512), joined(1)[1:]...) // 65 empty units, 64 ends
			binary.LittleEndian.PutUint64(trailer(b), 512)
			trailer(b)[8] = 65
			return b
		}()},
		{"unit 0 past the end", func() []byte { b := joined(1); trailer(b)[0] = 2; return b }()},
		{"unit 0 later than necessary", func() []byte {
			b := slices.Insert(joined(2), 1, make([]byte, 32)...)
			trailer(b)[0] += 32
			return b
		}()},
		{"unit 0 within the ends", func() []byte { b := joined(2); trailer(b)[0] = 7; return b }()},
	} {
		if units, err := SplitUnits(c.block); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %d units, %v", c.desc, len(units), err)
		}
	}
	// The error names the units.
	b := joined(2)
	b[20] = 1
	if _, err := SplitUnits(b); err == nil || !strings.Contains(err.Error(), "between units 0 and 1 of 2") {
		t.Errorf("bytes between units: %v", err)
	}
}

// TestBytes probes readers and blocks for keys of all lengths, hashed and not: the
// answers are the same, even from truncated and corrupt blocks.
func TestBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var keys [][]byte
	for n := range 300 {
		for range 20 {
			k := make([]byte, n)
			for i := range k {
				k[i] = byte(rng.Uint32())
			}
			keys = append(keys, k)
		}
	}
	for _, p := range []Policy{Bloom(4), Bloom(10), Bloom(20), Fuse(8), Fuse(5), Ribbon(3), Ribbon(10), RibbonFPR(0.001), RocksDBBloom(10)} {
		w := p.NewWriter()
		for i := 0; i < len(keys); i += 2 {
			w.Add(NewKey(keys[i]))
		}
		units, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Open(units)
		if err != nil {
			t.Fatal(err)
		}
		bp := p.(BlockPolicy)
		block := units[0]
		if bp.BlockFamily() != bp.Family() {
			if block, err = JoinUnits(units); err != nil {
				t.Fatal(err)
			}
		}
		mayContain := BlockDecoder(bp.BlockFamily())
		found := 0
		for i, k := range keys {
			want := r.MayContain(NewKey(k))
			a, b, c := r.(BytesReader).MayContainBytes(k), bp.MayContainBlock(block, NewKey(k)), mayContain(block, k)
			if a != want || b != want || c != want || !want && (i%2 == 0 || len(k) == 0) {
				t.Fatalf("%s, key %d of %d bytes: the reader returns %v, %v for bytes, the block %v, %v for bytes", p.Name(), i, len(k), want, a, b, c)
			}
			if want {
				found++
			}
		}
		if found > len(keys)*3/4 {
			t.Errorf("%s: %d of %d keys may be contained", p.Name(), found, len(keys))
		}
		for n := range 100 {
			for _, k := range keys[n*50 : n*50+50] {
				if got, want := mayContain(block[:len(block)-n-1], k), bp.MayContainBlock(block[:len(block)-n-1], NewKey(k)); got != want {
					t.Fatalf("%s, without the last %d bytes: %v, want %v", p.Name(), n+1, got, want)
				}
				b := bytes.Clone(block)
				b[len(b)-1-n] ^= byte(1 + rng.IntN(255))
				if got, want := mayContain(b, k), bp.MayContainBlock(b, NewKey(k)); got != want {
					t.Fatalf("%s, byte %d from the end changed: %v, want %v", p.Name(), n+1, got, want)
				}
			}
		}
		if mayContain(nil, nil) != true || mayContain(nil, keys[200]) != true {
			t.Errorf("%s: an empty block excludes a key", p.Name())
		}
	}
	if BlockDecoder("sift.Other") != nil {
		t.Error("BlockDecoder knows an unknown family")
	}
}
