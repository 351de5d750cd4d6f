package main

import (
	"math"

	"github.com/siftdb/sift"
)

type scanCmd struct {
	form
	From     *string `placeholder:"KEY" help:"Begin with this key, or the first one after it."`
	To       *string `placeholder:"KEY" help:"End before this key."`
	Prefix   *string `help:"Print only keys that begin with this."`
	Limit    *uint64 `placeholder:"N" help:"Print at most so many keys."`
	KeysOnly bool    `help:"Leave out the tab and the value."`
	Dir      string  `arg:"" help:"The database."`
}

func (scanCmd) Help() string {
	return `Prints a line for each key, in bytewise order: the key, a tab, the value. "sift load"
reads such lines.

Examples:

    sift scan db
    sift scan --prefix user: --limit 10 db
    sift scan --from b --to d --keys-only db
    sift scan --hex db | sift load --hex copy`
}

func (c *scanCmd) Run(e *env) error {
	from, err := c.bound("--from", c.From)
	if err != nil {
		return err
	}
	to, err := c.bound("--to", c.To)
	if err != nil {
		return err
	}
	prefix, err := c.bound("--prefix", c.Prefix)
	if err != nil {
		return err
	}
	bounds := &sift.IterOptions{LowerBound: from, UpperBound: to, Prefix: prefix, DontFillCache: true}
	return e.readOnly(c.Dir, func(db *sift.DB) error {
		limit := uint64(math.MaxUint64)
		if c.Limit != nil {
			limit = *c.Limit
		}
		n := uint64(0)
		var line []byte
		for entry, err := range db.Scan(bounds) {
			if err != nil {
				return err
			}
			if n == limit {
				break
			}
			line = c.append(line[:0], entry.Key)
			if !c.KeysOnly {
				line = c.append(append(line, '\t'), entry.Value)
			}
			if _, err := e.out.Write(append(line, '\n')); err != nil {
				return err
			}
			if n++; n%1024 == 0 && e.ctx.Err() != nil {
				return e.ctx.Err()
			}
		}
		return nil
	})
}
