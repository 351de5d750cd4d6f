package main

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/ranges"
	"github.com/siftdb/sift/bench/report"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/sstable"
)

type rangesCmd struct {
	Num  int      `name:"num" default:"300000" help:"Maximum number of keys per set."`
	Bits []int    `name:"bits" default:"10,12,16,20" help:"Bits per key." placeholder:"N,..."`
	URLs []string `name:"urls" help:"Directories to search for URLs; by default Go's source tree." placeholder:"DIR,..."`
	saveFlags
}

func (c *rangesCmd) Run(s *streams) error {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	goroot := strings.TrimSpace(string(out))
	sets := []*ranges.Set{
		ranges.Uniform(c.Num), ranges.Correlated(c.Num), ranges.Clustered(c.Num),
		ranges.EntityTime(c.Num), ranges.UUIDs(c.Num),
	}
	lines, err := ranges.Lines(goroot+"/src/", c.Num)
	if err != nil {
		return err
	}
	if len(c.URLs) == 0 {
		c.URLs = []string{goroot}
	}
	urls, err := ranges.URLs(c.Num, c.URLs...)
	if err != nil {
		return err
	}
	sets = append(sets, lines, urls)
	header, bound := []string{"keys", "number"}, []string{"the bound", ""}
	for _, b := range c.Bits {
		header = append(header, fmt.Sprintf("range(%d)", b))
		r := ranges.Rate{BitsPerKey: float64(b), FPR: map[uint64]float64{}}
		for _, n := range ranges.Lengths {
			r.FPR[n] = filter.RangeFPR(b, n)
		}
		bound = append(bound, cell(r))
	}
	t := newTable(s.out, c.saveFlags, "false positive rates in % for ranges of length 1, 10, 100, 1000, and bits per key; -: too few are empty",
		append(header, "trie", "trie + 1 byte", "prefixes")...)
	t.row(append(bound, "", "", "")...)
	for _, set := range sets {
		row := []string{set.Name, report.Count(int64(len(set.Keys)))}
		for _, b := range c.Bits {
			r, err := ranges.Measure(set, filter.Range(b, set.Drop))
			if err != nil {
				return err
			}
			row = append(row, cell(r))
		}
		row = append(row, cell(ranges.Trie(set, 0)), cell(ranges.Trie(set, 1)), "")
		if set == urls { // the only set whose ranges have a common prefix that ends with a delimiter
			r, err := ranges.Prefixes(set, sstable.EachPrefix('/'), filter.Ribbon(10))
			if err != nil {
				return err
			}
			row[len(row)-1] = cell(r)
		}
		t.row(row...)
	}
	return t.end()
}

// cell formats the rates, and in parentheses the bits per key.
func cell(r ranges.Rate) string {
	var list []string
	for _, n := range ranges.Lengths {
		if f, ok := r.FPR[n]; ok {
			list = append(list, fmt.Sprintf("%.3g", 100*f))
		} else {
			list = append(list, "-")
		}
	}
	return fmt.Sprintf("%s (%.1f)", strings.Join(list, ", "), r.BitsPerKey)
}

type scansCmd struct {
	Num       int    `name:"num" default:"1000000" help:"Keys."`
	ValueSize int    `name:"value_size" default:"100" help:"Bytes per value."`
	Bits      int    `name:"bits" default:"10" help:"Bits per key of sift's filters."`
	RangeBits int    `name:"range_bits" default:"12" help:"Bits per key of sift's range filters; stores without range filters get them for their Bloom filters."`
	Length    uint64 `name:"length" default:"10" help:"Length of the ranges in units of time."`
	Rounds    int    `name:"rounds" default:"5" help:"Rounds per way to scan; medians are printed."`
	DB        string `name:"db" default:"" help:"Directory for the databases; by default the system's temporary directory."`
	saveFlags
}

func (c *scansCmd) Run(s *streams) error {
	about := fmt.Sprintf("empty ranges of length %d right after a key; keys are device/NNNNN/ and a time of ten digits, %s keys", c.Length, report.Count(int64(c.Num)))
	t := newTable(s.out, c.saveFlags, about, "", "ns per scan", "block reads per 1,000")
	terms := ranges.Terms{Keys: c.Num, ValueBytes: c.ValueSize, FilterBits: c.Bits, RangeBits: c.RangeBits, Length: c.Length, Rounds: c.Rounds}
	for _, e := range engine.Usual() {
		if e.RangeWays == nil {
			continue
		}
		all, err := ranges.EmptyScans(e, terms, c.DB)
		if err != nil {
			return err
		}
		for _, r := range all {
			t.row(e.Name+", "+r.Way, report.Figure(r.NsPerScan), report.Figure(r.BlockReads))
		}
	}
	return t.end()
}
