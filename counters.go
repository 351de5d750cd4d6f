package sift

import (
	"sync/atomic"

	"github.com/siftdb/sift/internal/epoch"
	"github.com/siftdb/sift/internal/manifest"
)

// readCounters count lookups and their filter probes. They are striped, so that lookups on
// different cores rarely write to the same cache line. A lookup of a key that all filters exclude
// costs one addition.
type readCounters struct {
	stripes [epoch.NumStripes]readStripe
}

type readStripe struct {
	// probed counts lookups by the set of levels whose filters they probed; bit i of the set is
	// level i. moreProbes counts further probes of a level by the same lookup: in level 0, and in
	// other levels where adjacent tables share a key.
	probed        [1 << manifest.NumLevels]atomic.Uint64
	moreProbes    [manifest.NumLevels]atomic.Uint64
	truePositive  [manifest.NumLevels]atomic.Uint64
	falsePositive [manifest.NumLevels]atomic.Uint64
	unfiltered    [manifest.NumLevels]atomic.Uint64
	prefixProbes  atomic.Uint64
	prefixUseful  atomic.Uint64
	rangeProbes   atomic.Uint64
	rangeUseful   atomic.Uint64
	_             [64]byte
}

func (c *readCounters) stripe() *readStripe { return &c.stripes[epoch.Stripe()] }

// filterCounts are the sums over all stripes.
type filterCounts struct {
	probes, truePositive, falsePositive, unfiltered [manifest.NumLevels]uint64
	gets, prefixProbes, prefixUseful                uint64
	rangeProbes, rangeUseful                        uint64
}

func (c *readCounters) sum() filterCounts {
	var f filterCounts
	for i := range c.stripes {
		s := &c.stripes[i]
		f.prefixProbes += s.prefixProbes.Load()
		f.prefixUseful += s.prefixUseful.Load()
		f.rangeProbes += s.rangeProbes.Load()
		f.rangeUseful += s.rangeUseful.Load()
		for set := range s.probed {
			n := s.probed[set].Load()
			if n == 0 {
				continue
			}
			f.gets += n
			for level := range f.probes {
				if set>>level&1 != 0 {
					f.probes[level] += n
				}
			}
		}
		for level := range f.probes {
			f.probes[level] += s.moreProbes[level].Load()
			f.truePositive[level] += s.truePositive[level].Load()
			f.falsePositive[level] += s.falsePositive[level].Load()
			f.unfiltered[level] += s.unfiltered[level].Load()
		}
	}
	return f
}
