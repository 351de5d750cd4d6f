package filter

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// countedSecret is the secret 00 01 .. 0f.
func countedSecret() (s Secret) {
	for i := range s {
		s[i] = byte(i)
	}
	return s
}

func mustKey(t testing.TB, p Policy, s Secret) Policy {
	t.Helper()
	k, err := Keyed(p, s)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// unitsOf returns the units of a filter over keys.
func unitsOf(t testing.TB, p Policy, keys [][]byte) [][]byte {
	t.Helper()
	w := p.NewWriter()
	for _, k := range keys {
		w.Add(NewKey(k))
	}
	units, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return units
}

func numbered(prefix string, n int) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "%s%08d", prefix, i)
	}
	return keys
}

// TestKeyedFormat checks the example in the format comment.
func TestKeyedFormat(t *testing.T) {
	p := mustKey(t, Bloom(10), countedSecret())
	w := p.NewWriter().(*keyedWriter)
	w.salt = 1
	w.Add(NewKey([]byte("a")))
	units, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll("01 00 00 00 00 00 00 00  8b f6 8f 01 f7 b2 a5 9d", " ", "")
	end := units[0][len(units[0])-keyedTrailerSize:]
	if got := hex.EncodeToString(end); got != want {
		t.Errorf("the trailer is %s, want %s", got, want)
	}
	if p.Family() != "sift.keyed.sift.Bloom" || p.Name() != "keyed(bloom(10))" {
		t.Errorf("family %q, name %q", p.Family(), p.Name())
	}
	// The bytes before the trailer are the filter over the salted hash.
	s := countedSecret()
	inner, err := openBloom([][]byte{units[0][:len(units[0])-keyedTrailerSize]})
	if err != nil {
		t.Fatal(err)
	}
	if !inner.MayContain(Key{Hash: salted(s.Hash([]byte("a")), 1)}) {
		t.Error("the filter does not hold the salted hash")
	}
	if got := salted(0x0123456789abcdef, 1); got != 0x005cb76795d721d5 {
		t.Errorf("a salted hash is %#x", got)
	}
}

// TestKeyedSecret checks that another secret never opens a filter, since it would exclude keys.
func TestKeyedSecret(t *testing.T) {
	for _, p := range []Policy{Bloom(10), Fuse(8), Ribbon(10)} {
		mine := mustKey(t, p, Secret{1})
		units := unitsOf(t, mine, numbered("key", 300))
		if _, err := mustKey(t, p, Secret{2}).Open(units); !errors.Is(err, ErrSecret) || !errors.Is(err, ErrUnknownFamily) {
			t.Errorf("%s: Open with another secret: %v", mine.Name(), err)
		}
		if _, err := p.Open(units); err == nil {
			t.Errorf("%s: opened without a secret", mine.Name())
		}
		opened := false
		for _, r := range KeyedReaders(Secret{1}) {
			if r.Family() != mine.Family() {
				continue
			}
			_, err := r.Open(units)
			opened = err == nil
		}
		if !opened {
			t.Errorf("KeyedReaders do not open %s", mine.Name())
		}
		again := unitsOf(t, mine, numbered("key", 300))
		if bytes.Equal(again[0], units[0]) {
			t.Errorf("%s: two filters over the same keys are equal", mine.Name())
		}
	}
}

// TestKeyedTrailerAlone checks that a unit too short for the trailer is damaged, and that a trailer
// alone still identifies the secret.
func TestKeyedTrailerAlone(t *testing.T) {
	p := mustKey(t, Bloom(10), Secret{1})
	unit := unitsOf(t, p, numbered("key", 10))[0]
	trailer := unit[len(unit)-keyedTrailerSize:]
	for _, units := range [][][]byte{nil, {nil}, {trailer[1:]}, {trailer}} {
		if _, err := p.Open(units); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d units: %v", len(units), err)
		}
	}
	if _, err := mustKey(t, Bloom(10), Secret{2}).Open([][]byte{trailer}); !errors.Is(err, ErrSecret) {
		t.Errorf("Open with another secret: %v", err)
	}
}

// brokenWriter finishes without units.
type brokenWriter struct {
	Writer
	err error
}

func (w brokenWriter) Finish() ([][]byte, error) { return nil, w.err }

func TestKeyedWriterWithoutUnits(t *testing.T) {
	for _, want := range []error{nil, errTooManyKeys} {
		w := &keyedWriter{inner: brokenWriter{err: want}, secret: &Secret{}}
		if units, err := w.Finish(); err != want || len(units) != 0 {
			t.Errorf("%d units, %v, want %v", len(units), err, want)
		}
	}
}

func TestKeyedPolicies(t *testing.T) {
	if p := mustKey(t, None(), Secret{}); !IsNone(p) {
		t.Errorf("Keyed turns None into %s", p.Name())
	}
	if _, err := Keyed(RocksDBBloom(10), Secret{}); err == nil {
		t.Error("Keyed accepts RocksDBBloom")
	}
	if p, err := Parse("keyed(ribbon(10))"); err == nil {
		t.Errorf("Parse returns %s without a secret", p.Name())
	}
	if !IsKeyedFamily(mustKey(t, Ribbon(10), Secret{}).Family()) || IsKeyedFamily(ribbonFamily) {
		t.Error("IsKeyedFamily is wrong")
	}
}

