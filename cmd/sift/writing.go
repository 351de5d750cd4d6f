package main

import (
	"fmt"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
)

// writing has the flags of the commands that write tables.
type writing struct {
	Filter string `placeholder:"POLICY" help:"The filter of new tables, such as bloom(12), or none. Default: ${filter}."`
}

// options returns the options to open a database with for writing.
func (w writing) options() (sift.Options, error) {
	if w.Filter == "" {
		return sift.Options{}, nil
	}
	policy, err := parsePolicy(w.Filter)
	return sift.Options{Filter: policy}, err
}

func parsePolicy(name string) (filter.Policy, error) {
	policy, err := filter.Parse(name)
	if err != nil {
		return nil, usage(fmt.Errorf("--filter: %w", err))
	}
	return policy, nil
}
