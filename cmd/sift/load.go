package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/sstable"
)

type loadCmd struct {
	form
	writing
	Dir    string   `arg:"" help:"The database. It is created if it is missing."`
	Sorted bool     `help:"The keys are unique and in ascending order: write them directly into tables, all or none."`
	Tables []string `name:"table" sep:"none" placeholder:"FILE" help:"Load this table file instead of lines, all or nothing. Can be repeated."`
}

func (loadCmd) Help() string {
	return `Stores the lines of standard input, each a key, a tab and a value, as "sift scan" prints
them. A later line for a key overrides an earlier one. If a line is malformed, the command
reports it and stops; the lines before it are stored. What is stored is durable when the command
returns. A line may end with CR LF: a carriage return at the end of a line is not part of the value;
write one that is as \r, as "sift scan" does.

With --sorted the lines must be in ascending order of their keys, as "sift scan" prints them.
They are written once, directly into tables, which is faster, and either all of them are stored or
none.

With --table, table files take the place of lines: those of a LevelDB database, or files that an
sstable.Writer has written. They may overlap; of several entries for a key, the newest counts.

Examples:

    sift load --table backup/000005.ldb --table backup/000007.ldb db
    sift load db < pairs.tsv
    printf 'a\t1\nb\t2\n' | sift load db
    sift scan --hex db | sift load --hex copy`
}

const (
	// loadBatchBytes is the size of a batch: large enough for its overhead not to matter,
	// small enough for an interrupt to take effect at once.
	loadBatchBytes = 1 << 20
	// maxLineBytes bounds the memory for a file without line ends.
	maxLineBytes = 512 << 20
)

func (c *loadCmd) Run(e *env) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	if len(c.Tables) > 0 {
		// A file that is no table is an error before the database is created.
		for _, path := range c.Tables {
			if err := withTable(path, func(*sstable.Reader) error { return nil }); err != nil {
				return err
			}
		}
		return e.withDB(c.Dir, o, func(db *sift.DB) error { return db.Ingest(e.ctx, tableOps(c.Tables)) })
	}
	return e.withDB(c.Dir, o, func(db *sift.DB) error {
		p := e.progress("storing", inputSize(e.in))
		defer p.done()
		l := loader{db: db, form: c.form, in: newLineReader(e.input())}
		if c.Sorted {
			if err := db.Ingest(e.ctx, l.ops(func() { p.set(l.in.bytes) })); err != nil {
				return err
			}
		}
		for !c.Sorted {
			more, err := l.batch()
			p.set(l.in.bytes)
			if err != nil {
				return err
			}
			if !more {
				break
			}
		}
		p.done()
		if isTerminal(e.err) {
			fmt.Fprintf(e.err, "%s stored\n", amount(l.in.line, "line"))
		}
		return nil
	})
}

// tableOps yields the contents of table files. Its errors are inputErrors.
func tableOps(paths []string) iter.Seq2[sift.Op, error] {
	return func(yield func(sift.Op, error) bool) {
		for op, err := range sift.TableOps(paths...) {
			if err != nil {
				err = &inputError{err}
			}
			if !yield(op, err) {
				return
			}
		}
	}
}

// inputError is an error of a file that a command reads, not of the database.
type inputError struct{ error }

func (e *inputError) Unwrap() error { return e.error }

// inputSize returns the size of the input, -1 if it is unknown.
func inputSize(in io.Reader) int64 {
	f, ok := in.(*os.File)
	if !ok {
		return -1
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return -1
	}
	return info.Size()
}

// loader stores lines.
type loader struct {
	db   *sift.DB
	form form
	in   lineReader
	b    sift.Batch
}

// ops yields the lines and reports progress.
func (l *loader) ops(progress func()) iter.Seq2[sift.Op, error] {
	return func(yield func(sift.Op, error) bool) {
		for last := []byte(nil); ; {
			line, err := l.in.next()
			if err == io.EOF {
				return
			}
			var op sift.Op
			if err != nil {
				err = fmt.Errorf("%w after line %d", err, l.in.line)
			} else if op.Key, op.Value, err = l.parse(line); err != nil {
				err = fmt.Errorf("line %d: %w", l.in.line, err)
			} else if last != nil && bytes.Compare(op.Key, last) <= 0 {
				err = fmt.Errorf(`line %d: key "%s" does not come after "%s"`, l.in.line, l.form.append(nil, op.Key), l.form.append(nil, last))
			}
			last = op.Key
			if l.in.line%1024 == 0 {
				progress()
			}
			if !yield(op, err) {
				return
			}
		}
	}
}

// batch stores the next lines. It reports whether there are more. On an error
// all lines before the bad one have been stored.
func (l *loader) batch() (more bool, err error) {
	l.b.Reset()
	before := l.in.line
	more = true
	for more && err == nil && l.b.Size() < loadBatchBytes {
		var line []byte
		line, err = l.in.next()
		switch {
		case err == io.EOF:
			more, err = false, nil
		case err != nil:
			err = fmt.Errorf("%w after line %d", err, l.in.line)
		default:
			if err = l.add(line); err != nil {
				err = fmt.Errorf("line %d: %w", l.in.line, err)
			}
		}
	}
	// NoSync, since closing the database syncs.
	if werr := l.db.Write(&l.b, sift.NoSync); werr != nil {
		err = errors.Join(fmt.Errorf("%w after line %d", werr, before), err)
	}
	return more, err
}

// add puts a line into the batch.
func (l *loader) add(line []byte) error {
	k, v, err := l.parse(line)
	if err == nil {
		l.b.Put(k, v)
	}
	return err
}

// parse returns the key and the value of a line.
func (l *loader) parse(line []byte) (k, v []byte, err error) {
	key, value, ok := bytes.Cut(line, []byte{'\t'})
	if !ok {
		return nil, nil, errors.New("no tab between key and value")
	}
	if bytes.IndexByte(value, '\t') >= 0 {
		return nil, nil, errors.New(`more than one tab (inside a key or value a tab is written \t)`)
	}
	if k, err = l.form.parse(string(key)); err != nil {
		return nil, nil, fmt.Errorf("key: %w", err)
	}
	if v, err = l.form.parse(string(value)); err != nil {
		return nil, nil, fmt.Errorf("value: %w", err)
	}
	return k, v, nil
}

// lineReader splits what it reads into lines.
type lineReader struct {
	in    *bufio.Reader
	long  []byte // backs a line that is longer than in's buffer
	line  int64  // lines read
	bytes int64  // bytes read
}

func newLineReader(in io.Reader) lineReader {
	return lineReader{in: bufio.NewReaderSize(in, 64<<10)}
}

// next returns the next line, without its line end, LF or CR LF. It is valid
// until the next call. The last line need not have a line end.
func (r *lineReader) next() ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		r.long = append(r.long[:0], line...)
		for err == bufio.ErrBufferFull {
			if len(r.long) > maxLineBytes {
				return nil, fmt.Errorf("a line of more than %s", size(maxLineBytes))
			}
			line, err = r.in.ReadSlice('\n')
			r.long = append(r.long, line...)
		}
		line = r.long
	}
	r.bytes += int64(len(line))
	if err == io.EOF && len(line) > 0 {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	r.line++
	line = bytes.TrimSuffix(line, []byte{'\n'})
	return bytes.TrimSuffix(line, []byte{'\r'}), nil
}
