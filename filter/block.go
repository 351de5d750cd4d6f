package filter

import "encoding/binary"

// BlockPolicy is a Policy whose filters can be probed in their serialized form, for
// engines such as pebble that keep one filter block per table and pass its raw bytes to
// every probe. The block consists of a writer's units, joined by JoinUnits; for a family
// that always writes one unit, it is that unit. The policies of this package are
// BlockPolicies, except None and keyed ones.
type BlockPolicy interface {
	Policy
	// BlockFamily identifies the format of the block: it is Family if the family always
	// writes one unit, otherwise another name. On disk; do not change.
	BlockFamily() string
	// MayContainBlock reports false only if the block is damaged or the key was not added. It takes
	// a few more comparisons than Reader.MayContain, and neither allocates nor retains memory. It
	// reads nothing outside the block, and returns true if the block ends too early. It does not
	// verify the checksum; the caller must have done so: flipped bits, or missing bytes at the
	// front, may cause a false negative.
	MayContainBlock(block []byte, key Key) bool
}

// BlockDecoder returns a function that probes blocks of the given BlockFamily for an
// unhashed key. It is for callers that know the name of the family but have no policy, and
// for engines that probe a single block per key: hashing and probing in one function is
// faster than MayContainBlock of a new Key. It returns nil for families of other packages,
// and for keyed ones.
func BlockDecoder(family string) func(block, key []byte) bool {
	switch family {
	case bloomFamily:
		return bloomBlockMayContainBytes
	case fuseFamily:
		return fuseBlockMayContainBytes
	case rocksdbFamily:
		return rocksdbBlockMayContainBytes
	case ribbonBlockFamily:
		return ribbonBlockMayContainBytes
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
// The last unit begins at offset 0. Each other unit begins at the first multiple of 32
// after what precedes it, with zeros as padding, so that all units are aligned if the
// block is. The ends of units 1, 2, … lie before unit 0, with padding between, and unit 0
// right before the 16 bytes of the trailer, so that its own trailer is found without
// reading anything else. count is the number of units, 1 to 64; version is 0. The only
// checksums are those of the units.
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

// afterJoined returns the offset of a unit if what precedes it in the block ends at end.
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
	n     int    // the number of units
	begin uint64 // the offset of unit 0
}

// openJoined reads and checks the trailer of a block.
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

// end returns the end of unit i, i >= 1, as the block states it. It checks nothing.
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

// zeroPadded reports whether the padding before unit i is zero. REQUIRES: unit(i) succeeds.
func (j *joined) zeroPadded(i int) bool {
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

// SplitUnits is the inverse of JoinUnits. The units alias the block. Its errors match
// ErrDamaged.
func SplitUnits(block []byte) ([][]byte, error) {
	j, ok := openJoined(block)
	if !ok {
		return nil, damaged("invalid trailer of joined units in a block of %d bytes", len(block))
	}
	units := make([][]byte, j.n)
	for i := range units {
		if units[i], ok = j.unit(i); !ok {
			return nil, damaged("invalid bounds of unit %d of %d joined units", i, j.n)
		}
	}
	for i := range units {
		if !j.zeroPadded(i) {
			return nil, damaged("nonzero bytes between units %d and %d of %d", i, i+1, j.n)
		}
	}
	return units, nil
}
