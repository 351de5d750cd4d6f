// Package bytesize reads and writes sizes as on command lines, such as 64MiB.
package bytesize

import (
	"fmt"
	"strconv"
	"strings"
)

// Size is a number of bytes. It implements encoding.TextUnmarshaler and TextMarshaler.
type Size int64

// units are the units of sizes. A name that is a suffix of others comes after them.
var units = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50}, {"EiB", 1 << 60},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1},
}

// UnmarshalText reads a size such as 64MiB, 1.5GB or 4096.
func (s *Size) UnmarshalText(text []byte) error {
	for _, u := range units {
		number, ok := strings.CutSuffix(string(text), u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if n *= u.bytes; err != nil || !(n >= 0 && n < 1<<62) {
			break
		}
		*s = Size(n)
		return nil
	}
	return fmt.Errorf("%q is not a size; try 64MiB, 500KB or a number of bytes", text)
}

// MarshalText writes whole GiB and MiB as such, and other sizes in bytes.
func (s Size) MarshalText() ([]byte, error) {
	switch {
	case s > 0 && s%(1<<30) == 0:
		return fmt.Appendf(nil, "%dGiB", s>>30), nil
	case s > 0 && s%(1<<20) == 0:
		return fmt.Appendf(nil, "%dMiB", s>>20), nil
	}
	return fmt.Appendf(nil, "%d", int64(s)), nil
}

// String writes a size for people: with a binary unit and about three digits, such as 1.50MiB.
func (s Size) String() string {
	if s < 1<<10 {
		return strconv.FormatInt(int64(s), 10) + "B"
	}
	x, unit := float64(s), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		if x /= 1 << 10; x < 999.5 {
			break
		}
	}
	decimals := 0
	switch {
	case x < 9.995:
		decimals = 2
	case x < 99.95:
		decimals = 1
	}
	return strconv.FormatFloat(x, 'f', decimals, 64) + unit
}
