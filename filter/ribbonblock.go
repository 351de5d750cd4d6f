package filter

import (
	"encoding/binary"

	"github.com/siftdb/sift/filter/internal/ribbon"
)

// ribbonBlockFamily names the units of a Ribbon filter, joined. On disk; do not change.
const ribbonBlockFamily = "sift.Ribbon.joined"

func (p ribbonPolicy) BlockFamily() string { return ribbonBlockFamily }

// MayContainBlock takes what it needs from the last unit, so that an absent key mostly
// costs the memory at the end of the block and that of its first plane.
func (p ribbonPolicy) MayContainBlock(block []byte, key Key) bool {
	// What numJoined, joinedUnit and splitRibbon do, at once.
	ends := len(block) - joinedTrailer
	if ends < 0 {
		return true
	}
	j := binary.LittleEndian.Uint64(block[ends:])
	n := int(j & 0xff) // units
	ends -= 8 * n
	if j>>8 != joinedMagic<<24|joinedVersion || n-1 >= maxRibbonUnits || ends < ribbonTrailerSize {
		return true
	}
	end := ends // of unit 0
	if n != 1 {
		e := binary.LittleEndian.Uint64(block[ends:])
		if e > uint64(ends) {
			return true
		}
		end = int(e)
	}
	t := (*[ribbonTrailerSize]byte)(block[ends-ribbonTrailerSize:])
	layers := int(t[9]) * ribbon.LayerSize
	body := end - ribbonTrailerSize - layers
	if body < 0 {
		return true
	}
	v := uint8(ribbon.Elsewhere)
	if n != 1 || t[8] == ribbon.PlaneColumns && binary.LittleEndian.Uint32(t[4:]) == 0 {
		v = ribbon.Ask(block[ends-ribbonTrailerSize-layers:ends-ribbonTrailerSize],
			binary.LittleEndian.Uint32(t[0:]), block[:body], t[11] == ribbonBumpsBucket, key.Hash)
		if v == ribbon.Rejected {
			return false
		}
	}
	return ribbonBlockMay(block, n, ends, body, v == ribbon.Passed, key.Hash)
}

// ribbonBlockMay asks all planes of n joined units, or all but the first if that has
// passed the hash. The table of the units' ends begins at ends, and the thresholds of
// unit 0 end at body. It says maybe if lengths do not fit.
func ribbonBlockMay(block []byte, n, ends, body int, passed bool, hash uint64) bool {
	u, ok := splitRibbon(block[:ends]) // the last one
	if !ok {
		return true
	}
	segments, size, err := u.layers.Sizes()
	if err != nil || segments != uint64(u.segments) || size > uint64(body) {
		return true
	}
	if u.layers.Len() == 0 {
		return false
	}
	thresholds := body - int(size)
	w, ok := u.layers.Find(block[thresholds:body], hash)
	if !ok {
		return true
	}
	rest := uint64(ribbonTrailerSize + len(u.layers))
	begin, end := uint64(0), uint64(thresholds)
	for i := 0; ; {
		p := ribbon.Plane{Columns: ribbon.Columns{Count: ribbon.PlaneColumns}, Data: block[begin:end]}
		if i == n-1 {
			p.Count, p.Cut = int(u.count), int(u.cut)
		}
		p.First = i * ribbon.PlaneColumns
		if !p.Fits(segments) {
			return true
		}
		if (i > 0 || !passed) && !p.Match(p.Data, w) {
			return false
		}
		if i++; i == n {
			return true
		}
		begin = binary.LittleEndian.Uint64(block[ends+8*(i-1):])
		end = binary.LittleEndian.Uint64(block[ends+8*i:]) - rest
		if begin > end || end > uint64(ends) {
			return true
		}
	}
}
