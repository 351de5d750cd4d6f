package ribbon

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"unsafe"
)

// Plane is some consecutive columns of a filter, and their data.
type Plane struct {
	Columns
	Data []byte
}

// Table is a filter for lookups. It is immutable, and its methods may be called concurrently.
// NewTable has validated all sizes that a lookup relies on.
type Table struct {
	quads
	layers Layers
	planes []Plane
}

// quads is what a probe of the first plane needs for hashes in the first layer, if that layer bumps
// and the plane has four columns in each segment. Most lookups of absent keys end there.
type quads struct {
	starts     uint64         // of the first layer
	data       unsafe.Pointer // of the first plane
	count      uint32         // segments that another one follows; 0 if quads cannot be used
	bumpEnd    uint32         // only starts below it within their bucket may be bumped
	thresholds []byte
}

// newQuads returns quads. whole is BumpsBucket of the layers.
// REQUIRES: data and thresholds are long enough.
func newQuads(starts, numSegments uint64, data, thresholds []byte, whole bool) quads {
	bumpEnd := uint32(class0)
	if whole {
		bumpEnd = bucketStarts
	}
	return quads{
		starts:     starts,
		data:       unsafe.Pointer(unsafe.SliceData(data)),
		count:      uint32(numSegments - 1),
		bumpEnd:    bumpEnd,
		thresholds: thresholds,
	}
}

var (
	errThresholds = errors.New("thresholds do not match the layers")
	errPlane      = errors.New("columns do not match the layers")
)

// NewTable returns a table over the first planes of a filter, at least one, or an error if sizes
// contradict each other. whole must be what BumpsBucket returns. The table aliases its arguments.
func NewTable(layers Layers, thresholds []byte, planes []Plane, whole bool) (Table, error) {
	numSegments, numThresholds, err := layers.Sizes()
	if err != nil {
		return Table{}, err
	}
	if uint64(len(thresholds)) != numThresholds {
		return Table{}, errThresholds
	}
	next := 0
	for i, p := range planes {
		if p.First != next || !p.Fits(numSegments) || i < len(planes)-1 && (p.Count != PlaneColumns || p.Cut != 0) {
			return Table{}, errPlane
		}
		next += p.Count
	}
	t := Table{layers: layers, planes: planes}
	if len(planes) == 0 {
		return Table{}, errPlane
	}
	t.thresholds = thresholds
	if p := &planes[0]; layers.Len() > 1 && p.Count == PlaneColumns && p.Cut == 0 && numSegments <= math.MaxUint32 && canProbe {
		t.quads = newQuads(layers.bumping(0), numSegments, p.Data, thresholds, whole)
	}
	return t, nil
}

// Fits reports whether the plane's data has the size for numSegments segments, and each column a
// fingerprint bit.
func (p Plane) Fits(numSegments uint64) bool {
	if p.First < 0 || p.Count < 1 || p.First+p.Count > MaxColumns || p.Cut < 0 || uint64(p.Cut) > numSegments {
		return false
	}
	return uint64(len(p.Data)) == (numSegments*uint64(p.Count)-uint64(p.Cut))*8
}

// Trim returns the leading columns of a plane that take num/den of its words: a description of
// them, and dst with their data appended. It takes time proportional to the number of words.
// REQUIRES: 0 < num < den; p.Fits(segments).
func (p Plane) Trim(dst []byte, segments uint64, num, den int) (Columns, []byte) {
	words := uint64(len(p.Data)) / 8 * uint64(num) / uint64(den)
	c := Columns{First: p.First, Count: 1, Cut: int(segments)}
	from := segments // the first segment that has a word
	if words > 0 {
		count := (words + segments - 1) / segments
		c.Count, c.Cut = int(count), int(segments*count-words)
		from = 0
		if count == 1 {
			from = uint64(c.Cut)
		}
	}
	for i := from; i < segments; i++ {
		at, _ := p.position(i)
		_, n := c.position(i)
		dst = append(dst, p.Data[at*8:(at+n)*8]...)
	}
	return c, dst
}

// FPR returns the expected false positive rate.
func (t *Table) FPR() float64 {
	if len(t.layers) == 0 {
		return 0
	}
	bumped := func(layer int) float64 { return t.layers.bumped(t.thresholds, layer) }
	c := t.planes[len(t.planes)-1].Columns
	p := math.Exp2(-float64(c.First + c.Count))
	if c.Cut > 0 {
		p *= 1 + t.layers.ShareBelow(c.Cut, bumped)
	}
	if starts, _ := t.layers.last(); starts == 0 {
		// Nothing that is bumped to the last layer is excluded.
		positive := 1.0
		for i := range t.layers.Len() - 1 {
			positive *= bumped(i)
		}
		p = positive + (1-positive)*p
	}
	return p
}

