package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

type dumpCmd struct {
	form
	asJSON
	Entries bool   `help:"Print every key and value as well."`
	As      string `enum:"table,log,manifest,auto" default:"auto" placeholder:"KIND" help:"The kind of file: table, log or manifest. Default: determined by its name or its last bytes."`
	File    string `arg:"" help:"A table (.ldb, .sst), a log (.log) or a MANIFEST."`
}

func (dumpCmd) Help() string {
	return `Prints what one file of a database contains, even if the database cannot be opened. For
a table it prints the blocks, the properties and the filter; for a log, the records, each a batch
of writes or a durability marker, and how the log ends; for a MANIFEST, the edits and the tables that they
result in. Damage is reported where it is found, and the exit status is then 3.

With --json each line is an object. Its field "type" is one of file, block, entry, property,
filter; batch, durability marker, bad record, end, totals; edit, bad edit, table, end.

Examples:

    sift dump db/000005.ldb
    sift dump --entries db/000006.log
    sift dump db/MANIFEST-000004
    sift dump --json --entries db/000005.ldb`
}

func (c *dumpCmd) Run(e *env) error {
	info, err := os.Stat(c.File) // first, because opening a pipe would wait for a writer
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file; dump reads one file of a database", c.File)
	}
	f, err := os.Open(c.File)
	if err != nil {
		return err
	}
	defer f.Close()
	d := dumper{env: e, form: c.form, json: c.JSON, entries: c.Entries, path: c.File, file: f, size: info.Size()}
	kind := c.As
	if kind == "auto" {
		kind = d.guess()
	}
	switch kind {
	case "table":
		err = d.table()
	case "log":
		err = d.log()
	case "manifest":
		err = d.manifest()
	default:
		return usage(fmt.Errorf("%s: the kind of file is not clear from its name or its last bytes; use --as", c.File))
	}
	if d.damaged && isBrokenPipe(err) { // a closed pipe is not a failure, but damage is
		return errReported
	}
	return err
}

// dumper prints the contents of a file.
type dumper struct {
	*env
	form
	json    bool
	entries bool
	path    string
	file    io.ReaderAt
	size    int64
	damaged bool // damage was found and reported
}

// guess returns the kind of the file by its name or its last bytes, "" if it is unknown.
func (d *dumper) guess() string {
	switch name := filepath.Base(d.path); {
	case filepath.Ext(name) == ".ldb", filepath.Ext(name) == ".sst":
		return "table"
	case strings.HasPrefix(name, "MANIFEST-"):
		return "manifest"
	case filepath.Ext(name) == ".log":
		return "log"
	}
	var magic [8]byte
	if _, err := d.file.ReadAt(magic[:], d.size-int64(len(magic))); err == nil && binary.LittleEndian.Uint64(magic[:]) == tableMagic {
		return "table"
	}
	return ""
}

// tableMagic ends every table of LevelDB's format.
const tableMagic = 0xdb4775248b80fb57

// printf prints, or fails if the command has been interrupted.
func (d *dumper) printf(format string, args ...any) error {
	if d.ctx.Err() != nil {
		return d.ctx.Err()
	}
	_, err := fmt.Fprintf(d.out, format, args...)
	return err
}

// key formats a key or value for the text output: quoted, unless it is hexadecimal.
func (d *dumper) key(b []byte) string {
	if d.Hex {
		return string(d.append([]byte("0x"), b))
	}
	return string(append(d.append([]byte{'"'}, b), '"'))
}

// result returns an error if the file was damaged.
func (d *dumper) result() error {
	if d.damaged {
		return fmt.Errorf("%s: %w", d.path, errDamaged)
	}
	return nil
}

var errDamaged = errors.New("damaged, see above")

// rangeText formats a range of numbers.
func rangeText(first, last uint64) string {
	if first == last {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, last)
}
