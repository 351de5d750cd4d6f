package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/siftdb/sift/bench/measure"
	"github.com/siftdb/sift/bench/result"
)

// publishedTables holds the tables that docs/benchmarks.md shows besides those of publishedResult.
const publishedTables = "results/tables.json"

// saveFlags are the flags of commands that print a table.
type saveFlags struct {
	Save string `name:"save" default:"" help:"Also store the table under this name in results/tables.json, for ../docs/benchmarks.md." placeholder:"NAME"`
	Add  bool   `name:"add" help:"With --save: add the rows to those that are stored, instead of replacing them."`
}

// table prints a table row by row.
type table struct {
	out   io.Writer
	flags saveFlags
	result.Table
}

// newTable prints the command and the head of a table.
func newTable(out io.Writer, flags saveFlags, about string, header ...string) *table {
	t := &table{out: out, flags: flags, Table: result.Table{
		Name: flags.Save, When: time.Now().UTC().Format("2006-01-02"), Commit: measure.Commit(),
		Command: shownCommand(), Machine: measure.ThisMachine(os.TempDir()), Header: header,
	}}
	fmt.Fprintf(out, "%s\n%s\n\n", measure.Command(), about)
	t.line(header)
	rule := slices.Repeat([]string{"---:"}, len(header))
	rule[0] = ":---"
	t.line(rule)
	return t
}

func (t *table) line(cells []string) {
	fmt.Fprintf(t.out, "| %s |\n", strings.Join(cells, " | "))
}

// row prints a row. It panics if the row does not fit the head.
func (t *table) row(cells ...string) {
	if len(cells) != len(t.Header) {
		panic(fmt.Sprintf("%d cells in a table of %d columns", len(cells), len(t.Header)))
	}
	t.line(cells)
	t.Rows = append(t.Rows, cells)
}

// end stores the table if it is to be saved.
func (t *table) end() error {
	fmt.Fprintln(t.out)
	if t.flags.Save == "" {
		return nil
	}
	return t.Table.Save(publishedTables, t.flags.Add)
}

// shownCommand is the command without directories of this machine and without saveFlags.
func shownCommand() string {
	words := strings.Fields(measure.Command())
	var shown []string
	for i := 0; i < len(words); i++ {
		switch name, _, joined := strings.Cut(words[i], "="); name {
		case "--db", "--save", "--json", "--plots":
			if !joined {
				i++
			}
		case "--add":
		default:
			shown = append(shown, words[i])
		}
	}
	return strings.Join(shown, " ")
}
