package ribbon

import (
	"encoding/binary"
	"errors"
)

const (
	// LayerSize is the number of bytes that describe a layer.
	LayerSize = 4
	// MaxLayers bounds the layers of a filter. Keys that hash well need no more than six.
	MaxLayers = 8

	// lastSeedShift separates the fields of the last layer's entry. On disk.
	lastSeedShift   = 24
	lastSegmentMask = 1<<lastSeedShift - 1
)

// Layers describes the layers of a filter in order, in 4 bytes each, little-endian:
// the number of segments that a layer's starts fill; for the last layer the number
// of its segments in the lower 24 bits and its seed above. No layers: there are no
// keys. A last layer without segments: its keys did not fit, so all probes of it return true.
//
// Segments are numbered consecutively: those of the first layer, then those of the next.
// So are buckets, but those of each layer begin with a new byte.
type Layers []byte

// Len is the number of layers.
func (l Layers) Len() int { return len(l) / LayerSize }

func (l Layers) entry(i int) uint32 { return binary.LittleEndian.Uint32(l[i*LayerSize:]) }

// bumping returns the number of starts of a layer that bumps.
func (l Layers) bumping(i int) (starts uint64) { return uint64(l.entry(i)) * width }

// last returns starts and seed of the last layer. Without starts it returns true.
func (l Layers) last() (starts uint64, seed uint8) {
	e := l.entry(l.Len() - 1)
	segments := uint64(e & lastSegmentMask)
	if segments == 0 {
		return 0, 0
	}
	return segments*width - (width - 1), uint8(e >> lastSeedShift)
}

// chunks is the number of chunks of a layer that bumps.
func chunks(starts uint64) uint64 { return (starts + chunkStarts - 1) >> chunkShift }

// segments is the number of segments of a layer that bumps.
func segments(starts uint64) uint64 { return starts/width + chunks(starts) }

// thresholdBytes is the length of the thresholds of a layer that bumps.
func thresholdBytes(starts uint64) uint64 { return (starts + 4*bucketStarts - 1) / (4 * bucketStarts) }

var errLayers = errors.New("impossible layers")

// Sizes returns the number of segments of each plane and the length of the thresholds,
// or an error if there are no such layers.
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

// Window is where a key's equation lies: its segment, the coefficients that fall
// into it, and those that fall into the segment after it.
type Window struct {
	segment uint64
	lo, hi  uint64
	print   uint32
}

func windowAt(h, start, segment uint64) Window {
	coeff, s := coeffOf(h), start%width
	return Window{segment, coeff << s, coeff >> 1 >> (width - 1 - s), printOf(h)}
}

// bumps reports whether a start's key is in a later layer. bucket is the start's
// bucket among all of the thresholds.
func bumps(thresholds []byte, bucket, start uint64) bool {
	t := thresholds[bucket/4] >> (bucket % 4 * 2) & 3
	return uint64(t) <= classOf(start)
}

// classOf is the class of a start within its bucket.
func classOf(start uint64) uint64 {
	at := start % bucketStarts
	return (at-class0)>>63 + (at-class1)>>63
}

// BumpsBucket reports whether the first layer bumps a whole bucket. That is rare, and
// else a start of class 0 need not look at its threshold.
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

// Find returns the window of a key, or false if the key reached a last layer that returns
// true for all. There must be layers, and thresholds of their size.
func (l Layers) Find(thresholds []byte, hash uint64) (Window, bool) {
	return l.find(thresholds, hash, 0)
}

// find returns the window of a key from its hash in layer i, or false if the key
// came to a last layer that returns true. There must be layers, thresholds of their size,
// and the key must not be in a layer before i.
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

// ShareBelow is the share of hashes that end up in segments below cut, if bumped
// tells the share of the hashes in a layer that go on to the next.
func (l Layers) ShareBelow(cut int, bumped func(layer int) float64) float64 {
	share, rest := 0.0, 1.0
	left := uint64(cut)
	for i := range l.Len() - 1 {
		starts := l.bumping(i)
		// Each chunk's last segment has no starts.
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

// bumped returns the share of the hashes in a layer that its thresholds bump.
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
