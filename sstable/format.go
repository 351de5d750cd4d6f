// Package sstable reads and writes LevelDB's tables: immutable files of sorted entries. Its tables
// have, in addition, a filter over all keys and a properties block. LevelDB, goleveldb, RocksDB and
// pebble can read them.
//
// A Writer writes a table from sorted entries. A Reader looks up keys, probes the table's
// filter, and makes iterators. It is safe for concurrent use. A lookup in a block that is in the
// BlockCache takes no locks and, unless keys are long, does not allocate.
//
// Values that Get returns remain valid. Keys and values of an Iter are valid until its next move or
// Close.
//
// The keys of iterators are internal keys: the user key followed by 8 bytes, little-endian, the
// sequence number << 8 | the kind. Internal keys are ordered by user key, and those of the same
// user key by sequence number, the highest first. Sequence numbers have 56 bits. To seek to the
// newest entry of a user key, use the highest sequence number and KindSet:
//
//	newest := (1<<56-1)<<8 | uint64(sstable.KindSet)
//	ikey := binary.LittleEndian.AppendUint64(slices.Clone(userKey), newest)
//
// To split a key that an iterator returns:
//
//	userKey, trailer := ikey[:len(ikey)-8], binary.LittleEndian.Uint64(ikey[len(ikey)-8:])
//
// A seek to a key of fewer than 8 bytes panics.
//
// Errors about damage are of type *sift.CorruptionError and match sift.ErrCorruption. Errors about
// tables that sift cannot read match sift.ErrUnsupported. Other errors are those of the file.
package sstable

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/siftdb/sift/internal/base"
)

// Kind is the kind of an entry, a uint8: KindDelete or KindSet.
type Kind = base.Kind

// The kinds of entries: a tombstone, and a value.
const (
	KindDelete Kind = 0
	KindSet    Kind = 1
)

var _ = [1]struct{}{}[(KindDelete-base.KindDelete)|(KindSet-base.KindSet)]

// A table, integers little-endian:
//
//	+---------------------+
//	| data blocks ...     |  entries in internal-key order
//	+---------------------+
//	| filter units ...    |  uncompressed; none if there is no filter
//	+---------------------+
//	| range filter        |  uncompressed; at most one
//	+---------------------+
//	| properties          |  uncompressed
//	+---------------------+
//	| metaindex           |  uncompressed, names ascending; name -> handle
//	+---------------------+
//	| index               |  separator -> handle, one entry per data block
//	+---------------------+
//	| footer         48 B |
//	+---------------------+
//
// Each block is followed by a trailer, which its handle's length does not include:
//
//	+--------+--------------------------------------------+
//	| type 1 | masked CRC-32C of the block and the type 4 |
//	+--------+--------------------------------------------+
//
// type is 0 for an uncompressed block, 1 for snappy. A handle consists of the varints of a
// block's offset and length. The footer is at the end of the file:
//
//	offset  size  field
//	0       <=20  handle of the metaindex
//	..      <=20  handle of the index
//	..      ..    zeros, up to offset 40
//	40      8     magic: 57 fb 80 8b 24 75 47 db
//
// Readers find blocks by their handles, so blocks may be in any order. A handle is invalid if
// its block does not end before the footer, or if its varints are malformed. Readers ignore bytes
// after the handles. The footer has no checksum: a wrong handle is detected by the checksum of the
// block to which it points.
//
// This is LevelDB's format (doc/table_format.md of google/leveldb). The magic, the trailer
// and the two handles may never change. sift's additions are meta blocks, which other readers
// skip unless they know the name:
//
//	fullfilter.FAMILY      unit 0 of the table's filter
//	fullfilter.FAMILY.N    unit N, from 1 on
//	rocksdb.properties     see Properties
//	sift.range.FAMILY      the range filter
//
// A table with one entry, "a" = "b" at sequence 1, uncompressed, no filter: the
// data block, its type, ..., and a footer with the metaindex at 473, 32
// bytes long, and the index at 510, 22 bytes long:
//
//	00 09 01 61 01 01 00 00 00 00 00 00 62  00 00 00 00 01 00 00 00  00 ...
//	d9 03 20 fe 03 16  00 ... 00  57 fb 80 8b 24 75 47 db
const (
	footerLen        = 48
	footerMagicStart = 40
	tableMagic       = 0xdb4775248b80fb57
	blockTrailerLen  = 5
)

