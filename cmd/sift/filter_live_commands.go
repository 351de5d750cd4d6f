package main

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/siftdb/sift/filter/live"
	"github.com/siftdb/sift/internal/bytesize"
)

type liveBuildCmd struct {
	asJSON
	elements
	liveOutput
	MaxMemory bytesize.Size `default:"16GiB" placeholder:"BYTES" help:"Reject a filter that takes more memory, and one that has grown beyond it: 64MiB, 500KB or a number of bytes. Default: ${default}."`
	Filter    string        `arg:"" help:"The filter, such as 'bloom(items=1e6,fpr=0.001)'."`
}

func (liveBuildCmd) Help() string {
	return `Adds each line of standard input to a new filter, and writes it when the input ends.
If a line is malformed, or the filter is full, it reports the line and writes nothing.

The kinds of filter are bloom, counting, cuckoo, scalable, generations, dedup, pair and sharded. Their
parameters are the fields of live.Config in package filter/live.

Examples:

    sift filter live build 'bloom(items=1e6,fpr=0.001)' -o users.filter < users
    sift filter live build 'bloom(items=1e6,fpr=0.01,scheme=guava)' --guava --elements int64 -o ids.bin < ids
    sift filter live build 'sharded(shards=16,of=cuckoo(items=7e4,fpr=0.001))' -o seen.filter < seen`
}

func (c *liveBuildCmd) Run(e *env) error {
	config, err := live.Parse(c.Filter)
	if err != nil {
		return usage(err)
	}
	if config.Kind == "rotating" {
		return usage(errors.New("a rotating filter can only be filled by a program"))
	}
	if least := leastMemory(config); least > float64(c.MaxMemory) {
		return usage(fmt.Errorf("%s takes %s or more, above --max-memory %s", &config, size(int64(min(least, 1<<62))), size(int64(c.MaxMemory))))
	}
	f, err := c.build(config)
	if err == nil {
		err = c.fits(f)
	}
	if err != nil {
		return usage(err)
	}
	if _, err := c.format(f.filter()); err != nil {
		return err
	}
	if err := c.liveOutput.check(); err != nil {
		return err
	}
	var total, fresh int64
	isNew := make([]bool, 4096)
	err = e.eachBatch("adding", func(first int64, lines []string) error {
		n, err := f.add(lines, isNew[:len(lines)])
		for _, yes := range isNew[:n] {
			if yes {
				fresh++
			}
		}
		total += int64(n)
		if err != nil {
			return fmt.Errorf("line %d: %w", first+int64(n), err)
		}
		return c.fits(f) // some kinds grow
	})
	if err != nil {
		return err
	}
	if err := c.write(f.filter()); err != nil {
		return err
	}
	if c.JSON {
		return e.writeJSON(struct {
			Lines int64    `json:"lines"`
			New   int64    `json:"new"`
			Bytes int      `json:"bytes"`
			FPR   *float64 `json:"fpr"`
		}{total, fresh, f.filter().MemoryBytes(), ifNumber(f.filter().FPR())})
	}
	_, err = fmt.Fprintf(e.out, "%s, %s new; %s; FPR now %s\n", amount(total, "line"), count(fresh), size(f.filter().MemoryBytes()), rate(f.filter().FPR()))
	return err
}

// fits returns an error if a filter takes more than --max-memory.
func (c *liveBuildCmd) fits(f lineSet) error {
	if n := int64(f.filter().MemoryBytes()); n > int64(c.MaxMemory) {
		return fmt.Errorf("the filter takes %s, above --max-memory %s", size(n), size(int64(c.MaxMemory)))
	}
	return nil
}

type liveMergeCmd struct {
	asJSON
	elements
	liveOutput
	liveLimit
	Files []string `arg:"" help:"The filters, of the same kind and with the same parameters."`
}

func (liveMergeCmd) Help() string {
	return `Writes a filter with the elements of all files. The filters must be of the same kind and
have the same parameters. The kinds that can be merged are bloom (which Guava's files are), counting,
cuckoo, pair, dedup without a window, and sharded filters of these.

Example:

    sift filter live merge monday.filter tuesday.filter -o both.filter`
}

