package plan

import (
	"math"
	"time"
)

const (
	// Tick is how often the plan is made again.
	Tick = time.Second
	// HalfLife is after how long traffic counts half.
	HalfLife = 4 * time.Second
	// priorShare is the part of all traffic that is taken to be even: it gives
	// tables that were not asked yet their units by size.
	priorShare = 0.02
	// minMovedBytes and movedShare bound what one tick reads: the larger of a
	// number of bytes and a share of the budget.
	minMovedBytes = 4 << 20
	movedShare    = 8
)

// Heat is how often a table is asked for keys that it does not hold, decayed.
type Heat struct {
	Rate float64 // a second
	seen uint64
}

// Cool brings the heat up to date: seen is how often the table has been asked
// so far, elapsed how long ago this was said last.
func (h *Heat) Cool(seen uint64, elapsed time.Duration) {
	keep := math.Exp2(-float64(elapsed) / float64(HalfLife))
	rate := float64(seen-h.seen) / elapsed.Seconds()
	h.Rate, h.seen = keep*h.Rate+(1-keep)*rate, seen
}

// Follow sets the tables' Asked, which give each its share of even traffic, to
// their heat. Where there is none they stay.
func Follow(tables []Table, heat []float64) {
	var total float64
	for _, rate := range heat {
		total += rate
	}
	if total == 0 {
		return
	}
	for i := range tables {
		tables[i].Asked = heat[i] + priorShare*total*tables[i].Asked
	}
}

// MovedBytes is the most that one tick reads.
func MovedBytes(budget int64) int64 { return max(minMovedBytes, budget/movedShare) }
