package serve

import (
	"math"
	"sync/atomic"

	"github.com/siftdb/sift/internal/redisbloom"
)

// defaults are the parameters of filters that are created without any. They are RedisBloom's
// settings, with its default values.
type defaults struct {
	bloomRate                                                       atomic.Uint64 // bits of a float64
	bloomCapacity, bloomExpansion                                   atomic.Int64
	cuckooCapacity, cuckooBucket, cuckooIterations, cuckooExpansion atomic.Int64
	cuckooLinks                                                     atomic.Int64 // cf-max-expansions
}

func (d *defaults) init() {
	d.setRate(0.01)
	d.bloomCapacity.Store(100)
	d.bloomExpansion.Store(2)
	d.cuckooCapacity.Store(1024)
	d.cuckooBucket.Store(2)
	d.cuckooIterations.Store(20)
	d.cuckooExpansion.Store(1)
	d.cuckooLinks.Store(32)
}

func (d *defaults) rate() float64        { return math.Float64frombits(d.bloomRate.Load()) }
func (d *defaults) setRate(rate float64) { d.bloomRate.Store(math.Float64bits(rate)) }

func (d *defaults) bloom() redisbloom.BloomOptions {
	return redisbloom.BloomOptions{Capacity: uint64(d.bloomCapacity.Load()), Error: d.rate(), Expansion: uint32(d.bloomExpansion.Load())}
}

func (d *defaults) cuckoo() redisbloom.CuckooOptions {
	return redisbloom.CuckooOptions{Capacity: uint64(d.cuckooCapacity.Load()), BucketSize: uint8(d.cuckooBucket.Load()),
		MaxIterations: uint16(d.cuckooIterations.Load()), Expansion: uint16(d.cuckooExpansion.Load())}
}
