package sstable

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// Verify reads the whole table from the file, whatever is in memory, and calls report with each
// fault: wrong checksums, malformed blocks, keys out of order, index entries and properties that
// contradict the entries, and keys that a filter excludes. A fault is a *sift.CorruptionError or an
// I/O error. Verify returns an error only if ctx is done.
func (r *Reader) Verify(ctx context.Context, report func(error)) error {
	x, err := r.loadIndex()
	if err != nil {
		report(err)
		return nil
	}
	v := verifier{r: r, x: &x.packedIndex, report: report}
	v.meta()
	v.openFilter()
	for i := range x.numBlocks() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := v.dataBlock(i); err != nil {
			v.incomplete = true
			report(err)
		}
	}
	v.filterVerdict()
	if !v.incomplete && r.props != nil {
		v.properties()
	}
	return nil
}

// verifier is the state of a Verify.
type verifier struct {
	r      *Reader
	x      *packedIndex
	report func(error)

	seen       Properties // of the entries so far
	last       []byte     // the last key so far
	incomplete bool       // not all data blocks could be read

	filter   filter.Reader
	filterAt Handle   // its location
	prefix   Prefixer // nil: the filter contains no prefixes, or their Prefixer is unknown
	ranges   heldRange
	after    []byte // scratch: the end of a probed range
	excluded uint64 // keys and prefixes that filters exclude
	first    []byte // the first of these
	firstAt  Handle // the location of the filter that excludes it
}

// meta checks the footer and the blocks other than data blocks and filters.
func (v *verifier) meta() {
	r := v.r
	if r.metaErr != nil {
		v.report(r.metaErr)
	} else {
		v.block(r.footer.metaindex, "metaindex block")
	}
	for _, m := range r.meta {
		if m.Name == propertiesName && r.props != nil {
			v.block(m.Handle, "properties block")
		}
	}
	v.block(r.footer.index, "index block")
	var buf [footerLen]byte
	h := Handle{Offset: uint64(r.size) - footerLen}
	if err := r.readAt(buf[:], h.Offset, "footer"); err != nil {
		v.report(err)
	} else if f, _, err := decodeFooter(buf[:], r.size); err != nil || f != r.footer {
		v.report(r.corrupt(h, "footer", errors.New("changed since the table was opened")))
	}
}

// block reads a block and checks its structure.
func (v *verifier) block(h Handle, what string) {
	data, err := v.r.readBlock(h, what)
	if err == nil {
		var b block
		if err = b.init(data); err == nil {
			err = b.walk(func(entry, []byte) error { return nil })
		}
		if err != nil {
			err = v.r.corrupt(h, what, err)
		}
	}
	if err != nil {
		v.report(err)
	}
}

// walk is each, and checks that each restart offset points to an entry with a whole key. key is
// valid until fn returns.
func (b *block) walk(fn func(e entry, key []byte) error) error {
	var key []byte
	restart := 0
	for at := 0; at < b.entries; {
		e, ok := b.decode(at)
		if !ok || e.shared > len(key) {
			return errEntry
		}
		if restart < b.restarts && b.restart(restart) == at {
			if e.shared != 0 {
				return errRestarts
			}
			restart++
		}
		key = append(key[:e.shared], b.data[e.key:e.value]...)
		if err := fn(e, key); err != nil {
			return err
		}
		at = e.end
	}
	if restart < b.restarts && b.entries > 0 {
		return errRestarts
	}
	return nil
}

