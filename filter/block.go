package filter

import "encoding/binary"

// BlockPolicy is a Policy whose filters can be probed in their serialized form, for an
// engine that keeps one filter block per table and passes its raw bytes to every lookup,
// as pebble does. The block is a writer's units, joined by JoinUnits, or the unit itself for a
// family that always writes one.
type BlockPolicy interface {
	Policy
	// BlockFamily identifies the format of the block: Family if the family always writes one
	// unit, otherwise another name. On disk; do not change.
	BlockFamily() string
	// MayContainBlock reports false only if the block is well-formed and the key was not
	// added. It costs a few comparisons more than Reader.MayContain, allocates nothing
	// and retains nothing. It checks all lengths but not the checksum, which the caller must
	// have verified: flipped bits may cause a false negative.
	MayContainBlock(block []byte, key Key) bool
}

// BlockDecoder returns a function that probes blocks of a BlockFamily for an unhashed
// key, for callers that know the name of a block's family but have no policy, and for
// engines that look up each key in one block: it is faster than MayContainBlock of a new
// Key. It returns nil for families of other packages.
func BlockDecoder(family string) func(block, key []byte) bool {
	switch family {
	case bloomFamily:
		return bloomAsk
	case fuseFamily:
		return fuseAsk
	case rocksdbFamily:
		return rocksdbAsk
	case ribbonBlockFamily:
		return ribbonAsk
	}
	return nil
}

// Joined units, integers little-endian:
//
//	+------------------+----------------------+--------+--------------------+---------+-----------+--------+---------+
//	| further units,   | ends of the further  | unit 0 | offset of          | count 1 | version 1 | zero 2 | magic 4 |
//	| the last first   | units 8 each         |        | unit 0         8   |         |           |        |         |
//	+------------------+----------------------+--------+--------------------+---------+-----------+--------+---------+
//
// The last unit begins at 0 and each other one at the first multiple of 32 after
// what precedes it, padded with zeros, so that units are aligned if the block is.
// The ends, of units 1, 2, …, lie right before unit 0, and unit 0 right before the
// 16 bytes of the trailer: the trailer of unit 0 is found without reading anything
// else. count is 1 to 64, version 0. The only checksums are those of the units.
//
// The units "ab" and "c" are joined to
//
//	63 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00
//	00 00 00 00 00 00 00 00  01 00 00 00 00 00 00 00
//	61 62  20 00 00 00 00 00 00 00  02 00 00 00  6a 75 6e 74
//
// All of this is on disk; do not change.
const (
	joinedVersion = 0
	joinedMagic   = 0x746e756a // "junt"
	joinedTrailer = 16
	joinedAlign   = 32
	maxJoined     = 64
)

// afterJoined returns where a unit begins whose predecessor ends at end.
func afterJoined(end uint64) uint64 { return (end + joinedAlign - 1) / joinedAlign * joinedAlign }

// JoinUnits joins 1 to 64 units into one block. Any other number of units is an error.
func JoinUnits(units [][]byte) ([]byte, error) {
	if len(units) < 1 || len(units) > maxJoined {
		return nil, damaged("cannot join %d units", len(units))
	}
	var ends [maxJoined]uint64
	end := uint64(0)
	for i := len(units) - 1; i >= 0; i-- {
		if i == 0 {
			end += 8 * uint64(len(units)-1)
		}
		end = afterJoined(end) + uint64(len(units[i]))
		ends[i] = end
	}
	block := AlignedBytes(int(end) + joinedTrailer)
	for i, u := range units {
		copy(block[ends[i]-uint64(len(u)):], u)
	}
	begin := end - uint64(len(units[0]))
	table := block[begin-8*uint64(len(units)-1):]
	for i := range units[1:] {
		binary.LittleEndian.PutUint64(table[8*i:], ends[i+1])
	}
	t := block[end:]
	binary.LittleEndian.PutUint64(t, begin)
	t[8], t[9] = byte(len(units)), joinedVersion
	binary.LittleEndian.PutUint32(t[12:], joinedMagic)
	return block, nil
}

// joined is a block of joined units whose trailer has been read.
type joined struct {
	block []byte // without the trailer
	n     int    // units
	begin uint64 // of unit 0
}

// openJoined reads the trailer of a block.
func openJoined(block []byte) (j joined, ok bool) {
	end := len(block) - joinedTrailer
	if end < 0 {
		return j, false
	}
	t := block[end:]
	j = joined{block[:end], int(t[8]), binary.LittleEndian.Uint64(t)}
	ok = j.n >= 1 && j.n <= maxJoined && t[9] == joinedVersion && t[10] == 0 && t[11] == 0 &&
		binary.LittleEndian.Uint32(t[12:]) == joinedMagic &&
		j.begin <= uint64(end) && j.begin >= 8*uint64(j.n-1)
	return j, ok
}

// end returns the end of unit i, i >= 1, as the block states it, unchecked.
func (j *joined) end(i int) uint64 {
	return binary.LittleEndian.Uint64(j.block[j.begin-8*uint64(j.n-i):])
}

// unit returns unit i, in constant time. It returns false if the unit exceeds the
// block or does not begin where it should.
func (j *joined) unit(i int) (unit []byte, ok bool) {
	table := j.begin - 8*uint64(j.n-1)
	begin, before, end := uint64(0), uint64(0), uint64(len(j.block))
	if i < j.n-1 {
		if before = j.end(i + 1); before > table {
			return nil, false
		}
		begin = afterJoined(before)
	}
	if i > 0 {
		end = j.end(i)
		if end > table {
			return nil, false
		}
	} else {
		if afterJoined(before+8*uint64(j.n-1)) != j.begin {
			return nil, false
		}
		begin = j.begin
	}
	if begin > end {
		return nil, false
	}
	return j.block[begin:end:end], true
}

// zeros reports whether the padding before unit i is zero.
func (j *joined) zeros(i int) bool {
	if i == j.n-1 {
		return true
	}
	before, begin := j.end(i+1), j.begin-8*uint64(j.n-1)
	if i > 0 {
		begin = afterJoined(before)
	}
	for _, b := range j.block[before:begin] {
		if b != 0 {
			return false
		}
	}
	return true
}

// SplitUnits is the inverse of JoinUnits. The units alias the block. An error matches
// ErrDamaged.
func SplitUnits(block []byte) ([][]byte, error) {
	j, ok := openJoined(block)
	if !ok {
		return nil, damaged("invalid trailer of joined units in a block of %d bytes", len(block))
	}
	units := make([][]byte, j.n)
	for i := range units {
		if units[i], ok = j.unit(i); !ok {
			return nil, damaged("unit %d of %d joined units is out of bounds", i, j.n)
		}
	}
	for i := range units {
		if !j.zeros(i) {
			return nil, damaged("nonzero bytes between units %d and %d of %d", i, i+1, j.n)
		}
	}
	return units, nil
}
