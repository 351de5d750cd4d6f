// Package record frames records in a log: the write-ahead log and the MANIFEST. The framing is
// LevelDB's, byte for byte.
package record

// A log is a sequence of 32 KiB blocks; the last may be shorter. A record is written as one
// chunk, or as several if it does not fit in the rest of its block. Integers are
// little-endian. A chunk is
//
//	offset  size  field
//	0       4     masked CRC-32C (base.Checksum) of the type and the payload
//	4       2     length of the payload
//	6       1     type
//	7       n     payload
//
// and lies within one block, so that a reader can resynchronize at the next block. Types are 1
// full (a whole record), 2 first, 3 middle and 4 last. A record of several chunks is one
// first, any number of middles, and one last. If fewer than 7 bytes are left in a block they
// are zeros, which readers skip; if exactly 7 are left, the record begins with an empty first
// chunk there.
//
// Example: the record "abc" at the start of a log is
//
//	f2 70 e8 9d  03 00  01  61 62 63
//
// The checksum does not cover the length, but a wrong length changes the bytes that are
// checksummed. Nothing marks the end of a log: it may end after any chunk, and after a power
// cut at any byte. Type 0 is never written; zeros are allocated space that was never written.
// Readers treat zeros that are followed by anything else, and unknown types, as damage; see
// Reader. On disk; none of this may ever change.
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
