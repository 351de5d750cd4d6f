// Package memlimit determines how much memory the process may use, for defaults.
package memlimit

import (
	"math"
	"runtime/debug"
	"sync"
)

// Bytes returns the memory limit of the process in bytes: the least of the machine's memory,
// the limits of its control groups (Linux, version 1, and version 2 with memory.max and
// memory.high), its address space limit, GOMEMLIMIT and, on 32-bit systems, 2 GiB. It is 0 if none
// is known.
func Bytes() int64 {
	limit := outer()
	if math.MaxInt == math.MaxInt32 {
		limit = lesser(limit, 2<<30) // the process cannot address much more
	}
	if soft := debug.SetMemoryLimit(-1); soft < math.MaxInt64 {
		limit = lesser(limit, soft)
	}
	return limit
}

// outer is the limit from outside the program. It is read once.
var outer = sync.OnceValue(systemLimit)

// lesser returns the lesser of two limits, where 0 or less means no limit.
func lesser(a, b int64) int64 {
	switch {
	case b <= 0:
		return max(a, 0)
	case a <= 0:
		return b
	}
	return min(a, b)
}
