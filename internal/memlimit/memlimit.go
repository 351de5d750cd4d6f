// Package memlimit finds how much memory the process may use, for defaults.
package memlimit

import (
	"math"
	"runtime/debug"
	"sync"
)

// Bytes returns how many bytes of memory the process may use: the least of what the
// machine has, the limits of the control groups that the process is in (Linux, versions
// 1 and 2), its limit of address space, and GOMEMLIMIT. It is 0 if none is known.
func Bytes() int64 {
	limit := outer()
	if soft := debug.SetMemoryLimit(-1); soft < math.MaxInt64 {
		limit = lesser(limit, soft)
	}
	return limit
}

// outer is the limit from outside the program, which hardly changes while it runs.
var outer = sync.OnceValue(systemLimit)

// lesser returns the lesser of two limits of which 0 or less stands for none.
func lesser(a, b int64) int64 {
	switch {
	case b <= 0:
		return max(a, 0)
	case a <= 0:
		return b
	}
	return min(a, b)
}
