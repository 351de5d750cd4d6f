package filter

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/siftdb/sift/filter/internal/ribbon"
)

// ribbonParts is in how many parts a Ribbon unit can be held: a column each, where
// it has four.
const ribbonParts = ribbon.PlaneColumns

// Parts returns the number of parts, of about equal size, in which a unit of a family can
// be held in memory: 1 if a unit can only be held as a whole.
func Parts(family string) int {
	if strings.TrimPrefix(family, keyedPrefix) == ribbonFamily {
		return ribbonParts
	}
	return 1
}

// Trim appends to dst the first parts, 1 to Parts(family)-1, of the last of a filter's
// first units: a shorter unit that Open accepts in its place. Each part left out costs
// its share of the bits per key. The units are not modified. Damaged units give an error,
// as with Open.
func Trim(dst []byte, family string, units [][]byte, parts int) ([]byte, error) {
	if parts < 1 || parts >= Parts(family) {
		return nil, fmt.Errorf("filter: %d of the %d parts of a unit of %q", parts, Parts(family), family)
	}
	if !IsKeyedFamily(family) || len(units) == 0 {
		return trimRibbon(dst, units, parts)
	}
	at := len(units[0]) - keyedTrailerSize
	if at < 0 {
		return nil, damaged("a keyed filter without its trailer")
	}
	inner := append([][]byte{units[0][:at:at]}, units[1:]...)
	dst, err := trimRibbon(dst, inner, parts)
	if err == nil && len(units) == 1 {
		dst = append(dst, units[0][at:]...)
	}
	return dst, err
}

// TrimmedSize returns the most bytes that Trim appends for unit i of n, whose full size
// is size bytes.
func TrimmedSize(family string, i, n, size, parts int) int {
	all := Parts(family)
	if parts <= 0 {
		return 0
	}
	if parts >= all {
		return size
	}
	// What does not shrink: the trailers, the layers, and in unit 0 the thresholds,
	// which take 2 bits for the keys of some 128 rows.
	fixed := ribbonTrailerSize + ribbon.MaxLayers*ribbon.LayerSize + keyedTrailerSize + ribbon.MaxLayers
	switch {
	case i == 0 && n > 1:
		fixed += size / (64 * ribbon.PlaneColumns)
	case i == 0:
		fixed += size / 64
	}
	fixed = min(fixed, size)
	return fixed + 8 + (size-fixed)*parts/all
}

// trimRibbon is Trim for units of Ribbon.
func trimRibbon(dst []byte, units [][]byte, parts int) ([]byte, error) {
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
	columns, dst := u.plane(0).Trim(dst, uint64(u.segments), parts, ribbonParts)
	dst = append(dst, thresholds...)
	dst = appendRibbonTrailer(dst, u.layers, u.segments, columns, last, u.flags)
	return binary.LittleEndian.AppendUint32(dst, ribbonSum(dst[from:], seed)), nil
}
