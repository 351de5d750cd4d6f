package filter

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"strings"
	"testing"
)

// bloomExample is the block over the one key "a" at 10 bits per key.
const bloomExample = `
02 00 00 00 00 00 00 00  00 00 00 08 00 00 00 00
00 00 00 00 00 00 00 00  10 00 00 00 00 00 00 00
00 00 00 04 00 00 00 00  00 00 00 80 00 00 00 00
00 00 00 00 00 00 00 00  10 00 00 00 00 00 00 00
01 00 00 00 06 00 00 00  0c 31 22 13 1a 05 a6 89
`

func TestBloomExample(t *testing.T) {
	w := Bloom(10).NewWriter()
	w.Add(NewKey([]byte("a")))
	units, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(strings.Join(strings.Fields(bloomExample), ""))
	if err != nil {
		t.Fatal(err)
	}
	if len(units) != 1 || !bytes.Equal(units[0], want) {
		t.Errorf("got\n%s", hex.Dump(units[0]))
	}
}

var long = flag.Bool("long", false, "also measure with 10 million and 100 million keys")

// TestBloomFPR checks that the FPR at 10 bits per key is at most 0.97% for any number of keys: by
// the model for up to 100 million keys, and as measured.
func TestBloomFPR(t *testing.T) {
	const most = 0.0097
	for n := 1.0; n <= 1e8; n = math.Ceil(n * 1.6) {
		if s, ok := Expect(Bloom(10), n); !ok || s.FPR > most {
			t.Errorf("%v keys: modeled FPR %.5f", n, s.FPR)
		}
	}
	sizes := []int{1_000_000}
	if *long {
		sizes = append(sizes, 10_000_000, 100_000_000)
	}
	for _, n := range sizes {
		w := Bloom(10).NewWriter()
		var b [9]byte
		key := func(i uint64) Key {
			binary.LittleEndian.PutUint64(b[:], i)
			return NewKey(b[:])
		}
		for i := range n {
			w.Add(key(uint64(i)))
		}
		units, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		r, err := Bloom(10).Open(units)
		if err != nil {
			t.Fatal(err)
		}
		b[8] = 1
		probed, found := 4*n, 0
		for i := range probed {
			if r.MayContain(key(uint64(i))) {
				found++
			}
		}
		// The keys are always the same, and so is the rate.
		if got := float64(found) / float64(probed); got > most {
			t.Errorf("%d keys: measured FPR %.5f", n, got)
		}
		t.Logf("%d keys: %d false positives among %d absent ones; FPR() is %.6f", n, found, probed, r.FPR())
	}
}

func TestBloom(t *testing.T) {
	for _, bits := range []float64{1, 3.3, 10, 20.5, 30} {
		p := Bloom(bits)
		w := p.NewWriter()
		for _, n := range []int{0, 1, 2, 100, 50_000} {
			keys := make([]Key, n)
			for i := range keys {
				keys[i] = NewKey(fmt.Appendf(nil, "key%d", i))
				w.Add(keys[i])
				w.Add(keys[i])
			}
			if w.NumKeys() != n {
				t.Fatalf("%s: %d keys, want %d", p.Name(), w.NumKeys(), n)
			}
			units, err := w.Finish()
			if err != nil {
				t.Fatal(err)
			}
			r, err := p.Open(units)
			if err != nil {
				t.Fatal(err)
			}
			positive := make([]bool, n)
			r.MayContainMany(keys, positive)
			for i, k := range keys {
				if !r.MayContain(k) || !positive[i] {
					t.Fatalf("%s, %d keys: key %d is excluded", p.Name(), n, i)
				}
			}
			if n == 0 && r.MayContain(NewKey(nil)) {
				t.Errorf("%s: the empty filter returns true", p.Name())
			}
		}
	}
}

// TestBloomLengths opens blocks of all lengths whose trailers claim as many lines as fit: only
// whole lines may be accepted.
func TestBloomLengths(t *testing.T) {
	key := NewKey([]byte("a"))
	for size := range 3*64 + 1 {
		for _, probes := range []byte{0, 1, 14, 15} {
			b := make([]byte, size+bloomTrailerSize)
			binary.LittleEndian.PutUint32(b[size:], uint32(size/64))
			b[size+4] = probes
			b = reseal(b)
			want := size > 0 && size%64 == 0 && probes >= 1 && probes <= 14
			if _, err := Bloom(10).Open([][]byte{b}); (err == nil) != want {
				t.Errorf("%d bytes of lines, %d probes: %v", size, probes, err)
			}
			// All bits are zero: a block excludes every key.
			if positive := Bloom(10).(BlockPolicy).MayContainBlock(b, key); positive == want {
				t.Errorf("%d bytes of lines, %d probes: the block returns %v", size, probes, positive)
			}
		}
	}
	for n := range bloomTrailerSize {
		if _, err := Bloom(10).Open([][]byte{make([]byte, n)}); err == nil || !bloomBlockMayContainBytes(make([]byte, n), key.Bytes) {
			t.Errorf("a block of %d bytes is accepted", n)
		}
	}
}

// TestFPRTwice checks that later calls of FPR return the same bits as the first, which computes the
// rate.
func TestFPRTwice(t *testing.T) {
	for _, p := range []Policy{Bloom(10), Bloom(1), RocksDBBloom(10)} {
		for _, keys := range [][]string{nil, {"a"}, {"a", "b", "c"}} {
			r, again := open(t, p, build(t, p, keys...)), open(t, p, build(t, p, keys...))
			want := again.FPR()
			for range 3 {
				if got := r.FPR(); got != want {
					t.Errorf("%s of %d keys: FPR %v, want %v", p.Name(), len(keys), got, want)
				}
			}
		}
	}
}

// TestHashZero checks that a first key whose hash is 0 does not count as a duplicate.
func TestHashZero(t *testing.T) {
	for _, p := range []Policy{Bloom(10), Fuse(8), Ribbon(10)} {
		w := p.NewWriter()
		for range 2 { // it is the first of each filter
			w.Add(Key{})
			w.Add(Key{})
			if w.NumKeys() != 1 {
				t.Errorf("%s: %d keys, want 1", p.Name(), w.NumKeys())
			}
			units, err := w.Finish()
			if err != nil {
				t.Fatal(err)
			}
			if !open(t, p, units).MayContain(Key{}) {
				t.Errorf("%s excludes the key", p.Name())
			}
		}
	}
}
