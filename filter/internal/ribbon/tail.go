package ribbon

import "encoding/binary"

// TailSize is the size of the tail of a block that holds planes, thresholds and layers. ProbeTail
// reads these fields of it, little-endian; the others are the caller's:
//
//	offset  size
//	 0      4     segments of each plane
//	 4      4     cut of the first plane
//	 8      1     count of the first plane
//	 9      1     number of layers; the layers end where the tail begins
//	11      1     1 if the first layer bumps all keys of some bucket
//	16      8     offset of the first plane in the block; the thresholds follow the plane
const TailSize = 32

// probeTailPlain is ProbeTail without assembly.
func probeTailPlain(block []byte, hash uint64) (verdict uint8) {
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
	q := newQuads(starts, numSegments, body, body[n:], t[11] == 1)
	return probe(&q, hash)
}
