package filter

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// parseSeeds are names, good and bad.
var parseSeeds = []string{
	"bloom(10)", "bloom(1)", "bloom(30)", "bloom(7.25)", " bloom ( 10 ) ", "bloom(1e1)", "fuse(8)",
	"rocksdb-bloom(10)", "none", "none()", "bloom", "bloom()", "bloom(0)", "bloom(31)", "bloom(NaN)",
	"bloom(10,10)", "bloom(10))", "bloom(10", "bloom)10(", "", "()", "(10)", "fuse(3)", "fuse(8.5)", "Bloom(10)",
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name string
		want Policy
	}{
		{"bloom(10)", Bloom(10)},
		{"bloom(7.25)", Bloom(7.25)},
		{" bloom ( 1e1 ) ", Bloom(10)},
		{"fuse(12)", Fuse(12)},
		{"rocksdb-bloom(14)", RocksDBBloom(14)},
		{"ribbon(1)", Ribbon(1)},
		{"ribbon(20)", Ribbon(20)},
		{"ribbon(fpr=0.5)", RibbonFPR(0.5)},
		{"ribbon(fpr=9.5367431640625e-07)", RibbonFPR(1.0 / (1 << 20))},
		{"none", None()},
		{"none()", None()},
	} {
		if p, err := Parse(c.name); err != nil || p != c.want {
			t.Errorf("Parse(%q) = %v, %v, want %s", c.name, p, err, c.want.Name())
		}
	}
	for _, name := range []string{
		"", "()", "(10)", "bloom", "bloom()", "bloom(0.9)", "bloom(30.1)", "bloom(NaN)", "bloom(Inf)", "bloom(x)", "bloom(10,10)",
		"bloom(10))", "bloom(10", "bloom(10)x", "Bloom(10)", "fuse(3)", "fuse(17)", "fuse(8.5)", "rocksdb-bloom(0)", "rocksdb-bloom(101)",
		"rocksdb-bloom(9.5)", "none(1)", "cuckoo(8)",
		"fuse()", "fuse(8,8)", "rocksdb-bloom()", "rocksdb-bloom(10,10)",
		"ribbon(0.9)", "ribbon(20.1)", "ribbon(fpr=0.51)", "ribbon(fpr=9.5e-07)", "ribbon(fpr=NaN)", "ribbon(fpr=)", "ribbon(fpr=0.1x)", "ribbon(fpr=0.1,1)",
	} {
		if p, err := Parse(name); err == nil {
			t.Errorf("Parse(%q) = %s", name, p.Name())
		} else if !strings.Contains(err.Error(), "policy") {
			t.Errorf("Parse(%q): the error %q does not name the policy", name, err)
		}
	}
}

// TestNames checks that names parse to equal policies, even if the parameters were
// out of bounds.
func TestNames(t *testing.T) {
	policies := []Policy{None(), Default()}
	for _, b := range []float64{-1, 0, 1, 2.5, 1.0 / 3, 10, 9.999999999999998, 30, 31, math.NaN(), math.Inf(1), math.Inf(-1)} {
		policies = append(policies, Bloom(b))
	}
	for b := -2; b < 110; b++ {
		policies = append(policies, RocksDBBloom(b), Fuse(b))
	}
	for _, p := range policies {
		if again, err := Parse(p.Name()); err != nil || again != p {
			t.Errorf("Parse(%q) = %v, %v", p.Name(), again, err)
		}
	}
}

// TestBounds checks that parameters out of bounds are set to the nearest bound, and checks the
// documented defaults.
func TestBounds(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		p    Policy
		want string
	}{
		{Bloom(0.9), "bloom(1)"},
		{Bloom(30.1), "bloom(30)"},
		{Bloom(nan), "bloom(10)"},
		{Fuse(3), "fuse(4)"},
		{Fuse(17), "fuse(16)"},
		{RocksDBBloom(0), "rocksdb-bloom(1)"},
		{RocksDBBloom(101), "rocksdb-bloom(100)"},
		{Ribbon(0.9), "ribbon(1)"},
		{Ribbon(20.1), "ribbon(20)"},
		{Ribbon(nan), "ribbon(10)"},
		{RibbonFPR(0), "ribbon(fpr=9.5367431640625e-07)"},
		{RibbonFPR(inf), "ribbon(fpr=0.5)"},
		{RibbonFPR(nan), "ribbon(fpr=0.001)"},
		{Default(), "ribbon(10)"},
		{DefaultForFlush(), "ribbon(12)"},
	} {
		if got := c.p.Name(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestOpen(t *testing.T) {
	keys := []string{"a", "b", "c"}
	for _, p := range []Policy{Bloom(10), Fuse(8), RocksDBBloom(10)} {
		if !slices.Contains(Families(), p.Family()) {
			t.Errorf("Families does not have %q", p.Family())
		}
		r, err := Open(p.Family(), build(t, p, keys...))
		if err != nil {
			t.Errorf("%s: %v", p.Name(), err)
			continue
		}
		for _, k := range keys {
			if !r.MayContain(NewKey([]byte(k))) {
				t.Errorf("%s: %q is excluded", p.Name(), k)
			}
		}
		if _, err := Open(p.Family(), nil); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s without units: %v", p.Name(), err)
		}
	}
	for _, family := range []string{"", "none", "bloom", "sift.bloom", "sift.Bloom2"} {
		if _, err := Open(family, build(t, Bloom(10), keys...)); !errors.Is(err, ErrUnknownFamily) {
			t.Errorf("family %q: %v", family, err)
		}
	}
}

func TestNone(t *testing.T) {
	if !IsNone(nil) || !IsNone(None()) || IsNone(Bloom(10)) {
		t.Error("IsNone")
	}
	w := None().NewWriter()
	w.Add(NewKey(nil))
	if w.NumKeys() != 1 {
		t.Errorf("%d keys", w.NumKeys())
	}
	if units, err := w.Finish(); units != nil || err != nil || w.NumKeys() != 0 {
		t.Errorf("%v, %v, %d keys", units, err, w.NumKeys())
	}
	if _, err := None().Open([][]byte{{}}); err == nil {
		t.Error("None opens a filter")
	}
}
