package main

import (
	"fmt"
	"io"

	"github.com/siftdb/sift"
)

type putCmd struct {
	form
	writing
	Dir   string  `arg:"" help:"The database. It is created if it is missing."`
	Key   string  `arg:"" help:"The key."`
	Value *string `arg:"" optional:"" help:"The value. If omitted, it is read from standard input, byte for byte."`
}

func (putCmd) Help() string {
	return `Sets a key to a value, replacing any value that it has. The write is durable when the
command returns.

Examples:

    sift put db user:17 'Ada Lovelace'
    sift put --hex db 00ff 0a
    sift put db photo.png < photo.png`
}

// maxValueBytes bounds the memory for a value from standard input. A batch holds no larger one.
var maxValueBytes int64 = 1 << 30

func (c *putCmd) Run(e *env) error {
	key, err := c.arg("key", c.Key)
	if err != nil {
		return err
	}
	var value []byte
	if c.Value != nil {
		value, err = c.arg("value", *c.Value)
	} else if value, err = io.ReadAll(io.LimitReader(e.input(), maxValueBytes+1)); err != nil {
		err = fmt.Errorf("reading the value: %w", err)
	} else if int64(len(value)) > maxValueBytes {
		err = fmt.Errorf("the value has more than %s", size(maxValueBytes))
	}
	if err != nil {
		return err
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	return e.withDB(c.Dir, o, func(db *sift.DB) error { return db.Put(key, value, sift.Sync) })
}
