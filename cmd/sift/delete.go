package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/base"
)

type deleteCmd struct {
	form
	writing
	Range  bool     `help:"Delete the keys from the first up to but not including the second."`
	Prefix bool     `help:"Delete the keys that begin with the given one."`
	Dir    string   `arg:"" help:"The database."`
	Keys   []string `arg:"" name:"key" help:"The keys; with --range the bounds, with --prefix the prefix."`
}

func (deleteCmd) Help() string {
	return `Deletes keys, atomically. It is not an error if a key does not exist. The deletion is
durable when the command returns. With --range or --prefix, tables that lie wholly within the range
are dropped without being read. Such a deletion is not atomic: after an interrupt, some of the
keys may have been deleted; run the command again to delete the rest. An empty prefix deletes
all keys.

Examples:

    sift delete db user:17 user:18
    sift delete --hex db 00ff
    sift delete --range db log/2023 log/2025
    sift delete --prefix db session/`
}

func (c *deleteCmd) Run(e *env) error {
	if c.Range || c.Prefix {
		return c.deleteRange(e)
	}
	var batch sift.Batch
	for _, s := range c.Keys {
		key, err := c.arg("key", s)
		if err != nil {
			return err
		}
		batch.Delete(key)
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	o.ErrorIfMissing = true
	return e.withDB(c.Dir, o, func(db *sift.DB) error { return db.Write(&batch, sift.Sync) })
}

// deleteRange deletes the keys of a range or with a prefix.
func (c *deleteCmd) deleteRange(e *env) error {
	want := 1
	if c.Range {
		want = 2
	}
	switch {
	case c.Range && c.Prefix:
		return usage(errors.New("--range and --prefix can't be used together"))
	case len(c.Keys) != want && c.Range:
		return usage(errors.New("--range takes two keys: the first one to delete, and the first one after it to keep"))
	case len(c.Keys) != want:
		return usage(errors.New("--prefix takes one prefix"))
	}
	var bounds [2][]byte
	for i, s := range c.Keys {
		key, err := c.arg("key", s)
		if err != nil {
			return err
		}
		bounds[i] = key
	}
	if c.Prefix {
		bounds[1] = base.PrefixEnd(bounds[0])
	} else if bytes.Compare(bounds[0], bounds[1]) >= 0 {
		return usage(fmt.Errorf("--range: %q does not come before %q; \"sift batch\" can delete a range without an upper bound", c.Keys[0], c.Keys[1]))
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	o.ErrorIfMissing = true
	return e.withDB(c.Dir, o, func(db *sift.DB) error {
		err := db.DeleteRange(e.ctx, bounds[0], bounds[1])
		if err != nil && errors.Is(err, e.ctx.Err()) {
			return fmt.Errorf("%w: some of the keys may have been deleted", err)
		}
		return err
	})
}
