package main

import (
	"fmt"

	"github.com/siftdb/sift"
)

type filterBuildCmd struct {
	asJSON
	writing
	Dir string `arg:"" help:"The database."`
}

func (filterBuildCmd) Help() string {
	return `Rewrites the tables whose filter is missing, damaged, of an unknown family, or not the
one that --filter names (by default, the default of the table's level). Tables written by LevelDB or
goleveldb have a Bloom filter, which sift uses, or none. They get sift's filters when they are
rewritten, by this command or by a compaction.

Examples:

    sift filter build db
    sift filter build --filter 'rocksdb-bloom(10)' db`
}

func (c *filterBuildCmd) Run(e *env) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	o.ErrorIfMissing = true
	return e.withDB(c.Dir, o, func(db *sift.DB) error {
		stop := e.progress("building filters", -1).watch(func() int64 { return int64(db.Metrics().CompactReadBytes) })
		n, err := db.BuildFilters(e.ctx)
		stop()
		if err != nil {
			return err
		}
		m := db.Metrics()
		if c.JSON {
			return e.writeJSON(struct {
				Rewritten   int    `json:"rewritten"`
				FilterBytes uint64 `json:"filterBytes"`
			}{n, m.Memory.Filters})
		}
		_, err = fmt.Fprintf(e.out, "%s rewritten; the filters take %s\n", amount(n, "table"), size(m.Memory.Filters))
		return err
	})
}
