package store

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/measure"
	"github.com/siftdb/sift/bench/result"
)

// session is the work on one store in one round.
type session struct {
	o       *Options
	file    *result.File
	section string
	spec    engine.Spec
	round   int
	pass    int    // of the round, for reading benchmarks
	num     int    // keys stored
	state   string // of the store

	changed  bool // keys were deleted: the store does not hold the whole set
	inserted int  // keys stored beyond the set

	db   engine.DB // nil while closed
	base int64     // resident memory before the store was opened
}

// fresh removes the database.
func (s *session) fresh() error {
	s.changed, s.inserted, s.state = false, 0, ""
	return os.RemoveAll(s.dir())
}

func (s *session) dir() string { return s.o.dirOf(s.spec, s.section) }

func (s *session) config() engine.Config { return s.o.config(s.spec, s.section) }

// open opens the database.
func (s *session) open(c engine.Config) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	syncDisks() // it does not pay for what other stores have written
	measure.FreeMemory()
	s.base, _ = measure.RSS()
	var err error
	s.db, err = s.spec.Open(c)
	return err
}

func (s *session) close() error {
	if s.db == nil {
		return nil
	}
	db := s.db
	s.db = nil
	return db.Close()
}

// prepare opens the database for reading, waits until it has quiesced, reads its files into the
// page cache, and verifies its content.
func (s *session) prepare() error {
	if err := s.open(s.config()); err != nil {
		return err
	}
	if err := s.db.Quiesce(); err != nil {
		return err
	}
	if err := warmFiles(s.dir()); err != nil {
		return err
	}
	return s.verify()
}

// verify looks up some present and some absent keys in every mode.
func (s *session) verify() error {
	const each = 100
	r := data.Rand(s.o.Seed + uint64(s.round))
	for _, mode := range s.spec.Modes {
		reader, err := s.db.NewReader(mode.Name)
		if err != nil {
			return err
		}
		for range each {
			i := r.IntN(s.num)
			absent := s.o.Set.Absent(nil, i)
			if _, found, err := reader.Value(nil, absent); err != nil || found && s.inserted == 0 {
				return fmt.Errorf("key %q, which was never stored: found %v, error %v", absent, found, err)
			}
			if s.changed {
				continue
			}
			key := s.o.Set.Key(nil, i)
			if v, found, err := reader.Value(nil, key); err != nil || !found || !bytes.Equal(v, s.o.Set.Value(i)) {
				return fmt.Errorf("key %q: found %v, value %q, error %v; want value %q", key, found, v, err, s.o.Set.Value(i))
			}
		}
		if err := reader.Close(); err != nil {
			return err
		}
	}
	return nil
}

// whole reports whether the store holds the set and nothing else.
func (s *session) whole() bool { return !s.changed && s.inserted == 0 }

// key returns the result key for a benchmark.
func (s *session) key(b *benchmark, mode string) result.Key {
	state := s.state
	if b.kind == fills {
		state = ""
	}
	return result.Key{Section: s.section, Store: s.spec.String(), Mode: mode, Benchmark: b.name, State: state, Num: s.num}
}

// gauge holds the counts at the start of a measurement.
type gauge struct {
	s        *session
	counters engine.Counters
	levels   []engine.LevelFilter
	keyBytes int64 // memory of the benchmark's keys
	from     measure.Point
}

// gauge begins a measurement. keys are the benchmark's keys, whose memory is not counted as the
// store's.
func (s *session) gauge(keys ...*data.Keys) *gauge {
	g := &gauge{s: s, counters: s.db.Counters()}
	if l, ok := s.db.(engine.LevelCounter); ok {
		g.levels = l.Levels()
	}
	for _, k := range keys {
		g.keyBytes += int64(cap(k.Bytes) + 4*cap(k.Ends))
	}
	measure.ResetPeak()
	g.from = measure.Now()
	return g
}

// record ends the measurement of ops operations and adds their cost to the result.
func (g *gauge) record(k result.Key, ops int, c *collected) measure.Cost {
	cost := g.from.Since()
	g.note(k, ops, cost, cost, c)
	return cost
}

