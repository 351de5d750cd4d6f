package main

import (
	"cmp"
	"fmt"
	"math"

	"github.com/siftdb/sift"
)

type scanCmd struct {
	form
	asJSON
	From    *string `placeholder:"KEY" help:"Start at this key, or at the first one after it."`
	To      *string `placeholder:"KEY" help:"End before this key."`
	Prefix  *string `help:"Print only keys that begin with this."`
	Limit   *uint64 `placeholder:"N" help:"Print at most N keys."`
	Keys    bool    `aliases:"keys-only" help:"Leave out the tab and the value."`
	Reverse bool    `help:"Print in descending order."`
	Count   bool    `help:"Print only the number of keys."`
	Dir     string  `arg:"" help:"The database."`
}

func (scanCmd) Help() string {
	return `Prints a line for each key, in bytewise order: the key, a tab, the value. "sift load"
reads such lines.

Examples:

    sift scan db
    sift scan --prefix user: --limit 10 db
    sift scan --from b --to d --keys db
    sift scan --reverse --limit 1 db
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
		n, err := c.scan(e, db, bounds)
		if err != nil || !c.Count {
			return err
		}
		if c.JSON {
			return e.writeJSON(struct {
				Keys uint64 `json:"keys"`
			}{n})
		}
		_, err = fmt.Fprintln(e.out, n)
		return err
	})
}

// scan prints the entries and returns their number.
func (c *scanCmd) scan(e *env, db *sift.DB, bounds *sift.IterOptions) (n uint64, err error) {
	limit := uint64(math.MaxUint64)
	if c.Limit != nil {
		limit = *c.Limit
	}
	it, err := db.NewIter(bounds)
	if err != nil {
		return 0, err
	}
	defer func() { err = cmp.Or(err, it.Close()) }()
	first, next := it.First, it.Next
	if c.Reverse {
		first, next = it.Last, it.Prev
	}
	var line []byte
	for ok := n < limit && first(); ok; ok = n < limit && next() {
		if line, err = c.write(e, line[:0], it); err != nil {
			return n, err
		}
		if n++; n%1024 == 0 && e.ctx.Err() != nil {
			return n, e.ctx.Err()
		}
	}
	return n, nil
}

// write prints the iterator's current entry. It uses line as a buffer, and returns it.
func (c *scanCmd) write(e *env, line []byte, it *sift.Iter) ([]byte, error) {
	if c.Count {
		return line, nil
	}
	line = c.append(line, it.Key())
	if c.JSON {
		entry := entryJSON{Key: string(line)}
		if !c.Keys {
			value := string(c.append(nil, it.Value()))
			entry.Value = &value
		}
		return line, e.writeJSON(entry)
	}
	if !c.Keys {
		line = c.append(append(line, '\t'), it.Value())
	}
	_, err := e.out.Write(append(line, '\n'))
	return line, err
}