// Block types. On disk; do not change.
const (
	typePlain  = 0
	typeSnappy = 1
)

// Names of meta blocks. On disk; do not change.
const (
	filterPrefix   = "fullfilter."
	propertiesName = "rocksdb.properties"
	// A table with one of these blocks has range tombstones, which sift does not support.
	rangeDelName  = "rocksdb.range_del"
	rangeDelName2 = "rocksdb.range_del2"
)

// Handle is the location of a block in its file.
type Handle struct {
	Offset uint64 // of the block's first byte
	Length uint64 // without the 5-byte trailer
}

// end returns the offset after the block's trailer. It cannot overflow for handles that
// readHandle returned.
func (h Handle) end() uint64 { return h.Offset + h.Length + blockTrailerLen }

func appendHandle(dst []byte, h Handle) []byte {
	dst = binary.AppendUvarint(dst, h.Offset)
	return binary.AppendUvarint(dst, h.Length)
}

var errHandle = errors.New("block handle outside the file")

// readHandle reads the handle of a block that must end, trailer included, at or before
// limit.
func readHandle(c *base.Cursor, limit uint64) (Handle, error) {
	h := Handle{Offset: c.Uvarint(), Length: c.Uvarint()}
	if err := c.Err(); err != nil {
		return Handle{}, err
	}
	if h.Offset > limit || limit-h.Offset < blockTrailerLen || h.Length > limit-h.Offset-blockTrailerLen {
		return Handle{}, fmt.Errorf("%w: offset %d, length %d", errHandle, h.Offset, h.Length)
	}
	if h.Length > maxBlockLen {
		return Handle{}, fmt.Errorf("block of %d bytes exceeds the maximum", h.Length)
	}
	return h, nil
}

// maxBlockLen is the maximum length of a block, compressed or not. Offsets within a block have
// 32 bits; half of that range keeps sums from overflowing.
const maxBlockLen = 1<<31 - 1 - 64

type footer struct {
	metaindex, index Handle
}

func appendFooter(dst []byte, f footer) []byte {
	start := len(dst)
	dst = appendHandle(dst, f.metaindex)
	dst = appendHandle(dst, f.index)
	dst = append(dst, make([]byte, start+footerMagicStart-len(dst))...)
	return binary.LittleEndian.AppendUint64(dst, tableMagic)
}

// decodeFooter decodes the last footerLen bytes of a table of the given size. It returns an invalid
// metaindex handle as metaErr and not as err: entries can be read without the metaindex.
func decodeFooter(src []byte, size int64) (f footer, metaErr, err error) {
	if magic := binary.LittleEndian.Uint64(src[footerMagicStart:]); magic != tableMagic {
		return footer{}, nil, wrongMagic(magic, binary.LittleEndian.Uint32(src[footerMagicStart-4:]))
	}
	limit := uint64(size - footerLen)
	c := base.NewCursor(src[:footerMagicStart])
	f.metaindex, metaErr = readHandle(&c, limit)
	if c.Err() != nil {
		return footer{}, nil, c.Err() // the index handle cannot be located
	}
	f.index, err = readHandle(&c, limit)
	return f, metaErr, err
}

// wrongMagic returns the error for a table with an unexpected magic. It names the formats of other
// engines.
func wrongMagic(magic uint64, version uint32) error {
	switch magic {
	case 0x88e241b785f4cff7:
		return fmt.Errorf("%w: RocksDB table, format_version %d", base.ErrUnsupported, version)
	case 0xb3aa9ff0b3aa9ff0:
		return fmt.Errorf("%w: pebble table, version %d", base.ErrUnsupported, version)
	case 0x8242229663bf9564, 0x4f3418eb7a8f13b8:
		return fmt.Errorf("%w: RocksDB plain table", base.ErrUnsupported)
	case 0x926789d0c5f17873:
		return fmt.Errorf("%w: RocksDB cuckoo table", base.ErrUnsupported)
	}
	return fmt.Errorf("not a table: magic %#016x", magic)
}

// unknownType returns the error for a block of unsupported type. It names types of other engines.
func unknownType(t byte) error {
	name := "unknown"
	switch t {
	case 2:
		name = "zstd of LevelDB or zlib of RocksDB"
	case 3:
		name = "bzip2"
	case 4, 5:
		name = "lz4"
	case 6:
		name = "xpress"
	case 7:
		name = "zstd"
	}
	return fmt.Errorf("%w: block type %d (%s)", base.ErrUnsupported, t, name)
}
