// Package bytesize reads sizes on command lines, such as 64MiB.
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
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1},
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
