package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/siftdb/sift/bench/report"
	"github.com/siftdb/sift/bench/txn"
)

type txnCmd struct {
	Engines    []string      `name:"engines" help:"Stores; by default all that are built in." placeholder:"LIST"`
	Goroutines []int         `name:"goroutines" default:"1,4,16" help:"Numbers of goroutines." placeholder:"N,..."`
	Workloads  []string      `name:"workloads" default:"counter,transfer" enum:"counter,transfer" help:"counter: increment a counter; transfer: move money between two accounts." placeholder:"LIST"`
	Contention []string      `name:"contention" default:"high,low" enum:"high,low" help:"high: 1 counter, or 10 accounts; low: 100,000." placeholder:"LIST"`
	Sync       []string      `name:"synced" default:"yes,no" enum:"yes,no" help:"Whether commits wait for the disk: yes, no." placeholder:"LIST"`
	Time       time.Duration `name:"time" default:"500ms" help:"How long each store runs in each case of a round."`
	Rounds     int           `name:"rounds" default:"3" help:"Rounds, in which stores take turns; medians are printed."`
	saveFlags
}

func (c *txnCmd) Run(s *streams) error {
	kinds, err := named(txn.Kinds, func(k txn.Kind) string { return k.Name }, c.Engines)
	if err != nil {
		return err
	}
	var cases []txn.Case
	for _, w := range c.Workloads {
		for _, contention := range c.Contention {
			keys := map[string]int{"counter": 1, "transfer": 10}[w]
			if contention == "low" {
				keys = 100_000
			}
			for _, sync := range c.Sync {
				for _, g := range c.Goroutines {
					cases = append(cases, txn.Case{Workload: w, Keys: keys, Sync: sync == "yes", Goroutines: g})
				}
			}
		}
	}
	results := map[txn.Case]map[string][]txn.Result{}
	for round := range c.Rounds {
		for i, at := range cases {
			if results[at] == nil {
				results[at] = map[string][]txn.Result{}
			}
			for n := range kinds {
				k := kinds[(n+i+round)%len(kinds)]
				r, err := txn.Run(k, at, c.Time)
				if err != nil {
					return fmt.Errorf("%s, %v: %w", k.Name, at, err)
				}
				results[at][k.Name] = append(results[at][k.Name], r)
			}
		}
	}
	about := fmt.Sprintf("transactions/s, CPU µs and conflicts per transaction; medians of %d rounds of %v", c.Rounds, c.Time)
	header := []string{"", "goroutines"}
	for _, k := range kinds {
		header = append(header, k.Name)
	}
	t := newTable(s.out, c.saveFlags, about, header...)
	for _, at := range cases {
		cells := []string{caseName(at), strconv.Itoa(at.Goroutines)}
		for _, k := range kinds {
			r := txn.Median(results[at][k.Name])
			cells = append(cells, fmt.Sprintf("%s, %s, %.2f", report.Figure(r.PerSecond), report.Figure(r.CPU), r.Conflicts))
		}
		t.row(cells...)
	}
	return t.end()
}

// caseName describes a case without the number of goroutines.
func caseName(c txn.Case) string {
	what := map[string]string{"counter": "counter", "transfer": "account"}[c.Workload]
	if c.Keys > 1 {
		what += "s"
	}
	sync := "not synced"
	if c.Sync {
		sync = "synced"
	}
	return fmt.Sprintf("%s %s, %s", report.Count(int64(c.Keys)), what, sync)
}