// note adds the cost of ops operations to the result; total includes background
// work.
func (g *gauge) note(k result.Key, ops int, cost, total measure.Cost, c *collected) {
	s, n := g.s, float64(ops)
	row := s.file.Row(k)
	row.Add(result.OpsPerSec, n/cost.Elapsed.Seconds())
	row.Add(result.CPU, total.CPU.Seconds()*1e6/n)
	row.Add(result.Allocs, float64(total.Mallocs)/n)
	row.Add(result.AllocBytes, float64(total.AllocBytes)/n)
	if total.OthersCPU >= 0 {
		row.Add(result.Others, total.OthersCPU)
	}
	if total.IO.Known {
		row.Add(result.ReadCalls, 1000*float64(total.IO.ReadCalls)/n)
		row.Add(result.IOBytes, float64(total.IO.ReadBytes)/n)
	}
	if _, peak := measure.RSS(); peak > 0 {
		row.Add(result.Peak, max(0, float64(peak-s.base-g.keyBytes)/1e6))
	}
	text := fmt.Sprintf("%9.3f micros/op %9.0f ops/sec %8.3f seconds %9d operations; %.2f cpu-micros/op",
		cost.Elapsed.Seconds()*1e6/n, n/cost.Elapsed.Seconds(), cost.Elapsed.Seconds(), ops, total.CPU.Seconds()*1e6/n)
	if c != nil && c.lat.Count() > 0 {
		row.Add(result.P50, float64(c.lat.Quantile(0.5)))
		row.Add(result.P99, float64(c.lat.Quantile(0.99)))
		row.Add(result.P999, float64(c.lat.Quantile(0.999)))
		row.Add(result.P9999, float64(c.lat.Quantile(0.9999)))
		row.Add(result.MaxLatency, float64(c.lat.Max()))
		row.AddBars(c.lat.Bars())
		text += fmt.Sprintf("; p50 %d p99 %d p99.9 %d p99.99 %d max %d ns",
			c.lat.Quantile(0.5), c.lat.Quantile(0.99), c.lat.Quantile(0.999), c.lat.Quantile(0.9999), c.lat.Max())
	}
	if c != nil && c.entries > 0 {
		row.Add(result.EntriesPerS, float64(c.entries)/cost.Elapsed.Seconds())
	}
	if s.db != nil {
		text += g.noteCounters(row, n)
	}
	s.o.line(k, s.round, s.pass, text)
}

// noteCounters adds the counts that the store keeps to the row.
func (g *gauge) noteCounters(row *result.Row, n float64) (text string) {
	now := g.s.db.Counters()
	d := now.Sub(g.counters)
	for _, v := range []struct {
		unit  string
		value int64
		scale float64
	}{
		{result.BlockReads, d.BlockReads, 1000 / n},
		{result.ReadBytes, d.ReadBytes, 1 / n},
		{result.Probes, d.FilterProbes, 1 / n},
		{result.Useful, d.FilterUseful, 1 / n},
		{result.TruePos, d.FilterTrue, 1 / n},
		{result.FalsePos, d.FilterFalse, 1 / n},
	} {
		if v.value >= 0 {
			row.Add(v.unit, float64(v.value)*v.scale)
		}
	}
	if d.BlockReads >= 0 {
		text += fmt.Sprintf("; %.1f block reads/1000", 1000*float64(d.BlockReads)/n)
	}
	if b := g.s.db.FilterBytes(); b >= 0 {
		row.Add(result.FilterBytes, float64(b))
	}
	if l, ok := g.s.db.(engine.LevelCounter); ok {
		row.Levels = sinceLevels(l.Levels(), g.levels)
	}
	return text
}

// sinceLevels subtracts the counts of before from those of now.
func sinceLevels(now, before []engine.LevelFilter) []engine.LevelFilter {
	for i := range now {
		for _, b := range before {
			if b.Level == now[i].Level {
				now[i].Probes -= b.Probes
				now[i].Useful -= b.Useful
				now[i].TruePositive -= b.TruePositive
				now[i].FalsePositive -= b.FalsePositive
			}
		}
	}
	return now
}

// named reports whether the benchmark's name has the prefix.
func (b *benchmark) named(prefix string) bool { return strings.HasPrefix(b.name, prefix) }
