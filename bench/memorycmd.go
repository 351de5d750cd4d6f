package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/siftdb/sift/bench/memory"
	"github.com/siftdb/sift/bench/report"
	"github.com/siftdb/sift/internal/bytesize"
)

// memoryHeader is the head of the table.
var memoryHeader = []string{"", "limit, MiB", "data / memory", "keys", "workload", "ops/s", "CPU µs", "p99 µs", "reads", "bytes read",
	"open ms", "resident MiB", "anonymous MiB", "peak MiB", "major faults"}

type memoryCmd struct {
	Engines   []string        `name:"engines" default:"sift,pebble,goleveldb,badger,rocksdb" help:"Stores. Variants of sift: sift/nomap without memory mapping, sift/map with unlimited MapBytes, sift/cache with a block cache of a quarter of the memory, sift/memory with Options.Memory set. rocksdb/filters has indexes and filters beside its cache, always in memory; rocksdb/partitioned has both in partitions, in files of its own." placeholder:"LIST"`
	Limits    []bytesize.Size `name:"limits" default:"64MiB,256MiB" help:"Memory limits (${default})." placeholder:"BYTES,..."`
	Num       int             `name:"num" default:"5000000" help:"Keys in each database." placeholder:"N"`
	FillNum   int             `name:"fill_num" default:"0" help:"Keys that fill writes; by default a quarter of --num." placeholder:"N"`
	ValueSize int             `name:"value_size" default:"100" help:"Bytes per value, half of them compressible."`
	Workloads []string        `name:"workloads" default:"absent,present,scan,mixed,fill" enum:"absent,present,scan,mixed,overwrite,fill,open,all" help:"Workloads. open: the first 1,000 lookups of present keys after opening, by one goroutine." placeholder:"LIST"`
	Threads   int             `name:"threads" default:"2" help:"Goroutines."`
	Time      time.Duration   `name:"time" default:"5s" help:"How long each workload is measured."`
	Warm      time.Duration   `name:"warm" default:"3s" help:"How long each workload runs before it is measured."`
	Rounds    int             `name:"rounds" default:"1" help:"Rounds, in which stores take turns; the one with the median of operations per second is printed."`
	Preread   bool            `name:"preread" help:"Read all files once before the database is opened, so that the page cache is full at the start, not empty."`
	Sorted    bool            `name:"sorted" help:"Fill the databases in ascending key order instead of random order, in bulk where the store can; several times as fast, but leaves a single level."`
	DB        string          `name:"db" default:"" help:"Directory of the databases, which are kept and used again; by default a temporary one that is removed."`
	JSON      string          `name:"json" default:"" help:"File to append the results to, as one JSON object per line."`
	Plots     string          `name:"plots" default:"" help:"Directory for a plot of each workload over the limits." placeholder:"DIR"`

	saveFlags

	results []memory.Result
}

func (c *memoryCmd) Run(s *streams) error {
	if smallest := slices.Min(c.Limits); smallest < 1<<20 {
		return fmt.Errorf("--limits: %v is too little; try 64MiB", smallest)
	}
	c.Engines = present(c.Engines, s)
	if err := memory.Check(); err != nil {
		fmt.Fprintln(s.out, "skipped:", err)
		return nil
	}
	if c.FillNum == 0 {
		c.FillNum = max(1, c.Num/4)
	}
	defer removeTemporary()
	dir, err := (&runCmd{DB: c.DB}).directory()
	if err != nil {
		return err
	}
	t := newTable(s.out, c.saveFlags, "reads and bytes are from the disk, per operation; p99 of scans is that of 100,000 entries", memoryHeader...)
	for _, limit := range c.Limits {
		for _, workload := range c.Workloads {
			if err := c.measure(s, t, dir, int64(limit), workload); err != nil {
				return err
			}
		}
	}
	return errors.Join(t.end(), c.plot())
}

