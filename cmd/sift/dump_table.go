package main

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/sstable"
)

// table prints what a table contains: its blocks in file order, its properties and its
// filter.
func (d *dumper) table() error {
	if err := d.heading("table", fmt.Sprintf("table %s: %s bytes\n\n", d.path, count(d.size))); err != nil {
		return err
	}
	r, err := sstable.NewReader(d.file, d.size, &sstable.ReaderOptions{Path: d.path})
	if err != nil {
		return err
	}
	defer r.Release()
	t := tableDump{dumper: d, r: r}
	if err := t.blocks(); err != nil {
		return err
	}
	return errors.Join(t.properties(), t.filter(), d.result())
}

// tableDump prints one table.
type tableDump struct {
	*dumper
	r  *sstable.Reader
	it *sstable.Iter // at the next entry to print; nil if none are printed
	// skipped holds the damage of blocks that only the iterator finds, by block offset.
	skipped map[int64]error
}

// tablePart is a block of the table other than a data block, or the footer.
type tablePart struct {
	sstable.Handle
	Kind   string // metaindex, index, footer, meta
	Name   string // of a meta block
	Blocks *int   // that the index or the metaindex lists
}

// Text describes the part.
func (p tablePart) Text() string {
	switch p.Kind {
	case "metaindex":
		return "metaindex: " + amount(*p.Blocks, "block")
	case "index":
		return "index: " + amount(*p.Blocks, "data block")
	case "meta":
		return "meta block " + escaped(p.Name)
	}
	return p.Kind
}

// blocks prints a line for each block, followed by its entries with --entries.
func (t *tableDump) blocks() error {
	if t.entries {
		t.skipped = map[int64]error{}
		t.it = t.r.NewIter(&sstable.IterOptions{DontFillCache: true, SkipDamaged: func(err error) {
			if c := (*base.CorruptionError)(nil); errors.As(err, &c) {
				t.skipped[c.Offset] = c.Err // reported with the block
			}
		}})
		defer t.it.Close()
		t.it.First()
	}
	if !t.json {
		if err := t.printf("%10s %10s  %s\n", "offset", "length", "block"); err != nil {
			return err
		}
	}
	// The data blocks come first in most tables, and may be many.
	for i := range t.r.NumDataBlocks() {
		if err := t.dataBlock(i); err != nil {
			return err
		}
	}
	if err := t.r.MetaErr(); err != nil {
		t.damaged = true
		if err := t.show(blockJSON{Type: "block", Kind: "meta", Error: err.Error()}, "%10s %10s  damaged: %v\n", "", "", err); err != nil {
			return err
		}
	}
	for _, p := range t.parts() {
		j := blockJSON{Type: "block", Kind: p.Kind, Name: p.Name, Offset: p.Offset, Length: p.Length, Entries: p.Blocks}
		if err := t.show(j, "%10d %10d  %s\n", p.Offset, p.Length, p.Text()); err != nil {
			return err
		}
	}
	return nil
}

// parts returns the blocks that are not data blocks, and the footer, in the order of the file.
func (t *tableDump) parts() []tablePart {
	metaindex, index := t.r.Footer()
	parts := []tablePart{
		{metaindex, "metaindex", "", new(len(t.r.MetaBlocks()))},
		{index, "index", "", new(t.r.NumDataBlocks())},
		{sstable.Handle{Offset: uint64(t.size) - footerLen, Length: footerLen}, "footer", "", nil},
	}
	for _, m := range t.r.MetaBlocks() {
		parts = append(parts, tablePart{m.Handle, "meta", m.Name, nil})
	}
	slices.SortStableFunc(parts, func(a, b tablePart) int { return cmp.Compare(a.Offset, b.Offset) })
	return parts
}

// footerLen is the size of the footer, the last part of a table.
const footerLen = 48

