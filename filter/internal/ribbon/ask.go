package ribbon

import "encoding/binary"

// TailSize is the length of the end of a filter whose planes, thresholds and layers
// lie in one block: what AskTail needs, and 8 bytes of the caller's.
//
//	 0  4  segments of each plane
//	 4  4  cut   of the last plane, if it is the only one
//	 8  1  count of its columns
//	 9  1  layers, which lie right before the tail
//	11  1  1: the first layer bumps a whole bucket
//	16  8  where the first plane begins in the block; the thresholds lie behind it
const TailSize = 32

// askTailPlain is AskTail where there is no assembly.
func askTailPlain(block []byte, hash uint64) (verdict uint8) {
	le := binary.LittleEndian
	end := len(block) - TailSize
	t := (*[TailSize]byte)(block[end:])
	layers, begin := int(t[9])*LayerSize, le.Uint64(t[16:])
	end -= layers
	if layers < 2*LayerSize || end < 0 || begin > uint64(end) || le.Uint64(t[4:])<<24 != PlaneColumns<<56 {
		return Elsewhere
	}
	body := block[begin:end]
	starts := Layers(block[end : end+layers]).bumping(0)
	numSegments := uint64(le.Uint32(t[0:]))
	n := numSegments * (8 * PlaneColumns)
	if starts == 0 || segments(starts) > numSegments || n+thresholdBytes(starts) > uint64(len(body)) {
		return Elsewhere
	}
	var q quads
	q.set(starts, numSegments, body, body[n:], t[11] == 1)
	return probe(&q, hash)
}