// openFilter reads the filters from the file again, including all units of the key filter.
func (v *verifier) openFilter() {
	r := v.r
	var faults []error
	found := func(err error) { faults = append(faults, err) }
	defer func() { // without the lock, since report may call methods of the reader
		for _, err := range faults {
			v.report(err)
		}
	}()
	r.filterMu.Lock()
	defer r.filterMu.Unlock()
	if r.metaErr == nil {
		if err := r.loadRange(&v.ranges); err != nil && !errors.Is(err, filter.ErrUnknownFamily) {
			found(err)
		}
	}
	if r.filterState == FilterDamaged && r.metaErr == nil {
		found(r.filterErr)
	}
	if held, ok := r.held().reader.(*levelDBFilter); ok {
		// NewReader read the filter in memory; this checks the file.
		block, err := r.readBlock(held.at, "filter block")
		if err != nil {
			found(err)
		} else if f, ok := newLevelDBFilter(v.x, r.filterFamily, block); ok {
			v.filter, v.filterAt = f, held.at
		} else {
			found(r.corrupt(held.at, "filter block", errLevelDBFilter))
		}
		return
	}
	if r.filterOpen == nil || len(r.filterUnits) == 0 {
		return
	}
	v.filterAt = r.filterUnits[0]
	var units [][]byte
	for i := range r.filterUnits {
		u, err := r.readFilterUnit(i, filter.AlignedBytes(r.unitBufLen(i)))
		if err != nil {
			found(err)
			return
		}
		units = append(units, u)
	}
	f, err := r.filterOpen(units)
	if errors.Is(err, filter.ErrUnknownFamily) {
		return
	}
	if err != nil {
		found(r.corrupt(r.filterUnits[0], "filter block", err))
		return
	}
	v.filter = f
	if r.props != nil && r.props.FilterPrefix != "" {
		if v.prefix = r.prefix; v.prefix == nil || v.prefix.Name() != r.props.FilterPrefix {
			v.prefix = prefixerNamed(r.props.FilterPrefix)
		}
	}
}

// dataBlock reads a data block and checks its entries.
func (v *verifier) dataBlock(i int) error {
	r := v.r
	h := v.x.handle(i)
	data, err := r.readBlock(h, "data block")
	if err != nil {
		return err
	}
	var b block
	if err := r.initDataBlock(v.x, &b, data, i); err != nil {
		return err
	}
	var buf separatorBuf
	separator := v.x.separator(&buf, i)
	err = b.walk(func(e entry, key []byte) error {
		userKey, seq, kind, ok := base.SplitInternalKey(key)
		switch {
		case len(key) < base.TrailerLen:
			return errEntryKey
		case !ok:
			return unknownKind(base.KeyTrailer(key))
		case v.last != nil && base.CompareInternal(v.last, key) >= 0:
			return fmt.Errorf("%w: %q after %q", errKeyOrder, userKey, base.UserKey(v.last))
		case base.CompareInternal(key, separator) > 0:
			return errBlockMissing
		}
		if v.last == nil || !bytes.Equal(base.UserKey(v.last), userKey) {
			v.seen.NumKeys++
			v.probe(userKey)
			v.probeRange(userKey)
			if v.prefix != nil {
				shared := 0 // prefixes up to this length have been probed for the last key
				if v.last != nil {
					shared = base.CommonPrefix(base.UserKey(v.last), userKey)
				}
				left := maxNewPrefixes // a crafted key may have millions
				prefixesFrom(shared, v.prefix, userKey, func(prefix []byte) {
					if left--; left >= 0 {
						v.probe(prefix)
					}
				})
			}
		}
		v.seen.note(key, seq, kind, e.end-e.value)
		v.last = append(v.last[:0], key...)
		return nil
	})
	v.seen.NumDataBlocks++
	if err != nil {
		return r.corrupt(h, "data block", err)
	}
	return nil
}

// probe probes the filter for a key or prefix that it must not exclude.
func (v *verifier) probe(key []byte) {
	if v.filter == nil || v.filter.MayContain(filter.NewKey(key)) {
		return
	}
	v.exclude(key, v.filterAt)
}

// probeRange probes the range filter for the range that contains only the key.
func (v *verifier) probeRange(key []byte) {
	v.after = append(append(v.after[:0], key...), 0)
	if !v.ranges.mayContain(key, v.after) {
		m, _ := v.r.rangeMeta()
		v.exclude(key, m.Handle)
	}
}

// exclude counts a key that the filter at a location excludes.
func (v *verifier) exclude(key []byte, at Handle) {
	if v.excluded++; v.excluded == 1 {
		v.first, v.firstAt = bytes.Clone(key), at
	}
}

// filterVerdict reports the keys that filters exclude, as one fault.
func (v *verifier) filterVerdict() {
	if v.excluded == 0 {
		return
	}
	v.report(v.r.corrupt(v.firstAt, "filter block", fmt.Errorf("excludes %d of %d keys, the first is %q", v.excluded, v.seen.NumKeys, v.first)))
}

