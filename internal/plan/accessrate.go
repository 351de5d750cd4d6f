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
	// priorShare is the uniform traffic that Follow adds, as a share of the measured traffic, so
	// that tables without traffic get steps, too.
	priorShare = 0.02
	// One tick reads at most minMovedBytes, or 1/movedShare of the budget if that is more,
	// except for a single larger step; see Changes.
	minMovedBytes = 4 << 20
	movedShare    = 8
)

// AccessRate is the access rate of a table, with exponential decay: the rate of lookups of absent
// keys that reach it, or, for a range filter, of scans of ranges in which it holds no key.
type AccessRate struct {
	PerSecond float64
	seen      uint64
}

// Skip makes the next Update ignore the lookups or scans so far.
func (r *AccessRate) Skip(seen uint64) { r.seen = seen }

// Update updates the rate. seen is the number of lookups or scans so far, elapsed the time since
// the last call.
func (r *AccessRate) Update(seen uint64, elapsed time.Duration) {
	keep := math.Exp2(-float64(elapsed) / float64(HalfLife))
	latest := float64(seen-r.seen) / elapsed.Seconds()
	r.PerSecond, r.seen = keep*r.PerSecond+(1-keep)*latest, seen
}

// Follow replaces the tables' AccessRate, their shares of uniform traffic, with the measured rates
// plus a small amount of uniform traffic. It changes nothing if all rates are 0.
func Follow(tables []Table, rates []float64) {
	var total float64
	for _, rate := range rates {
		total += rate
	}
	if total == 0 {
		return
	}
	for i := range tables {
		tables[i].AccessRate = rates[i] + priorShare*total*tables[i].AccessRate
	}
}

// MovedBytes returns the limit for Changes in one tick, given the budget in bytes.
func MovedBytes(budget int64) int64 { return max(minMovedBytes, budget/movedShare) }
