package live

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// guavaVector is a filter that Guava 31.1 wrote, with Guava's figures for it.
type guavaVector struct {
	Name                    string
	Funnel                  string
	Strategy                int
	N                       uint64
	P                       float64
	BitSize                 uint64
	K                       int
	BitCount                uint64
	ExpectedFpp             float64
	ApproximateElementCount any // a number, or the text of an exception
}

func (v *guavaVector) scheme() Scheme {
	if v.Strategy == 0 {
		return GuavaMitz32
	}
	return Guava
}

type guavaProbe struct {
	bytes     []byte
	hash      []byte
	positions []uint64
	answer    bool
}

func guavaVectors(t testing.TB) []guavaVector {
	b, err := os.ReadFile("testdata/guava/index.json")
	if err != nil {
		t.Fatal(err)
	}
	var vs []guavaVector
	if err := json.Unmarshal(b, &vs); err != nil {
		t.Fatal(err)
	}
	return vs
}

func guavaProbes(t testing.TB, name string) []guavaProbe {
	f, err := os.Open(filepath.Join("testdata/guava", name+".probes.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var ps []guavaProbe
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), "#") {
			continue
		}
		field := strings.Split(s.Text(), "\t")
		p := guavaProbe{
			bytes:  must(hex.DecodeString(field[1])),
			hash:   must(hex.DecodeString(field[2])),
			answer: must(strconv.ParseBool(field[4])),
		}
		for _, pos := range strings.Split(field[3], ",") {
			p.positions = append(p.positions, must(strconv.ParseUint(pos, 10, 64)))
		}
		ps = append(ps, p)
	}
	return ps
}

// positions returns the bits that an element sets in an empty filter like f, in
// ascending order without duplicates.
func positions[T any](f *Bloom[T], v T) []uint64 {
	e := f.Clone()
	e.Reset()
	e.Add(v)
	var ps []uint64
	for i := range e.bits {
		if e.at(i)&1 != 0 {
			ps = append(ps, i)
		}
	}
	return ps
}

func TestGuavaVectors(t *testing.T) {
	probes := 0
	for _, v := range guavaVectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			file, err := os.ReadFile(filepath.Join("testdata/guava", v.Name+".bin"))
			if err != nil {
				t.Fatal(err)
			}
			f, err := ReadGuava(bytes.NewReader(file), ReadOptions[[]byte]{MaxBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			if f.Scheme() != v.scheme() || f.Bits() != v.BitSize || f.Hashes() != v.K {
				t.Errorf("scheme %v, bits %d, hashes %d", f.Scheme(), f.Bits(), f.Hashes())
			}
			if got := f.ones(); got != v.BitCount {
				t.Errorf("bit count %d, in Guava %d", got, v.BitCount)
			}
			if got := f.FPR(); math.Abs(got-v.ExpectedFpp) > 1e-12*v.ExpectedFpp {
				t.Errorf("FPR %v, in Guava %v", got, v.ExpectedFpp)
			}
			want := uint64(math.MaxUint64) // where Guava throws
			if n, ok := v.ApproximateElementCount.(float64); ok {
				want = uint64(n)
			}
			if got := f.ApproxCount(); got != want {
				t.Errorf("approximate count %d, in Guava %d", got, want)
			}
			for _, p := range guavaProbes(t, v.Name) {
				probes++
				checkGuavaProbe(t, f, v.Funnel, p)
			}

			var out bytes.Buffer
			if _, err := f.WriteGuava(&out); err != nil || !bytes.Equal(out.Bytes(), file) {
				t.Errorf("written again: %d bytes, not the same as Guava's %d (%v)", out.Len(), len(file), err)
			}
			empty, err := NewBloom(BloomOptions[[]byte]{Items: max(1, v.N), FPR: v.P, Scheme: v.scheme()})
			if err != nil || empty.Bits() != v.BitSize || empty.Hashes() != v.K {
				t.Errorf("NewBloom: %d bits, %d hashes (%v), in Guava %d and %d", empty.Bits(), empty.Hashes(), err, v.BitSize, v.K)
			}
		})
	}
	if probes != 2947 {
		t.Errorf("%d probes were checked, want 2947", probes)
	}
}