// properties compares the properties with what Verify has counted. Engines count in different ways,
// so it compares only the number of entries if another engine wrote the table.
func (v *verifier) properties() {
	p, s := v.r.props, &v.seen
	var what string
	differ := func(name string, stored, counted uint64) {
		if stored != counted && what == "" {
			what = fmt.Sprintf("%s is %d, but the table has %d", name, stored, counted)
		}
	}
	if p.Smallest != nil || p.NumEntries != 0 {
		differ(propEntries, p.NumEntries, s.NumEntries)
	}
	if p.Smallest != nil {
		differ(propDeletions, p.NumDeletions, s.NumDeletions)
		differ(propKeys, p.NumKeys, s.NumKeys)
		differ(propRawKeys, p.RawKeyBytes, s.RawKeyBytes)
		differ(propRawValues, p.RawValueBytes, s.RawValueBytes)
		differ(propDataBlocks, p.NumDataBlocks, s.NumDataBlocks)
		differ(propMinSeq, p.MinSeq, s.MinSeq)
		differ(propMaxSeq, p.MaxSeq, s.MaxSeq)
		if what == "" && (!bytes.Equal(p.Smallest, s.Smallest) || !bytes.Equal(p.Largest, v.last)) {
			what = fmt.Sprintf("the key range is %q to %q, but the keys are %q to %q",
				base.UserKey(p.Smallest), base.UserKey(p.Largest), userKeyOf(s.Smallest), userKeyOf(v.last))
		}
	}
	if what == "" {
		return
	}
	for _, m := range v.r.meta {
		if m.Name == propertiesName {
			v.report(v.r.corrupt(m.Handle, "properties block", errors.New(what)))
		}
	}
}

func userKeyOf(ikey []byte) []byte {
	if ikey == nil {
		return nil
	}
	return base.UserKey(ikey)
}

// DataBlockInfo describes a data block, for inspection.
type DataBlockInfo struct {
	Handle
	Separator   []byte // encoded internal key at or after all keys of the block
	Compressed  bool
	Bytes       int // after decompression
	NumEntries  int
	NumRestarts int
}

// NumDataBlocks returns the number of data blocks.
func (r *Reader) NumDataBlocks() int { return r.numBlocks }

// DataBlock reads and describes data block i. It reads the file, not the cache. REQUIRES: 0 <= i <
// NumDataBlocks().
func (r *Reader) DataBlock(i int) (DataBlockInfo, error) {
	x, err := r.loadIndex()
	if err != nil {
		return DataBlockInfo{}, err
	}
	h := x.handle(i)
	var buf separatorBuf
	info := DataBlockInfo{Handle: h, Separator: bytes.Clone(x.separator(&buf, i))}
	raw := make([]byte, int(h.Length)+blockTrailerLen)
	payload, t, err := r.readRaw(raw, h, "data block")
	if err != nil {
		return info, err
	}
	info.Compressed = t == typeSnappy
	data, err := decompress(nil, payload, t)
	var b block
	if err == nil {
		err = b.init(data)
	}
	if err == nil {
		info.Bytes, info.NumRestarts = len(data), b.restarts
		err = b.each(func(_, _ []byte) error { info.NumEntries++; return nil })
	}
	if err != nil {
		err = r.corrupt(h, "data block", err)
	}
	return info, err
}

// Footer returns the locations of the metaindex and the index.
func (r *Reader) Footer() (metaindex, index Handle) { return r.footer.metaindex, r.footer.index }

// MetaBlocks returns the entries of the metaindex, in ascending order of names, or none if it is
// damaged. The result must not be modified.
func (r *Reader) MetaBlocks() []MetaBlock { return r.meta }

// RawProperties reads the properties as stored, in their order, those of other engines included.
// It returns nil if the table has none.
func (r *Reader) RawProperties() ([]Property, error) {
	for _, m := range r.meta {
		if m.Name != propertiesName {
			continue
		}
		data, err := r.readBlock(m.Handle, "properties block")
		if err != nil {
			return nil, err
		}
		var list []Property
		var b block
		if err = b.init(data); err == nil {
			err = b.each(boundedNames(len(data), func(key, value []byte) error {
				list = append(list, Property{string(key), value})
				return nil
			}))
		}
		if err != nil {
			return nil, r.corrupt(m.Handle, "properties block", err)
		}
		return list, nil
	}
	return nil, nil
}
