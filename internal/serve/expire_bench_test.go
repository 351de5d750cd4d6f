package serve

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"
)

// BenchmarkExpire sets a million keys that expire within some seconds, and gets keys while they are
// removed. It reports how many are removed per second, how long a GET takes meanwhile, and how much
// is left on disk some seconds later.
func BenchmarkExpire(b *testing.B) {
	keys := 1_000_000
	if testing.Short() {
		keys = 20_000
	}
	const batch, lifetime = 1000, 8000 // keys, milliseconds
	for b.Loop() {
		s := start(b, b.TempDir(), Config{})
		c := dial(b, s)
		value := string(make([]byte, 100))
		var calls []byte
		begin := time.Now()
		for from := 0; from < keys; from += batch {
			calls = calls[:0]
			for i := from; i < from+batch; i++ {
				left := lifetime + i*7919%lifetime - int(time.Since(begin).Milliseconds())
				calls = appendCall(calls, "SET", fmt.Sprintf("session:%08d", i), value, "PX", strconv.Itoa(max(1, left)))
			}
			if _, err := c.conn.Write(calls); err != nil {
				b.Fatal(err)
			}
			for range batch {
				if got := c.reply(); got != simple("OK") {
					b.Fatal(got)
				}
			}
		}
		set := time.Since(begin)
		var gets []time.Duration
		first := time.Time{}
		for s.stats.expired.Load() < uint64(keys) {
			if first.IsZero() && s.stats.expired.Load() > 0 {
				first = time.Now()
			}
			at := time.Now()
			c.do("GET", fmt.Sprintf("session:%08d", len(gets)*7919%keys))
			gets = append(gets, time.Since(at))
			if at.Sub(begin) > 55*time.Second {
				b.Fatalf("%d of %d keys have expired", s.stats.expired.Load(), keys)
			}
		}
		gone := time.Now()
		slices.Sort(gets)
		b.ReportMetric(float64(keys)/set.Seconds(), "sets/s")
		b.ReportMetric(float64(keys)/gone.Sub(first).Seconds(), "expired/s")
		b.ReportMetric(gone.Sub(begin).Seconds()-2*lifetime/1000, "s-late")
		b.ReportMetric(float64(gets[len(gets)/2].Nanoseconds()), "GET-ns")
		b.ReportMetric(float64(gets[len(gets)*999/1000].Nanoseconds()), "GET-p99.9-ns")
		var size uint64
		for range 50 {
			if size, _ = s.db.ApproximateSize(nil, nil); size < 1<<20 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		b.ReportMetric(float64(size)/(1<<20), "MiB-left")
	}
}
