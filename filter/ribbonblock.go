package filter

import "github.com/siftdb/sift/filter/internal/ribbon"

// ribbonBlockFamily names the units of a Ribbon filter, joined. On disk; do not change.
const ribbonBlockFamily = "sift.Ribbon.joined"

func (p ribbonPolicy) BlockFamily() string { return ribbonBlockFamily }

// MayContainBlock takes the layers from the last unit, so that an absent key mostly
// costs the memory at the end of the block and that of its first plane.
func (p ribbonPolicy) MayContainBlock(block []byte, key Key) bool {
	n := numJoined(block)
	unit, ok := joinedUnit(block, n, n-1)
	if !ok {
		return true
	}
	last, err := splitRibbon(unit, n-1)
	if err != nil {
		return true
	}
	first := last
	if n > 1 {
		// Unit 0 has the same layers, and four columns.
		unit, ok = joinedUnit(block, n, 0)
		body := len(unit) - ribbonTrailerSize - len(last.layers)
		if !ok || body < 0 {
			return true
		}
		first.body = unit[:body]
		first.columns = ribbon.Columns{Count: ribbon.PlaneColumns}
	}
	view, ok := ribbon.NewView(last.layers, first.columns, first.body)
	if !ok {
		return true
	}
	if view.Rejects(key.Hash) {
		return false
	}
	return ribbonBlockMay(block, n, &view, last.columns, key.Hash)
}

// ribbonBlockMay asks the planes in n joined units one after the other. Lengths that
// do not fit mean maybe.
func ribbonBlockMay(block []byte, n int, view *ribbon.View, last ribbon.Columns, hash uint64) bool {
	w, ok := view.Find(hash)
	if !ok {
		return !view.Empty()
	}
	for i := range n {
		columns := ribbon.Columns{Count: ribbon.PlaneColumns}
		if i == n-1 {
			columns = last
		}
		columns.First = i * ribbon.PlaneColumns
		data := view.First
		if i > 0 {
			unit, ok := joinedUnit(block, n, i)
			body := len(unit) - ribbonTrailerSize - view.LayerBytes()
			if !ok || body < 0 {
				return true
			}
			data = unit[:body]
		}
		if !view.Fits(columns, data) {
			return true
		}
		if !columns.Match(data, w) {
			return false
		}
	}
	return true
}
