package main

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/serve"
)

type repairCmd struct {
	writing
	Dir string `arg:"" help:"The database."`
}

func (repairCmd) Help() string {
	return `Rebuilds a database that cannot be opened, or in which "sift check" finds faults, from what
its tables and logs still hold. The old files are moved to its subdirectory "lost", so nothing is
destroyed. The command prints a line for everything that it could not read. If the MANIFEST
cannot be used, deleted keys may reappear. If it is that of another program, such as pebble or
RocksDB, or names another comparator, nothing is changed, and the exit status is 3.

Example:

    sift repair db && sift check db`
}

func (c *repairCmd) Run(e *env) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	o.Logger = slog.New(slog.DiscardHandler) // the report has it all
	stop := e.counting("repairing", -1).watch(func() int64 { return 0 })
	report, err := sift.Repair(c.Dir, &o)
	stop()
	for _, dropped := range report.Dropped {
		fmt.Fprintln(e.out, "dropped:", dropped)
	}
	switch {
	case err == nil:
		err = c.forget(&o)
	case errors.Is(err, sift.ErrUnsupported):
		err = fmt.Errorf("%w\nnothing was changed; to repair the database without this MANIFEST, move it elsewhere", err)
	}
	if err != nil {
		return err
	}
	if !report.FromManifest {
		fmt.Fprintln(e.out, "The MANIFEST could not be used: all tables and logs were read, old ones too.")
	}
	_, err = fmt.Fprintf(e.out, "%s from %s and %s; the old files are in %s\n",
		amount(report.Entries, "key"), amount(report.Tables, "table"), amount(report.Logs, "log"), filepath.Join(c.Dir, "lost"))
	return err
}

// forget removes what "sift serve" has stored about a database's keys, which may no longer hold.
func (c *repairCmd) forget(o *sift.Options) error {
	db, err := sift.Open(c.Dir, o)
	if err != nil {
		return err
	}
	return errors.Join(serve.Repaired(db), db.Close())
}
