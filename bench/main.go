// Command bench compares sift with other stores and filters: they take turns at the same work on
// the same terms and, except in the command memory, in one process.
//
//	go run -C bench . --quick           a quick look, within two minutes
//	go run -C bench . --out results     the full report
//	go run -C bench . compare A B       the changes beyond noise
//
// It is a separate module, so that programs that embed sift do not depend on the stores that it is
// compared with.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/memory"
	"github.com/siftdb/sift/bench/report"
	"github.com/siftdb/sift/bench/result"
	"github.com/siftdb/sift/bench/store"
)

type commands struct {
	Run     runCmd     `cmd:"" default:"withargs" help:"Measure and write a report (the default)."`
	Compare compareCmd `cmd:"" help:"List the changes between two results that are beyond noise."`
	HTML    htmlCmd    `cmd:"" name:"html" help:"Write the report and the plots of a result again."`
	Show    showCmd    `cmd:"" help:"Print the tables of a result."`
	Readme  readmeCmd  `cmd:"" help:"Put the tables of a result between the markers of a document."`
	Txn     txnCmd     `cmd:"" help:"Compare transactions: counters and accounts."`
	Queue   queueCmd   `cmd:"" help:"Compare queues and time series, where keys are deleted at one end."`
	Memory  memoryCmd  `cmd:"" help:"Compare stores that are short of memory, each in its own control group."`
	Ranges  rangesCmd  `cmd:"" help:"Measure the false positive rates of range filters on several kinds of keys."`
	Scans   scansCmd   `cmd:"" help:"Compare scans of empty ranges."`
	List    listCmd    `cmd:"" help:"List engines and benchmarks."`
}

