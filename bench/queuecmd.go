package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/queue"
	"github.com/siftdb/sift/bench/report"
)

type queueCmd struct {
	Engines   []string      `name:"engines" help:"Stores; by default all that are built in." placeholder:"LIST"`
	Windows   []int         `name:"windows" default:"1000,100000" help:"Numbers of live keys." placeholder:"N,..."`
	Workloads []string      `name:"workloads" default:"queue,range,points" enum:"queue,range,points" help:"queue: repeatedly take the first key; range, points: delete the oldest tenth of a time series by DeleteRange or key by key." placeholder:"LIST"`
	ValueSize int           `name:"value_size" default:"100" help:"Bytes per value."`
	Time      time.Duration `name:"time" default:"5s" help:"How long each store runs in each case, after the fill."`
	DB        string        `name:"db" default:"" help:"Directory for the databases; by default the system's temporary directory."`
	saveFlags
}

func (c *queueCmd) Run(s *streams) error {
	engines, err := named(engine.All(), func(e *engine.Engine) string { return e.Name }, c.Engines)
	if err != nil {
		return err
	}
	if len(c.Engines) == 0 {
		engines = engine.Usual()
	}
	names := map[string]string{"queue": queue.Queue, "range": queue.SeriesByRange, "points": queue.SeriesByKey}
	about := fmt.Sprintf("%v each; times in µs; retention is the deletion of the oldest tenth of a series", c.Time)
	t := newTable(s.out, c.saveFlags, about, "", "live keys", "store", "steps/s", "First, fresh", "First, median", "mean", "p99.9",
		"pop or retention", "p99.9", "ratio to fresh", "directory / live bytes")
	for _, workload := range c.Workloads {
		for _, window := range c.Windows {
			at := queue.Case{Workload: names[workload], Window: window, ValueBytes: c.ValueSize, Time: c.Time}
			for _, e := range engines {
				if !queue.Supports(e, at) {
					continue
				}
				r, err := queue.Run(e, at, c.DB)
				if err != nil {
					return err
				}
				us := func(ns float64) string { return report.Figure(ns / 1000) }
				ratio := r.Pop.Mean() / r.Fresh
				if workload != "queue" {
					ratio = r.First.Mean() / r.Fresh
				}
				t.row(at.Workload, report.Count(int64(window)), e.Name, report.Figure(r.PerSecond), us(r.Fresh),
					us(float64(r.First.Quantile(0.5))), us(r.First.Mean()), us(float64(r.First.Quantile(0.999))),
					us(r.Pop.Mean()), us(float64(r.Pop.Quantile(0.999))), report.Figure(ratio), report.Figure(float64(r.Dir)/float64(r.Live)))
			}
		}
	}
	return t.end()
}

// named returns the elements of all whose names are in list, or all if list is empty.
func named[T any](all []T, name func(T) string, list []string) ([]T, error) {
	if len(list) == 0 {
		return all, nil
	}
	var some []T
	for _, s := range list {
		i := slices.IndexFunc(all, func(t T) bool { return name(t) == s })
		if i < 0 {
			return nil, fmt.Errorf("engine %q is unknown, or not built in", s)
		}
		some = append(some, all[i])
	}
	return some, nil
}
