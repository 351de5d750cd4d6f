package base

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the masked CRC-32C of the parts as if joined, as LevelDB stores it: the CRC
// rotated right by 15 bits plus a constant, so that a checksum over bytes that contain
// checksums remains useful. On disk; do not change.
func Checksum(parts ...[]byte) uint32 {
	var c uint32
	for _, p := range parts {
		c = crc32.Update(c, castagnoli, p)
	}
	return (c>>15 | c<<17) + 0xa282ead8
}
