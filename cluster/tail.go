package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/types"
)

// A file of raft-wal begins with a header, which frames follow:
//
//	1 byte   its kind: an entry, an index of all entries, or the end of a write
//	3 bytes  zeros
//	4 bytes  the length of the payload, which is padded to a multiple of 8; at the end of a write,
//	         which has no payload, the CRC-32C of everything since the end of the previous write
//
// Numbers are little-endian. An index seals the file: raft-wal continues in the next one. The last
// write is followed by zeros.
const (
	walHeader = 32
	walFrame  = 8
	walEntry  = 1
	walIndex  = 2
	walCommit = 3
)

// tailFS repairs the file that raft-wal appends to when it is opened. It removes the remains of
// incomplete writes: raft-wal would overwrite only their start, and later read the rest as if it
// followed the new writes. And it replaces a write that seals the file with one that does not,
// because raft-wal neither continues a sealed file nor starts the next one.
//
// It does not change acknowledged entries. Damage to them is an error, even in the sealed files,
// whose headers are all that raft-wal itself checks.
type tailFS struct{ types.VFS }

// OpenReader implements types.VFS. raft-wal calls it for the sealed files when it opens the log.
func (s tailFS) OpenReader(dir, name string) (types.ReadableFile, error) {
	f, err := s.VFS.OpenReader(dir, name)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err == nil {
		err = checkSealed(data)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return f, nil
}

// checkSealed checks all writes of a sealed file.
func checkSealed(data []byte) error {
	if end, _, index := walkWrites(data); index == 0 {
		return fmt.Errorf("%w: the write at %d is damaged", wal.ErrCorrupt, end)
	}
	return nil
}

// OpenWriter implements types.VFS.
func (s tailFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := s.VFS.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err == nil {
		err = repairTail(f, data)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return f, nil
}

// repairTail repairs a file that contains data.
func repairTail(f types.WritableFile, data []byte) error {
	used := min(len(data), (len(bytes.TrimRight(data, "\x00"))+walFrame-1)/walFrame*walFrame)
	end, begin, index := walkWrites(data)
	if index > begin { // entries, then an index that seals the file
		var frame [walFrame]byte
		frame[0] = walCommit
		binary.LittleEndian.PutUint32(frame[4:], crc32.Checksum(data[begin:index], castagnoli))
		if err := writeSynced(f, frame[:], index); err != nil {
			return err
		}
		copy(data[index:], frame[:])
		end = index + walFrame
	} else if index > 0 {
		end = begin
	}
	if end >= used {
		return nil
	}
	if at := laterWrite(data[:used], end); at > 0 {
		return fmt.Errorf("%w: the write at %d is damaged, and another follows at %d", wal.ErrCorrupt, end, at)
	}
	return writeSynced(f, make([]byte, len(data)-end), end)
}

func writeSynced(f types.WritableFile, p []byte, at int) error {
	if _, err := f.WriteAt(p, int64(at)); err != nil {
		return err
	}
	return f.Sync()
}

// walkWrites returns where the last complete write ends and begins, and the offset of the index in
// it, 0 if there is none.
func walkWrites(data []byte) (end, begin, index int) {
	at, seen := walHeader, 0
	for at+walFrame <= len(data) {
		length := uint64(binary.LittleEndian.Uint32(data[at+4:]))
		switch kind := binary.LittleEndian.Uint32(data[at:]); kind {
		case walEntry, walIndex:
			if kind == walIndex && seen == 0 {
				seen = at
			}
			next := uint64(at) + walFrame + (length+7)/8*8
			if next > uint64(len(data)) {
				return end, begin, index
			}
			at = int(next)
		case walCommit:
			if crc32.Checksum(data[end:at], castagnoli) != uint32(length) {
				return end, begin, index
			}
			at += walFrame
			begin, end, index, seen = end, at, seen, 0
			if index > 0 {
				return end, begin, index
			}
		default:
			return end, begin, index
		}
	}
	return end, begin, index
}

// laterWrite returns the start of a complete write that follows an incomplete one, 0 if there is
// none. Any word may be data that looks like the beginning of an entry or the end of a write, so
// for each word the end that its frames lead to is determined, from right to left.
func laterWrite(data []byte, from int) int {
	words, first := len(data)/walFrame, from/walFrame+1
	ends := make([]int32, words+1)  // the end that the frames from a word on lead to, 0 if none
	sums := make([]uint32, words+1) // the checksum of everything before a word
	for i := range words {
		word := data[i*walFrame:][:walFrame]
		sums[i+1] = mulCRC(sums[i], crcWord) ^ crc32.Checksum(word, castagnoli)
	}
	powers := [32]uint32{crcWord} // x to 64, 128, 256 and so on
	for i := 1; i < len(powers); i++ {
		powers[i] = mulCRC(powers[i-1], powers[i-1])
	}
	begin := 0
	for i := words - 1; i >= first; i-- {
		length := binary.LittleEndian.Uint32(data[i*walFrame+4:])
		switch kind := binary.LittleEndian.Uint32(data[i*walFrame:]); kind {
		case walCommit:
			ends[i] = int32(i)
		case walEntry, walIndex:
			next := uint64(i) + 1 + (uint64(length)+7)/8
			if next >= uint64(words) || ends[next] == 0 {
				continue
			}
			end := int(ends[next])
			ends[i] = int32(end)
			sum := sums[i]
			for n, k := end-i, 0; n > 0; n, k = n>>1, k+1 {
				if n&1 != 0 {
					sum = mulCRC(sum, powers[k])
				}
			}
			if kind == walEntry && sums[end]^sum == binary.LittleEndian.Uint32(data[end*walFrame+4:]) {
				begin = i * walFrame
			}
		}
	}
	return begin
}

// Polynomials modulo that of CRC-32C, as CRC-32C represents them: the highest bit is the
// coefficient of x^0.
const (
	crcOne  = uint32(1) << 31
	crcWord = uint32(0x6ea2d55c) // x^64
)

// mulCRC multiplies two polynomials modulo that of CRC-32C. The checksum of a followed by b is
// that of a, times x to the length of b in bits, plus that of b; the sum of polynomials is their
// XOR.
func mulCRC(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a&crcOne != 0 {
			product ^= b
		}
		odd := b & 1
		b = b>>1 ^ -odd&crc32.Castagnoli
	}
	return product
}
