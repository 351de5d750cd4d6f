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
//	unit 0           +---------+------------+------------+------------+
//	                 | columns | thresholds | layers 4×l | trailer 16 |
//	                 +---------+------------+------------+------------+
//	units 1, 2, …    +---------+------------+------------+
//	                 | columns | layers 4×l | trailer 16 |
//	                 +---------+------------+------------+
//
//	trailer  0  4  segments  number of segments, s
//	         4  4  cut       number of segments, the first ones, that have one column fewer
//	         8  1  count     columns of the unit, at least 1
//	         9  1  l         number of layers, 0 to 8
//	        10  1  unit      0, 1, …
//	        11  1  flags     1 if the first layer bumps a whole bucket, else 0
//	        12  4  checksum  lower half of XXH64 of all bytes of the unit before it; the
//	                         seed is 0 for unit 0, and unit 0's checksum for the others
//
// Any non-empty prefix of the units is a filter. All units but the last have count 4 and cut
// 0. All units together have at most 24 columns. The columns of a unit take
// 8 × (s × count - cut) bytes.
//
// Package internal/ribbon defines how rows are divided into layers, chunks, segments and
// buckets, how the columns of a plane, the thresholds and the layers are laid out, and which
// rows and which fingerprint belong to a key's Hash. Each unit repeats the layers of unit 0;
// they determine s and the length of the thresholds. A filter over no keys has no layers.
//
// Units that do not match this description are rejected. The columns come first so that they
// are aligned if the unit is.
//
// The only unit of the filter over the keys "one", "two" and "three" for an FPR of 0.25, which
// has two columns:
//
//	01 00 00 00 00 00 00 00  03 00 00 00 00 00 00 00
//	01 00 00 00
//	01 00 00 00 00 00 00 00  02 01 00 00 ef 25 d4 cc
//
// All of this is on disk; do not change.
const (
	ribbonFamily      = "sift.Ribbon"
	ribbonBumpsBucket = 1
	ribbonTrailerSize = 16
	ribbonSumSize     = 4
	maxRibbonUnits    = ribbon.MaxColumns/ribbon.PlaneColumns + 1
)

// ribbonSpare returns how many bytes of capacity Build must leave after the columns, for the rest
// of a unit.
func ribbonSpare(n int) int {
	layers := ribbon.Estimate(n)
	_, thresholds, _ := layers.Sizes()
	return int(thresholds) + 2*ribbon.LayerSize*ribbon.MaxLayers + ribbonTrailerSize
}

// encodeRibbon returns the units of a filter.
func encodeRibbon(f ribbon.Filter) [][]byte {
	flags := byte(0)
	if f.Layers.BumpsBucket(f.Thresholds) {
		flags = ribbonBumpsBucket
	}
	segments, _, _ := f.Layers.Sizes()
	seed := uint32(0)
	for i, u := range f.Planes {
		if i == 0 {
			u = append(u, f.Thresholds...)
		}
		u = appendRibbonTrailer(u, f.Layers, uint32(segments), f.Columns[i], i, flags)
		sum := ribbonSum(u, seed)
		u = binary.LittleEndian.AppendUint32(u, sum)
		f.Planes[i] = u
		if i == 0 {
			seed = sum
		}
	}
	return f.Planes
}

// appendRibbonTrailer appends the layers and the trailer without its checksum.
func appendRibbonTrailer(u []byte, layers ribbon.Layers, segments uint32, c ribbon.Columns, unit int, flags uint8) []byte {
	u = append(u, layers...)
	u = binary.LittleEndian.AppendUint32(u, segments)
	u = binary.LittleEndian.AppendUint32(u, uint32(c.Cut))
	return append(u, byte(c.Count), byte(layers.Len()), byte(unit), flags)
}

// ribbonUnit is a unit split into its fields.
type ribbonUnit struct {
	body     []byte // columns, and thresholds in unit 0
	layers   ribbon.Layers
	segments uint32
	cut      uint32
	count    uint8
	index    uint8
	flags    uint8
	sum      uint32
}

// plane returns the unit's plane. REQUIRES: body has no thresholds.
func (u *ribbonUnit) plane(first int) ribbon.Plane {
	return ribbon.Plane{
		Columns: ribbon.Columns{First: first, Count: int(u.count), Cut: int(u.cut)},
		Data:    u.body,
	}
}

