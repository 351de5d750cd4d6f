package measure

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies is a histogram of the durations of single operations, with 3
// significant digits.
type Latencies struct{ h *hdrhistogram.Histogram }

// NewLatencies returns an empty histogram for durations of up to a minute.
func NewLatencies() *Latencies {
	return &Latencies{hdrhistogram.New(1, int64(time.Minute), 3)}
}

// Add records a duration. Durations above a minute count as a minute.
func (l *Latencies) Add(d time.Duration) {
	if l.h.RecordValue(int64(d)) != nil {
		l.h.RecordValue(l.h.HighestTrackableValue())
	}
}

// Merge adds the durations recorded in o.
func (l *Latencies) Merge(o *Latencies) { l.h.Merge(o.h) }

// Count returns the number of durations recorded.
func (l *Latencies) Count() int64 { return l.h.TotalCount() }

// Quantile returns the q-quantile of the durations in nanoseconds, 0 ≤ q ≤ 1.
func (l *Latencies) Quantile(q float64) int64 { return l.h.ValueAtQuantile(100 * q) }

// Mean returns the mean in nanoseconds.
func (l *Latencies) Mean() float64 { return l.h.Mean() }

// Max returns the longest duration in nanoseconds.
func (l *Latencies) Max() int64 { return l.h.Max() }

// Bar is a bar of a histogram: Count operations took at least From and less
// than To ns.
type Bar struct{ From, To, Count int64 }

// Bars returns the histogram with bars whose bounds are powers of two.
func (l *Latencies) Bars() []Bar {
	var bars []Bar
	from := int64(0)
	for _, b := range l.h.Distribution() {
		if b.Count == 0 {
			continue
		}
		for from == 0 || b.From >= 2*from {
			if from == 0 {
				from = 1
				for 2*from <= b.From {
					from *= 2
				}
			} else {
				from *= 2
			}
		}
		if n := len(bars); n > 0 && bars[n-1].From == from {
			bars[n-1].Count += b.Count
		} else {
			bars = append(bars, Bar{From: from, To: 2 * from, Count: b.Count})
		}
	}
	return bars
}
