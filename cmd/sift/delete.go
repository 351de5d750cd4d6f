package main

import "github.com/siftdb/sift"

type deleteCmd struct {
	form
	writing
	Dir  string   `arg:"" help:"The database."`
	Keys []string `arg:"" name:"key" help:"The keys."`
}

func (deleteCmd) Help() string {
	return `Removes keys, all or none of them. A key that is not there is no error. The
removal is durable when the verb returns.

Examples:

    sift delete db user:17 user:18
    sift delete --hex db 00ff`
}

func (c *deleteCmd) Run(e *env) error {
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
