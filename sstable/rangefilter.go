package sstable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// For a range filter, a key consists of a prefix and a number. The table's split determines the
// prefix. The split's symbols map the bytes after the prefix to the number, and preserve their
// order. The split is one of
//
//	the Prefixer of the options; the filter omits keys without a prefix
//	a PrefixUpTo that the writer has chosen; all keys of the table have such a prefix
//	a fixed length, "at(11)"; a shorter key is a prefix as a whole, with the number 0
//
// Without symbols the number is the 8 bytes after the prefix, zero-padded, big-endian. On disk;
// do not change.
//
// The filter is the meta block sift.range.<family>, uncompressed, between the filter units
// and the properties.

// rangePrefix is the beginning of the name of the meta block. On disk; do not change.
const rangePrefix = "sift.range."

// rangeKeys collects all keys of a table, since they determine its split.
type rangeKeys struct {
	bytes []byte // the keys, one after another
	ends  []int  // where they end
}

func (k *rangeKeys) add(key []byte) {
	k.bytes = append(k.bytes, key...)
	k.ends = append(k.ends, len(k.bytes))
}

// each calls f with the keys.
func (k *rangeKeys) each(f func(key []byte)) {
	start := 0
	for _, end := range k.ends {
		f(k.bytes[start:end:end])
		start = end
	}
}

// numberLen is the number of key bytes in a number without symbols.
const numberLen = 8

// splitAt chooses a fixed prefix length. It ignores the longest keys, up to a twentieth. The
// longest of the others has 8 bytes after the prefix, so that numbers distinguish all keys. The
// prefix is shorter if there would be fewer than two keys per prefix on average, since a range must
// lie within one prefix. But it is never shorter than the common prefix of all keys, unless fewer
// than 8 bytes would follow.
func (k *rangeKeys) splitAt() int {
	n := len(k.ends)
	lengths := make([]int, 0, n)
	differ := make([]int, 0, n) // where keys first differ from the previous one
	var last []byte
	common := -1
	k.each(func(key []byte) {
		lengths = append(lengths, len(key))
		if common < 0 {
			common = len(key)
		} else {
			d := base.CommonPrefix(last, key)
			common = min(common, d)
			differ = append(differ, d)
		}
		last = key
	})
	slices.Sort(lengths)
	slices.Sort(differ)
	most := lengths[n-1-n/20]
	at := max(0, most-numberLen)
	for i, d := range differ {
		if prefixes := i + 2; prefixes > (n+1)/2 { // if they have d bytes
			at = min(at, d)
			break
		}
	}
	return max(at, min(common, max(0, most-numberLen)))
}

// splitKey splits a key after at bytes into prefix and number, without symbols.
func splitKey(key []byte, at int) (prefix []byte, x uint64) {
	if len(key) <= at {
		return key, 0
	}
	if rest := key[at:]; len(rest) >= numberLen {
		return key[:at], binary.BigEndian.Uint64(rest)
	} else {
		var b [numberLen]byte
		copy(b[:], rest)
		return key[:at], binary.BigEndian.Uint64(b[:])
	}
}

// finishRange writes the range filter and records it in the properties. It returns its metaindex
// entry, which the caller adds after that of the properties, since names must ascend. If the
// filter cannot be built, it sets info.FilterErr, and the table has no range filter.
func (w *Writer) finishRange(info *TableInfo) (entry Property, err error) {
	p := &w.props
	if w.opts.Range == nil || len(w.ranges.ends) == 0 {
		return entry, nil
	}
	fw := w.opts.Range.NewWriter()
	prefixer := w.opts.Prefix
	if _, ok := prefixer.(eachPrefix); ok {
		prefixer = nil
	}
	p.RangeSplit = w.ranges.addTo(fw, prefixer)
	keys := fw.NumKeys()
	block, err := fw.Finish()
	if err == nil {
		_, err = w.opts.Range.Open(block)
	}
	if len(block) > maxBlockLen {
		err = fmt.Errorf("%d bytes are too long for a block", len(block))
	}
	if err != nil {
		p.RangeSplit = ""
		info.FilterErr = fmt.Errorf("sstable: filter %s: %w", w.opts.Range.Name(), err)
		return entry, nil
	}
	h, err := w.writeBlock(block, false)
	if err != nil {
		return entry, err
	}
	p.RangePolicy, p.RangeKeys, p.RangeBytes = w.opts.Range.Name(), uint64(keys), uint64(len(block))
	p.rangeCRC = binary.LittleEndian.Uint32(w.trailer[1:])
	return Property{rangePrefix + w.opts.Range.Family(), appendHandle(nil, h)}, nil
}

// addTo chooses a split and adds the keys to a filter. It returns the split as text.
func (k *rangeKeys) addTo(fw filter.RangeWriter, prefixer Prefixer) (split string) {
	s := k.split(prefixer)
	k.each(func(key []byte) {
		switch n := s.length(key); {
		case n < 0 || prefixer != nil && n > len(key):
		case n > len(key):
			fw.Add(key, 0)
		default:
			fw.Add(key[:n], s.symbols.number(key[n:]))
		}
	})
	return s.name + ";" + s.symbols.text()
}

