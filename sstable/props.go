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

// Properties say what is in a table. They are stored in the meta block
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
//	sift.filter.policy       text     FilterPolicy; the sift.filter ones only with a filter
//	sift.filter.prefix       text     FilterPrefix; only if the filter holds prefixes
//	sift.key.largest         bytes    Largest
//	sift.key.smallest        bytes    Smallest
//	sift.num.keys            varint   NumKeys
//	sift.range.checksum      4 B      masked CRC-32C of the range filter as stored, its block type included
//	sift.range.keys          varint   RangeKeys
//	sift.range.policy        text     RangePolicy; the sift.range ones only with a range filter
//	sift.range.size          varint   RangeBytes
//	sift.range.split         text     RangeSplit
//	sift.seq.max             varint   MaxSeq
//	sift.seq.min             varint   MinSeq
//
// Integers are little-endian. RocksDB and pebble define the names with
// rocksdb. and want the block to be there. Names that are not known are skipped.
// Invalid are values of known names that are not of their shape, another
// comparator, and the property of RocksDB that gives all entries one sequence
// number. The checksums tie the filter to the table: a filter block that is whole
// but another table's would deny keys.
//
// The entry sift.seq.max = 300 of a block with restart interval 1 is
//
//	00 0c 02 73 69 66 74 2e 73 65 71 2e 6d 61 78 ac 02
//
// All of this is on disk; do not change.
type Properties struct {
	NumEntries   uint64 // all of them
	NumDeletions uint64 // those of kind KindDelete
	NumKeys      uint64 // distinct user keys; 0 in tables of other engines

	RawKeyBytes   uint64 // sum of the lengths of the internal keys
	RawValueBytes uint64 // and of the values

	NumDataBlocks uint64
	DataBytes     uint64 // data blocks on disk, trailers included
	IndexBytes    uint64 // index before compression
	FilterBytes   uint64 // filter units without trailers

	Smallest, Largest []byte // encoded internal keys; nil if unknown or the table is empty
	MinSeq, MaxSeq    uint64 // 0 and 0 if unknown or the table is empty
	FileNumber        uint64 // the WriterOptions' one

	FilterPolicy string  // the name of the policy that made the filter, "" if unknown or none
	FilterFamily string  // the family of its bytes
	FilterUnits  int     // number of units
	FilterKeys   uint64  // keys and prefixes that were added to it
	FilterFPR    float64 // with all units; NaN if unknown or none
	FilterPrefix string  // the name of the Prefixer whose prefixes it holds, too; "": none

	RangePolicy string // the name of the policy that made the range filter; "": none
	RangeSplit  string // how it splits keys: the name of a Prefixer, or at(n)
	RangeKeys   uint64 // keys that were added to it
	RangeBytes  uint64 // what it takes

	rangeCRC   uint32
	compressed bool
	unitCRCs   []uint32
}

// FilterBitsPerKey is what a key takes in the filter, NaN if that is unknown.
func (p *Properties) FilterBitsPerKey() float64 {
	if p.FilterKeys == 0 {
		return math.NaN()
	}
	return 8 * float64(p.FilterBytes) / float64(p.FilterKeys)
}

// note counts an entry; ikey is only kept as a copy.
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
	propComparator    = "rocksdb.comparator"
	propCompression   = "rocksdb.compression"
	propData          = "rocksdb.data.size"
	propDeletions     = "rocksdb.deleted.keys"
	propGlobalSeq     = "rocksdb.external_sst_file.global_seqno"
	propFilterFamily  = "rocksdb.filter.policy"
	propFilterSize    = "rocksdb.filter.size"
	propIndex         = "rocksdb.index.size"
	propDataBlocks    = "rocksdb.num.data.blocks"
	propEntries       = "rocksdb.num.entries"
	propRawKeys       = "rocksdb.raw.key.size"
	propRawValues     = "rocksdb.raw.value.size"
	propFileNumber    = "sift.file.number"
	propUnitChecksums = "sift.filter.checksums"
	propFPR           = "sift.filter.fpr"
	propFilterKeys    = "sift.filter.keys"
	propPolicy        = "sift.filter.policy"
	propPrefix        = "sift.filter.prefix"
	propLargest       = "sift.key.largest"
	propSmallest      = "sift.key.smallest"
	propKeys          = "sift.num.keys"
	propRangeChecksum = "sift.range.checksum"
	propRangeKeys     = "sift.range.keys"
	propRangePolicy   = "sift.range.policy"
	propRangeSize     = "sift.range.size"
	propRangeSplit    = "sift.range.split"
	propMaxSeq        = "sift.seq.max"
	propMinSeq        = "sift.seq.min"
)

// Property is a property as it is stored.
type Property struct {
	Name  string
	Value []byte
}

// appendProperties returns the block.
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

// maxPropertyName is longer than every name that is known.
const maxPropertyName = 64

var errProperty = errors.New("malformed property")

// decodeProperties decodes the block. The result aliases nothing.
func decodeProperties(data []byte) (*Properties, error) {
	var b block
	if err := b.init(data); err != nil {
		return nil, err
	}
	p := &Properties{FilterFPR: math.NaN()}
	numbers := map[string]*uint64{
		propData: &p.DataBytes, propDeletions: &p.NumDeletions, propFilterSize: &p.FilterBytes,
		propIndex: &p.IndexBytes, propDataBlocks: &p.NumDataBlocks, propEntries: &p.NumEntries,
		propRawKeys: &p.RawKeyBytes, propRawValues: &p.RawValueBytes, propFileNumber: &p.FileNumber,
		propFilterKeys: &p.FilterKeys, propKeys: &p.NumKeys, propRangeKeys: &p.RangeKeys, propRangeSize: &p.RangeBytes,
		propMaxSeq: &p.MaxSeq, propMinSeq: &p.MinSeq,
	}
	err := b.each(func(key, value []byte) error {
		if len(key) > maxPropertyName {
			return nil
		}
		name := string(key)
		if n, ok := numbers[name]; ok {
			v, l := binary.Uvarint(value)
			if l <= 0 || l != len(value) {
				return fmt.Errorf("%w %s", errProperty, name)
			}
			*n = v
			return nil
		}
		ok := true
		switch name {
		case propComparator:
			if string(value) != comparatorName {
				return fmt.Errorf("%w: comparator %q", base.ErrUnsupported, value)
			}
		case propGlobalSeq:
			if ok = len(value) == 8; ok && binary.LittleEndian.Uint64(value) != 0 {
				return fmt.Errorf("%w: one sequence number for all entries", base.ErrUnsupported)
			}
		case propCompression:
			p.compressed = string(value) == "Snappy"
		case propFilterFamily:
			p.FilterFamily = string(value)
		case propPolicy:
			p.FilterPolicy = string(value)
		case propPrefix:
			p.FilterPrefix = string(value)
		case propRangePolicy:
			p.RangePolicy = string(value)
		case propRangeSplit:
			p.RangeSplit = string(value)
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
		if !ok {
			return fmt.Errorf("%w %s", errProperty, name)
		}
		return nil
	})
	if err == nil && (p.Smallest == nil) != (p.Largest == nil) {
		err = fmt.Errorf("%w: one end of the key range", errProperty)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}
