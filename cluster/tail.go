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
// none.
func laterWrite(data []byte, from int) int {
	first := 0 // where the first write after the last commit may begin
	for at := from + walFrame; at+walFrame <= len(data); at += walFrame {
		switch binary.LittleEndian.Uint32(data[at:]) {
		case walEntry:
			if first == 0 {
				first = at
			}
		case walCommit:
			if first == 0 {
				continue
			}
			if begin := writeBefore(data, first, at); begin > 0 {
				return begin
			}
			first = 0
		}
	}
	return 0
}

// writeBefore returns the start of the write that ends with the commit at an offset, 0 if there is
// none at first or later. Any word may be data that looks like the beginning of an entry, so the
// checksums of all possible writes are computed in one pass, from right to left.
func writeBefore(data []byte, first, commit int) int {
	want := binary.LittleEndian.Uint32(data[commit+4:])
	sum, shift := uint32(0), crcOne // the checksum of data[at:commit], and x to its length in bits
	for at := commit - walFrame; at >= first; at -= walFrame {
		sum ^= mulCRC(crc32.Checksum(data[at:at+walFrame], castagnoli), shift)
		shift = mulCRC(shift, crcWord)
		if sum == want && binary.LittleEndian.Uint32(data[at:]) == walEntry {
			return at
		}
	}
	return 0
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
