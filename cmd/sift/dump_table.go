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

// table explains a table: its blocks in the order of the file, the properties
// and the filter.
func (d *dumper) table() error {
	if err := d.printf("table %s: %s bytes\n\n", d.path, count(d.size)); err != nil {
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

// tableDump explains one table.
type tableDump struct {
	*dumper
	r  *sstable.Reader
	it *sstable.Iter // at the next entry to print; nil if none are printed
}

// tablePart is a block of the table, or the footer.
type tablePart struct {
	sstable.Handle
	name string
	data int // number of the data block, -1 for another block
}

// blocks prints a line for each block, with its entries below it if they are
// asked for.
func (t *tableDump) blocks() error {
	if t.entries {
		// What is damaged is reported with its block.
		t.it = t.r.NewIter(&sstable.IterOptions{DontFillCache: true, SkipDamaged: func(error) {}})
		defer t.it.Close()
		t.it.First()
	}
	if err := t.printf("%10s %10s  %s\n", "offset", "length", "block"); err != nil {
		return err
	}
	var parts []tablePart
	metaindex, index := t.r.Footer()
	parts = append(parts,
		tablePart{metaindex, fmt.Sprintf("metaindex: %s", amount(len(t.r.MetaBlocks()), "block")), -1},
		tablePart{index, fmt.Sprintf("index: %s", amount(t.r.NumDataBlocks(), "data block")), -1},
		tablePart{sstable.Handle{Offset: uint64(t.size) - footerLen, Length: footerLen}, "footer", -1})
	for _, m := range t.r.MetaBlocks() {
		parts = append(parts, tablePart{m.Handle, "meta block " + m.Name, -1})
	}
	slices.SortStableFunc(parts, func(a, b tablePart) int { return cmp.Compare(a.Offset, b.Offset) })
	// The data blocks come first in most tables, and may be many.
	for i := range t.r.NumDataBlocks() {
		if err := t.dataBlock(i); err != nil {
			return err
		}
	}
	if err := t.r.MetaErr(); err != nil {
		t.damaged = true
		if err := t.printf("%10s %10s  damaged: %v\n", "", "", err); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if err := t.printf("%10d %10d  %s\n", p.Offset, p.Length, p.name); err != nil {
			return err
		}
	}
	return nil
}

// footerLen is the size of the footer, the last part of a table.
const footerLen = 48

func (t *tableDump) dataBlock(i int) error {
	b, err := t.r.DataBlock(i)
	line := fmt.Sprintf("%10d %10d  data ", b.Offset, b.Length)
	switch {
	case err != nil && !errors.Is(err, base.ErrCorruption):
		return err
	case err != nil:
		t.damaged = true
		line += fmt.Sprintf("damaged: %v", cause(err, int64(b.Offset)))
	case b.Compressed:
		line += fmt.Sprintf("%s, %s from snappy", amount(b.NumEntries, "entry"), amount(b.Bytes, "byte"))
	default:
		line += amount(b.NumEntries, "entry")
	}
	// What the index says that no key of the block is after; it need be no key itself.
	if err := t.printf("%s, up to %s\n", line, t.key(b.Separator[:max(0, len(b.Separator)-base.TrailerLen)])); err != nil {
		return err
	}
	if t.it == nil {
		return nil
	}
	for t.it.Valid() && base.CompareInternal(t.it.Key(), b.Separator) <= 0 {
		key, seq, kind, ok := base.SplitInternalKey(t.it.Key())
		if !ok {
			return fmt.Errorf("entry with the key %s", t.internalKey(t.it.Key()))
		}
		if err := t.entry(key, seq, kind, t.it.Value()); err != nil {
			return err
		}
		t.it.Next()
	}
	return t.it.Err()
}

// properties prints the properties as they are stored.
func (t *tableDump) properties() error {
	list, err := t.r.RawProperties()
	if err != nil {
		t.damaged = true
		return t.printf("\nproperties damaged: %v\n", err)
	}
	if len(list) == 0 {
		return t.printf("\nno properties\n")
	}
	if err := t.printf("\nproperties\n"); err != nil {
		return err
	}
	columns := columns{left: map[int]bool{1: true}}
	for _, p := range list {
		columns.add("  "+p.Name, t.property(p))
	}
	return columns.write(t.out)
}

// property writes the value of a property in the form that its name asks for.
// Values of unknown names are numbers where they are one varint, else text.
func (t *tableDump) property(p sstable.Property) string {
	switch p.Name {
	case "sift.key.smallest", "sift.key.largest":
		return t.internalKey(p.Value)
	case "sift.filter.fpr":
		if len(p.Value) == 8 {
			return rate(math.Float64frombits(binary.LittleEndian.Uint64(p.Value)))
		}
	case "sift.filter.checksums":
		var sums []string
		for c := base.NewCursor(p.Value); c.Len() >= 4; {
			sums = append(sums, fmt.Sprintf("%08x", c.Uint32()))
		}
		return strings.Join(sums, " ")
	}
	n, l := binary.Uvarint(p.Value)
	if l == len(p.Value) && l > 0 && !strings.HasPrefix(p.Name, "rocksdb.block.based.table.") {
		return strconv.FormatUint(n, 10)
	}
	return string(append(appendText([]byte{'"'}, p.Value), '"'))
}

// filter prints what is known about the filter.
func (t *tableDump) filter() error {
	state, err := t.r.FilterStatus()
	if state == sstable.FilterNone {
		return t.printf("\nno filter that sift can use\n")
	}
	if state == sstable.FilterDamaged {
		t.damaged = true
	}
	line := fmt.Sprintf("\nfilter of the family %s: ", t.r.FilterFamily())
	if err != nil {
		return t.printf("%s%v; not in use: %v\n", line, state, err)
	}
	f := t.r.Filter()
	line += fmt.Sprintf("%s in %s", amount(f.SizeBytes(), "byte"), amount(t.r.NumFilterUnits(), "unit"))
	if p := t.r.Properties(); p != nil && p.FilterKeys > 0 {
		line += fmt.Sprintf(", %.2f bits for each of %s", p.FilterBitsPerKey(), amount(p.FilterKeys, "key"))
	}
	return t.printf("%s, expected FPR %s\n", line, rate(f.FPR()))
}
