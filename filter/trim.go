package filter

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/siftdb/sift/filter/internal/ribbon"
)

// ribbonSteps is the number of steps of a Ribbon unit: one per column of a full unit.
const ribbonSteps = ribbon.PlaneColumns

// StepsPerUnit returns the number of steps, of about equal size, in which the units of a family
// can be loaded and dropped. It is 1 if units are indivisible.
func StepsPerUnit(family string) int {
	if strings.TrimPrefix(family, keyedPrefix) == ribbonFamily {
		return ribbonSteps
	}
	return 1
}

// Trim shortens the last of units, a non-empty prefix of the units of a filter: it keeps the
// given number of its first steps, 1 to StepsPerUnit(family)-1. It appends the shorter unit,
// which Open accepts in place of the whole one, to dst, and does not modify units. The shorter
// unit has proportionally fewer bits per key. Damaged units are an error, as with Open, and so
// is any other number of steps.
func Trim(dst []byte, family string, units [][]byte, steps int) ([]byte, error) {
	if steps < 1 || steps >= StepsPerUnit(family) {
		return nil, fmt.Errorf("filter: cannot trim a unit of %q, which has %d steps, to %d", family, StepsPerUnit(family), steps)
	}
	if !IsKeyedFamily(family) || len(units) == 0 {
		return trimRibbon(dst, units, steps)
	}
	at := len(units[0]) - keyedTrailerSize
	if at < 0 {
		return nil, damaged("keyed filter without a trailer")
	}
	inner := append([][]byte{units[0][:at:at]}, units[1:]...)
	dst, err := trimRibbon(dst, inner, steps)
	if err == nil && len(units) == 1 {
		dst = append(dst, units[0][at:]...)
	}
	return dst, err
}

// TrimmedSize returns the maximum number of bytes that Trim appends for unit i of a filter of n
// units, if the whole unit has size bytes.
func TrimmedSize(family string, i, n, size, steps int) int {
	all := StepsPerUnit(family)
	if steps <= 0 {
		return 0
	}
	if steps >= all {
		return size
	}
	// The trailers, the layers and, in unit 0, the thresholds (2 bits per 128 rows) do not
	// shrink.
	fixed := ribbonTrailerSize + ribbon.MaxLayers*ribbon.LayerSize + keyedTrailerSize + ribbon.MaxLayers
	switch {
	case i == 0 && n > 1:
		fixed += size / (64 * ribbon.PlaneColumns)
	case i == 0:
		fixed += size / 64
	}
	fixed = min(fixed, size)
	return fixed + 8 + (size-fixed)*steps/all
}

// trimRibbon is Trim for Ribbon.
func trimRibbon(dst []byte, units [][]byte, steps int) ([]byte, error) {
	if _, err := openRibbon(units); err != nil {
		return nil, err
	}
	last := len(units) - 1
	u, _ := splitRibbon(units[last])
	var thresholds []byte
	seed := uint32(0)
	if last == 0 {
		_, n, _ := u.layers.Sizes()
		at := len(u.body) - int(n)
		u.body, thresholds = u.body[:at], u.body[at:]
	} else {
		first, _ := splitRibbon(units[0])
		seed = first.sum
	}
	from := len(dst)
	columns, dst := u.plane(0).Trim(dst, uint64(u.segments), steps, ribbonSteps)
	dst = append(dst, thresholds...)
	dst = appendRibbonTrailer(dst, u.layers, u.segments, columns, last, u.flags)
	return binary.LittleEndian.AppendUint32(dst, ribbonSum(dst[from:], seed)), nil
}