func (c *liveMergeCmd) Run(e *env) error {
	if err := c.liveOutput.check(); err != nil {
		return err
	}
	var all lineSet
	for _, path := range c.Files {
		f, err := c.open(path, c.liveLimit)
		if err != nil {
			return err
		}
		if all == nil {
			all = f
			continue
		}
		if err := all.merge(f); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := c.write(all.filter()); err != nil {
		return err
	}
	if c.JSON {
		n := all.filter().ApproxCount()
		return e.writeJSON(struct {
			Files int      `json:"files"`
			Kind  string   `json:"kind"`
			Count *uint64  `json:"count"`
			Bytes int      `json:"bytes"`
			FPR   *float64 `json:"fpr"`
		}{len(c.Files), kindOfFilter(all.filter()), ifKnown(n, n != math.MaxUint64), all.filter().MemoryBytes(), ifNumber(all.filter().FPR())})
	}
	_, err := fmt.Fprintf(e.out, "%s of %s; elements: %s; FPR now %s\n", amount(len(c.Files), "file"),
		kindOfFilter(all.filter()), approxCount(all.filter()), rate(all.filter().FPR()))
	return err
}

type liveQueryCmd struct {
	elements
	liveLimit
	asJSON
	Absent bool   `help:"Print the lines that are not in the filter instead of those that may be."`
	Quiet  bool   `short:"q" help:"Print nothing but the summary."`
	File   string `arg:"" help:"The filter."`
}

func (liveQueryCmd) Help() string {
	return `Prints the lines of standard input that may be in the filter, or with --absent those
that are certainly not in it. A summary goes to standard error. With --json it prints
only the summary, to standard output.

Examples:

    sift filter live query users.filter < candidates
    sift filter live query --absent --elements int64 ids.bin < ids`
}

func (c *liveQueryCmd) Run(e *env) error {
	f, err := c.open(c.File, c.liveLimit)
	if err != nil {
		return err
	}
	var total, found int64
	positive := make([]bool, 4096)
	err = e.eachBatch("looking up", func(first int64, lines []string) error {
		if n, err := f.has(lines, positive); err != nil {
			return fmt.Errorf("line %d: %w", first+int64(n), err)
		}
		for i, line := range lines {
			total++
			if positive[i] {
				found++
			}
			if positive[i] == c.Absent || c.Quiet || c.JSON {
				continue
			}
			if _, err := io.WriteString(e.out, line+"\n"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return e.writeJSON(struct {
			Lines int64 `json:"lines"`
			Found int64 `json:"found"` // that may be in the filter
		}{total, found})
	}
	_, err = fmt.Fprintf(e.err, "%s: %s may be in the filter, %s not\n", amount(total, "line"), count(found), count(total-found))
	return err
}

type liveInspectCmd struct {
	asJSON
	liveLimit
	File string `arg:"" help:"The filter."`
}

func (liveInspectCmd) Help() string {
	return `Reads a whole filter file, verifies its checksums, and prints the filter's kind, its
parameters and how full it is. Guava's files have no checksums.

Example:

    sift filter live inspect users.filter`
}

func (c *liveInspectCmd) Run(e *env) error {
	f, elements, err := openAny(c.File, c.liveLimit)
	if err != nil {
		return err
	}
	if c.JSON {
		return e.writeJSON(inspected(f, elements))
	}
	t := columns{left: map[int]bool{1: true}}
	t.add("kind", kindOfFilter(f))
	t.add("elements", elements)
	for _, row := range details(f) {
		t.add(row.label, row.text)
	}
	t.add("memory", size(f.MemoryBytes()))
	t.add("fill", fmt.Sprintf("%.1f%%", 100*f.FillRatio()))
	t.add("count", approxCount(f))
	t.add("FPR now", rate(f.FPR()))
	return t.write(e.out)
}

// inspected describes a filter as JSON.
func inspected(f lineFilter, elements string) map[string]any {
	n := f.ApproxCount()
	object := map[string]any{
		"kind": kindOfFilter(f), "elements": elements, "bytes": f.MemoryBytes(), "fill": f.FillRatio(),
		"count": ifKnown(n, n != math.MaxUint64), "fpr": ifNumber(f.FPR()),
	}
	for _, row := range details(f) {
		object[row.key] = row.value
	}
	return object
}

// approxCount writes a filter's estimate; a full filter has none.
func approxCount(f lineFilter) string {
	n := f.ApproxCount()
	if n == math.MaxUint64 {
		return "unknown, the filter is full"
	}
	return "about " + count(n)
}

// openAny reads a filter of any type of element that the command line supports.
func openAny(path string, o liveLimit) (f lineFilter, what string, err error) {
	for _, kind := range [...]struct{ name, what string }{
		{"text", "strings or bytes"}, {"int32", "32-bit integers"}, {"int64", "64-bit integers"}, {"custom", "of a type with a funnel"},
	} {
		var l lineSet
		l, err = elements{kind.name}.open(path, o)
		switch {
		case err == nil && l.guava():
			return l.filter(), "(not recorded in Guava's format)", nil
		case err == nil:
			return l.filter(), kind.what, nil
		case !errors.Is(err, live.ErrIncompatible):
			return nil, "", err
		}
	}
	return nil, "", err
}

// detail is a parameter or a counter that only some kinds of filters have.
type detail struct {
	label, key string // in text, and in JSON
	value      any
	text       string
}

// details returns the parameters and counters that are specific to a filter's kind.
func details(f any) (rows []detail) {
	add := func(label, key string, value any, text string) {
		rows = append(rows, detail{label, key, value, text})
	}
	if f, ok := f.(interface{ Scheme() live.Scheme }); ok {
		add("scheme", "scheme", f.Scheme().String(), f.Scheme().String())
	}
	if f, ok := f.(interface{ Bits() uint64 }); ok {
		add("bits", "bits", f.Bits(), count(f.Bits()))
	}
	if f, ok := f.(interface{ Hashes() int }); ok {
		add("hashes", "hashes", f.Hashes(), count(f.Hashes()))
	}
	if f, ok := f.(interface{ FingerprintBits() int }); ok {
		add("fingerprint", "fingerprintBits", f.FingerprintBits(), amount(f.FingerprintBits(), "bit"))
	}
	if f, ok := f.(interface{ Capacity() uint64 }); ok {
		add("slots", "slots", f.Capacity(), count(f.Capacity()))
	}
	if f, ok := f.(interface{ Links() int }); ok {
		add("links", "links", f.Links(), count(f.Links()))
	}
	if f, ok := f.(interface{ Len() int }); ok {
		add("shards", "shards", f.Len(), count(f.Len()))
	}
	if f, ok := f.(interface{ Seen() uint64 }); ok {
		add("seen", "seen", f.Seen(), count(f.Seen()))
	}
	if f, ok := f.(interface{ Dropped() uint64 }); ok {
		add("dropped", "dropped", f.Dropped(), count(f.Dropped()))
	}
	return rows
}
