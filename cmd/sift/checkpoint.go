package main

import "github.com/siftdb/sift"

type checkpointCmd struct {
	Dir    string `arg:"" help:"The database."`
	Target string `arg:"" help:"The directory of the copy. It must be missing or empty, and on the same file system."`
}

func (checkpointCmd) Help() string {
	return `Copies a database. The tables of the copy are hard links, so copying is fast and takes hardly
any space until the two databases diverge. Both can be written to afterwards.

Example:

    sift checkpoint db db-monday`
}

func (c *checkpointCmd) Run(e *env) error {
	return e.withDB(c.Dir, sift.Options{ErrorIfMissing: true}, func(db *sift.DB) error { return db.Checkpoint(c.Target) })
}
