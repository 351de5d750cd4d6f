package main

import (
	"fmt"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/sstable"
)

// What dump --json prints: one object per line, in the order of the text output. The first
// field is the object's type. Damage is an error in the object that it concerns.

// fileJSON is the file. It comes first.
type fileJSON struct {
	Type  string `json:"type"` // file
	Kind  string `json:"kind"` // table, log, manifest
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

// blockJSON is a block of a table, or its footer.
type blockJSON struct {
	Type       string  `json:"type"` // block
	Kind       string  `json:"kind"` // data, metaindex, index, footer, meta
	Name       string  `json:"name,omitempty"`
	Offset     uint64  `json:"offset"`
	Length     uint64  `json:"length"`            // in the file, without the trailer
	Bytes      *int    `json:"bytes,omitempty"`   // decompressed
	Entries    *int    `json:"entries,omitempty"` // of a data block: entries; of an index: blocks
	Compressed bool    `json:"compressed,omitempty"`
	Separator  *string `json:"separator,omitempty"` // no key of the block is greater
	Error      string  `json:"error,omitempty"`
}

// operationJSON is an operation of a batch, or an entry of a table.
type operationJSON struct {
	Type     string  `json:"type"` // entry
	Key      string  `json:"key"`
	Sequence uint64  `json:"sequence"`
	Kind     string  `json:"kind"` // put, delete
	Value    *string `json:"value,omitempty"`
}

// propertyJSON is a property of a table.
type propertyJSON struct {
	Type  string `json:"type"` // property
	Name  string `json:"name,omitempty"`
	Value string `json:"value"`
	Error string `json:"error,omitempty"`
}

// tableFilterJSON is the filter of a table.
type tableFilterJSON struct {
	Type       string   `json:"type"` // filter
	State      string   `json:"state"`
	Family     string   `json:"family,omitempty"`
	Bytes      int      `json:"bytes,omitempty"`
	Units      int      `json:"units,omitempty"`
	Keys       uint64   `json:"keys,omitempty"`
	BitsPerKey float64  `json:"bitsPerKey,omitempty"`
	FPR        *float64 `json:"fpr,omitempty"`
	Error      string   `json:"error,omitempty"`
}

// recordJSON is a record of a log.
type recordJSON struct {
	Type    string  `json:"type"` // batch, durability marker, bad record
	Offset  int64   `json:"offset"`
	Bytes   int     `json:"bytes"`
	First   *uint64 `json:"first,omitempty"` // sequence numbers
	Last    *uint64 `json:"last,omitempty"`
	Puts    *uint64 `json:"puts,omitempty"`
	Deletes *uint64 `json:"deletes,omitempty"`
	Error   string  `json:"error,omitempty"`
}

// endJSON is how a log or a MANIFEST ends.
type endJSON struct {
	Type    string `json:"type"`   // end
	Kind    string `json:"kind"`   // clean, zeros, torn, damaged
	Offset  int64  `json:"offset"` // after the last valid record
	Dropped int64  `json:"dropped,omitempty"`
	Next    int64  `json:"next,omitempty"` // the next valid fragment after damage
	Error   string `json:"error,omitempty"`
}

// totalsJSON holds the totals of a log.
type totalsJSON struct {
	Type              string  `json:"type"` // totals
	Records           uint64  `json:"records"`
	DurabilityMarkers uint64  `json:"durabilityMarkers"`
	Batches           uint64  `json:"batches"`
	Puts              uint64  `json:"puts"`
	Deletes           uint64  `json:"deletes"`
	First             *uint64 `json:"first,omitempty"` // sequence numbers
	Last              *uint64 `json:"last,omitempty"`
}

// editJSON is an edit of a MANIFEST.
type editJSON struct {
	Type        string         `json:"type"` // edit, bad edit
	Offset      int64          `json:"offset"`
	Comparator  *string        `json:"comparator,omitempty"`
	Log         *uint64        `json:"log,omitempty"`
	PreviousLog *uint64        `json:"previousLog,omitempty"`
	NextFile    *uint64        `json:"nextFile,omitempty"`
	LastSeq     *uint64        `json:"lastSequence,omitempty"`
	Pointers    []levelKeyJSON `json:"compactNextAfter,omitempty"`
	Deleted     []metaJSON     `json:"deleted,omitempty"`
	Added       []metaJSON     `json:"added,omitempty"`
	Error       string         `json:"error,omitempty"`
}

// metaJSON is a table as a MANIFEST records it.
type metaJSON struct {
	Type     string           `json:"type,omitempty"` // table; not set within an edit
	Level    int              `json:"level"`
	Number   uint64           `json:"number"`
	Bytes    *uint64          `json:"bytes,omitempty"`
	Smallest *internalKeyJSON `json:"smallest,omitempty"`
	Largest  *internalKeyJSON `json:"largest,omitempty"`
}

// levelKeyJSON is the key after which a level compacts next.
type levelKeyJSON struct {
	Level int              `json:"level"`
	Key   *internalKeyJSON `json:"key"`
}

// internalKeyJSON is an internal key.
type internalKeyJSON struct {
	Key       string `json:"key"`
	Sequence  uint64 `json:"sequence"`
	Kind      string `json:"kind,omitempty"` // put, delete
	Malformed bool   `json:"malformed,omitempty"`
}

// show prints v with --json, otherwise the text.
func (d *dumper) show(v any, format string, args ...any) error {
	if !d.json {
		return d.printf(format, args...)
	}
	if d.ctx.Err() != nil {
		return d.ctx.Err()
	}
	return d.writeJSON(v)
}

// heading prints the object or the line that describes the file.
func (d *dumper) heading(kind, text string) error {
	return d.show(fileJSON{"file", kind, d.path, d.size}, "%s", text)
}

// text formats a key or value for JSON, without quotes.
func (d *dumper) text(b []byte) string { return string(d.append(nil, b)) }

func kindName(kind base.Kind) string {
	if kind == base.KindDelete {
		return "delete"
	}
	return "put"
}

func (d *dumper) operationJSON(key []byte, seq uint64, kind base.Kind, value []byte) operationJSON {
	o := operationJSON{Type: "entry", Key: d.text(key), Sequence: seq, Kind: kindName(kind)}
	if kind != base.KindDelete {
		o.Value = new(d.text(value))
	}
	return o
}

func (d *dumper) internalKeyJSON(ikey []byte) *internalKeyJSON {
	key, seq, kind, ok := base.SplitInternalKey(ikey)
	if !ok {
		return &internalKeyJSON{Key: d.text(ikey), Malformed: true}
	}
	return &internalKeyJSON{Key: d.text(key), Sequence: seq, Kind: kindName(kind)}
}

func (d *dumper) metaJSON(level int, t *manifest.TableMeta) metaJSON {
	return metaJSON{Level: level, Number: t.Num, Bytes: &t.Size, Smallest: d.internalKeyJSON(t.Smallest), Largest: d.internalKeyJSON(t.Largest)}
}

func (d *dumper) editJSON(e *manifest.Edit, offset int64) editJSON {
	j := editJSON{
		Type: "edit", Offset: offset, Comparator: e.Comparator,
		Log: e.LogNumber, PreviousLog: e.PrevLogNum, NextFile: e.NextFile, LastSeq: e.LastSeq,
	}
	for _, p := range e.Pointers {
		j.Pointers = append(j.Pointers, levelKeyJSON{p.Level, d.internalKeyJSON(p.Key)})
	}
	for _, t := range e.Deleted {
		j.Deleted = append(j.Deleted, metaJSON{Level: t.Level, Number: t.Num})
	}
	for _, t := range e.Added {
		j.Added = append(j.Added, d.metaJSON(t.Level, t.Table))
	}
	return j
}

// filterJSON describes the filter of a table.
func filterJSON(r *sstable.Reader) tableFilterJSON {
	state, err := r.FilterStatus()
	j := tableFilterJSON{Type: "filter", State: fmt.Sprint(state), Family: r.FilterFamily()}
	if err != nil {
		j.Error = err.Error()
	}
	f := r.Filter()
	if state == sstable.FilterNone || err != nil || f == nil {
		return j
	}
	j.Bytes, j.Units, j.FPR = f.SizeBytes(), r.NumFilterUnits(), ifNumber(f.FPR())
	if p := r.Properties(); p != nil && p.FilterKeys > 0 {
		j.Keys, j.BitsPerKey = p.FilterKeys, p.FilterBitsPerKey()
	}
	return j
}
