package ribbon

import "unsafe"

// View finds keys in a filter whose planes lie somewhere else, without keeping
// anything.
type View struct {
	// First is the data of the first plane.
	First []byte

	table    Table // without planes
	segments uint64
}

// NewView returns a view of the layers. body is the first plane and the thresholds
// after it. It returns false if their lengths do not fit.
func NewView(layers Layers, first Columns, body []byte) (v View, ok bool) {
	numSegments, numThresholds, err := layers.Sizes()
	if err != nil || numThresholds > uint64(len(body)) {
		return v, false
	}
	at := len(body) - int(numThresholds)
	v.First, v.segments = body[:at], numSegments
	if !v.Fits(first, v.First) {
		return v, false
	}
	v.table.thresholds, v.table.layers = body[at:], layers
	v.table.lay(first, v.First, numSegments)
	return v, true
}

// lay prepares probe for the first plane.
func (t *Table) lay(c Columns, data []byte, numSegments uint64) {
	if t.layers.Len() < 2 {
		return
	}
	t.starts = t.layers.bumping(0)
	if c.Count == PlaneColumns && c.Cut == 0 && canProbe {
		t.quad, t.quads = unsafe.Pointer(unsafe.SliceData(data)), numSegments-1
	}
}

// Fits reports whether columns have data for each segment of the view.
func (v *View) Fits(c Columns, data []byte) bool { return Plane{c, data}.fits(v.segments) }

// Rejects reports whether the first plane alone tells that a hash was not added. It
// does so for most.
func (v *View) Rejects(hash uint64) bool { return probe(&v.table, hash) == rejected }

// Empty reports whether there are no keys.
func (v *View) Empty() bool { return len(v.table.layers) == 0 }

// LayerBytes is the length of the layers.
func (v *View) LayerBytes() int { return len(v.table.layers) }

// Find returns the rows of a hash, or false if there are none: either the view is
// empty, or the last layer says maybe.
func (v *View) Find(hash uint64) (Window, bool) {
	if v.Empty() {
		return Window{}, false
	}
	return v.table.layers.find(v.table.thresholds, hash, 0)
}
