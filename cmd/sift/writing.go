package main

import (
	"fmt"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
)

// writing has the flags of the commands that write tables.
type writing struct {
	Filter      string `placeholder:"POLICY" help:"The filter of new tables, such as bloom(12), or none. Default: ${filter}."`
	RangeFilter int    `placeholder:"BITS" help:"Give new tables a range filter, too, with 4 to 32 bits per key, for programs with Options.RangeFilter. Default: none."`
}

// options returns the options to open a database with for writing.
func (w writing) options() (o sift.Options, err error) {
	if w.RangeFilter != 0 {
		if w.RangeFilter < 4 || w.RangeFilter > 32 {
			return o, usage(fmt.Errorf("--range-filter %d: must be from 4 to 32", w.RangeFilter))
		}
		o.RangeFilter = filter.Range(w.RangeFilter, 0)
	}
	if w.Filter != "" {
		o.Filter, err = parsePolicy(w.Filter)
	}
	return o, err
}

func parsePolicy(name string) (filter.Policy, error) {
	policy, err := filter.Parse(name)
	if err != nil {
		return nil, usage(fmt.Errorf("--filter: %w", err))
	}
	return policy, nil
}