// cutSymbols parses a split as text. y is nil if it has no symbols.
func cutSymbols(split string) (name string, y *symbols) {
	if i := strings.LastIndexByte(split, ';'); i >= 0 {
		if y, ok := parseSymbols(split[i+1:]); ok {
			return split[:i], y
		}
	}
	return split, nil
}

func fixedSplitName(at int) string { return "at(" + strconv.Itoa(at) + ")" }

// fixedSplit is the inverse of fixedSplitName.
func fixedSplit(name string) (at int, ok bool) {
	at, _ = strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(name, "at("), ")"))
	return at, at >= 0 && fixedSplitName(at) == name // false unless name is a number in at()
}

// heldRange is a table's range filter in memory.
type heldRange struct {
	reader     filter.RangeReader // nil: not loaded, unusable, or the table has none
	bitsPerKey int                // see LoadRangeBits; 0: loaded as a whole
	prefixer   Prefixer           // determines prefixes
	symbols    *symbols           // nil: the next 8 bytes are the number
	err        error              // why the filter is unusable
}

// RangeFilterStatus returns the state of the table's range filter and, for FilterDamaged
// and FilterUnknown, the reason. It reads the filter if it is not in memory.
func (r *Reader) RangeFilterStatus() (FilterState, error) {
	h := r.rangeFilter()
	if h.reader == nil && h.err == nil && r.rangeSteps {
		h = r.readRange()
	}
	switch {
	case h.reader != nil:
		return FilterOK, nil
	case h.err == nil:
		return FilterNone, nil
	case errors.Is(h.err, base.ErrCorruption):
		return FilterDamaged, h.err
	default:
		return FilterUnknown, h.err
	}
}

// RangeFilterBytes returns the memory of the range filter in bytes, 0 if it is not loaded.
func (r *Reader) RangeFilterBytes() int {
	if h := r.ranges.Load(); h != nil && h.reader != nil {
		return h.reader.SizeBytes()
	}
	return 0
}

// MayContainRange reports false only if the table holds no entry with a key in [from, to).
// It returns true without a usable range filter, and for a range that spans several prefixes.
// nil is the empty key, not a missing bound. The first call reads the filter from the file,
// unless ReaderOptions.MaxFilterUnits is negative.
func (r *Reader) MayContainRange(from, to []byte) bool { return r.rangeFilter().mayContain(from, to) }

func (h *heldRange) mayContain(from, to []byte) bool {
	if h.reader == nil {
		return true
	}
	at := h.prefixer.PrefixLen(from)
	if at < 0 || at > len(from) {
		return true
	}
	end := endsPrefix(from[:at], to)
	if !end && (len(to) < at || !bytes.Equal(from[:at], to[:at])) || end && h.symbols == nil {
		return true
	}
	if y := h.symbols; y != nil {
		lo, some := y.from(from[at:])
		hi, more := y.max, true
		if !end {
			hi, more = y.to(to[at:])
		}
		return some && more && lo <= hi && h.reader.MayContainRange(from[:at], lo, hi)
	}
	prefix, lo := splitKey(from, at)
	_, hi := splitKey(to, at)
	if n := len(to) - at; n > 0 && n <= numberLen && to[len(to)-1] != 0 {
		hi-- // no key before to has the number of to
	}
	return lo > hi || h.reader.MayContainRange(prefix, lo, hi)
}

// endsPrefix reports whether key is the first key after all keys with the prefix.
func endsPrefix(prefix, key []byte) bool {
	n := len(key) - 1
	if n < 0 || n >= len(prefix) || !bytes.Equal(key[:n], prefix[:n]) || prefix[n] == 0xff || key[n] != prefix[n]+1 {
		return false
	}
	for _, b := range prefix[n+1:] {
		if b != 0xff {
			return false
		}
	}
	return true
}

// rangeFilter returns the table's range filter. The first call loads it, unless only
// LoadRangeBits does.
func (r *Reader) rangeFilter() *heldRange {
	if h := r.ranges.Load(); h != nil {
		return h
	}
	if r.rangeSteps {
		return &noRange
	}
	r.rangeMu.Lock()
	defer r.rangeMu.Unlock()
	h := r.ranges.Load()
	if h == nil {
		h = r.readRange()
		if h.lasting() {
			r.ranges.Store(h)
		}
	}
	return h
}

// noRange stands for a range filter that is not loaded.
var noRange heldRange

// readRange reads the range filter from the file.
func (r *Reader) readRange() *heldRange {
	h := new(heldRange)
	h.err = r.loadRange(h)
	return h
}

