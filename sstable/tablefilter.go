package sstable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// filterUnitName returns the name of the meta block of a filter unit.
func filterUnitName(family string, unit int) string {
	if unit == 0 {
		return filterPrefix + family
	}
	return filterPrefix + family + "." + strconv.Itoa(unit)
}

// finishFilter writes the filter's units and records them in the metaindex and the
// properties. If the filter cannot be built, it sets info.FilterErr, and the table has none.
func (w *Writer) finishFilter(metaindex *blockWriter, info *TableInfo) error {
	p := &w.props
	p.FilterFPR = math.NaN()
	if w.filter == nil || w.filter.NumKeys() == 0 {
		return nil
	}
	keys := w.filter.NumKeys()
	units, err := w.filter.Finish()
	var r filter.Reader
	if err == nil && len(units) > 0 {
		r, err = w.opts.Filter.Open(units)
	}
	for _, u := range units {
		if len(u) > maxBlockLen {
			err = fmt.Errorf("a unit of %d bytes is too long for a block", len(u))
		}
	}
	if err != nil {
		info.FilterErr = fmt.Errorf("sstable: filter %s: %w", w.opts.Filter.Name(), err)
		return nil
	}
	if len(units) == 0 {
		return nil
	}
	p.FilterFPR = r.FPR()
	p.FilterPolicy, p.FilterFamily = w.opts.Filter.Name(), w.opts.Filter.Family()
	p.FilterUnits, p.FilterKeys = len(units), uint64(keys)
	if w.prefixed && !w.unprefixed {
		p.FilterPrefix = w.opts.Prefix.Name()
	}
	var entries []Property
	for i, u := range units {
		h, err := w.writeBlock(u, false)
		if err != nil {
			return err
		}
		p.FilterBytes += uint64(len(u))
		p.unitCRCs = append(p.unitCRCs, binary.LittleEndian.Uint32(w.trailer[1:]))
		entries = append(entries, Property{filterUnitName(p.FilterFamily, i), appendHandle(nil, h)})
	}
	slices.SortFunc(entries, func(a, b Property) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range entries {
		metaindex.add([]byte(e.Name), 0, e.Value)
	}
	return nil
}

// FilterState is the state of a table's filter.
type FilterState uint8

const (
	FilterNone    FilterState = iota // the table has no filter
	FilterOK                         // no damage is known
	FilterDamaged                    // the filter, or a unit of it, is damaged
	FilterUnknown                    // no policy has its family and secret, or it cannot be used for another reason
	FilterIgnored                    // ReaderOptions.IgnoreFilter is set
)

// String returns the state as a word.
func (s FilterState) String() string {
	switch s {
	case FilterNone:
		return "none"
	case FilterOK:
		return "ok"
	case FilterDamaged:
		return "damaged"
	case FilterUnknown:
		return "unknown"
	case FilterIgnored:
		return "ignored"
	}
	return "FilterState(" + strconv.Itoa(int(s)) + ")"
}

// Filter returns the loaded part of the filter, or nil if there is none. It remains usable when
// units are loaded or dropped. It has only the methods of filter.Reader, and for a keyed filter
// MayContainHash of filter.KeyedReader (see ReaderOptions.Secret): it is not the reader that
// Policy.Open returned.
func (r *Reader) Filter() filter.Reader {
	if h := r.filter.Load(); h != nil {
		return h.public
	}
	return nil
}

// MayContain reports false only if the table holds no entry of the key. Without a filter it
// returns true.
func (r *Reader) MayContain(key filter.Key) bool {
	h := r.filter.Load()
	return h == nil || h.MayContain(key)
}

// PrefetchFilter starts loading the memory that a filter probe for the hash reads first, into the
// CPU cache, and does not wait; see filter.Prefetcher.
func (r *Reader) PrefetchFilter(hash uint64) {
	if h := r.filter.Load(); h != nil {
		h.prefetch(hash)
	}
}

// FilterStatus returns the state of the table's filter and, for FilterDamaged and
// FilterUnknown, the reason.
func (r *Reader) FilterStatus() (FilterState, error) {
	r.filterMu.Lock()
	defer r.filterMu.Unlock()
	return r.filterState, r.filterErr
}

// FilterFamily returns the family of the table's filter, or "" if it has none.
func (r *Reader) FilterFamily() string { return r.filterFamily }

// NumFilterUnits returns the number of loadable units.
func (r *Reader) NumFilterUnits() int {
	r.filterMu.Lock()
	defer r.filterMu.Unlock()
	return len(r.filterUnits)
}

// FilterUnits returns the size in bytes of each loadable unit.
func (r *Reader) FilterUnits() []int64 {
	r.filterMu.Lock()
	defer r.filterMu.Unlock()
	units := make([]int64, len(r.filterUnits))
	for i, u := range r.filterUnits {
		units[i] = int64(u.Length)
	}
	return units
}

// mayLackKeys reports whether the filter may contain only prefixes of keys. pebble v2 can write
// such filters, and does not record which ones.
func (p *Properties) mayLackKeys() bool {
	if p.wholeKeys == "" {
		return p.engine
	}
	return p.wholeKeys != "1"
}

var errPrefixesOnly = errors.New("may contain prefixes only, not keys")

// unknownFilter returns the error for a filter of the given family that is not used because of
// cause.
func (r *Reader) unknownFilter(family string, cause error) error {
	return base.InFile(r.path, fmt.Errorf("filter family %q: %w", family, cause))
}

// openFilter finds the table's filter among the meta blocks and loads it according to the
// options. It returns only I/O errors, and records damage in filterState and filterErr.
func (r *Reader) openFilter(meta []MetaBlock, o *ReaderOptions) error {
	var damaged error
	var levelDB *MetaBlock
	later := o.FilterLater && numFilters(meta) == 1 // of several, the first that is usable is chosen now
	for _, m := range meta {
		if m.Name == levelDBPrefix+levelDBFamily || m.Name == levelDBPrefix+levelDBFamily2 {
			levelDB = &m
			continue
		}
		family, ok := strings.CutPrefix(m.Name, filterPrefix)
		if !ok || isFurtherUnit(meta, family) {
			continue
		}
		open, unknown := opener(family, o.Policies), filter.ErrUnknownFamily
		if r.props != nil && r.props.mayLackKeys() {
			open, unknown = nil, errPrefixesOnly
		}
		if open == nil {
			if r.filterState == FilterNone {
				r.filterFamily, r.filterState = family, FilterUnknown
				r.filterErr = r.unknownFilter(family, unknown)
			}
			continue
		}
		units := filterHandles(meta, family)
		r.filterFamily, r.filterOpen, r.filterUnits = family, open, units
		r.filterState, r.filterErr = FilterOK, nil
		n := len(units)
		if o.MaxFilterUnits != 0 {
			n = min(n, max(o.MaxFilterUnits, 0))
		}
		if later {
			n = 0
		}
		perUnit := filter.StepsPerUnit(family)
		err := r.loadFilterSteps(n * perUnit)
		if err == ErrNoRoom {
			return nil
		}
		if errors.Is(err, filter.ErrUnknownFamily) {
			continue // no policy has the filter's secret
		}
		if err != nil && !errors.Is(err, base.ErrCorruption) {
			return err
		}
		if err == nil {
			return nil
		}
		if len(r.filterUnits) > 0 && r.loadFilterSteps(len(r.filterUnits)*perUnit) == nil {
			return nil // usable up to the damaged unit
		}
		damaged = err
	}
	if levelDB != nil && r.filterState != FilterOK {
		err := r.openLevelDBFilter(strings.TrimPrefix(levelDB.Name, levelDBPrefix), levelDB.Handle, o)
		if err == nil {
			return nil
		} else if !errors.Is(err, base.ErrCorruption) {
			return err
		}
		damaged = err
	}
	if damaged != nil {
		r.filterState, r.filterErr = FilterDamaged, damaged
	}
	return nil
}

// numFilters returns the number of filters among the meta blocks.
func numFilters(meta []MetaBlock) (n int) {
	for _, m := range meta {
		family, ok := strings.CutPrefix(m.Name, filterPrefix)
		if ok && !isFurtherUnit(meta, family) || strings.HasPrefix(m.Name, levelDBPrefix) {
			n++
		}
	}
	return n
}

// filterHandles returns the handles of a filter's units, up to the first one that is missing or
// does not lie after the previous one: otherwise a crafted small table could take much memory by
// using one block as many units.
func filterHandles(meta []MetaBlock, family string) []Handle {
	var units []Handle
	for {
		m, ok := findMeta(meta, filterUnitName(family, len(units)))
		if !ok || len(units) > 0 && m.Offset < units[len(units)-1].end() {
			return units
		}
		units = append(units, m.Handle)
	}
}

// findMeta returns the meta block with the given name. REQUIRES: the names ascend.
func findMeta(meta []MetaBlock, name string) (MetaBlock, bool) {
	i, ok := slices.BinarySearchFunc(meta, name, func(m MetaBlock, name string) int { return strings.Compare(m.Name, name) })
	if !ok {
		return MetaBlock{}, false
	}
	return meta[i], true
}

// isFurtherUnit reports whether a name, without filterPrefix, is that of a further unit of a filter
// whose unit 0 is present, and not that of a family that ends in a number.
func isFurtherUnit(meta []MetaBlock, name string) bool {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return false
	}
	n, err := strconv.Atoi(name[dot+1:])
	if err != nil || n < 1 || strconv.Itoa(n) != name[dot+1:] {
		return false
	}
	_, ok := findMeta(meta, filterPrefix+name[:dot])
	return ok
}

// opener returns the function that opens filters of a family, or nil. Of several policies it uses
// the first, or the first that has the secret of a keyed filter.
func opener(family string, policies []filter.Policy) func([][]byte) (filter.Reader, error) {
	var fit []filter.Policy
	for _, p := range policies {
		if !filter.IsNone(p) && p.Family() == family {
			fit = append(fit, p)
		}
	}
	if len(fit) > 0 {
		return func(units [][]byte) (f filter.Reader, err error) {
			for _, p := range fit {
				if f, err = p.Open(units); !errors.Is(err, filter.ErrSecret) {
					break
				}
			}
			return f, err
		}
	}
	if slices.Contains(filter.Families(), family) {
		return func(units [][]byte) (filter.Reader, error) { return filter.Open(family, units) }
	}
	return nil
}
