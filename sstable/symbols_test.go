package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestSymbols checks random sets of keys: keys in a range have numbers in the range's interval,
// numbers preserve order, and the text can be parsed.
func TestSymbols(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 3))
		alphabets := []string{"0123456789", "0123456789abcdef", "\x00\x01", "a", "\xff\xfe\x00", "abcdefghijklmnopqrstuvwxyz-_./?&="}
		alphabet := alphabets[seed%uint64(len(alphabets))]
		length, vary := 1+rng.IntN(20), rng.IntN(2) == 0
		key := func(alphabet string) []byte {
			n := length
			if vary {
				n = rng.IntN(length + 1)
			}
			k := make([]byte, n)
			for i := range k {
				if k[i] = alphabet[rng.IntN(len(alphabet))]; seed%7 == 0 {
					k[i] = byte(rng.Uint32())
				}
			}
			return k
		}
		var sets byteSets
		keys := make([][]byte, 1+rng.IntN(200))
		for i := range keys {
			keys[i] = key(alphabet)
			sets.add(keys[i])
		}
		slices.SortFunc(keys, bytes.Compare)
		y := sets.symbols()
		if back, ok := parseSymbols(y.text()); !ok || back.text() != y.text() || back.max != y.max {
			t.Fatalf("seed %d: %q is parsed as %v, %v", seed, y.text(), back, ok)
		}
		for i := range keys[1:] {
			if a, b := y.number(keys[i]), y.number(keys[i+1]); a > b || b > y.max {
				t.Fatalf("seed %d: %q is %d and %q is %d, of %d", seed, keys[i], a, keys[i+1], b, y.max)
			}
		}
		for range 300 {
			from, to := key(alphabet), key(alphabets[rng.IntN(len(alphabets))])
			if rng.IntN(2) == 0 {
				from = append(bytes.Clone(keys[rng.IntN(len(keys))]), make([]byte, rng.IntN(2))...)
			}
			if rng.IntN(2) == 0 {
				from, to = to, from
			}
			lo, some := y.from(from)
			hi, more := y.to(to)
			for _, k := range keys {
				x := y.number(k)
				if bytes.Compare(k, from) >= 0 && (!some || x < lo) {
					t.Fatalf("seed %d: %q is %d, and from %q on numbers are from %d (%v)", seed, k, x, from, lo, some)
				}
				if bytes.Compare(k, to) < 0 && (!more || x > hi) {
					t.Fatalf("seed %d: %q is %d, and before %q numbers are up to %d (%v)", seed, k, x, to, hi, more)
				}
			}
		}
	}
}

// TestSymbolsOfDigits checks that decimal digits count as their values.
func TestSymbolsOfDigits(t *testing.T) {
	var sets byteSets
	rng := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		sets.add(fmt.Appendf(nil, "%08d", rng.IntN(100_000_000)))
	}
	y := sets.symbols()
	if y.max != 99_999_999 {
		t.Fatalf("the largest number is %d: %s", y.max, y.text())
	}
	lo, ok := y.from([]byte("00123457"))
	hi, more := y.to([]byte("00124457"))
	if !ok || !more || lo != 123_457 || hi != 124_456 {
		t.Errorf("a thousand numbers are those from %d to %d", lo, hi)
	}
	if _, ok := y.to([]byte("00")); ok {
		t.Error("to finds a number before the first")
	}
	if _, ok := y.from([]byte("a")); ok {
		t.Error("from finds a number after the last")
	}
	for _, text := range []string{"30303232343436363838", "30393941", "3039,,3039", "3A3B", "30", "3", "3930", "30393039", "3039,", ",", "30393a3b40414243444546", "zz"} {
		if _, ok := parseSymbols(text); ok {
			t.Errorf("%q is parsed", text)
		}
	}
}

// TestSymbolsAsText checks that the bytes of a position are up to four runs, or one if there are
// more, and that trailing positions where all keys have ended are left out.
func TestSymbolsAsText(t *testing.T) {
	for _, c := range []struct {
		keys []string
		want string
	}{
		{[]string{"00", "7a", "9c", "1f", "8b", "2d", "3e", "41", "52", "63", "74", "85", "96", "07", "18", "29"}, "3039,30396166"},
		{[]string{"a", "c", "e", "g"}, "6161636365656767"},
		{[]string{"a", "c", "e", "g", "i"}, "6169"},
		{[]string{"ax", "bx"}, "6162,7878"},
		{[]string{"a", "ax"}, "6161,00007878"},
		{[]string{""}, ""},
		{[]string{strings.Repeat("a", 40), strings.Repeat("b", 40)}, strings.Repeat(",6162", 32)[1:]},
	} {
		var sets byteSets
		for _, k := range c.keys {
			sets.add([]byte(k))
		}
		if got := sets.symbols().text(); got != c.want {
			t.Errorf("%q: %s, want %s", c.keys, got, c.want)
		}
		if _, ok := parseSymbols(c.want); !ok {
			t.Errorf("%s is not parsed", c.want)
		}
	}
	if _, ok := parseSymbols(strings.Repeat(",6162", 33)[1:]); ok {
		t.Error("33 positions are parsed")
	}
	// The least number at or after a bound is the largest one.
	y, _ := parseSymbols("6162,7878")
	if x, ok := y.from([]byte("ay")); x != 1 || !ok {
		t.Errorf("from ay on: %d, %t", x, ok)
	}
	if _, ok := y.from([]byte("by")); ok {
		t.Error("from finds a number after the last")
	}
}
