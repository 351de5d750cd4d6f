package manifest

import (
	"encoding/binary"
	"fmt"

	"github.com/siftdb/sift/internal/base"
)

// A MANIFEST is a log (package record) whose records are edits. An edit is a
// sequence of fields, each a tag and its values. Numbers are varints; a string
// is a varint length and as many bytes:
//
//	tag  field              values
//	  1  comparator         name string
//	  2  log number         number; older logs hold nothing that the tables lack
//	  3  next file number   number
//	  4  last sequence      number
//	  5  compaction pointer level, internal key string
//	  6  deleted table      level, file number
//	  7  new table          level, file number, size, smallest and largest internal key strings
//	  9  previous log       number; 0 except in very old databases
//
// LevelDB once used tag 8; it is not reused. If a single-valued field (1-4, 9) occurs twice, the
// last value counts. Other tags are invalid, and so are a level of 65,536 or more, an internal key
// of fewer than eight bytes or of an unknown kind, a table whose smallest key is above its largest,
// and bytes after the last whole field. The record's checksum covers everything. A reader rejects
// unknown fields, since one of them might name a table. sift and LevelDB write levels up to 6;
// goleveldb also writes higher ones. On disk; do not change.
//
// Example: log 4, next file 6, table 5 of 1048 bytes at level 2, from "a" at
// sequence 3 to "b" at sequence 1:
//
//	02 04 | 03 06 | 07 02 05 98 08 09 61 01 03 00 00 00 00 00 00 09 62 01 01 00 00 00 00 00 00
const (
	tagComparator  = 1
	tagLogNumber   = 2
	tagNextFile    = 3
	tagLastSeq     = 4
	tagPointer     = 5
	tagDeleted     = 6
	tagAdded       = 7
	tagPrevLogNum  = 9
	comparatorName = "leveldb.BytewiseComparator"
)

// Edit is the difference between two versions, together with the counters that changed. A nil
// counter is unchanged.
type Edit struct {
	Comparator *string
	LogNumber  *uint64
	PrevLogNum *uint64
	NextFile   *uint64
	LastSeq    *uint64
	Pointers   []Pointer
	Deleted    []DeletedTable
	Added      []AddedTable
}

// Pointer says where the next compaction of a level begins: after Key, an encoded internal key.
type Pointer struct {
	Level int
	Key   []byte
}

// DeletedTable removes a table from a level.
type DeletedTable struct {
	Level int
	Num   uint64
}

// AddedTable adds a table to a level. To move a table, delete and add the same *TableMeta in
// one edit.
type AddedTable struct {
	Level int
	Table *TableMeta
}

// appendTo appends the encoded edit, with the fields in LevelDB's order.
func (e *Edit) appendTo(dst []byte) []byte {
	if e.Comparator != nil {
		dst = binary.AppendUvarint(dst, tagComparator)
		dst = appendString(dst, []byte(*e.Comparator))
	}
	for _, f := range []struct {
		tag uint64
		v   *uint64
	}{{tagLogNumber, e.LogNumber}, {tagPrevLogNum, e.PrevLogNum}, {tagNextFile, e.NextFile}, {tagLastSeq, e.LastSeq}} {
		if f.v != nil {
			dst = binary.AppendUvarint(dst, f.tag)
			dst = binary.AppendUvarint(dst, *f.v)
		}
	}
	for _, p := range e.Pointers {
		dst = binary.AppendUvarint(dst, tagPointer)
		dst = binary.AppendUvarint(dst, uint64(p.Level))
		dst = appendString(dst, p.Key)
	}
	for _, d := range e.Deleted {
		dst = binary.AppendUvarint(dst, tagDeleted)
		dst = binary.AppendUvarint(dst, uint64(d.Level))
		dst = binary.AppendUvarint(dst, d.Num)
	}
	for _, a := range e.Added {
		dst = binary.AppendUvarint(dst, tagAdded)
		dst = binary.AppendUvarint(dst, uint64(a.Level))
		dst = binary.AppendUvarint(dst, a.Table.Num)
		dst = binary.AppendUvarint(dst, a.Table.Size)
		dst = appendString(dst, a.Table.Smallest)
		dst = appendString(dst, a.Table.Largest)
	}
	return dst
}

func appendString(dst, s []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// DecodeEdit decodes a whole edit, which does not refer to src. An error that matches
// base.ErrUnsupported means that the bytes are well-formed, but use what sift does not support.
func DecodeEdit(src []byte) (*Edit, error) {
	e := new(Edit)
	// One copy for all keys: the record's memory belongs to the reader.
	c := base.NewCursor(append([]byte(nil), src...))
	for c.Len() > 0 {
		switch tag := c.Uvarint32(); tag {
		case tagComparator:
			name := string(c.LengthPrefixed())
			e.Comparator = &name
		case tagLogNumber:
			e.LogNumber = number(&c)
		case tagPrevLogNum:
			e.PrevLogNum = number(&c)
		case tagNextFile:
			e.NextFile = number(&c)
		case tagLastSeq:
			e.LastSeq = number(&c)
		case tagPointer:
			level, key := c.Uvarint32(), c.LengthPrefixed()
			if c.Err() != nil {
				break
			}
			if err := checkLevel(level); err != nil {
				return nil, err
			}
			if err := checkKey(key); err != nil {
				return nil, fmt.Errorf("compaction pointer: %w", err)
			}
			e.Pointers = append(e.Pointers, Pointer{int(level), key})
		case tagDeleted:
			level, num := c.Uvarint32(), c.Uvarint()
			if c.Err() != nil {
				break
			}
			if err := checkLevel(level); err != nil {
				return nil, err
			}
			e.Deleted = append(e.Deleted, DeletedTable{int(level), num})
		case tagAdded:
			level := c.Uvarint32()
			t := &TableMeta{Num: c.Uvarint(), Size: c.Uvarint(), Smallest: c.LengthPrefixed(), Largest: c.LengthPrefixed()}
			if c.Err() != nil {
				break
			}
			if err := checkLevel(level); err != nil {
				return nil, err
			}
			if err := t.check(); err != nil {
				return nil, err
			}
			e.Added = append(e.Added, AddedTable{int(level), t})
		default:
			if c.Err() == nil {
				return nil, fmt.Errorf("unknown field, tag %d, as pebble or RocksDB may write: %w", tag, base.ErrUnsupported)
			}
		}
	}
	if err := c.Err(); err != nil {
		return nil, fmt.Errorf("field at byte %d: %w", c.Offset(), err)
	}
	for _, n := range []*uint64{e.LogNumber, e.PrevLogNum, e.NextFile} {
		if n != nil && *n > maxFileNum {
			return nil, errFileNum
		}
	}
	if e.LastSeq != nil && *e.LastSeq > base.MaxSequence {
		return nil, fmt.Errorf("last sequence %d exceeds the maximum", *e.LastSeq)
	}
	return e, nil
}

func number(c *base.Cursor) *uint64 {
	n := c.Uvarint()
	return &n
}

func checkLevel(level uint32) error {
	if level >= maxLevels {
		return fmt.Errorf("level %d is above the maximum %d: %w", level, maxLevels-1, base.ErrUnsupported)
	}
	return nil
}
