package ribbon

import (
	"encoding/binary"
	"errors"
)

const (
	// LayerSize is the size in bytes of a layer's entry in Layers.
	LayerSize = 4
	// MaxLayers is the maximum number of layers. Two billion keys that hash well need six.
	MaxLayers = 8

	// lastSeedShift is the shift of the seed in the last layer's entry. On disk.
	lastSeedShift   = 24
	lastSegmentMask = 1<<lastSeedShift - 1
)

// Layers describes the layers of a filter in order, 4 bytes each, little-endian. For a bumping
// layer it is the number of segments that its starts fill; for the last layer, the number of its
// segments in the lower 24 bits and its seed above them. A filter over no keys has no layers. If
// the last layer has no segments, no seed worked for its keys, and a lookup that reaches it returns
// true.
//
// Segments are numbered consecutively across layers. So are buckets, except that the thresholds of
// each layer begin with a new byte.
type Layers []byte

// Len returns the number of layers.
func (l Layers) Len() int { return len(l) / LayerSize }

func (l Layers) entry(i int) uint32 { return binary.LittleEndian.Uint32(l[i*LayerSize:]) }

// bumping returns the number of starts of a bumping layer.
func (l Layers) bumping(i int) (starts uint64) { return uint64(l.entry(i)) * width }

// last returns the number of starts and the seed of the last layer, 0 starts if it has no segments.
// REQUIRES: there are layers.
func (l Layers) last() (starts uint64, seed uint8) {
	e := l.entry(l.Len() - 1)
	segments := uint64(e & lastSegmentMask)
	if segments == 0 {
		return 0, 0
	}
	return segments*width - (width - 1), uint8(e >> lastSeedShift)
}

// chunks returns the number of chunks of a bumping layer.
func chunks(starts uint64) uint64 { return (starts + chunkStarts - 1) >> chunkShift }

// segments returns the number of segments of a bumping layer.
func segments(starts uint64) uint64 { return starts/width + chunks(starts) }

// thresholdBytes returns the size in bytes of the thresholds of a bumping layer.
func thresholdBytes(starts uint64) uint64 { return (starts + 4*bucketStarts - 1) / (4 * bucketStarts) }

var errLayers = errors.New("invalid layers")

// Sizes returns the number of segments of each plane and the size of the thresholds in bytes, or an
// error if the layers are invalid.
func (l Layers) Sizes() (numSegments, numThresholds uint64, err error) {
	n := l.Len()
	if len(l)%LayerSize != 0 || n > MaxLayers {
		return 0, 0, errLayers
	}
	if n == 0 {
		return 0, 0, nil
	}
	for i := range n - 1 {
		starts := l.bumping(i)
		if starts == 0 {
			return 0, 0, errLayers
		}
		numSegments += segments(starts)
		numThresholds += thresholdBytes(starts)
	}
	return numSegments + uint64(l.entry(n-1)&lastSegmentMask), numThresholds, nil
}

// Window is the position of a key's equation: the segment in which it begins, its coefficients in
// that segment and in the one after it, and its fingerprint.
type Window struct {
	segment uint64
	lo, hi  uint64
	print   uint32
}

// windowAt returns the window of hash h, given its start within its layer and the start's segment.
func windowAt(h, start, segment uint64) Window {
	coeff, s := coeffOf(h), start%width
	return Window{segment, coeff << s, coeff >> 1 >> (width - 1 - s), printOf(h)}
}

// bumps reports whether the keys of a start are bumped. bucket is the index of the start's bucket
// in thresholds.
func bumps(thresholds []byte, bucket, start uint64) bool {
	t := thresholds[bucket/4] >> (bucket % 4 * 2) & 3
	return uint64(t) <= classOf(start)
}

// classOf returns the class of a start.
func classOf(start uint64) uint64 {
	at := start % bucketStarts
	return (at-class0)>>63 + (at-class1)>>63
}

// BumpsBucket reports whether the first layer bumps all keys of some bucket. This is rare. If it
// does not, a lookup need not read the threshold of a start of class 0.
// REQUIRES: thresholds have the size that Sizes returns.
func (l Layers) BumpsBucket(thresholds []byte) bool {
	if l.Len() < 2 {
		return false
	}
	n := (l.bumping(0) + bucketStarts - 1) >> bucketShift
	for bucket := range n {
		if thresholds[bucket/4]>>(bucket%4*2)&3 == 0 {
			return true
		}
	}
	return false
}

// Find returns the window of a key, or false if the key is bumped to a last layer without segments,
// which excludes no key. REQUIRES: there are layers, and thresholds have the size that Sizes
// returns.
func (l Layers) Find(thresholds []byte, hash uint64) (Window, bool) {
	return l.find(thresholds, hash, 0)
}

// find is Find for a key that is not in a layer before i. h is its hash in layer i.
func (l Layers) find(thresholds []byte, h uint64, i int) (Window, bool) {
	segment, bucket := uint64(0), uint64(0)
	last := l.Len() - 1
	for k := range last {
		starts := l.bumping(k)
		if k >= i {
			start := startOf(h, starts)
			if !bumps(thresholds, bucket+start>>bucketShift, start) {
				return windowAt(h, start, segment+start/width+start>>chunkShift), true
			}
			h = nextHash(h)
		}
		segment += segments(starts)
		bucket += thresholdBytes(starts) * 4
	}
	starts, seed := l.last()
	if starts == 0 {
		return Window{}, false
	}
	h = lastHash(h, seed)
	start := startOf(h, starts)
	return windowAt(h, start, segment+start/width), true
}

// ShareBelow returns the fraction of hashes whose windows begin in segments below cut. bumped
// returns the fraction of hashes that a layer bumps.
func (l Layers) ShareBelow(cut int, bumped func(layer int) float64) float64 {
	share, rest := 0.0, 1.0
	left := uint64(cut)
	for i := range l.Len() - 1 {
		starts := l.bumping(i)
		// The last segment of each chunk has no starts.
		n := min(left, segments(starts))
		below := n/chunkSegments*chunkStarts + min(n%chunkSegments, chunkStarts/width)*width
		on := bumped(i)
		share += rest * (1 - on) * float64(min(below, starts)) / float64(starts)
		rest *= on
		left -= n
	}
	if l.Len() == 0 {
		return share
	}
	if starts, _ := l.last(); starts > 0 {
		share += rest * float64(min(left*width, starts)) / float64(starts)
	}
	return share
}

// bumped returns the fraction of absent hashes that a layer bumps, according to its thresholds.
func (l Layers) bumped(thresholds []byte, layer int) float64 {
	bucket := uint64(0)
	for i := range layer {
		bucket += thresholdBytes(l.bumping(i)) * 4
	}
	starts := l.bumping(layer)
	n := uint64(0)
	for at := uint64(0); at < starts; at += bucketStarts {
		below := [...]uint64{bucketStarts, class0, class1, 0}[thresholds[bucket/4]>>(bucket%4*2)&3]
		n += min(below, starts-at)
		bucket++
	}
	return float64(n) / float64(starts)
}
