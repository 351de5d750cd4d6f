package torture

import (
	"encoding/binary"
	"slices"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/record"
)

// rawTable assembles a table from blocks that may be invalid, with correct checksums.
type rawTable struct {
	bytes []byte
	data  []rawEntry // separators and handles
	meta  []rawEntry
}

type rawEntry struct {
	key   string
	value []byte
}

// handle encodes a block handle.
func handle(offset, length uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, offset), length)
}

// block adds a block of a type and returns its handle.
func (t *rawTable) block(payload []byte, blockType byte) []byte {
	offset := len(t.bytes)
	t.bytes = append(append(t.bytes, payload...), blockType)
	t.bytes = binary.LittleEndian.AppendUint32(t.bytes, base.Checksum(t.bytes[offset:]))
	return handle(uint64(offset), uint64(len(payload)))
}

// entries adds a data block and its index entry.
func (t *rawTable) entries(list ...rawEntry) {
	t.data = append(t.data, rawEntry{list[len(list)-1].key, t.block(rawBlock(list...), 0)})
}

// finish adds metaindex, index and footer.
func (t *rawTable) finish() []byte {
	slices.SortFunc(t.meta, func(a, b rawEntry) int {
		switch {
		case a.key < b.key:
			return -1
		case a.key > b.key:
			return 1
		}
		return 0
	})
	return t.footer(t.block(rawBlock(t.meta...), 0), t.block(rawBlock(t.data...), 0))
}

// footer adds the footer.
func (t *rawTable) footer(metaindex, index []byte) []byte {
	f := make([]byte, 40)
	copy(f, slices.Concat(metaindex, index))
	return append(append(t.bytes, f...), 0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb)
}

// rawBlock encodes entries without prefix compression.
func rawBlock(list ...rawEntry) []byte {
	var b []byte
	var restarts []uint32
	for _, e := range list {
		restarts = append(restarts, uint32(len(b)))
		b = binary.AppendUvarint(append(b, 0), uint64(len(e.key)))
		b = binary.AppendUvarint(b, uint64(len(e.value)))
		b = append(append(b, e.key...), e.value...)
	}
	if len(restarts) == 0 {
		restarts = []uint32{0}
	}
	for _, r := range restarts {
		b = binary.LittleEndian.AppendUint32(b, r)
	}
	return binary.LittleEndian.AppendUint32(b, uint32(len(restarts)))
}

// internalKey encodes a user key that is set at a sequence number.
func internalKey(key string, seq uint64) string {
	return string(base.AppendInternalKey(nil, []byte(key), seq, base.KindSet))
}

// rawLog frames records as a log or a MANIFEST.
func rawLog(records ...[]byte) []byte {
	var b sliceWriter
	w := record.NewWriter(&b)
	for _, r := range records {
		if err := w.Append(r); err != nil {
			panic(err) // writing to a slice does not fail
		}
	}
	return b
}

type sliceWriter []byte

func (w *sliceWriter) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}

// Tags of a MANIFEST's edits, as LevelDB has them (db/version_edit.cc).
const (
	tagComparator = 1
	tagLogNumber  = 2
	tagNextFile   = 3
	tagLastSeq    = 4
	tagPointer    = 5
	tagDeleted    = 6
	tagAdded      = 7
)

// rawEdit is an edit under construction.
type rawEdit []byte

// num adds a numeric field.
func (e rawEdit) num(tag, n uint64) rawEdit {
	return binary.AppendUvarint(binary.AppendUvarint(e, tag), n)
}

// str adds length-prefixed bytes.
func (e rawEdit) str(s string) rawEdit {
	return append(binary.AppendUvarint(e, uint64(len(s))), s...)
}

// table adds a table to a level.
func (e rawEdit) table(level, num, size uint64, smallest, largest string) rawEdit {
	e = binary.AppendUvarint(e.num(tagAdded, level), num)
	return rawEdit(binary.AppendUvarint(e, size)).str(smallest).str(largest)
}

// header begins the first edit of a MANIFEST.
func header(logNum, nextFile, lastSeq uint64) rawEdit {
	e := binary.AppendUvarint(nil, tagComparator)
	return rawEdit(e).str("leveldb.BytewiseComparator").num(tagLogNumber, logNum).num(tagNextFile, nextFile).num(tagLastSeq, lastSeq)
}

// rawBatch encodes a batch of a log whose count may be wrong.
func rawBatch(seq uint64, count uint32, ops ...byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, seq)
	return append(binary.LittleEndian.AppendUint32(b, count), ops...)
}
