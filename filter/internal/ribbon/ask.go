package ribbon

// Ask says what the first plane does of a hash, from bytes that are not known to be
// good: a filter's layers and its number of segments, and body, which has the first
// plane, with four columns in each segment, and the thresholds. whole is
// Layers.BumpsBucket. Where lengths do not fit it says Elsewhere.
func Ask(layers Layers, numSegments uint32, body []byte, whole bool, hash uint64) (verdict uint8) {
	if len(layers) < 2*LayerSize || !canProbe {
		return Elsewhere
	}
	starts := layers.bumping(0)
	n := uint64(numSegments) * (8 * PlaneColumns)
	if starts == 0 || segments(starts) > uint64(numSegments) || n+thresholdBytes(starts) > uint64(len(body)) {
		return Elsewhere
	}
	var q quads
	q.set(starts, uint64(numSegments), body, body[n:], whole)
	return probe(&q, hash)
}
