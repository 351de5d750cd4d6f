package main

import (
	"fmt"

	"github.com/siftdb/sift"
)

type checkCmd struct {
	Dir string `arg:"" help:"The database."`
}

func (checkCmd) Help() string {
	return `Reads the whole database and verifies every checksum, the order of the keys, the
ranges of the tables and levels, that each filter says maybe to each key of its table, and that a
lookup of each key finds it. It changes nothing. It prints a line for each fault, with the file
and the offset, and exits with status 1 if there is one.

Example:

    sift check db`
}

func (c *checkCmd) Run(e *env) error {
	p := e.counting("checking", -1)
	stop := p.watch(func() int64 { return 0 })
	report, err := sift.Check(e.ctx, c.Dir, nil, func(fault error) {
		p.done() // what follows shows that it goes on
		fmt.Fprintln(e.out, fault)
		e.out.Flush()
	})
	stop()
	if err != nil {
		return err
	}
	for _, note := range report.Notes {
		fmt.Fprintln(e.out, "note:", note)
	}
	fmt.Fprintf(e.out, "%s of %s, %s with a filter; %s\n%s, %s\n",
		amount(report.Tables, "table"), size(report.Bytes), count(report.Filters), amount(report.Logs, "log"),
		amount(report.Entries, "entry"), amount(report.Keys, "key"))
	if report.Faults > 0 {
		return fmt.Errorf("%s: %s", c.Dir, amount(report.Faults, "fault"))
	}
	_, err = fmt.Fprintln(e.out, "no fault")
	return err
}