// Verdicts of a probe of the first plane.
const (
	Rejected  = 0 // the hash was not added
	Passed    = 1 // the hash is in the first layer, and its equations in the first plane hold
	Elsewhere = 2 // unknown: the hash may be in another layer, or the fast path cannot be used
)

// contains reports whether the filter may contain a hash. False is certain.
func (t *Table) contains(hash uint64) bool {
	v := t.Probe(hash)
	return v != Rejected && t.After(hash, v)
}

// Probe probes the first plane and returns a verdict. It is inlined.
func (t *Table) Probe(hash uint64) (verdict uint8) { return probe(&t.quads, hash) }

// Prefetch prefetches the memory that Probe reads.
func (t *Table) Prefetch(hash uint64) { fetch(&t.quads, hash) }

// After completes a lookup: it reports whether the filter may contain a hash for which Probe
// returned a verdict other than Rejected.
func (t *Table) After(hash uint64, verdict uint8) bool {
	if verdict == Passed {
		return t.rest(hash)
	}
	return t.find(hash, 0)
}

// rest is contains for a hash that has passed the first plane in the first layer.
func (t *Table) rest(hash uint64) bool {
	planes := t.planes[1:]
	if len(planes) == 0 {
		return true
	}
	start := startOf(hash, t.starts)
	w := windowAt(hash, start, start/width+start>>chunkShift)
	if len(planes) > 1 {
		for i := range planes {
			planes[i].prefetch(w.segment)
		}
	}
	for i := range planes {
		if !planes[i].Match(planes[i].Data, w) {
			return false
		}
	}
	return true
}

// find is contains for a hash that is not in a layer before the given one. h is the hash in that
// layer.
func (t *Table) find(h uint64, layer int) bool {
	if len(t.layers) == 0 {
		return false
	}
	w, ok := t.layers.find(t.thresholds, h, layer)
	if !ok {
		return true
	}
	for i := range t.planes {
		if !t.planes[i].Match(t.planes[i].Data, w) {
			return false
		}
	}
	return true
}

// prefetch prefetches the memory that Match reads.
func (p *Plane) prefetch(segment uint64) {
	at, n := p.position(segment)
	words := p.Data[at*8 : min((at+2*n)*8, uint64(len(p.Data)))]
	for len(words) > cacheLine {
		prefetch(unsafe.Pointer(unsafe.SliceData(words)))
		words = words[cacheLine:]
	}
	if len(words) > 0 {
		prefetch(unsafe.Pointer(unsafe.SliceData(words)))
		prefetch(unsafe.Pointer(&words[len(words)-1]))
	}
}

const cacheLine = 64

// Match reports whether a key's equations hold in the columns of a plane with the given data.
// REQUIRES: Fits, for the plane.
func (c Columns) Match(data []byte, w Window) bool {
	at, n := c.position(w.segment)
	lo := data[at*8:]
	hi := lo
	if uint64(len(lo)) > n*8 {
		hi = lo[n*8:]
	} // else this is the last segment, and w.hi is 0
	print := w.print >> (c.First & 31)
	for ; n >= 4; n -= 4 {
		if !match4((*[32]byte)(lo), (*[32]byte)(hi), w, print) {
			return false
		}
		lo, hi, print = lo[32:], hi[32:], print>>4
	}
	bad := uint32(0)
	for range n {
		x := binary.LittleEndian.Uint64(lo)&w.lo ^ binary.LittleEndian.Uint64(hi)&w.hi
		bad |= uint32(bits.OnesCount64(x)) ^ print
		lo, hi, print = lo[8:], hi[8:], print>>1
	}
	return bad&1 == 0
}

// match4 reports whether a key's equations hold in four columns. lo and hi are the words of the
// two segments of its window.
func match4(lo, hi *[32]byte, w Window, print uint32) bool {
	le := binary.LittleEndian
	x0 := le.Uint64(lo[0:])&w.lo ^ le.Uint64(hi[0:])&w.hi
	x1 := le.Uint64(lo[8:])&w.lo ^ le.Uint64(hi[8:])&w.hi
	x2 := le.Uint64(lo[16:])&w.lo ^ le.Uint64(hi[16:])&w.hi
	x3 := le.Uint64(lo[24:])&w.lo ^ le.Uint64(hi[24:])&w.hi
	bad := uint32(bits.OnesCount64(x0)) ^ print
	bad |= uint32(bits.OnesCount64(x1)) ^ print>>1
	bad |= uint32(bits.OnesCount64(x2)) ^ print>>2
	bad |= uint32(bits.OnesCount64(x3)) ^ print>>3
	return bad&1 == 0
}
