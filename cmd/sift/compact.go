package main

import (
	"fmt"

	"github.com/siftdb/sift"
)

type compactCmd struct {
	form
	writing
	From *string `placeholder:"KEY" help:"Compact from this key on."`
	To   *string `placeholder:"KEY" help:"Compact up to and including this key."`
	Dir  string  `arg:"" help:"The database."`
}

func (compactCmd) Help() string {
	return `Compacts the tables of a key range, or all tables, into the deepest level that holds any
of them. This frees the space of deleted and overwritten values. Tables that are already in that
level are rewritten, too, if their filter is not the one that new tables get.

Examples:

    sift compact db
    sift compact --from 2024 --to 2025 db
    sift compact --filter 'bloom(14)' db`
}

func (c *compactCmd) Run(e *env) error {
	from, err := c.bound("--from", c.From)
	if err != nil {
		return err
	}
	to, err := c.bound("--to", c.To)
	if err != nil {
		return err
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	o.ErrorIfMissing = true
	return e.withDB(c.Dir, o, func(db *sift.DB) error {
		before := levelBytes(db)
		stop := e.progress("compacting", -1).watch(func() int64 { return int64(db.Metrics().CompactReadBytes) })
		err := db.Compact(e.ctx, from, to)
		stop()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(e.out, "tables: %s before, %s after\n", size(before), size(levelBytes(db)))
		return err
	})
}

// levelBytes returns the size of all tables.
func levelBytes(db *sift.DB) (bytes uint64) {
	m := db.Metrics()
	for i := range m.Levels {
		bytes += m.Levels[i].Bytes
	}
	return bytes
}
