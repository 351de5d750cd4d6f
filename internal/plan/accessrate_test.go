package plan

import (
	"math"
	"testing"
	"time"
)

func TestAccessRate(t *testing.T) {
	var h AccessRate
	seen := uint64(0)
	for range 100 {
		seen += 800
		h.Update(seen, time.Second)
	}
	if math.Abs(h.PerSecond-800) > 1 {
		t.Errorf("after 100 seconds with 800 per second the rate is %v", h.PerSecond)
	}
	h.Update(seen, HalfLife)
	if math.Abs(h.PerSecond-400) > 1 {
		t.Errorf("a half-life without traffic leaves %v of 800", h.PerSecond)
	}
}

func TestFollow(t *testing.T) {
	tables := []Table{{AccessRate: 1}, {AccessRate: 0.25}, {AccessRate: 0.75}}
	Follow(tables, []float64{0, 0, 0})
	if tables[0].AccessRate != 1 || tables[1].AccessRate != 0.25 {
		t.Errorf("without traffic the shares became %v", tables)
	}
	Follow(tables, []float64{0, 100, 300})
	for i, want := range []float64{0.02 * 400, 100 + 0.02*400*0.25, 300 + 0.02*400*0.75} {
		if math.Abs(tables[i].AccessRate-want) > 1e-9 {
			t.Errorf("table %d: %v lookups, want %v", i, tables[i].AccessRate, want)
		}
	}
	if MovedBytes(0) != 4<<20 || MovedBytes(1<<30) != 128<<20 {
		t.Errorf("a tick may read %d and %d bytes", MovedBytes(0), MovedBytes(1<<30))
	}
}
