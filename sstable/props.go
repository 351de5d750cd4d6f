package sstable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/siftdb/sift/internal/base"
)

// Properties describe a table. They are stored in the meta block
// rocksdb.properties, a block with restart interval 1, names ascending:
//
//	name                     value    meaning
//	rocksdb.comparator       text     leveldb.BytewiseComparator
//	rocksdb.compression      text     Snappy or NoCompression
//	rocksdb.data.size        varint   DataBytes
//	rocksdb.deleted.keys     varint   NumDeletions
//	rocksdb.filter.policy    text     FilterFamily; only with a filter
//	rocksdb.filter.size      varint   FilterBytes
//	rocksdb.index.size       varint   IndexBytes
//	rocksdb.num.data.blocks  varint   NumDataBlocks
//	rocksdb.num.entries      varint   NumEntries
//	rocksdb.raw.key.size     varint   RawKeyBytes
//	rocksdb.raw.value.size   varint   RawValueBytes
//	sift.file.number         varint   FileNumber; only if known
//	sift.filter.checksums    4 B each masked CRC-32C of each filter unit as stored, its block type included
//	sift.filter.fpr          8 B      FilterFPR, IEEE 754
//	sift.filter.keys         varint   FilterKeys
//	sift.filter.policy       text     FilterPolicy; all sift.filter. properties only with a filter
//	sift.filter.prefix       text     FilterPrefix; only if the filter contains prefixes
//	sift.key.largest         bytes    Largest
//	sift.key.smallest        bytes    Smallest
//	sift.num.keys            varint   NumKeys
//	sift.range.checksum      4 B      masked CRC-32C of the range filter as stored, its block type included
//	sift.range.keys          varint   RangeKeys
//	sift.range.policy        text     RangePolicy; all sift.range. properties only with a range filter
//	sift.range.size          varint   RangeBytes
//	sift.range.split         text     RangeSplit
//	sift.seq.max             varint   MaxSeq
//	sift.seq.min             varint   MinSeq
//
// Integers are little-endian. RocksDB and pebble define the names with rocksdb. and require the
// block. Unknown names are ignored. The block is invalid if the value of a known name is malformed.
// Tables with another comparator, or with a nonzero value of RocksDB's property for a global
// sequence number, are not supported. If RocksDB's whole-key filtering property is 0, the filter
// contains only prefixes of keys, and is not used. Nor is it used if that property is missing and
// rocksdb.compression_options is there, as in tables of pebble v2. The checksums tie the filters to
// the table: an intact filter block of another table would exclude keys.
//
// The entry sift.seq.max = 300 is
//
//	00 0c 02 73 69 66 74 2e 73 65 71 2e 6d 61 78 ac 02
//
// All of this is on disk; do not change.
type Properties struct {
	NumEntries   uint64 // including tombstones
	NumDeletions uint64 // tombstones
	NumKeys      uint64 // distinct user keys; 0 in tables of other engines

	RawKeyBytes   uint64 // sum of the lengths of the internal keys
	RawValueBytes uint64 // sum of the lengths of the values

	NumDataBlocks uint64
	DataBytes     uint64 // data blocks on disk, trailers included
	IndexBytes    uint64 // index before compression
	FilterBytes   uint64 // filter units without trailers

	Smallest, Largest []byte // encoded internal keys; nil if unknown or the table is empty
	MinSeq, MaxSeq    uint64 // 0 and 0 if unknown or the table is empty
	FileNumber        uint64 // from WriterOptions

	FilterPolicy string  // the name of the policy that built the filter, "" if unknown or none
	FilterFamily string  // the format of the filter
	FilterUnits  int     // number of units
	FilterKeys   uint64  // number of keys and prefixes in the filter
	FilterFPR    float64 // false positive rate with all units; NaN if unknown or no filter
	FilterPrefix string  // the name of the Prefixer whose prefixes the filter also contains; "": none

	RangePolicy string // the name of the policy that built the range filter; "": none
	RangeSplit  string // how the range filter splits keys: the name of a Prefixer or at(n), then possibly ; and symbols
	RangeKeys   uint64 // number of keys in the range filter
	RangeBytes  uint64 // size of the range filter on disk

	rangeCRC   uint32
	compressed bool
	wholeKeys  string // "1": the filter of another engine contains keys, "0": only prefixes, "": unknown
	engine     bool   // RocksDB or pebble wrote the table: it has compression options
	unitCRCs   []uint32
}

// FilterBitsPerKey returns the size of the filter in bits per key, NaN if unknown.
func (p *Properties) FilterBitsPerKey() float64 {
	if p.FilterKeys == 0 {
		return math.NaN()
	}
	return 8 * float64(p.FilterBytes) / float64(p.FilterKeys)
}

