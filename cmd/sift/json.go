package main

import (
	"encoding/json"
	"math"

	"github.com/siftdb/sift"
)

// asJSON is the flag of commands that print JSON instead of text. Sizes are in bytes, rates are
// fractions, and unknown values are null, except that dump leaves them out. Keys and values are
// strings in the form that the commands read and print: escaped text, or hexadecimal with --hex.
type asJSON struct {
	JSON bool `name:"json" help:"Print JSON." xor:"json"`
}

// writeJSON prints a value as one line.
func (e *env) writeJSON(v any) error {
	encoder := json.NewEncoder(e.out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// entryJSON is a key and its value. The value is omitted if only keys are printed.
type entryJSON struct {
	Key   string  `json:"key"`
	Value *string `json:"value,omitempty"`
}

// tableJSON is a table of a database.
type tableJSON struct {
	Level       int      `json:"level"`
	Number      uint64   `json:"number"`
	Path        string   `json:"path"`
	Bytes       uint64   `json:"bytes"`
	Keys        *uint64  `json:"keys"`
	Deletions   *uint64  `json:"deletions"`
	Smallest    string   `json:"smallest"`
	Largest     string   `json:"largest"`
	Filter      string   `json:"filter"`
	FilterUnits *uint64  `json:"filterUnits"`
	HeldUnits   float64  `json:"heldUnits"`
	FilterBytes uint64   `json:"filterBytes"`
	FPR         *float64 `json:"fpr"`
	Error       string   `json:"error,omitempty"`
}

// newTableJSON describes a table.
func newTableJSON(m *sift.TableMetrics) tableJSON {
	t := tableJSON{
		Level: m.Level, Number: m.Num, Path: m.Path, Bytes: m.Size,
		Keys: ifKnown(m.Keys, m.Keys > 0), Deletions: ifKnown(m.Deletions, m.Entries > 0),
		Smallest: string(appendText(nil, m.Smallest)), Largest: string(appendText(nil, m.Largest)),
		Filter: filterName(m), FilterBytes: uint64(m.FilterBytes),
		// Of a damaged filter, FilterUnits counts the intact units only.
		FilterUnits: ifKnown(uint64(m.FilterUnits), m.Err == nil && m.FilterErr == nil), HeldUnits: m.HeldUnits,
	}
	if m.FilterBytes > 0 {
		t.FPR = ifNumber(m.ExpectedFPR)
	}
	for _, err := range []error{m.FilterErr, m.Err} {
		if err != nil {
			t.Error = err.Error()
		}
	}
	return t
}

// sumJSON is the sum of several tables.
type sumJSON struct {
	Level       *int     `json:"level,omitempty"` // if they are those of one level
	Tables      int      `json:"tables"`
	Bytes       uint64   `json:"bytes"`
	Keys        *uint64  `json:"keys"`
	Deletions   *uint64  `json:"deletions"`
	FilterBytes uint64   `json:"filterBytes"`
	FPR         *float64 `json:"fpr"`
}

// json describes the sum.
func (s *tableSum) json() sumJSON {
	t := sumJSON{
		Tables: s.tables, Bytes: s.bytes, FilterBytes: s.filterBytes,
		Keys: ifKnown(s.keys, !s.unknownKeys), Deletions: ifKnown(s.deletions, !s.unknownDeletions),
	}
	if s.weight > 0 {
		t.FPR = ifNumber(s.weightedFPR / s.weight)
	}
	return t
}

// ifKnown returns nil for an unknown number.
func ifKnown(n uint64, known bool) *uint64 {
	if !known {
		return nil
	}
	return &n
}

// ifNumber returns nil for NaN and the infinities, which JSON does not have.
func ifNumber(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
