// Package record frames records in a log: the write-ahead log and the MANIFEST
// are both made of them. The framing is LevelDB's, byte for byte.
package record

// A log is a sequence of blocks of 32 KiB; the last one may be shorter. A
// record is written as one chunk, or as several where it does not fit the rest
// of its block. Integers are little-endian. A chunk is
//
//	offset  size  field
//	0       4     masked CRC-32C (base.Checksum) of the type and the payload
//	4       2     length of the payload
//	6       1     type
//	7       n     payload
//
// and lies within one block, so that a reader can find its feet again at the
// next one. Types are 1 full (a whole record), 2 first, 3 middle and 4 last. A
// record of several chunks is one first, any number of middles, one last. Where
// fewer than 7 bytes are left in a block they are zeros, which readers skip;
// where exactly 7 are left, the record begins with an empty first chunk there.
//
// Example: the record "abc" at the start of a log is
//
//	f2 70 e8 9d  03 00  01  61 62 63
//
// The checksum does not cover the length, but a wrong length takes in other
// bytes, and those it covers. Nothing marks the end of a log: it may end after
// any chunk, and after a power cut at any byte. Type 0 is not written; zeros
// stand where a file was made longer than what was written to it. Readers take
// zeros before something else, and unknown types, for damage; see Reader. On disk;
// nothing of this may ever change.
const (
	// BlockSize is the size of a block in bytes.
	BlockSize = 32 << 10
	// HeaderLen is the number of bytes before a chunk's payload.
	HeaderLen = 7
)

// Chunk types. On disk; do not change.
const (
	typeFull   = 1
	typeFirst  = 2
	typeMiddle = 3
	typeLast   = 4
)