// TestKeyedReader checks that MayContain, MayContainHash and MayContainMany agree, and that
// dropping units excludes no key.
func TestKeyedReader(t *testing.T) {
	s := countedSecret()
	for _, p := range []Policy{Bloom(10), Fuse(8), Ribbon(16)} {
		k := mustKey(t, p, s)
		keys := numbered("key", 60000)
		units := unitsOf(t, k, keys)
		open, err := k.Open(units)
		if err != nil {
			t.Fatal(err)
		}
		r := open.(*KeyedReader)
		probed := append(numbered("absent", 200), keys[:200]...)
		var list []Key
		for _, b := range probed {
			list = append(list, NewKey(b))
		}
		positive := make([]bool, len(list))
		r.MayContainMany(list, positive)
		for i, b := range probed {
			if one, hashed := r.MayContain(list[i]), r.MayContainHash(s.Hash(b)); one != positive[i] || hashed != one || i >= 200 && !one {
				t.Errorf("%s: %q: MayContain %v, MayContainHash %v, MayContainMany %v", k.Name(), b, one, hashed, positive[i])
			}
		}
		if len(units) == 1 {
			if _, err := r.Resize(units); err == nil && p.Family() != ribbonFamily {
				t.Errorf("%s: Resize accepts a filter of one unit", k.Name())
			}
			continue
		}
		fewer, err := r.Resize(units[:1])
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range keys {
			if !fewer.MayContain(NewKey(b)) {
				t.Fatalf("%s: the first unit excludes %q", k.Name(), b)
			}
		}
		flipped := bytes.Clone(units[1])
		flipped[100] ^= 4
		for _, bad := range [][][]byte{nil, {units[0], flipped}} {
			if _, err := r.Resize(bad); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: Resize to %d damaged units: %v", k.Name(), len(bad), err)
			}
		}
		if other := unitsOf(t, k, keys); len(other) > 0 {
			if _, err := r.Resize(other); err == nil {
				t.Errorf("%s: Resize accepts units of another filter", k.Name())
			}
		}
	}
}

// TestChosenKeys simulates an attacker who knows the keys and the policy, builds a replica of the
// filter and searches it for false positives. Without a secret, all of them are false positives of
// the filter, too; with one, they must be so at the usual rate only.
func TestChosenKeys(t *testing.T) {
	keys := numbered("key", 20000)
	for _, p := range []Policy{Bloom(10), Fuse(8), Ribbon(10)} {
		replica, err := p.Open(unitsOf(t, p, keys))
		if err != nil {
			t.Fatal(err)
		}
		var chosen []Key
		for i := 0; len(chosen) < 1000; i++ {
			if k := NewKey(fmt.Appendf(nil, "absent%d", i)); replica.MayContain(k) {
				chosen = append(chosen, k)
			}
		}
		rate := func(p Policy) float64 {
			r, err := p.Open(unitsOf(t, p, keys))
			if err != nil {
				t.Fatal(err)
			}
			hits := 0
			for _, k := range chosen {
				if r.MayContain(k) {
					hits++
				}
			}
			return float64(hits) / float64(len(chosen))
		}
		open, keyed := rate(p), rate(mustKey(t, p, Secret{7}))
		t.Logf("%s: FPR of chosen keys %.4f, with a secret %.4f; designed %.4f", p.Name(), open, keyed, replica.FPR())
		// 40 of 1,000 keys at 1% or less would be nine standard deviations above the mean.
		if open != 1 || keyed > 0.04 {
			t.Errorf("%s: FPR of chosen keys %.4f, with a secret %.4f", p.Name(), open, keyed)
		}
	}
}

func BenchmarkKeyed(b *testing.B) {
	keys := numbered("key", 100000)
	s := Secret{7}
	absent := numbered("absent", 1024)
	for _, p := range []Policy{Bloom(10), Ribbon(10)} {
		k := mustKey(b, p, s)
		for _, q := range []Policy{p, k} {
			r, err := q.Open(unitsOf(b, q, keys))
			if err != nil {
				b.Fatal(err)
			}
			b.Run(q.Name()+"/probe", func(b *testing.B) {
				n := 0
				for i := range b.N {
					if r.MayContain(NewKey(absent[i%len(absent)])) {
						n++
					}
				}
				b.ReportMetric(float64(n)/float64(b.N), "fpr")
			})
			b.Run(q.Name()+"/build", func(b *testing.B) {
				for range b.N {
					unitsOf(b, q, keys)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(keys)), "ns/key")
			})
		}
	}
	b.Run("hash/public", func(b *testing.B) {
		var sum uint64
		for i := range b.N {
			sum += Hash(absent[i%len(absent)])
		}
		_ = sum
	})
	b.Run("hash/secret", func(b *testing.B) {
		var sum uint64
		for i := range b.N {
			sum += s.Hash(absent[i%len(absent)])
		}
		_ = sum
	})
}