func checkGuavaProbe(t *testing.T, f *Bloom[[]byte], funnelName string, p guavaProbe) {
	t.Helper()
	d := f.digest(p.bytes)
	if !bytes.Equal(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, d.a), d.b), p.hash) {
		t.Errorf("%x: hash %016x %016x, in Guava %x", p.bytes, d.a, d.b, p.hash)
	}
	if got := f.MayContain(p.bytes); got != p.answer {
		t.Errorf("%x: %v, in Guava %v", p.bytes, got, p.answer)
	}
	e := newTable(f.scheme, uint64(len(f.words)), f.hashes, 0)
	e.add(d)
	distinct := map[uint64]bool{}
	for _, pos := range p.positions {
		distinct[pos] = true
		if e.at(pos)&1 == 0 {
			t.Errorf("%x: bit %d is clear", p.bytes, pos)
		}
	}
	if e.ones() != uint64(len(distinct)) {
		t.Errorf("%x: %d bits set, in Guava %d", p.bytes, e.ones(), len(distinct))
	}
	// The element has the same hash as its bytes.
	var typed digest
	switch funnelName {
	case "integerFunnel":
		typed = must(NewBloom(BloomOptions[int32]{Items: 1, FPR: 0.5, Scheme: Guava})).digest(int32(binary.LittleEndian.Uint32(p.bytes)))
	case "longFunnel":
		typed = must(NewBloom(BloomOptions[int64]{Items: 1, FPR: 0.5, Scheme: Guava})).digest(int64(binary.LittleEndian.Uint64(p.bytes)))
	case "byteArrayFunnel":
		typed = d
	default:
		typed = must(NewBloom(BloomOptions[string]{Items: 1, FPR: 0.5, Scheme: Guava})).digest(string(p.bytes))
	}
	if typed != d {
		t.Errorf("%x: hash of the typed element %x, of its bytes %x", p.bytes, typed, d)
	}
}

func TestGuavaExample(t *testing.T) {
	f := must(NewBloom(BloomOptions[string]{Bits: 64, Hashes: 1, Scheme: Guava}))
	f.Add("user:0")
	if got := positions(f, "user:0"); len(got) != 1 || got[0] != 37 {
		t.Errorf("positions %v", got)
	}
	var b bytes.Buffer
	f.WriteGuava(&b)
	if got := hex.EncodeToString(b.Bytes()); got != "0101000000010000002000000000" {
		t.Errorf("written %s", got)
	}
}

func TestGuavaUTF16(t *testing.T) {
	if got := hex.EncodeToString(GuavaUTF16(nil, "aé商😀")); got != "6100e9004655"+"3dd800de" {
		t.Errorf("got %s", got)
	}
}

func TestReadGuavaMalformed(t *testing.T) {
	const body = "0000000000000000"
	for _, tc := range []struct{ desc, hex string }{
		{"empty", ""},
		{"header cut off", "0101000000"},
		{"strategy 2", "020100000001" + body},
		{"strategy -1", "ff0100000001" + body},
		{"no hashes", "010000000001" + body},
		{"no longs", "010100000000" + body},
		{"negative longs", "0101ffffffff" + body},
		{"bits cut off", "010100000001" + body[2:]},
		{"second long missing", "010100000002" + body},
	} {
		if _, err := ReadGuava(bytes.NewReader(must(hex.DecodeString(tc.hex))), ReadOptions[string]{MaxBytes: 1 << 20}); !isFormat(err) {
			t.Errorf("%s: %v", tc.desc, err)
		}
	}
	b := must(hex.DecodeString("010100000001" + body + "ff"))
	r := bytes.NewReader(b)
	if _, err := ReadGuava(r, ReadOptions[string]{MaxBytes: 8}); err != nil || r.Len() != 1 {
		t.Errorf("bytes that follow: %v, %d left", err, r.Len())
	}
}