// note counts an entry. It does not retain ikey.
func (p *Properties) note(ikey []byte, seq uint64, kind Kind, valueLen int) {
	if p.NumEntries == 0 {
		p.Smallest = bytes.Clone(ikey)
		p.MinSeq = seq
	}
	p.NumEntries++
	if kind == base.KindDelete {
		p.NumDeletions++
	}
	p.RawKeyBytes += uint64(len(ikey))
	p.RawValueBytes += uint64(valueLen)
	p.MinSeq = min(p.MinSeq, seq)
	p.MaxSeq = max(p.MaxSeq, seq)
}

const comparatorName = "leveldb.BytewiseComparator"

// Names of properties. On disk; do not change.
const (
	propComparator         = "rocksdb.comparator"
	propCompression        = "rocksdb.compression"
	propCompressionOptions = "rocksdb.compression_options" // only read
	propData               = "rocksdb.data.size"
	propDeletions          = "rocksdb.deleted.keys"
	propGlobalSeq          = "rocksdb.external_sst_file.global_seqno"
	propWholeKeys          = "rocksdb.block.based.table.whole.key.filtering"
	propFilterFamily       = "rocksdb.filter.policy"
	propFilterSize         = "rocksdb.filter.size"
	propIndex              = "rocksdb.index.size"
	propDataBlocks         = "rocksdb.num.data.blocks"
	propEntries            = "rocksdb.num.entries"
	propRawKeys            = "rocksdb.raw.key.size"
	propRawValues          = "rocksdb.raw.value.size"
	propFileNumber         = "sift.file.number"
	propUnitChecksums      = "sift.filter.checksums"
	propFPR                = "sift.filter.fpr"
	propFilterKeys         = "sift.filter.keys"
	propPolicy             = "sift.filter.policy"
	propPrefix             = "sift.filter.prefix"
	propLargest            = "sift.key.largest"
	propSmallest           = "sift.key.smallest"
	propKeys               = "sift.num.keys"
	propRangeChecksum      = "sift.range.checksum"
	propRangeKeys          = "sift.range.keys"
	propRangePolicy        = "sift.range.policy"
	propRangeSize          = "sift.range.size"
	propRangeSplit         = "sift.range.split"
	propMaxSeq             = "sift.seq.max"
	propMinSeq             = "sift.seq.min"
)

// Property is a property as stored.
type Property struct {
	Name  string
	Value []byte
}

// appendProperties returns the properties block.
func appendProperties(p *Properties) []byte {
	var list []Property
	text := func(name, v string) { list = append(list, Property{name, []byte(v)}) }
	num := func(name string, v uint64) { list = append(list, Property{name, binary.AppendUvarint(nil, v)}) }

	text(propComparator, comparatorName)
	if p.compressed {
		text(propCompression, "Snappy")
	} else {
		text(propCompression, "NoCompression")
	}
	num(propData, p.DataBytes)
	num(propDeletions, p.NumDeletions)
	num(propFilterSize, p.FilterBytes)
	num(propIndex, p.IndexBytes)
	num(propDataBlocks, p.NumDataBlocks)
	num(propEntries, p.NumEntries)
	num(propRawKeys, p.RawKeyBytes)
	num(propRawValues, p.RawValueBytes)
	num(propKeys, p.NumKeys)
	if p.FileNumber != 0 {
		num(propFileNumber, p.FileNumber)
	}
	if p.NumEntries > 0 {
		num(propMinSeq, p.MinSeq)
		num(propMaxSeq, p.MaxSeq)
		list = append(list, Property{propSmallest, p.Smallest}, Property{propLargest, p.Largest})
	}
	if p.RangeSplit != "" {
		text(propRangePolicy, p.RangePolicy)
		text(propRangeSplit, p.RangeSplit)
		num(propRangeKeys, p.RangeKeys)
		num(propRangeSize, p.RangeBytes)
		list = append(list, Property{propRangeChecksum, binary.LittleEndian.AppendUint32(nil, p.rangeCRC)})
	}
	if p.FilterUnits > 0 {
		text(propFilterFamily, p.FilterFamily)
		text(propPolicy, p.FilterPolicy)
		if p.FilterPrefix != "" {
			text(propPrefix, p.FilterPrefix)
		}
		num(propFilterKeys, p.FilterKeys)
		list = append(list, Property{propFPR, binary.LittleEndian.AppendUint64(nil, math.Float64bits(p.FilterFPR))})
		var sums []byte
		for _, c := range p.unitCRCs {
			sums = binary.LittleEndian.AppendUint32(sums, c)
		}
		list = append(list, Property{propUnitChecksums, sums})
	}

	slices.SortFunc(list, func(a, b Property) int { return strings.Compare(a.Name, b.Name) })
	w := blockWriter{interval: 1}
	for _, e := range list {
		w.add([]byte(e.Name), 0, e.Value)
	}
	return w.finish()
}