// lasting reports whether another attempt to load the filter would have the same result.
func (h *heldRange) lasting() bool {
	return h.err == nil || errors.Is(h.err, base.ErrCorruption) || errors.Is(h.err, filter.ErrUnknownFamily)
}

// RangeSteps returns the sizes to which LoadRangeBits can load the range filter, with their false
// positive rates for ranges of the given length. It returns none if there is no range filter, or if
// it is known to be unusable.
func (r *Reader) RangeSteps(length uint64) []filter.RangeStep {
	if r.props == nil || r.props.RangeSplit == "" {
		return nil
	}
	if h := r.ranges.Load(); h != nil && h.err != nil {
		return nil
	}
	if steps := filter.RangeSteps(r.props.RangePolicy, int(r.props.RangeKeys), length); steps != nil {
		return steps
	}
	// A filter of another package is loaded as a whole.
	return []filter.RangeStep{{BitsPerKey: 1, Bytes: int64(r.props.RangeBytes), FPR: foreignRangeFPR}}
}

// foreignRangeFPR is the assumed FPR of range filters of other packages.
const foreignRangeFPR = 0.01

// HasRangeFilter reports whether a range filter is in memory.
func (r *Reader) HasRangeFilter() bool {
	h := r.ranges.Load()
	return h != nil && h.reader != nil
}

// HeldRangeBits returns the bits per key of the range filter in memory, 0 if there is none.
func (r *Reader) HeldRangeBits() int {
	if h := r.ranges.Load(); h != nil && h.reader != nil {
		return h.bitsPerKey
	}
	return 0
}

// LoadRangeBits loads the range filter with bitsPerKey bits per key, which must be those of one of
// RangeSteps, or drops it if bitsPerKey is 0. It reads the filter from the file if it has to grow.
// Probes continue meanwhile. After an error no range filter is in memory; if the filter is damaged
// or no policy opens it, it can no longer be loaded.
func (r *Reader) LoadRangeBits(bitsPerKey int) error {
	r.rangeMu.Lock()
	defer r.rangeMu.Unlock()
	h := r.ranges.Load()
	switch {
	case h == nil && bitsPerKey == 0 || h != nil && (h.err != nil || h.bitsPerKey == bitsPerKey):
		return nil
	case bitsPerKey == 0:
		r.ranges.Store(nil)
		return nil
	}
	if h == nil || h.bitsPerKey < bitsPerKey {
		r.ranges.Store(nil) // the old and the new one together could exceed the memory budget
		h = r.readRange()
	}
	next := *h
	next.bitsPerKey = bitsPerKey
	if t, ok := h.reader.(filter.RangeTrimmer); ok {
		next.reader = t.Trim(bitsPerKey)
	}
	if next.lasting() {
		r.ranges.Store(&next)
	}
	return next.err
}

// rangeMeta returns the metaindex entry of the range filter.
func (r *Reader) rangeMeta() (m MetaBlock, ok bool) {
	i := slices.IndexFunc(r.meta, func(m MetaBlock) bool { return strings.HasPrefix(m.Name, rangePrefix) })
	if i < 0 {
		return MetaBlock{}, false
	}
	return r.meta[i], true
}

// loadRange reads the range filter into h. It returns nil if the table has none.
func (r *Reader) loadRange(h *heldRange) error {
	if r.props == nil || r.props.RangeSplit == "" {
		return nil
	}
	m, ok := r.rangeMeta()
	if !ok {
		return nil
	}
	policy := slices.IndexFunc(r.rangePolicies, func(p filter.RangePolicy) bool { return rangePrefix+p.Family() == m.Name })
	if policy < 0 {
		return r.unknownFilter(strings.TrimPrefix(m.Name, rangePrefix), filter.ErrUnknownFamily)
	}
	split, symbols := cutSymbols(r.props.RangeSplit)
	var prefixer Prefixer
	if at, fixed := fixedSplit(split); fixed {
		prefixer = fixedPrefix(at)
	} else {
		if prefixer = prefixerNamed(split); prefixer == nil {
			prefixer = r.prefix
		}
		if prefixer == nil || prefixer.Name() != split {
			return base.InFile(r.path, fmt.Errorf("%w: range filter with the unknown key split %s", filter.ErrUnknownFamily, r.props.RangeSplit))
		}
	}
	block, err := r.readBlock(m.Handle, "filter block")
	if err != nil {
		return err
	}
	if sum := base.Checksum(block, []byte{typePlain}); sum != r.props.rangeCRC {
		return r.corrupt(m.Handle, "filter block", errors.New("not this table's range filter: the properties have another checksum"))
	}
	reader, err := r.rangePolicies[policy].Open(block)
	if errors.Is(err, filter.ErrUnknownFamily) {
		return r.unknownFilter(strings.TrimPrefix(m.Name, rangePrefix), err)
	}
	if err != nil {
		return r.corrupt(m.Handle, "filter block", err)
	}
	h.reader, h.prefixer, h.symbols = reader, prefixer, symbols
	return nil
}
