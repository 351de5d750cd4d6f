package filter

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
)

func build(t *testing.T, p Policy, keys ...string) [][]byte {
	t.Helper()
	w := p.NewWriter()
	for _, k := range keys {
		w.Add(NewKey([]byte(k)))
	}
	units, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return units
}

func TestRocksDBExample(t *testing.T) {
	want := make([]byte, 69)
	want[3], want[10], want[17], want[24], want[54], want[60] = 0x40, 0x20, 0x10, 0x08, 0x01, 0x80
	copy(want[64:], "\x06\x01\x00\x00\x00")
	if got := build(t, RocksDBBloom(10), "a"); len(got) != 1 || !bytes.Equal(got[0], want) {
		t.Errorf("got\n%s", hex.Dump(got[0]))
	}
}

func TestRocksDBRejects(t *testing.T) {
	good := build(t, RocksDBBloom(10), "a", "b")[0]
	edit := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	for _, c := range []struct {
		desc  string
		block []byte
	}{
		{"nothing", nil},
		{"shorter than the trailer", good[:4]},
		{"only a trailer that claims a line", good[64:]},
		{"one byte short", good[1:]},
		{"one byte long", append([]byte{0}, good...)},
		{"one line long", append(make([]byte, 64), good...)},
		{"no probes", edit(func(b []byte) []byte { b[64] = 0; return b })},
		{"31 probes", edit(func(b []byte) []byte { b[64] = 31; return b })},
		{"the marker of newer filters", edit(func(b []byte) []byte { b[64] = 255; return b })},
		{"no lines", edit(func(b []byte) []byte { b[65] = 0; return b })},
		{"2^24 lines more", edit(func(b []byte) []byte { b[68] = 1; return b })},
		{"no lines, but probes", []byte{6, 0, 0, 0, 0}},
	} {
		if _, err := RocksDBBloom(10).Open([][]byte{c.block}); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: error %v", c.desc, err)
		}
	}
	for _, probes := range []byte{1, 30} {
		if _, err := RocksDBBloom(10).Open([][]byte{edit(func(b []byte) []byte { b[64] = probes; return b })}); err != nil {
			t.Errorf("%d probes: %v", probes, err)
		}
	}
	if _, err := RocksDBBloom(10).Open(nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("no units: error %v", err)
	}
	if _, err := RocksDBBloom(10).Open([][]byte{good, good}); !errors.Is(err, ErrDamaged) {
		t.Errorf("two units: error %v", err)
	}
}

// TestRocksDBRates builds filters of few bits per key, whose FPR differs most from that of the next
// number of bits, and compares it with Expect.
func TestRocksDBRates(t *testing.T) {
	const n = 30_000
	for bits := 1; bits <= 13; bits++ {
		p := RocksDBBloom(bits)
		w := p.NewWriter()
		for i := range uint64(n) {
			w.Add(NewKey(binary.LittleEndian.AppendUint64(nil, i)))
		}
		units, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		want, ok := Expect(p, n)
		if !ok {
			t.Fatalf("%s: Expect is not ok", p.Name())
		}
		near(t, "FPR of "+p.Name(), open(t, p, units).FPR(), want.FPR, 0.04)
	}
}

// TestDecimalKeys compares LevelDB's hash, which the legacy filters of pebble and RocksDB
// start from, with Hash, on keys that differ in a few digits.
func TestDecimalKeys(t *testing.T) {
	for _, c := range []struct {
		p         Policy
		low, high float64 // bounds of the FPR
	}{
		{RocksDBBloom(10), 0.05, 0.2},
		{Bloom(10), 0, 0.011},
		{Ribbon(10), 0, 0.0015},
	} {
		const n = 100_000
		key := func(i int) Key { return NewKey(fmt.Appendf(nil, "%016d", i)) }
		w := c.p.NewWriter()
		for i := range n {
			w.Add(key(2 * i))
		}
		units, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.p.Open(units)
		if err != nil {
			t.Fatal(err)
		}
		positive := 0
		for i := range n {
			if r.MayContain(key(2*i + 1)) {
				positive++
			}
		}
		rate := float64(positive) / n
		t.Logf("%s: %.2f%%", c.p.Name(), 100*rate)
		if rate < c.low || rate > c.high {
			t.Errorf("%s: FPR %.4f, want %.4f to %.4f", c.p.Name(), rate, c.low, c.high)
		}
	}
}