// maxPropertyName is more than the length of every known name.
const maxPropertyName = 64

var errProperty = errors.New("malformed property")

// decodeProperties decodes a properties block. The result does not refer to data.
func decodeProperties(data []byte) (*Properties, error) {
	var b block
	if err := b.init(data); err != nil {
		return nil, err
	}
	p := &Properties{FilterFPR: math.NaN()}
	err := b.each(func(key, value []byte) error {
		if len(key) > maxPropertyName {
			return nil
		}
		return p.decode(string(key), value)
	})
	if err == nil && (p.Smallest == nil) != (p.Largest == nil) {
		err = fmt.Errorf("%w: the smallest and the largest key must be set together", errProperty)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// decode sets the field of a property. It ignores unknown names.
func (p *Properties) decode(name string, value []byte) error {
	ok := true
	if n := p.number(name); n != nil {
		v, l := binary.Uvarint(value)
		if ok = l > 0 && l == len(value); ok {
			*n = v
		}
	} else if t := p.text(name); t != nil {
		*t = string(value)
	} else {
		var err error
		if ok, err = p.other(name, value); err != nil {
			return err
		}
	}
	if !ok {
		return fmt.Errorf("%w %s", errProperty, name)
	}
	return nil
}

// number returns the field of a property that is a varint, or nil.
func (p *Properties) number(name string) *uint64 {
	switch name {
	case propData:
		return &p.DataBytes
	case propDeletions:
		return &p.NumDeletions
	case propFilterSize:
		return &p.FilterBytes
	case propIndex:
		return &p.IndexBytes
	case propDataBlocks:
		return &p.NumDataBlocks
	case propEntries:
		return &p.NumEntries
	case propRawKeys:
		return &p.RawKeyBytes
	case propRawValues:
		return &p.RawValueBytes
	case propFileNumber:
		return &p.FileNumber
	case propFilterKeys:
		return &p.FilterKeys
	case propKeys:
		return &p.NumKeys
	case propRangeKeys:
		return &p.RangeKeys
	case propRangeSize:
		return &p.RangeBytes
	case propMaxSeq:
		return &p.MaxSeq
	case propMinSeq:
		return &p.MinSeq
	}
	return nil
}

// text returns the field of a property that is text, or nil.
func (p *Properties) text(name string) *string {
	switch name {
	case propFilterFamily:
		return &p.FilterFamily
	case propPolicy:
		return &p.FilterPolicy
	case propPrefix:
		return &p.FilterPrefix
	case propRangePolicy:
		return &p.RangePolicy
	case propRangeSplit:
		return &p.RangeSplit
	}
	return nil
}

// other sets the field of a property that is neither a number nor text. ok is false if the value is
// malformed. err is not nil if sift does not support tables with that value.
func (p *Properties) other(name string, value []byte) (ok bool, err error) {
	ok = true
	switch name {
	case propComparator:
		if string(value) != comparatorName {
			return false, fmt.Errorf("%w: comparator %q", base.ErrUnsupported, value)
		}
	case propGlobalSeq:
		if ok = len(value) == 8; ok && binary.LittleEndian.Uint64(value) != 0 {
			return false, fmt.Errorf("%w: global sequence number", base.ErrUnsupported)
		}
	case propWholeKeys:
		p.wholeKeys = string(value)
	case propCompressionOptions:
		p.engine = true
	case propCompression:
		p.compressed = string(value) == "Snappy"
	case propRangeChecksum:
		if ok = len(value) == 4; ok {
			p.rangeCRC = binary.LittleEndian.Uint32(value)
		}
	case propSmallest, propLargest:
		if _, _, _, ok = base.SplitInternalKey(value); ok && name == propSmallest {
			p.Smallest = bytes.Clone(value)
		} else if ok {
			p.Largest = bytes.Clone(value)
		}
	case propFPR:
		if ok = len(value) == 8; ok {
			p.FilterFPR = math.Float64frombits(binary.LittleEndian.Uint64(value))
		}
	case propUnitChecksums:
		ok = len(value)%4 == 0
		for c := base.NewCursor(value); ok && c.Len() > 0; {
			p.unitCRCs = append(p.unitCRCs, c.Uint32())
		}
		p.FilterUnits = len(p.unitCRCs)
	}
	return ok, nil
}
