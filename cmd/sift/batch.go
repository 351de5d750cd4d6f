package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/siftdb/sift"
)

type batchCmd struct {
	form
	writing
	Dir string `arg:"" help:"The database. It is created if it is missing."`
}

func (batchCmd) Help() string {
	return `Reads a script from standard input and carries it out as one write: after a crash
at any time all of it is there or nothing. Its lines are

    put KEY VALUE
    delete KEY

with a tab between the words. A later line wins over an earlier one with the same key; deleting a
key that is not there is no error. At a line that cannot be read it stops, names the line, and
nothing is written. The write is durable when the verb returns.

A range cannot be deleted in a script: a write has no entry for one in this format, and its keys are
known only while it is deleted. "sift delete --range" does it, not as one.

Examples:

    sift batch db < script.tsv
    printf 'put\tfrom\t90\nput\tto\t10\ndelete\tpending\n' | sift batch db`
}

func (c *batchCmd) Run(e *env) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	// The script is read first: a database that is opened keeps others out.
	b, err := c.read(e.input())
	if err != nil {
		return err
	}
	return e.withDB(c.Dir, o, func(db *sift.DB) error { return db.Write(b, sift.Sync) })
}

// read reads a script.
func (c *batchCmd) read(in io.Reader) (*sift.Batch, error) {
	b := &sift.Batch{}
	lines := newLineReader(in)
	for {
		line, err := lines.next()
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w after line %d", err, lines.line)
		}
		before := b.Len()
		if err := c.add(b, line); err != nil {
			return nil, fmt.Errorf("line %d: %w", lines.line, err)
		}
		if b.Len() == before {
			return nil, fmt.Errorf("line %d: %w", lines.line, sift.ErrBatchTooLarge)
		}
	}
}

// add puts a line into the batch.
func (c *batchCmd) add(b *sift.Batch, line []byte) error {
	words := bytes.Split(line, []byte{'\t'})
	verb, args := string(words[0]), words[1:]
	want := map[string]int{"put": 2, "delete": 1}[verb]
	switch {
	case verb == "delete-range":
		return errors.New(`a range cannot be deleted as a part of one write; use "sift delete --range"`)
	case want == 0:
		return fmt.Errorf("%q is none of put and delete", verb)
	case len(args) != want:
		return fmt.Errorf("%s takes %s, each after a tab, and there are %d", verb, amount(int64(want), "argument"), len(args))
	}
	key, err := c.parse(string(args[0]))
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	if verb == "delete" {
		b.Delete(key)
		return nil
	}
	value, err := c.parse(string(args[1]))
	if err != nil {
		return fmt.Errorf("value: %w", err)
	}
	b.Put(key, value)
	return nil
}
