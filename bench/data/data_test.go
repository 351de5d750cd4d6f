package data

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// check checks that the keys of a set are distinct, and that no absent key is ever stored.
func check(t *testing.T, s Set, extra int) {
	t.Helper()
	stored := map[string]bool{}
	for i := range s.Len() + extra {
		key := string(s.Key(nil, i))
		if stored[key] {
			t.Fatalf("%s: key %d, %q, occurs twice", s.Name(), i, key)
		}
		stored[key] = true
	}
	for i := range s.Len() {
		if absent := s.Absent([]byte("x"), i); absent[0] != 'x' || len(absent) == 1 {
			t.Fatalf("absent key %d is %q: not appended", i, absent)
		} else if extra > 0 && stored[string(absent[1:])] {
			t.Fatalf("%s: absent key %d, %q, is stored", s.Name(), i, absent[1:])
		}
	}
}

func TestMadeUp(t *testing.T) {
	for _, kind := range []string{Decimal, Random, Ascending, Text} {
		s, err := MadeUp(kind, 5000, 100, 0.5)
		if err != nil {
			t.Fatal(err)
		}
		check(t, s, 100)
		for i := range 20_000 {
			if v := s.Value(i); len(v) != 100 || !bytes.Equal(v[:50], v[50:]) {
				t.Fatalf("value %d is %q: want 100 bytes, the second half like the first", i, v)
			}
		}
	}
	for _, n := range []int{1, 2, 3, 1000, 1 << 20, 1_000_000_000} {
		s, err := MadeUp(Ascending, n, 8, 0.5)
		if err != nil {
			t.Fatal(err)
		}
		var last []byte
		for i := range min(n, 1000) {
			for _, at := range []int{i, n - min(n, 1000) + i} {
				if key, absent := s.Key(nil, at), s.Absent(nil, at); bytes.Compare(key, absent) >= 0 ||
					bytes.Compare(absent, s.Key(nil, at+1)) >= 0 {
					t.Fatalf("of %d: key %d is %x, absent key %x, next %x", n, at, key, absent, s.Key(nil, at+1))
				}
			}
			if last = s.Key(last[:0], n+s.Spare()-1); bytes.Compare(last, s.Absent(nil, n-1)) <= 0 && n > 1 {
				t.Fatalf("of %d: the last spare key is %x", n, last)
			}
		}
	}
	s, err := MadeUp(Decimal, 10, 0, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(s.Key(nil, 7)) + " " + string(s.Absent(nil, 7)); got != "0000000000000014 0000000000000015" {
		t.Errorf("key and absent key 7 are %s", got)
	}
	if v := s.Value(3); len(v) != 0 {
		t.Errorf("value of no bytes is %q", v)
	}
	for _, bad := range []struct {
		kind string
		n    int
	}{{"other", 1}, {Decimal, 0}, {Decimal, math.MaxUint32}} {
		if _, err := MadeUp(bad.kind, bad.n, 1, 1); err == nil {
			t.Errorf("%d keys of kind %q gave no error", bad.n, bad.kind)
		}
	}
}

func TestTSV(t *testing.T) {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, "key%03d\told\n", (i*37)%100)
	}
	b.WriteString("key005\tnew\tand a tab\nkey006\n\tno key\n")
	s, err := readTSV("t", strings.NewReader(b.String()), 0)
	if err != nil {
		t.Fatal(err)
	}
	if s.Len() != 90 || s.Spare() != 10 {
		t.Fatalf("%d keys and %d to spare, want 90 and 10", s.Len(), s.Spare())
	}
	check(t, s, 0)
	values := map[string]string{}
	for i := range s.Len() + s.Spare() {
		values[string(s.Key(nil, i))] = string(s.Value(i))
	}
	for key, want := range map[string]string{"key004": "old", "key005": "new\tand a tab", "key006": ""} {
		if got, ok := values[key]; !ok || got != want {
			t.Errorf("value of %s is %q, %v, want %q", key, got, ok, want)
		}
	}
	var present []string
	for i := range s.Len() {
		present = append(present, string(s.Key(nil, i)))
	}
	if !slices.IsSorted(present) {
		t.Error("present keys are not in order")
	}
	for i := range s.Len() {
		if slices.Contains(present, string(s.Absent(nil, i))) {
			t.Errorf("absent key %d is present", i)
		}
	}
	if s, err := readTSV("t", strings.NewReader(b.String()), 18); err != nil || s.Len() != 18 || s.Spare() != 2 {
		t.Errorf("a limit of 18 gave %v, %v", s, err)
	}
	if _, err := readTSV("t", strings.NewReader("a\tb\n"), 0); err == nil {
		t.Error("one line gave no error")
	}
}

func TestSourceTree(t *testing.T) {
	dir := t.TempDir()
	os.MkdirAll(filepath.Join(dir, "p"), 0o755)
	os.WriteFile(filepath.Join(dir, "p", "a.go"), []byte("package p\n\nvar x = 1\n"), 0o644)
	os.WriteFile(filepath.Join(dir, "p", "b.txt"), []byte("no\n"), 0o644)
	os.WriteFile(filepath.Join(dir, "c.go"), []byte(strings.Repeat("// c\n", 20)), 0o644)
	s, err := sourceTree("t", dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for i := range s.Len() + s.Spare() {
		lines[string(s.Key(nil, i))] = string(s.Value(i))
	}
	if len(lines) != 21+4 || lines["p/a.go:000003"] != "var x = 1" || lines["c.go:000020"] != "// c" {
		t.Errorf("lines %q", lines)
	}
}

func TestZipf(t *testing.T) {
	const n, draws = 1000, 200_000
	z := NewZipf(Rand(1), n, 0.99)
	counts := make([]int, n)
	for range draws {
		counts[z.Rank()]++
	}
	sum := 0.0
	for i := 1; i <= n; i++ {
		sum += math.Pow(float64(i), -0.99)
	}
	for _, rank := range []int{0, 1, 9, 99} {
		want := draws * math.Pow(float64(rank+1), -0.99) / sum
		// The method is exact for the first two ranks and close for the others.
		slack := 5*math.Sqrt(want) + 0.15*want
		if got := float64(counts[rank]); math.Abs(got-want) > slack {
			t.Errorf("rank %d was drawn %v times, want %.0f ± %.0f", rank, got, want, slack)
		}
	}
	for range 1000 {
		if i := z.Next(); i < 0 || i >= n {
			t.Fatalf("drew %d of %d", i, n)
		}
	}
}

func TestPermutation(t *testing.T) {
	p := Permutation(Rand(3), 1000)
	if slices.IsSorted(p) {
		t.Error("the permutation is sorted")
	}
	if !slices.Equal(p, Permutation(Rand(3), 1000)) {
		t.Error("the same seed gives a different permutation")
	}
	slices.Sort(p)
	for i, v := range p {
		if int(v) != i {
			t.Fatalf("sorted, element %d is %d", i, v)
		}
	}
}

func TestKeys(t *testing.T) {
	k := Collect(3, func(dst []byte, i int) []byte { return append(dst, strings.Repeat("x", i)...) })
	k.Add([]byte("abc"))
	k.Grow(func(dst []byte) []byte { return append(dst, "de"...) })
	for i, want := range []string{"", "x", "xx", "abc", "de"} {
		if got := string(k.At(i)); got != want {
			t.Errorf("string %d is %q, want %q", i, got, want)
		}
	}
	if k.Len() != 5 {
		t.Errorf("%d strings, want 5", k.Len())
	}
}
