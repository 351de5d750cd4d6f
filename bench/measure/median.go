package measure

import (
	"math"
	"slices"
)

// Median returns the median, the mean of the two middle values if their number is even, and NaN
// if there are none.
func Median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if len(v) == 0 {
		return math.NaN()
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
