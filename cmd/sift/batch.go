package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/siftdb/sift"
)

type batchCmd struct {
	form
	writing
	Dir string `arg:"" help:"The database. It is created if it is missing."`
}

func (batchCmd) Help() string {
	return `Reads a script from standard input and applies it as one atomic write: after a
crash, either all of it is there or none. Its lines are

    put KEY VALUE
    delete KEY
    delete-range FROM TO

with tabs between the fields. delete-range deletes the keys from FROM up to but not including TO; an
empty TO means no upper bound. A later line for a key overrides an earlier one. Deleting a key that
does not exist is not an error. If a line is malformed, it is reported and nothing is written. The
write is durable when the command returns. A line may end with CR LF: a carriage return at the end
of a line is not part of its last field; write one that is as \r.

A script fails if its puts and deletes take more than 1GiB of memory. The keys of a range are looked
up and deleted one by one. A script with ranges also fails if the ranges, or the transaction that
applies the script, take more than 1GiB. "sift delete --range" is faster and has no such limit, but
is not atomic.

Examples:

    sift batch db < script.tsv
    printf 'put\tfrom\t90\nput\tto\t10\ndelete\tpending\n' | sift batch db`
}

func (c *batchCmd) Run(e *env) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	// The script is read before the database is opened, which locks out other processes.
	s, err := c.read(e.input())
	if err != nil {
		return err
	}
	o.TxBytes, o.TxLifetime = 1<<30, -1
	return e.withDB(c.Dir, o, func(db *sift.DB) error {
		err := s.write(e.ctx, db)
		if err != nil && errors.Is(err, e.ctx.Err()) {
			return fmt.Errorf("%w: nothing was written", err)
		}
		return err
	})
}

// script is a batch, and ranges to delete between its operations.
type script struct {
	batch      sift.Batch
	ranges     []scriptRange
	rangeBytes int // the memory of ranges
}

type scriptRange struct {
	after    int // the number of operations of the batch that come before it
	from, to []byte
}

// maxRangeBytes bounds the memory for the ranges of a script.
var maxRangeBytes = 1 << 30

// rangeOverhead is the memory of a range besides its bounds, while append copies the ranges.
const rangeOverhead = 128

// addRange adds a range, unless the ranges would then take too much memory.
func (s *script) addRange(from, to []byte) {
	n := rangeOverhead + cap(from) + cap(to)
	if n > maxRangeBytes-s.rangeBytes {
		return
	}
	s.rangeBytes += n
	if len(to) == 0 {
		to = nil
	}
	s.ranges = append(s.ranges, scriptRange{s.batch.Len(), from, to})
}

// write executes the script. If ctx is done, it writes nothing.
func (s *script) write(ctx context.Context, db *sift.DB) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(s.ranges) == 0 {
		return db.Write(&s.batch, sift.Sync)
	}
	return db.Transact(ctx, func(tx *sift.Tx) error {
		left, n := s.ranges, 0
		for op := range s.batch.Ops() {
			if n%1024 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			var err error
			if left, err = deleteRanges(ctx, tx, left, n); err != nil {
				return err
			}
			if op.Delete {
				err = tx.Delete(op.Key)
			} else {
				err = tx.Put(op.Key, op.Value)
			}
			if err != nil {
				return err
			}
			n++
		}
		_, err := deleteRanges(ctx, tx, left, n)
		return err
	})
}

// deleteRanges deletes the leading ranges that come after n operations, and returns the rest.
func deleteRanges(ctx context.Context, tx *sift.Tx, ranges []scriptRange, n int) ([]scriptRange, error) {
	for len(ranges) > 0 && ranges[0].after == n {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		deleted := 0
		for entry, err := range tx.Scan(&sift.IterOptions{LowerBound: ranges[0].from, UpperBound: ranges[0].to}) {
			if err != nil {
				return nil, err
			}
			if err := tx.Delete(entry.Key); err != nil {
				return nil, err
			}
			if deleted++; deleted%1024 == 0 && ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
		ranges = ranges[1:]
	}
	return ranges, nil
}

// read reads a script.
func (c *batchCmd) read(in io.Reader) (*script, error) {
	s := &script{}
	lines := newLineReader(in)
	for {
		line, err := lines.next()
		if err == io.EOF {
			return s, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w after line %d", err, lines.line)
		}
		before := s.batch.Len() + len(s.ranges)
		if err := c.add(s, line); err != nil {
			return nil, fmt.Errorf("line %d: %w", lines.line, err)
		}
		if s.batch.Len()+len(s.ranges) == before {
			return nil, fmt.Errorf("line %d: %w", lines.line, sift.ErrBatchTooLarge)
		}
	}
}

// add adds a line to the script.
func (c *batchCmd) add(s *script, line []byte) error {
	name, _, _ := bytes.Cut(line, []byte{'\t'})
	command := string(name[:min(len(name), 40)]) // enough for an error; a line may have 512 MiB
	given := bytes.Count(line, []byte{'\t'})
	want := map[string]int{"put": 2, "delete": 1, "delete-range": 2}[command]
	switch {
	case want == 0 && strings.Contains(command, " "):
		return fmt.Errorf("%q is none of put, delete and delete-range; tabs separate the fields", command)
	case want == 0:
		return fmt.Errorf("%q is none of put, delete and delete-range", command)
	case given != want:
		return fmt.Errorf("%s takes %s, separated by tabs, got %d", command, amount(int64(want), "argument"), given)
	}
	args := bytes.Split(line, []byte{'\t'})[1:]
	key, err := c.parse(string(args[0]))
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	if command == "delete" {
		s.batch.Delete(key)
		return nil
	}
	value, err := c.parse(string(args[1]))
	switch {
	case err != nil && command == "put":
		return fmt.Errorf("value: %w", err)
	case err != nil:
		return fmt.Errorf("bound: %w", err)
	case command == "put":
		s.batch.Put(key, value)
	default:
		s.addRange(key, value)
	}
	return nil
}