func main() {
	// An interrupt ends the process at once, after removing the databases of run and memory.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		removeTemporary()
		os.Exit(1)
	}()
	if len(os.Args) == 2 && os.Args[1] == memory.ChildArg {
		if err := memory.Child(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if err := execute(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// streams are the outputs of a command.
type streams struct{ out, err io.Writer }

func execute(args []string, stdout, stderr io.Writer) error {
	var c commands
	done := errors.New("done")
	parser, err := kong.New(&c, kong.Name("bench"), kong.Description("Compares sift with other stores and filters."),
		kong.Writers(stdout, stderr), kong.UsageOnError(), kong.Exit(func(int) { panic(done) }))
	if err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil && p != any(done) {
			panic(p)
		}
	}()
	call, err := parser.Parse(args)
	if err != nil {
		return err
	}
	return call.Run(&streams{stdout, stderr})
}

type compareCmd struct {
	Old     string   `arg:"" help:"result.json of the earlier run." type:"existingfile"`
	New     string   `arg:"" help:"result.json of the later run." type:"existingfile"`
	AtLeast float64  `default:"3" help:"Omit changes of less than this percentage." placeholder:"PERCENT"`
	Units   []string `default:"ops/s,entries/s,cpu-us/op,reads/kop,write-amp,space-B/key,filter-B,open-ms,fpr,bits/key,build-ns/key,hot-absent-ns,hot-present-ns,hot-batch-ns,cold-absent-ns,cold-isolated-ns,cold-batch-ns,big-absent-ns" help:"The units to compare, as named in result.csv."`
	Store   string   `help:"Only compare stores and filters whose name contains this."`
}

func (c *compareCmd) Run(s *streams) error {
	before, err := result.Read(c.Old)
	if err != nil {
		return err
	}
	after, err := result.Read(c.New)
	if err != nil {
		return err
	}
	if c.Store != "" {
		after.Rows = after.Select(func(r *result.Row) bool { return strings.Contains(r.Store, c.Store) })
	}
	found := result.Compare(before, after, c.Units, c.AtLeast/100)
	for _, t := range found.Terms {
		fmt.Fprintln(s.out, "different terms:", t)
	}
	for _, change := range found.Changes {
		fmt.Fprintln(s.out, change)
	}
	tested := found.Compared - found.Untested
	fmt.Fprintf(s.out, "%d of %d values changed by %g%% or more beyond noise.\n", len(found.Changes), found.Compared, c.AtLeast)
	if tested > 0 {
		fmt.Fprintf(s.out, "%d were tested (Mann-Whitney, 5%%): by chance alone, up to %d of them would seem to have changed.\n", tested, (tested+19)/20)
	}
	if found.Untested > 0 {
		fmt.Fprintf(s.out, "%d have fewer than 4 rounds on a side, too few for the test: they count as changed if the ranges do not overlap.\n", found.Untested)
	}
	return nil
}

// publishedResult is the result that docs/benchmarks.md shows.
const publishedResult = "results/result.json"

type htmlCmd struct {
	Result string `arg:"" optional:"" help:"The result (results/result.json)."`
	Out    string `default:"" help:"The directory to write to; by default that of the result."`
}

func (c *htmlCmd) Run(s *streams) error {
	c.Result = cmp.Or(c.Result, publishedResult)
	f, err := result.Read(c.Result)
	if err != nil {
		return err
	}
	out := c.Out
	if out == "" {
		out = directoryOf(c.Result)
	}
	return writeReport(f, out, s.out)
}

type showCmd struct {
	Result string `arg:"" optional:"" help:"The result (results/result.json)."`
}

func (c *showCmd) Run(s *streams) error {
	f, err := result.Read(cmp.Or(c.Result, publishedResult))
	if err != nil {
		return err
	}
	return report.WriteText(s.out, f)
}

type readmeCmd struct {
	Result string   `default:"results/result.json" help:"The result." type:"existingfile"`
	Files  []string `name:"file" default:"../README.md,../docs/benchmarks.md,../docs/filters.md,../docs/speed.md" help:"The documents with the markers."`
	Check  bool     `help:"Change nothing; fail if the tables differ from the result."`
	Clean  bool     `help:"Also fail unless the result and all tables were measured at the same commit, without uncommitted changes."`
	Names  bool     `help:"Only list the names of the markers."`
}

func (c *readmeCmd) Run(s *streams) error {
	f, err := result.Read(c.Result)
	if err != nil {
		return err
	}
	tables, err := result.ReadTables(publishedTables)
	if err != nil {
		return err
	}
	if c.Clean {
		if err := result.CheckCommits(f, tables); err != nil {
			return err
		}
	}
	blocks, err := report.Blocks(f, tables)
	if err != nil {
		return err
	}
	if c.Names {
		for _, name := range sortedKeys(blocks) {
			fmt.Fprintln(s.out, name)
		}
		return nil
	}
	for _, file := range c.Files {
		if err := c.fill(file, blocks); err != nil {
			return err
		}
	}
	return nil
}

// fill puts the blocks into a document.
func (c *readmeCmd) fill(file string, blocks map[string]string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	filled, err := report.Fill(string(content), blocks)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", file, err)
	case filled == string(content):
		return nil
	case c.Check:
		return fmt.Errorf("%s does not show the figures of %s and %s: run 'go run -C bench . readme'", file, c.Result, publishedTables)
	}
	return os.WriteFile(file, []byte(filled), 0o644)
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

type listCmd struct{}

func (listCmd) Run(s *streams) error {
	fmt.Fprintln(s.out, "Engines, as --engines takes them, each optionally with :FILTER:")
	for _, e := range engine.All() {
		filters := e.Filters
		if filters == "" {
			filters = "no choice"
		}
		fmt.Fprintf(s.out, "  %-15s %-14s filters: %s\n", e.Name, e.Version, filters)
		for _, m := range e.Modes {
			fmt.Fprintf(s.out, "                  looks up by %s\n", m.Title)
		}
	}
	for _, name := range sortedKeys(engine.Missing()) {
		fmt.Fprintf(s.out, "  %-15s %s\n", name, engine.Missing()[name])
	}
	fmt.Fprintln(s.out, "\nBenchmarks, as --benchmarks takes them:")
	for _, n := range store.Names() {
		fmt.Fprintf(s.out, "  %-18s %s\n", n[0], n[1])
	}
	return nil
}
