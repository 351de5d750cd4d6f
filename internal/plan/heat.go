package plan

import (
	"math"
	"time"
)

const (
	// Tick is the interval between plans.
	Tick = time.Second
	// HalfLife is the half-life of past traffic in the access rates.
	HalfLife = 4 * time.Second
	// priorShare is the share of the traffic that is assumed to be uniform, so that tables
	// without traffic get steps in proportion to their size.
	priorShare = 0.02
	// One tick reads at most minMovedBytes, or the budget divided by movedShare if that
	// is more; see Changes for larger steps.
	minMovedBytes = 4 << 20
	movedShare    = 8
)

// Heat is a table's access rate: the rate of lookups of absent keys that reach it, with
// exponential decay.
type Heat struct {
	Rate float64 // per second
	seen uint64
}

// Cool updates the rate: seen is the number of such lookups so far, elapsed the time since
// the last call.
func (h *Heat) Cool(seen uint64, elapsed time.Duration) {
	keep := math.Exp2(-float64(elapsed) / float64(HalfLife))
	rate := float64(seen-h.seen) / elapsed.Seconds()
	h.Rate, h.seen = keep*h.Rate+(1-keep)*rate, seen
}

// Follow replaces the tables' Heat, which on entry is each table's share of uniform traffic, by
// the measured rates plus a small part of these shares. Without traffic it changes nothing.
func Follow(tables []Table, heat []float64) {
	var total float64
	for _, rate := range heat {
		total += rate
	}
	if total == 0 {
		return
	}
	for i := range tables {
		tables[i].Heat = heat[i] + priorShare*total*tables[i].Heat
	}
}

// MovedBytes returns the limit that one tick passes to Changes, given the budget in bytes.
func MovedBytes(budget int64) int64 { return max(minMovedBytes, budget/movedShare) }