// splitRibbon splits a unit. It checks only that the unit is long enough.
func splitRibbon(unit []byte) (u ribbonUnit, ok bool) {
	end := len(unit) - ribbonTrailerSize
	if end < 0 {
		return u, false
	}
	t := (*[ribbonTrailerSize]byte)(unit[end:])
	body := end - int(t[9])*ribbon.LayerSize
	if body < 0 {
		return u, false
	}
	u.body, u.layers = unit[:body], ribbon.Layers(unit[body:end])
	u.segments, u.cut = binary.LittleEndian.Uint32(t[0:]), binary.LittleEndian.Uint32(t[4:])
	u.count, u.index, u.flags = t[8], t[10], t[11]
	u.sum = binary.LittleEndian.Uint32(t[12:])
	return u, true
}

// ribbonSum returns the checksum of b, a unit up to its checksum.
func ribbonSum(b []byte, seed uint32) uint32 {
	var d xxhash.Digest
	d.ResetWithSeed(uint64(seed))
	_, _ = d.Write(b) // never fails
	return uint32(d.Sum64())
}

func openRibbon(units [][]byte) (Reader, error) { return openRibbonAfter(nil, units) }

// openRibbonAfter opens units. It does not verify again those that old, which may be nil, has.
func openRibbonAfter(old *ribbonReader, units [][]byte) (Reader, error) {
	if len(units) < 1 || len(units) > maxRibbonUnits {
		return nil, damaged("Ribbon filter with %d units", len(units))
	}
	r := &ribbonReader{units: slices.Clone(units)}
	var (
		planes     = make([]ribbon.Plane, len(units))
		layers     ribbon.Layers
		thresholds []byte
		next       int
		segments   uint32
		flags      uint8
	)
	for i, unit := range units {
		u, ok := splitRibbon(unit)
		switch {
		case !ok:
			return nil, damaged("invalid trailer of a Ribbon unit of %d bytes", len(unit))
		case int(u.index) != i:
			return nil, damaged("Ribbon unit %d where unit %d is expected", u.index, i)
		case u.flags&^ribbonBumpsBucket != 0:
			return nil, damaged("unknown flags %#x in Ribbon unit %d", u.flags, i)
		}
		seed := r.sum
		if i == 0 {
			s, n, err := u.layers.Sizes()
			if err != nil || n > uint64(len(u.body)) || s != uint64(u.segments) {
				return nil, damaged("invalid layers in a Ribbon unit")
			}
			at := len(u.body) - int(n)
			u.body, thresholds = u.body[:at], u.body[at:]
			layers, segments, flags, r.sum = u.layers, u.segments, u.flags, u.sum
			// Most probes read the thresholds, which are few: a copy keeps them compact in the
			// cache, apart from the columns.
			thresholds = slices.Clone(thresholds)
		} else if string(u.layers) != string(layers) || u.segments != segments || u.flags != flags {
			return nil, damaged("Ribbon unit %d belongs to another filter", i)
		}
		if !old.has(i, unit, r.sum) {
			if ribbonSum(unit[:len(unit)-ribbonSumSize], seed) != u.sum {
				return nil, damaged("checksum mismatch in Ribbon unit %d", i)
			}
			if i == 0 && layers.BumpsBucket(thresholds) != (flags == ribbonBumpsBucket) {
				return nil, damaged("thresholds of a Ribbon filter contradict its flags")
			}
		}
		planes[i] = u.plane(next)
		next += int(u.count)
	}
	var err error
	r.table, err = ribbon.NewTable(layers, thresholds, planes, flags == ribbonBumpsBucket)
	if err != nil {
		return nil, damaged("Ribbon units: %v", err)
	}
	return r, nil
}

// has reports whether r, which may be nil, has verified unit i, in the same memory, of a
// filter whose unit 0 has the given checksum.
func (r *ribbonReader) has(i int, unit []byte, sum uint32) bool {
	return r != nil && i < len(r.units) && r.sum == sum &&
		len(r.units[i]) == len(unit) && unsafe.SliceData(r.units[i]) == unsafe.SliceData(unit)
}