// plot writes the plots, if any are wanted.
func (c *memoryCmd) plot() error {
	if c.Plots == "" {
		return nil
	}
	if err := os.MkdirAll(c.Plots, 0o755); err != nil {
		return err
	}
	for _, p := range report.MemoryPlots(c.results) {
		var svg bytes.Buffer
		if err := report.WriteSVG(&svg, p); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(c.Plots, p.Name+".svg"), svg.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// present returns the engines that are built in, and reports the others on
// s.err.
func present(engines []string, s *streams) []string {
	var list []string
	for _, e := range engines {
		if err := memory.Known(e); err != nil {
			fmt.Fprintln(s.err, "bench:", err)
			continue
		}
		list = append(list, e)
	}
	return list
}

// measure measures a workload under a limit for all engines.
func (c *memoryCmd) measure(s *streams, t *table, dir string, limit int64, workload string) error {
	type run struct {
		memory.Result
		size int64 // of the files
	}
	runs := make([][]run, len(c.Engines))
	for range max(c.Rounds, 1) {
		for i, e := range c.Engines {
			r, size, err := c.once(s, dir, limit, workload, e)
			if err != nil {
				return err
			}
			if err := c.record(r); err != nil {
				return err
			}
			runs[i] = append(runs[i], run{r, size})
		}
	}
	for _, list := range runs {
		slices.SortFunc(list, func(a, b run) int { return cmp.Compare(a.PerSecond(), b.PerSecond()) })
		r := list[len(list)/2]
		t.row(memoryRow(r.Result, r.size)...)
		c.results = append(c.results, r.Result)
	}
	return nil
}

// once measures a workload once, and returns the size of the files, too. It fills the database
// first if necessary.
func (c *memoryCmd) once(s *streams, dir string, limit int64, workload, e string) (r memory.Result, size int64, err error) {
	name, setting, _ := strings.Cut(e, "/")
	files, writer := name, name
	if setting == "partitioned" { // it changes the files
		files, writer = name+"-"+setting, e
	}
	at := memory.Case{Engine: e, Workload: workload, Limit: limit, Keys: c.Num, Value: c.ValueSize, Threads: c.Threads, Time: c.Time, Warm: c.Warm, Preread: c.Preread, Sorted: c.Sorted}
	at.Dir = filepath.Join(dir, fmt.Sprintf("%s-%d", files, c.Num))
	if c.Sorted {
		at.Dir += "-ascending"
	}
	switch {
	case workload == memory.Fill:
		at.Keys, at.Dir = c.FillNum, filepath.Join(dir, "fill")
		defer os.RemoveAll(at.Dir)
	case memory.DirBytes(at.Dir) == 0:
		fill := at
		fill.Engine, fill.Workload, fill.Limit = writer, memory.Fill, 4<<30
		r, err := memory.Run(fill, false)
		if err == nil && r.Killed {
			err = errors.New("the process was killed")
		}
		if err != nil {
			return r, 0, fmt.Errorf("filling %s: %w", writer, err)
		}
		fmt.Fprintf(s.err, "%s: %d keys in %.0f s, %.2f µs of CPU time each, %d bytes of files\n",
			writer, r.Ops, r.Seconds, r.CPU, memory.DirBytes(at.Dir))
	}
	r, err = memory.Run(at, true)
	return r, memory.DirBytes(at.Dir), err
}

// memoryRow returns the cells of a result; size is that of the files.
func memoryRow(r memory.Result, size int64) []string {
	f := report.Figure
	row := []string{r.Engine, report.Count(r.Limit >> 20), f(float64(size) / float64(r.Limit)), report.Count(int64(r.Keys)), r.Workload}
	if r.Killed {
		row = append(row, "killed")
		return append(row, slices.Repeat([]string{""}, len(memoryHeader)-len(row))...)
	}
	reads := "–"
	if r.Reads >= 0 {
		reads = f(r.Reads)
	}
	mib := func(n int64) string { return f(float64(n) / (1 << 20)) }
	return append(row, f(r.PerSecond()), f(r.CPU), f(r.P99), reads, f(r.ReadBytes), f(r.OpenMS),
		mib(r.Resident), mib(r.Anonymous), mib(r.Peak), report.Count(r.Faults))
}

func (c *memoryCmd) record(r memory.Result) error {
	if c.JSON == "" {
		return nil
	}
	f, err := os.OpenFile(c.JSON, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	return json.NewEncoder(f).Encode(r)
}
