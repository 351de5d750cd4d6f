package filter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/siftdb/sift/filter/internal/ribbon"
)

// TestTrim opens filters with any number of units and steps: no key is excluded, the FPR is
// that of the bits per key, and TrimmedSize bounds the size.
func TestTrim(t *testing.T) {
	for _, p := range []Policy{Ribbon(10), Ribbon(9.5), Ribbon(3), Ribbon(5), RibbonFPR(0.01), mustKey(t, Ribbon(10), countedSecret())} {
		for _, n := range []int{1, 40, 3000, 50_000} {
			keys := numbered("key", n)
			units := unitsOf(t, p, keys)
			last, lastSize := 1.0, 0
			for i := range units {
				for steps := 1; steps <= StepsPerUnit(p.Family()); steps++ {
					held := units[: i+1 : i+1]
					bound := TrimmedSize(p.Family(), i, len(units), len(units[i]), steps)
					if steps < StepsPerUnit(p.Family()) {
						whole := bytes.Clone(units[i])
						short, err := Trim([]byte("front"), p.Family(), held, steps)
						if err != nil {
							t.Fatalf("%s, %d keys: %v", p.Name(), n, err)
						}
						if !bytes.Equal(whole, units[i]) || string(short[:5]) != "front" {
							t.Fatalf("%s: Trim has changed its arguments", p.Name())
						}
						short = short[5:]
						if len(short) > bound || n >= 3000 && float64(len(short)) < 0.97*float64(bound)-150 {
							t.Errorf("%s, %d keys, unit %d: %d steps take %d bytes, TrimmedSize is %d", p.Name(), n, i, steps, len(short), bound)
						}
						held = append(held[:i:i], short)
					} else if bound != len(units[i]) {
						t.Errorf("the whole unit takes %d bytes, TrimmedSize is %d", len(units[i]), bound)
					}
					r, err := p.Open(held)
					if err != nil {
						t.Fatalf("%s, %d keys, unit %d, %d steps: %v", p.Name(), n, i, steps, err)
					}
					for _, k := range keys {
						if !r.MayContain(NewKey(k)) {
							t.Fatalf("%s: %q is excluded with %d steps of unit %d", p.Name(), k, steps, i)
						}
					}
					if f := r.FPR(); f > last || n >= 3000 && f > 0.99*last && lastSize < r.SizeBytes() {
						t.Errorf("%s, %d keys, unit %d: FPR %v with %d steps, %v with one fewer", p.Name(), n, i, f, steps, last)
					}
					last, lastSize = r.FPR(), r.SizeBytes()
					if n < 50_000 {
						continue
					}
					// The bits in memory are as effective as those of a whole filter.
					positive := 0
					const probed = 40_000
					for _, k := range numbered("absent", probed) {
						if r.MayContain(NewKey(k)) {
							positive++
						}
					}
					want := last * probed
					if d := math.Abs(float64(positive) - want); d > 5*math.Sqrt(want)+1 {
						t.Errorf("%s, unit %d, %d steps: %d of %d absent keys are false positives, want %.0f", p.Name(), i, steps, positive, probed, want)
					}
					bits := float64(8*lastSize) / float64(n)
					if bits > 1.03*math.Log2(1/last)+0.1 {
						t.Errorf("%s, unit %d, %d steps: FPR %v with %.2f bits per key", p.Name(), i, steps, last, bits)
					}
				}
			}
		}
	}
}

func TestTrimRejects(t *testing.T) {
	p := Ribbon(10)
	units := unitsOf(t, p, numbered("key", 50_000))
	for _, steps := range []int{-1, 0, 4, 5} {
		if _, err := Trim(nil, p.Family(), units, steps); err == nil {
			t.Errorf("Trim accepts %d steps", steps)
		}
	}
	bloom := Bloom(10)
	if _, err := Trim(nil, bloom.Family(), unitsOf(t, bloom, numbered("key", 1000)), 1); err == nil || StepsPerUnit(bloom.Family()) != 1 {
		t.Error("Trim accepts a Bloom filter")
	}
	flipped := bytes.Clone(units[1])
	flipped[1000] ^= 1
	for i, bad := range [][][]byte{nil, {}, {units[1]}, {units[0], flipped}, {units[0][:20]}, {nil}, {units[0], units[1][1:]}} {
		if _, err := Trim(nil, p.Family(), bad, 2); !errors.Is(err, ErrDamaged) {
			t.Errorf("bad units %d: %v", i, err)
		}
		if _, err := Trim(nil, keyedPrefix+p.Family(), bad, 2); err == nil {
			t.Errorf("bad units %d, keyed: no error", i)
		}
	}
}

func TestTrimmedSize(t *testing.T) {
	for _, c := range []struct{ i, n, size, steps, want int }{
		{0, 1, 25600, -1, 0},
		{0, 1, 25600, 0, 0},
		{0, 1, 25600, 1, 472 + 8 + 25128/4},
		{0, 2, 25600, 1, 172 + 8 + 25428/4},
		{0, 2, 25500, 1, 171 + 8 + 25329/4},
		{1, 2, 25600, 1, 72 + 8 + 25528/4},
		{1, 2, 25600, 3, 72 + 8 + 25528*3/4},
		{1, 2, 25600, 4, 25600},
		{1, 2, 25600, 5, 25600},
		{1, 2, 73, 1, 72 + 8},
		{1, 2, 10, 1, 10 + 8},
	} {
		if got := TrimmedSize(ribbonFamily, c.i, c.n, c.size, c.steps); got != c.want {
			t.Errorf("%d steps of unit %d of %d, of %d bytes, take %d, want %d", c.steps, c.i, c.n, c.size, got, c.want)
		}
	}
	if got := TrimmedSize(bloomFamily, 0, 1, 1000, 1); got != 1000 {
		t.Errorf("a unit that cannot be trimmed takes %d bytes, want 1000", got)
	}
}

// TestTrimHuge checks that trimming a unit that claims billions of rows but has no columns takes no
// time and changes nothing.
func TestTrimHuge(t *testing.T) {
	layers := ribbon.Layers(binary.LittleEndian.AppendUint32(nil, 1<<24-1))
	segments, thresholds, err := layers.Sizes()
	if err != nil || thresholds != 0 || segments < 1<<20 {
		t.Fatalf("%d segments, %d bytes of thresholds, %v", segments, thresholds, err)
	}
	c := ribbon.Columns{Count: 1, Cut: int(segments)}
	unit := appendRibbonTrailer(nil, layers, uint32(segments), c, 0, 0)
	unit = binary.LittleEndian.AppendUint32(unit, ribbonSum(unit, 0))
	if _, err := Open(ribbonFamily, [][]byte{unit}); err != nil {
		t.Fatal(err)
	}
	short, err := Trim(nil, ribbonFamily, [][]byte{unit}, 3)
	if err != nil || !bytes.Equal(short, unit) {
		t.Errorf("%x, %v", short, err)
	}
}
