package filter

import "encoding/binary"

// BlockPolicy is a Policy whose filters can be asked where they lie, for an
// engine that keeps one filter block a table and hands its raw bytes to every
// lookup, as pebble does. The block is JoinUnits of what a writer has made, or
// for a family that always writes one unit the unit itself.
type BlockPolicy interface {
	Policy
	// BlockFamily names the meaning of the block: Family for a family that
	// always writes one unit, else another name. On disk; do not change.
	BlockFamily() string
	// MayContainBlock reports false only if the block can be trusted and the
	// key was not added. It costs a few comparisons more than
	// Reader.MayContain, allocates nothing and keeps nothing. It checks all
	// lengths but not the checksum: whoever read the block has done so, and
	// bits that were flipped since may deny a key.
	MayContainBlock(block []byte, key Key) bool
}

// Joined units, integers little-endian:
//
//	+---------------------------+-----------------------+---------+-----------+--------+---------+
//	| units, one after another  | end of each unit 8    | count 1 | version 1 | zero 2 | magic 4 |
//	+---------------------------+-----------------------+---------+-----------+--------+---------+
//
// The first unit begins at 0, so it is aligned as the block is; each further
// one begins where the one before it ends. The last end is where the table of
// ends begins. count is 1 to 64, version 0. There is no checksum besides those
// that the units have.
//
// The units "ab" and "c" are joined to
//
//	61 62 63  02 00 00 00 00 00 00 00  03 00 00 00 00 00 00 00  02 00 00 00  6a 75 6e 74
//
// All of this is on disk; do not change.
const (
	joinedVersion = 0
	joinedMagic   = 0x746e756a // "junt"
	joinedTrailer = 8
	maxJoined     = 64
)

// JoinUnits makes one block of units, 1 to 64 of them.
func JoinUnits(units [][]byte) ([]byte, error) {
	if len(units) < 1 || len(units) > maxJoined {
		return nil, damaged("%d units cannot be joined", len(units))
	}
	size := joinedTrailer
	for _, u := range units {
		size += len(u) + 8
	}
	block := alignedBytes(size)[:0]
	for _, u := range units {
		block = append(block, u...)
	}
	end := 0
	for _, u := range units {
		end += len(u)
		block = binary.LittleEndian.AppendUint64(block, uint64(end))
	}
	block = append(block, byte(len(units)), joinedVersion, 0, 0)
	return binary.LittleEndian.AppendUint32(block, joinedMagic), nil
}

// numJoined returns the number of units in a joined block, or 0 if it is none.
func numJoined(block []byte) int {
	if len(block) < joinedTrailer+8 {
		return 0
	}
	t := block[len(block)-joinedTrailer:]
	n := int(t[0])
	if n < 1 || n > maxJoined || t[1] != joinedVersion || t[2] != 0 || t[3] != 0 ||
		binary.LittleEndian.Uint32(t[4:]) != joinedMagic || len(block) < joinedTrailer+8*n {
		return 0
	}
	return n
}

// joinedUnit returns unit i of a joined block of n units, as numJoined counts
// them. It takes constant time and returns false if the unit does not lie in
// the block.
func joinedUnit(block []byte, n, i int) ([]byte, bool) {
	table := len(block) - joinedTrailer - 8*n
	if table < 0 || i < 0 || i >= n {
		return nil, false
	}
	ends := block[table:]
	start := uint64(0)
	if i > 0 {
		start = binary.LittleEndian.Uint64(ends[8*(i-1):])
	}
	end := binary.LittleEndian.Uint64(ends[8*i:])
	if start > end || end > uint64(table) || i == n-1 && end != uint64(table) {
		return nil, false
	}
	return block[start:end:end], true
}

// SplitUnits undoes JoinUnits. The units alias the block.
func SplitUnits(block []byte) ([][]byte, error) {
	n := numJoined(block)
	if n == 0 {
		return nil, damaged("%d bytes are no joined units", len(block))
	}
	units := make([][]byte, n)
	for i := range units {
		var ok bool
		if units[i], ok = joinedUnit(block, n, i); !ok {
			return nil, damaged("unit %d of %d lies outside of its block", i, n)
		}
	}
	return units, nil
}
