package filter

import (
	"encoding/binary"
	"slices"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"github.com/siftdb/sift/filter/internal/ribbon"
)

// The Ribbon units, family "sift.Ribbon". Integers are little-endian.
//
//	unit 0           +---------+------------+---------------+------------+
//	                 | columns | thresholds | layers 4 × l  | trailer 12 |
//	                 +---------+------------+---------------+------------+
//	units 1, 2, …    +---------+---------------+------------+
//	                 | columns | layers 4 × l  | trailer 12 |
//	                 +---------+---------------+------------+
//
//	trailer  0  4  cut       segments, the first ones, that have one column fewer
//	         4  1  count     columns of the unit, at least 1
//	         5  1  l         number of layers, 0 to 8
//	         6  1  unit      0, 1, …
//	         7  1  version   0
//	         8  4  checksum  lower half of XXH64 of all bytes of the unit before it; the
//	                         seed is 0 for unit 0, the checksum of unit 0 for the others
//
// Keys have the Hash of this package; internal/ribbon says how it becomes start,
// coefficients and fingerprint, and how columns, thresholds and layers are laid out.
// Every unit has the same layers, which determine the number of segments s and the length
// of the thresholds; columns take 8 × (s × count - cut) bytes. A unit's first column is
// that after the last one of the unit before it; there are at most 24. All units but
// the last have count 4 and cut 0. Anything else is refused; there is nothing to skip.
// No layers: a filter over no keys. The columns come first so that in aligned memory
// they are aligned too, and each unit repeats the layers so that the last one tells all.
//
// The only unit over the one key "a", whose hash is d24ec4f1a98c6e5b, for an FPR of 0.5:
//
// # EXAMPLE
//
// All of this is on disk; do not change.
const (
	ribbonFamily      = "sift.Ribbon"
	ribbonVersion     = 0
	ribbonTrailerSize = 12
	ribbonSumSize     = 4
	maxRibbonUnits    = ribbon.MaxColumns/ribbon.PlaneColumns + 1
)

// ribbonSpare is the room that Build is to leave after the columns for the rest of a unit.
func ribbonSpare(n int) int {
	layers := ribbon.Estimate(n)
	_, thresholds, _ := layers.Sizes()
	return int(thresholds) + 2*ribbon.LayerSize*ribbon.MaxLayers + ribbonTrailerSize
}

// encodeRibbon returns the units of a filter.
func encodeRibbon(f ribbon.Filter) [][]byte {
	seed := uint32(0)
	for i, u := range f.Planes {
		if i == 0 {
			u = append(u, f.Thresholds...)
		}
		u = append(u, f.Layers...)
		u = binary.LittleEndian.AppendUint32(u, uint32(f.Columns[i].Cut))
		u = append(u, byte(f.Columns[i].Count), byte(f.Layers.Len()), byte(i), ribbonVersion)
		sum := ribbonSum(u, seed)
		u = binary.LittleEndian.AppendUint32(u, sum)
		f.Planes[i] = u
		if i == 0 {
			seed = sum
		}
	}
	return f.Planes
}

// ribbonUnit is what a unit says of itself.
type ribbonUnit struct {
	body    []byte // columns, and thresholds in unit 0
	layers  ribbon.Layers
	columns ribbon.Columns // without First
	sum     uint32
}

// splitRibbon splits unit i, and checks no more than that it can be split.
func splitRibbon(unit []byte, i int) (u ribbonUnit, err error) {
	body := len(unit) - ribbonTrailerSize
	if body < 0 {
		return u, damaged("%d bytes are no Ribbon unit", len(unit))
	}
	t := unit[body:]
	if t[7] != ribbonVersion {
		return u, damaged("Ribbon version %d is unknown", t[7])
	}
	if int(t[6]) != i {
		return u, damaged("Ribbon unit %d in place of unit %d", t[6], i)
	}
	body -= int(t[5]) * ribbon.LayerSize
	if body < 0 {
		return u, damaged("%d layers in a Ribbon unit of %d bytes", t[5], len(unit))
	}
	cut := binary.LittleEndian.Uint32(t)
	u.body = unit[:body]
	u.layers = ribbon.Layers(unit[body : len(unit)-ribbonTrailerSize])
	u.columns = ribbon.Columns{Count: int(t[4]), Cut: int(cut)}
	u.sum = binary.LittleEndian.Uint32(t[8:])
	return u, nil
}

// ribbonSum is the checksum over all of a unit but the checksum.
func ribbonSum(b []byte, seed uint32) uint32 {
	d := xxhash.NewWithSeed(uint64(seed))
	_, _ = d.Write(b)
	return uint32(d.Sum64())
}

func openRibbon(units [][]byte) (Reader, error) { return openRibbonAfter(nil, units) }

// openRibbonAfter opens units, of which those that old has need no check of their sums.
func openRibbonAfter(old *ribbonReader, units [][]byte) (Reader, error) {
	if len(units) < 1 || len(units) > maxRibbonUnits {
		return nil, damaged("%d units in a Ribbon filter", len(units))
	}
	r := &ribbonReader{units: slices.Clone(units)}
	var (
		planes     = make([]ribbon.Plane, len(units))
		first      ribbonUnit
		thresholds []byte
		next       int
	)
	for i, unit := range units {
		u, err := splitRibbon(unit, i)
		if err != nil {
			return nil, err
		}
		seed := first.sum
		if i == 0 {
			_, n, err := u.layers.Sizes()
			if err != nil || n > uint64(len(u.body)) {
				return nil, damaged("impossible layers in a Ribbon unit")
			}
			at := len(u.body) - int(n)
			u.body, thresholds = u.body[:at], u.body[at:]
			first = u
		} else if string(u.layers) != string(first.layers) {
			return nil, damaged("Ribbon unit %d of another filter", i)
		}
		if !old.has(i, unit, first.sum) && ribbonSum(unit[:len(unit)-ribbonSumSize], seed) != u.sum {
			return nil, damaged("checksum of Ribbon unit %d", i)
		}
		u.columns.First = next
		next += u.columns.Count
		planes[i] = ribbon.Plane{Columns: u.columns, Data: u.body}
	}
	r.sum = first.sum
	var err error
	if r.table, err = ribbon.NewTable(first.layers, thresholds, planes); err != nil {
		return nil, damaged("Ribbon unit: %v", err)
	}
	return r, nil
}

// has reports whether the reader has checked a unit of a filter whose unit 0 has
// the given sum.
func (r *ribbonReader) has(i int, unit []byte, sum uint32) bool {
	return r != nil && i < len(r.units) && r.sum == sum &&
		len(r.units[i]) == len(unit) && unsafe.SliceData(r.units[i]) == unsafe.SliceData(unit)
}
