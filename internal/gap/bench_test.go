package gap

import (
	"encoding/binary"
	"testing"
)

// BenchmarkCut measures setting a key without gaps, next to as many gaps as a database records, and
// in one of them, which is then recorded again.
func BenchmarkCut(b *testing.B) {
	key := func(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }
	for _, bench := range []struct {
		name string
		gaps int
		in   int // where in a gap of 100 keys, or beyond it
	}{{"no gaps", 0, 0}, {"beside 1000 gaps", 1000, 150}, {"in one of 1000 gaps", 1000, 50}} {
		b.Run(bench.name, func(b *testing.B) {
			s := NewSet(128 << 10)
			add := func(i int) {
				s.Watch(key(200*i), key(200*i+100), View{}, false).Done(nil, 100)
			}
			for i := range bench.gaps {
				add(i)
			}
			n := 0
			for b.Loop() {
				i := n % 1000
				s.Cut(key(200*i + bench.in))
				if n++; bench.gaps > 0 && bench.in < 100 {
					add(i)
				}
			}
			b.ReportMetric(float64(len(s.Gaps())), "gaps")
		})
	}
}
