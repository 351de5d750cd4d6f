package filter

import (
	"encoding/binary"
	"math"

	"github.com/siftdb/sift/filter/internal/ribbon"
	"github.com/siftdb/sift/filter/internal/xxh3"
)

// ribbonBlockFamily is the family of the joined units of a Ribbon filter. On disk; do not change.
const ribbonBlockFamily = "sift.Ribbon.joined"

func (p ribbonPolicy) BlockFamily() string { return ribbonBlockFamily }

// ribbonTail is the size of the tail of joined units: the trailer of unit 0 and that of the block.
const ribbonTail = ribbonTrailerSize + joinedTrailer

var _ = [1]struct{}{}[ribbonTail-ribbon.TailSize] // fails to compile unless both are equal

func (p ribbonPolicy) MayContainBlock(block []byte, key Key) bool {
	return ribbonMayContainBlock(block, key)
}

// ribbonMayContainBlock reads the tail of the block, which describes the units, and then the
// first plane, where most probes of absent keys end.
func ribbonMayContainBlock(block []byte, key Key) bool {
	if !hasRibbonTail(block) {
		return true
	}
	v := ribbon.ProbeTail(block, key.Hash)
	if v == ribbon.Rejected {
		return false
	}
	return ribbonBlockMay(block, key.Hash, v == ribbon.Passed)
}

// ribbonBlockMayContainBytes is ribbonMayContainBlock for an unhashed key. It makes as few calls
// as possible, and reads the tail before it hashes the key, for the reason that NewKey states.
func ribbonBlockMayContainBytes(block, key []byte) bool {
	if !hasRibbonTail(block) {
		return true
	}
	var hash uint64
	if n := len(key); n > 8 && n <= 16 {
		hash = xxh3.Sum9to16(key)
	} else {
		hash = Hash(key)
	}
	v := ribbon.ProbeTail(block, hash)
	if v == ribbon.Rejected {
		return false
	}
	return ribbonBlockMay(block, hash, v == ribbon.Passed)
}

// hasRibbonTail reports whether a block ends like 1 to maxRibbonUnits joined units.
func hasRibbonTail(block []byte) bool {
	const one = joinedMagic<<32 | joinedVersion<<8 | 1
	return len(block) >= ribbonTail && binary.LittleEndian.Uint64(block[len(block)-8:])-one < maxRibbonUnits
}

// ribbonBlockMay probes all planes of joined units, except the first one if passed reports that the
// hash has passed it. It returns true if the lengths in the block contradict each other.
// REQUIRES: hasRibbonTail(block).
func ribbonBlockMay(block []byte, hash uint64, passed bool) bool {
	t := (*[ribbonTail]byte)(block[len(block)-ribbonTail:])
	numLayers, end := uint64(t[9])*ribbon.LayerSize, uint64(len(block)-ribbonTail)
	if numLayers > end {
		return true
	}
	end -= numLayers
	layers := ribbon.Layers(block[end : end+numLayers])
	begin, n := binary.LittleEndian.Uint64(t[ribbonTrailerSize:]), uint64(t[ribbonTail-8])
	segments, size, err := layers.Sizes()
	table := begin - 8*(n-1)
	if err != nil || segments != uint64(binary.LittleEndian.Uint32(t[0:])) ||
		begin > end || size > end-begin || table > begin {
		return true
	}
	at := end - size // of the thresholds
	if layers.Len() == 0 {
		return n > 1 || at != begin
	}
	w, ok := layers.Find(block[at:end], hash)
	if !ok {
		return true
	}
	rest := ribbonTrailerSize + numLayers
	for i, begin, end := uint64(0), begin, at; ; {
		data := block[begin:end]
		p := ribbon.Columns{First: int(i) * ribbon.PlaneColumns, Count: ribbon.PlaneColumns}
		if words := uint64(len(data)) / 8; words != segments*ribbon.PlaneColumns {
			// Only the last unit may have another size, which determines its columns.
			if words > math.MaxUint32 || segments-1 >= math.MaxUint32 {
				return true
			}
			count := uint64((uint32(words) + uint32(segments) - 1) / uint32(segments))
			p.Count, p.Cut = int(count), int(count*segments-words)
		}
		if i < n-1 && (p.Count != ribbon.PlaneColumns || p.Cut != 0) || !(ribbon.Plane{Columns: p, Data: data}).Fits(segments) {
			return true
		}
		if (i > 0 || !passed) && !p.Match(data, w) {
			return false
		}
		if i++; i == n {
			return true
		}
		begin, end = 0, binary.LittleEndian.Uint64(block[table+8*(i-1):])-rest
		if i < n-1 {
			begin = afterJoined(min(binary.LittleEndian.Uint64(block[table+8*i:]), table))
		}
		if end > table || begin > end {
			return true
		}
	}
}
