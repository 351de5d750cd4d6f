package main

import (
	"cmp"
	"fmt"

	"github.com/siftdb/sift"
)

type checkCmd struct {
	asJSON
	Dir string `arg:"" help:"The database."`
}

func (checkCmd) Help() string {
	return `Reads the whole database and verifies every checksum, the order of the keys, and the key
ranges of tables and levels. It also verifies that no filter has a false negative, and that a lookup
finds each key. It changes nothing. It prints a line for each fault, with file and offset, and exits
with status 3 if there are any.

Example:

    sift check db`
}

func (c *checkCmd) Run(e *env) error {
	p := e.counting("checking", -1)
	stop := p.watch(func() int64 { return 0 })
	faults := []string{}
	report, err := sift.Check(e.ctx, c.Dir, nil, func(fault error) {
		if c.JSON {
			faults = append(faults, fault.Error())
			return
		}
		p.done() // clears the progress line
		fmt.Fprintln(e.out, fault)
		e.out.Flush()
	})
	stop()
	if c.JSON && (err == nil || len(faults) > 0) {
		return cmp.Or(err, c.json(e, &report, faults))
	}
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
	_, err = fmt.Fprintln(e.out, "no faults")
	return err
}

// json prints the report as JSON.
func (c *checkCmd) json(e *env, r *sift.CheckReport, faults []string) error {
	err := e.writeJSON(struct {
		Tables  int      `json:"tables"`
		Bytes   int64    `json:"bytes"`
		Filters int      `json:"filters"`
		Logs    int      `json:"logs"`
		Entries uint64   `json:"entries"`
		Keys    uint64   `json:"keys"`
		Faults  []string `json:"faults"`
		Notes   []string `json:"notes"`
	}{r.Tables, r.Bytes, r.Filters, r.Logs, r.Entries, r.Keys, faults, append([]string{}, r.Notes...)})
	if r.Faults > 0 && (err == nil || isBrokenPipe(err)) {
		return errReported
	}
	return err
}
