package base

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the masked CRC-32C that LevelDB stores: the CRC rotated right by
// 15 bits plus a constant, so that a CRC of bytes that contain CRCs stays sound.
// The parts are checksummed as if they were one. On disk; do not change.
func Checksum(parts ...[]byte) uint32 {
	var c uint32
	for _, p := range parts {
		c = crc32.Update(c, castagnoli, p)
	}
	return (c>>15 | c<<17) + 0xa282ead8
}
