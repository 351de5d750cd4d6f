package main

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/sstable"
)

// tableLookup is the lookup of a key in one table.
type tableLookup struct {
	Level  int
	Num    uint64
	Name   string
	Filter string // the filter's answer
	Entry  string // what was found in the table
	Wasted bool   // the key is absent, but the filter did not exclude it
}

// lookUp looks up a key in a table.
func lookUp(m *sift.TableMetrics, key []byte) tableLookup {
	l := tableLookup{Level: m.Level, Num: m.Num, Name: fmt.Sprintf("%06d", m.Num)}
	err := withTable(m.Path, func(r *sstable.Reader) error {
		switch state, _ := r.FilterStatus(); {
		case state == sstable.FilterUnknown:
			l.Filter = "not probed: keyed, or of an unknown family"
		case state != sstable.FilterOK:
			l.Filter = "not in use: " + state.String()
		case r.MayContain(filter.NewKey(key)):
			l.Filter = "positive"
		default:
			l.Filter = "excluded"
		}
		_, kind, seq, found, err := r.Get(key, base.MaxSequence)
		switch {
		case err != nil:
			return err
		case found:
			l.Entry = fmt.Sprintf("%s #%d", kindName(kind), seq)
		case l.Filter == "excluded":
			l.Entry = "not searched"
		default:
			l.Entry, l.Wasted = "absent", true
		}
		return nil
	})
	if err != nil {
		l.Entry = err.Error()
	}
	return l
}

// tablePage is a table: its blocks, its properties, its filter.
type tablePage struct {
	tableRow
	FilterText    string
	Parts         []tablePart // all but the data blocks
	Properties    [][2]string
	PropertiesErr string
	Blocks        []blockRow
	NumBlocks     int
	First         int
	Next, Prev    *int
}

// blockRow is a data block in a list.
type blockRow struct {
	Number         int
	Offset, Length uint64
	Compressed     bool
	Entries        int
	Separator      shown
	Error          string
}

// find returns the table that a query names by its number.
func (b *browser) find(q url.Values) (*sift.TableMetrics, error) {
	tables := b.db.Tables()
	for i := range tables {
		if fmt.Sprint(tables[i].Num) == q.Get("number") {
			return &tables[i], nil
		}
	}
	return nil, fmt.Errorf("table %q: %w", q.Get("number"), errNoPage)
}

// table shows a table.
func (b *browser) table(q url.Values) (any, error) {
	m, err := b.find(q)
	if err != nil {
		return nil, err
	}
	p := &tablePage{tableRow: tableRow{TableMetrics: m, Name: fmt.Sprintf("%06d", m.Num), Filter: filterName(m),
		Smallest: b.showKey(m.Smallest), Largest: b.showKey(m.Largest),
		Keys: known(m.Keys, m.Keys > 0), Deletions: known(m.Deletions, m.Entries > 0)}}
	err = withTable(m.Path, func(r *sstable.Reader) error {
		d := tableDump{dumper: &dumper{form: b.form, size: int64(m.Size)}, r: r}
		p.FilterText, p.Parts = d.filterText(r.FilterStatus()), d.parts()
		b.properties(p, &d)
		p.NumBlocks = r.NumDataBlocks()
		if p.First, err = number(q, "first", p.NumBlocks); err != nil {
			return err
		}
		p.Next, p.Prev = around(p.First, blocksPerPage, p.NumBlocks)
		for i := p.First; i < min(p.NumBlocks, p.First+blocksPerPage); i++ {
			row, err := b.blockRow(r, i)
			if err != nil {
				return err
			}
			p.Blocks = append(p.Blocks, row)
		}
		return nil
	})
	return p, err
}

// properties adds the properties of a table.
func (b *browser) properties(p *tablePage, d *tableDump) {
	list, err := d.r.RawProperties()
	if err != nil {
		p.PropertiesErr = err.Error()
	}
	for _, property := range list {
		value, _ := d.property(property)
		p.Properties = append(p.Properties, [2]string{property.Name, value})
	}
}

// blockRow describes a data block. If it is damaged, the row has an error.
func (b *browser) blockRow(r *sstable.Reader, i int) (blockRow, error) {
	info, err := r.DataBlock(i)
	row := blockRow{
		Number: i, Offset: info.Offset, Length: info.Length, Compressed: info.Compressed, Entries: info.NumEntries,
		Separator: b.show(separatorKey(&info), shortBytes),
	}
	if errors.Is(err, base.ErrCorruption) {
		row.Error, err = err.Error(), nil
	}
	return row, err
}

// separatorKey returns an upper bound of the block's user keys. It need not be in the table.
func separatorKey(b *sstable.DataBlockInfo) []byte {
	return b.Separator[:max(0, len(b.Separator)-base.TrailerLen)]
}

// blockPage is a data block.
type blockPage struct {
	blockRow
	Num        uint64
	Name       string
	NumBlocks  int
	Entries    []blockEntry
	Cut        bool
	Next, Prev *int
}

// blockEntry is an entry of a table.
type blockEntry struct {
	Key, Value shown
	Seq        uint64
	Deleted    bool
}

// block shows the entries of a data block.
func (b *browser) block(q url.Values) (any, error) {
	m, err := b.find(q)
	if err != nil {
		return nil, err
	}
	p := &blockPage{Num: m.Num, Name: fmt.Sprintf("%06d", m.Num)}
	err = withTable(m.Path, func(r *sstable.Reader) error {
		i, err := number(q, "block", r.NumDataBlocks())
		if err != nil {
			return err
		}
		p.NumBlocks = r.NumDataBlocks()
		p.Next, p.Prev = around(i, 1, p.NumBlocks)
		if p.blockRow, err = b.blockRow(r, i); err != nil || p.Error != "" {
			return err
		}
		return b.entries(p, r, i)
	})
	return p, err
}

// entries adds the entries of data block i.
func (b *browser) entries(p *blockPage, r *sstable.Reader, i int) error {
	this, err := r.DataBlock(i)
	if err != nil {
		return err
	}
	it := r.NewIter(&sstable.IterOptions{DontFillCache: true, SkipDamaged: func(err error) {
		// Damage in the block before must not hide this one.
		if c := (*base.CorruptionError)(nil); errors.As(err, &c) && c.Offset == int64(this.Offset) {
			p.Error = err.Error()
		}
	}})
	defer it.Close()
	ok := false
	if i == 0 {
		ok = it.First()
	} else {
		before, err := r.DataBlock(i - 1)
		if err != nil && !errors.Is(err, base.ErrCorruption) {
			return err
		}
		// The separator may be the last key of the block before.
		for ok = it.SeekGE(before.Separator); ok && base.CompareInternal(it.Key(), before.Separator) <= 0; {
			ok = it.Next()
		}
	}
	for n := 0; ok && n < p.blockRow.Entries && base.CompareInternal(it.Key(), this.Separator) <= 0; n++ {
		if n == entriesPerPage {
			p.Cut = true
			break
		}
		key, seq, kind, valid := base.SplitInternalKey(it.Key())
		if !valid {
			return fmt.Errorf("block %d holds a malformed key", i)
		}
		p.Entries = append(p.Entries, blockEntry{b.showKey(key), b.show(it.Value(), shortBytes), seq, kind == base.KindDelete})
		ok = it.Next()
	}
	return it.Err()
}
