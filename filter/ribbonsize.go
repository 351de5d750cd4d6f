package filter

import (
	"math"

	"github.com/siftdb/sift/filter/internal/ribbon"
)

// maxRibbonEstimate is the number of keys up to which expect estimates a filter's layers.
// Beyond it, sizes are extrapolated in proportion.
const maxRibbonEstimate = 1 << 24

// expect returns the size and FPR for the estimated layers. From 1,000 keys on, the size is
// off by at most 0.5%.
func (p ribbonPolicy) expect(n float64) (bytes, fpr float64) {
	at := min(n, maxRibbonEstimate)
	layers := ribbon.Estimate(int(at))
	segments, thresholds, _ := layers.Sizes()
	bytes = float64(thresholds)
	var last ribbon.Columns
	for _, last = range p.columns(int(at)) {
		bytes += float64(last.Size(int(segments)) + len(layers) + ribbonTrailerSize)
	}
	share := 0.0 // of the keys that have one column fewer
	if last.Cut > 0 {
		share = layers.ShareBelow(last.Cut, ribbon.ExpectBumped)
	}
	return bytes * n / at, math.Ldexp(1+share, -(last.First + last.Count))
}

// chooseRibbon returns the policy whose FPR is p, clamped to RibbonFPR's bounds.
func chooseRibbon(_, p float64) Policy { return RibbonFPR(p) }
