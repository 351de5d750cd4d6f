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
with status 3 if there are any. Counts that are unknown because of a fault are left out.

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
		return cmp.Or(err, c.json(e, &report, faults, err == nil))
	}
	if err != nil {
		return err
	}
	for _, note := range report.Notes {
		fmt.Fprintln(e.out, "note:", note)
	}
	filters, logs, contents := counted(&report)
	fmt.Fprintf(e.out, "%s of %s", amount(report.Tables, "table"), size(report.Bytes))
	if filters {
		fmt.Fprintf(e.out, ", %s with a filter", count(report.Filters))
	}
	if logs {
		fmt.Fprintf(e.out, "; %s", amount(report.Logs, "log"))
	}
	if contents {
		fmt.Fprintf(e.out, "\n%s, %s", amount(report.Entries, "entry"), amount(report.Keys, "key"))
	}
	fmt.Fprintln(e.out)
	if report.Faults > 0 {
		return fmt.Errorf("%s: %s", c.Dir, amount(report.Faults, "fault"))
	}
	_, err = fmt.Fprintln(e.out, "no faults")
	return err
}

// counted reports which counts of a complete check are known: those of the filters, of the logs,
// and of the entries and keys. A fault can keep Check from counting them, which leaves 0.
func counted(r *sift.CheckReport) (filters, logs, contents bool) {
	none := r.Faults == 0
	return none || r.Filters > 0 || r.FilterlessBytes > 0, none || r.Logs > 0, none || r.Entries > 0
}

// json prints the report as JSON. complete is false if the check ended early.
func (c *checkCmd) json(e *env, r *sift.CheckReport, faults []string, complete bool) error {
	filters, logs, contents := counted(r)
	err := e.writeJSON(struct {
		Tables  *uint64  `json:"tables"`
		Bytes   *uint64  `json:"bytes"`
		Filters *uint64  `json:"filters"`
		Logs    *uint64  `json:"logs"`
		Entries *uint64  `json:"entries"`
		Keys    *uint64  `json:"keys"`
		Faults  []string `json:"faults"`
		Notes   []string `json:"notes"`
	}{
		ifKnown(uint64(r.Tables), complete), ifKnown(uint64(r.Bytes), complete),
		ifKnown(uint64(r.Filters), complete && filters), ifKnown(uint64(r.Logs), complete && logs),
		ifKnown(r.Entries, complete && contents), ifKnown(r.Keys, complete && contents),
		faults, append([]string{}, r.Notes...),
	})
	if r.Faults > 0 && (err == nil || isBrokenPipe(err)) {
		return errReported
	}
	return err
}