func (t *tableDump) dataBlock(i int) error {
	b, err := t.r.DataBlock(i)
	separator := t.text(separatorKey(&b))
	j := blockJSON{Type: "block", Kind: "data", Offset: b.Offset, Length: b.Length, Compressed: b.Compressed, Separator: &separator}
	line := fmt.Sprintf("%10d %10d  data ", b.Offset, b.Length)
	switch {
	case err != nil && !errors.Is(err, base.ErrCorruption):
		return err
	case err != nil:
		t.damaged = true
		j.Error = cause(err, int64(b.Offset)).Error()
		line += "damaged: " + j.Error
	case b.Compressed:
		line += fmt.Sprintf("%s, %s from snappy", amount(b.NumEntries, "entry"), amount(b.Bytes, "byte"))
	default:
		line += amount(b.NumEntries, "entry")
	}
	if err == nil {
		j.Bytes, j.Entries = &b.Bytes, &b.NumEntries
	}
	if err := t.show(j, "%s, up to %s\n", line, t.key(separatorKey(&b))); err != nil {
		return err
	}
	if t.it == nil {
		return nil
	}
	printed := 0
	for t.it.Valid() && base.CompareInternal(t.it.Key(), b.Separator) <= 0 {
		key, seq, kind, ok := base.SplitInternalKey(t.it.Key())
		if !ok {
			return fmt.Errorf("entry with the key %s", t.internalKey(t.it.Key()))
		}
		if err := t.entry(key, seq, kind, t.it.Value()); err != nil {
			return err
		}
		printed++
		t.it.Next()
	}
	if t.it.Err() != nil || err != nil || printed == b.NumEntries {
		return t.it.Err()
	}
	t.damaged = true
	reason := t.skipped[int64(b.Offset)]
	if reason == nil {
		reason = errors.New("keys are not between the separators")
	}
	return t.show(blockJSON{Type: "block", Kind: "data", Offset: b.Offset, Length: b.Length, Error: reason.Error()},
		"%10d %10s  damaged, with %d of %d entries: %v\n", b.Offset, "", printed, b.NumEntries, reason)
}

// properties prints the properties as they are stored.
func (t *tableDump) properties() error {
	list, err := t.r.RawProperties()
	if err != nil {
		t.damaged = true
		return t.show(propertyJSON{Type: "property", Error: err.Error()}, "\nproperties damaged: %v\n", err)
	}
	if t.json {
		for _, p := range list {
			value, _ := t.property(p)
			if err := t.show(propertyJSON{Type: "property", Name: p.Name, Value: value}, ""); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		return t.printf("\nno properties\n")
	}
	if err := t.printf("\nproperties\n"); err != nil {
		return err
	}
	columns := columns{left: map[int]bool{1: true}}
	for _, p := range list {
		value, text := t.property(p)
		if text {
			value = `"` + value + `"`
		}
		columns.add("  "+escaped(p.Name), value)
	}
	return columns.write(t.out)
}

// property formats the value of a property according to its name. The value of an unknown
// property is a number if it is a single varint, otherwise text.
func (t *tableDump) property(p sstable.Property) (value string, text bool) {
	switch p.Name {
	case "sift.key.smallest", "sift.key.largest":
		return t.internalKey(p.Value), false
	case "sift.filter.fpr":
		if len(p.Value) == 8 {
			fpr := math.Float64frombits(binary.LittleEndian.Uint64(p.Value))
			if t.json {
				return strconv.FormatFloat(fpr, 'g', -1, 64), false
			}
			return rate(fpr), false
		}
	case "sift.filter.checksums":
		var sums []string
		for c := base.NewCursor(p.Value); c.Len() >= 4; {
			sums = append(sums, fmt.Sprintf("%08x", c.Uint32()))
		}
		return strings.Join(sums, " "), false
	}
	n, l := binary.Uvarint(p.Value)
	if l == len(p.Value) && l > 0 && !strings.HasPrefix(p.Name, "rocksdb.block.based.table.") {
		return strconv.FormatUint(n, 10), false
	}
	return string(appendText(nil, p.Value)), true
}

// filter prints the state and the size of the filter.
func (t *tableDump) filter() error {
	state, err := t.r.FilterStatus()
	if state == sstable.FilterDamaged {
		t.damaged = true
	}
	return t.show(filterJSON(t.r), "\n%s\n", t.filterText(state, err))
}

// filterText describes the filter.
func (t *tableDump) filterText(state sstable.FilterState, err error) string {
	if state == sstable.FilterNone {
		return "no filter that sift can use"
	}
	line := fmt.Sprintf("filter of the family %s: ", escaped(t.r.FilterFamily()))
	if err != nil {
		return fmt.Sprintf("%s%v; not in use: %v", line, state, err)
	}
	f := t.r.Filter()
	line += fmt.Sprintf("%s in %s", amount(f.SizeBytes(), "byte"), amount(t.r.NumFilterUnits(), "unit"))
	if p := t.r.Properties(); p != nil && p.FilterKeys > 0 {
		line += fmt.Sprintf(", %.2f bits for each of %s", p.FilterBitsPerKey(), amount(p.FilterKeys, "key"))
	}
	return fmt.Sprintf("%s, expected FPR %s", line, rate(f.FPR()))
}
