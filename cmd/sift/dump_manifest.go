package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/record"
)

// manifest prints the edits of a MANIFEST and the tables that they result in.
func (d *dumper) manifest() error {
	if err := d.heading("manifest", fmt.Sprintf("MANIFEST %s: %s bytes\n\n", d.path, count(d.size))); err != nil {
		return err
	}
	tree := manifest.NewTree(nil)
	last := int64(0) // offset of the last edit
	in := record.NewReader(d.file, d.size, d.path)
	edits := 0
	for {
		payload, offset, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		edits++
		edit, err := manifest.DecodeEdit(payload)
		if err == nil {
			if err := d.edit(edit, offset); err != nil {
				return err
			}
			last = offset
			err = tree.Apply(edit)
		}
		if err != nil {
			if err := d.badEdit(offset, err); err != nil {
				return err
			}
		}
	}
	if edits == 0 { // Open refuses it
		if err := d.badEdit(0, errors.New("there is no edit")); err != nil {
			return err
		}
	}
	levels, err := tree.Levels()
	if err != nil {
		if err := d.badEdit(last, err); err != nil {
			return err
		}
	}
	if err := d.logTail(in, nil); err != nil {
		return err
	}
	return errors.Join(d.tables(levels), d.result())
}

// badEdit prints what is wrong with an edit.
func (d *dumper) badEdit(offset int64, err error) error {
	d.damaged = true
	return d.show(editJSON{Type: "bad edit", Offset: offset, Error: err.Error()}, "%10d  bad edit: %v\n", offset, err)
}

// edit prints one edit: the counters on the first line, then one line per table.
func (d *dumper) edit(e *manifest.Edit, offset int64) error {
	if d.json {
		return d.show(d.editJSON(e, offset), "")
	}
	line := fmt.Sprintf("%10d  edit", offset)
	if e.Comparator != nil {
		line += " comparator " + escaped(*e.Comparator)
	}
	for _, f := range []struct {
		name string
		n    *uint64
	}{{"log", e.LogNumber}, {"previous log", e.PrevLogNum}, {"next file", e.NextFile}, {"last sequence", e.LastSeq}} {
		if f.n != nil {
			line += fmt.Sprintf(" %s %d", f.name, *f.n)
		}
	}
	if err := d.printf("%s\n", line); err != nil {
		return err
	}
	for _, p := range e.Pointers {
		if err := d.printf("%12slevel %d compacts next after %s\n", "", p.Level, d.internalKey(p.Key)); err != nil {
			return err
		}
	}
	for _, t := range e.Deleted {
		if err := d.printf("%10s- level %d table %06d\n", "", t.Level, t.Num); err != nil {
			return err
		}
	}
	for _, t := range e.Added {
		if err := d.printf("%10s+ level %d %s\n", "", t.Level, d.tableText(t.Table)); err != nil {
			return err
		}
	}
	return nil
}

// tables prints the tables that are left after all edits.
func (d *dumper) tables(levels []manifest.DeepLevel) error {
	if !d.json {
		n := 0
		for _, l := range levels {
			n += len(l.Tables)
		}
		if err := d.printf("\n%s\n", amount(n, "table")); err != nil {
			return err
		}
	}
	for _, l := range levels {
		for _, t := range l.Tables {
			j := d.metaJSON(l.Level, t)
			j.Type = "table"
			if err := d.show(j, "  level %d %s\n", l.Level, d.tableText(t)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *dumper) tableText(t *manifest.TableMeta) string {
	return fmt.Sprintf("table %06d %s bytes %s .. %s", t.Num, count(t.Size), d.internalKey(t.Smallest), d.internalKey(t.Largest))
}

// internalKey formats an internal key: the user key, the sequence number, and whether the
// entry is a tombstone.
func (d *dumper) internalKey(ikey []byte) string {
	key, seq, kind, ok := base.SplitInternalKey(ikey)
	switch {
	case !ok:
		return "malformed " + d.key(ikey)
	case kind == base.KindDelete:
		return fmt.Sprintf("%s #%d delete", d.key(key), seq)
	}
	return fmt.Sprintf("%s #%d", d.key(key), seq)
}
