package sift

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/filtermem"
	"github.com/siftdb/sift/internal/manifest"
)

// Metrics describes what the database holds and what it has done since Open. All sizes
// are in bytes.
type Metrics struct {
	// Levels has the seven levels, 0 first.
	Levels [manifest.NumLevels]LevelMetrics

	// Gets counts lookups by Get, Lookup, Has, View and GetMany, each key once.
	Gets uint64
	// PrefixProbes counts the tables whose filter an iterator probed for its prefix,
	// PrefixUseful those that were excluded; see Options.Prefix.
	PrefixProbes, PrefixUseful uint64
	// RangeProbes counts the tables whose range filter an iterator probed for its bounds,
	// RangeUseful those that were excluded; see Options.RangeFilter.
	RangeProbes, RangeUseful uint64
	// BlockReads counts reads of data blocks by lookups and iterators that missed the
	// block cache, BlockReadBytes their size on disk. CacheHits counts those that hit it.
	BlockReads, BlockReadBytes, CacheHits uint64
	// IndexLoads counts how often a read needed the index of a loaded table that was not in memory,
	// since all indexes together exceed what Options.Memory leaves for them.
	IndexLoads uint64

	// WastedReadsPerSecond is the expected number of block reads per second that lookups of absent
	// keys cost, given the filters in memory and the lookups of the last seconds.
	// NextMiBSavesPerSecond is how many of them, and of the reads in ranges without keys, another
	// MiB for filters would save. Without Options.FilterMemory both are 0 as long as all filters
	// fit into Options.Memory.
	WastedReadsPerSecond, NextMiBSavesPerSecond float64

	// Memory is what the database holds in memory.
	Memory MemoryMetrics

	// LogBytes counts bytes written to the log by the caller's writes, FlushBytes by
	// flushes, CompactWriteBytes by compactions.
	LogBytes, FlushBytes, CompactWriteBytes uint64
	// CompactReadBytes counts bytes read by compactions.
	CompactReadBytes uint64
	// Flushes, Compactions and Moves count background work. A move puts a table into the next
	// level unchanged.
	Flushes, Compactions, Moves uint64
	// Slowdowns counts the writes that were delayed because compactions were behind, Stalls
	// those that had to wait. SlowdownTime and StallTime are their total times.
	Slowdowns, Stalls       uint64
	SlowdownTime, StallTime time.Duration
	// Snapshots is the number of open snapshots, Transactions that of open
	// transactions that have not outlived Options.TxLifetime.
	Snapshots, Transactions int
	// TxCommits counts the committed transactions that wrote something, TxConflicts those that
	// failed with ErrConflict.
	TxCommits, TxConflicts uint64
	// LastSequence is the sequence number of the last write.
	LastSequence uint64
	// Recovery is what Open found in the logs and dropped.
	Recovery Recovery
}

// LevelMetrics describes one level.
type LevelMetrics struct {
	Tables int
	Bytes  uint64
	Filter FilterMetrics
}

// FilterMetrics describes the filters of a level, and counts what they have done for lookups
// since Open.
type FilterMetrics struct {
	// Tables is the number of tables whose filter is in use. Damaged is the number of
	// tables whose filter is corrupt or of an unknown family and therefore ignored.
	Tables, Damaged int
	// Bytes is the memory that the filters take.
	Bytes uint64
	// Units is the number of units that the filters consist of, HeldUnits the number in memory:
	// all, if they fit into Options.FilterMemory or Options.Memory.
	Units     int
	HeldUnits float64
	// Probes counts filter probes by lookups: Useful of them excluded the key,
	// TruePositive did not and the table held the key, FalsePositive did not and the
	// table did not hold it. Unfiltered counts lookups in tables without a usable filter.
	Probes, Useful, TruePositive, FalsePositive, Unfiltered uint64
	// ExpectedFPR is the false positive rate that the filters were built for, weighted by
	// table size; NaN without filters.
	ExpectedFPR float64
}

// ObservedFPR is the share of false positives among the probes of absent keys; NaN if
// there were none.
func (f FilterMetrics) ObservedFPR() float64 {
	return float64(f.FalsePositive) / float64(f.FalsePositive+f.Useful)
}

// MemoryMetrics adds up memory in bytes.
type MemoryMetrics struct {
	Memtables    uint64 // arenas, full size, and their indexes
	Filters      uint64
	RangeFilters uint64 // those in memory; Options.FilterMemory bounds the two together
	Indexes      uint64 // decoded table indexes that are in memory, and table metadata
	BlockCache   uint64 // blocks in the cache, those of other databases included if it is shared
	// Transactions is what open transactions hold, plus the keys of recent writes that
	// their commits are checked against.
	Transactions uint64
	// Garbage is the database's share of what Go's heap takes beyond what is live in it, for
	// garbage and free space, in proportion to what the database holds in the heap,
	// plus what slabs of filters outside the heap take beyond the filters.
	Garbage uint64
}

// Total returns the sum.
func (m MemoryMetrics) Total() uint64 {
	return m.Memtables + m.Filters + m.RangeFilters + m.Indexes + m.BlockCache + m.Transactions + m.Garbage
}

// Recovery describes what Open found in the logs.
type Recovery struct {
	// Logs is the number of logs, Batches that of the batches in them.
	Logs, Batches int
	// Torn lists the ends of logs, and of the MANIFEST, that were cut off: what a crash
	// leaves of interrupted writes. A log that is missing although the MANIFEST names it, as
	// goleveldb may leave it, is listed, too. Each is a *CorruptionError with the file and the
	// offset.
	Torn []error
}

// stats counts writes and background work.
type stats struct {
	logBytes, flushBytes, compactReadBytes, compactWriteBytes atomic.Uint64
	flushes, compactions, moves                               atomic.Uint64
	slowdowns, stalls                                         atomic.Uint64
	slowdownTime, stallTime                                   atomic.Int64
	drainRate                                                 atomic.Int64 // recent rate of level 0 compactions, in bytes per second
	txCommits, txConflicts                                    atomic.Uint64
	txBytes                                                   atomic.Int64 // held by open transactions
}

func (s *stats) slowed(t time.Duration)  { s.slowdowns.Add(1); s.slowdownTime.Add(int64(t)) }
func (s *stats) stalled(t time.Duration) { s.stalls.Add(1); s.stallTime.Add(int64(t)) }

// drained records how fast level 0 was compacted.
func (s *stats) drained(bytes uint64, took time.Duration) {
	rate := int64(float64(bytes) / max(took.Seconds(), 1e-3))
	if old := s.drainRate.Load(); old != 0 {
		rate = (3*old + rate) / 4
	}
	s.drainRate.Store(rate)
}

// Metrics returns the current figures, or the zero Metrics if the database is closed. It
// reads no files: filters of tables that have not been loaded since Open are not counted. It
// visits every table, and may wait for a filter that is being loaded.
func (d *DB) Metrics() Metrics {
	var m Metrics
	snapshots, txs := d.snapshots.len()
	g := d.epoch.Enter()
	defer g.Exit()
	s := d.state.Load()
	if s == nil {
		return m
	}
	counts := d.reads.sum()
	for level, metas := range s.version.Levels {
		l := &m.Levels[level]
		l.fill(metas, &m)
		f := &l.Filter
		f.Probes = counts.probes[level]
		f.TruePositive, f.FalsePositive = counts.truePositive[level], counts.falsePositive[level]
		f.Unfiltered = counts.unfiltered[level]
		// The counters are read one after another while lookups go on.
		if hits := f.TruePositive + f.FalsePositive; hits < f.Probes {
			f.Useful = f.Probes - hits
		}
	}
	m.Gets = counts.gets
	m.PrefixProbes, m.PrefixUseful = counts.prefixProbes, counts.prefixUseful
	m.RangeProbes, m.RangeUseful = counts.rangeProbes, counts.rangeUseful
	m.Memory.Memtables = uint64(memtableMemory(int64(s.mem.Capacity())))
	for _, mem := range s.imms {
		m.Memory.Memtables += uint64(memtableMemory(int64(mem.Capacity())))
	}
	if c := d.opts.BlockCache; c != nil {
		m.Memory.BlockCache = uint64(c.Bytes())
	}
	io := d.blockIO.Load()
	m.BlockReads += io.Reads
	m.BlockReadBytes += io.Bytes
	m.CacheHits += io.Hits
	m.IndexLoads = d.indexes.Loads()
	m.LogBytes = d.stats.logBytes.Load()
	m.FlushBytes = d.stats.flushBytes.Load()
	m.CompactReadBytes, m.CompactWriteBytes = d.stats.compactReadBytes.Load(), d.stats.compactWriteBytes.Load()
	m.Flushes, m.Compactions, m.Moves = d.stats.flushes.Load(), d.stats.compactions.Load(), d.stats.moves.Load()
	m.Slowdowns, m.Stalls = d.stats.slowdowns.Load(), d.stats.stalls.Load()
	m.SlowdownTime, m.StallTime = time.Duration(d.stats.slowdownTime.Load()), time.Duration(d.stats.stallTime.Load())
	m.Snapshots, m.Transactions = snapshots, txs
	m.TxCommits, m.TxConflicts = d.stats.txCommits.Load(), d.stats.txConflicts.Load()
	m.Memory.Transactions = uint64(d.stats.txBytes.Load() + d.commit.recent.bytes.Load())
	off, unused := d.filters.OffHeap()
	total := m.Memory.Total()
	m.Memory.Garbage = garbageOf(total-min(uint64(off-unused), total)) + uint64(unused)
	m.LastSequence = d.visible.Load()
	m.Recovery = d.recovery
	m.WastedReadsPerSecond, m.NextMiBSavesPerSecond = d.filterManager.Expected(func() []filtermem.Table { return filterTables(s.version) })
	return m
}

// fill adds up the tables of a level.
func (l *LevelMetrics) fill(metas []*manifest.TableMeta, m *Metrics) {
	var weighted, weight float64
	for _, meta := range metas {
		l.Tables++
		l.Bytes += meta.Size
		t := meta.Handle.(*table)
		r := t.reader.Load()
		if r == nil {
			continue
		}
		m.Memory.Indexes += uint64(r.IndexBytes())
		m.Memory.RangeFilters += uint64(r.RangeFilterBytes())
		l.Filter.Units += r.NumFilterUnits()
		l.Filter.HeldUnits += t.unitsOf(r.HeldFilterSteps())
		f := r.Filter()
		if f == nil {
			if t.filterDamaged() {
				l.Filter.Damaged++
			}
			continue
		}
		l.Filter.Tables++
		l.Filter.Bytes += uint64(f.SizeBytes())
		weighted += f.FPR() * float64(meta.Size)
		weight += float64(meta.Size)
	}
	m.Memory.Filters += l.Filter.Bytes
	l.Filter.ExpectedFPR = math.NaN()
	if weight > 0 {
		l.Filter.ExpectedFPR = weighted / weight
	}
}

// TableMetrics describes one table.
type TableMetrics struct {
	Level int
	Num   uint64 // file number
	Path  string
	Size  uint64 // of the file, in bytes
	// Smallest and Largest are the first and the last user key. They must not be
	// modified, and remain valid.
	Smallest, Largest []byte
	// Entries, Keys and Deletions count all entries, distinct keys, and tombstones. They are 0
	// if the table does not record them, as LevelDB's tables do not.
	Entries, Keys, Deletions uint64
	// FilterPolicy is the policy that built the filter in use: "none" if there is no filter,
	// "unknown" if the table does not record it.
	FilterPolicy string
	FilterBytes  int     // size of the filter in memory
	WrittenBytes int64   // size of all its units on disk
	FilterUnits  int     // units that can be loaded
	HeldUnits    float64 // units in memory; 1.25 is one unit and a quarter of the next
	ExpectedFPR  float64 // of the units in memory; 1 without any
	// AbsentLookups estimates the number of lookups since Open that came to the table for
	// a key that it does not hold. One lookup in 16 is counted.
	AbsentLookups uint64
	FilterErr     error // why the table's filter is not used; nil if it has none
	Err           error // why the table cannot be read
}

// Tables describes all tables, by level and in the order of the level. It loads those that
// have not been loaded since Open. It returns nil if the database is closed.
func (d *DB) Tables() []TableMetrics {
	d.loadAll()
	g := d.epoch.Enter()
	defer g.Exit()
	s := d.state.Load()
	if s == nil {
		return nil
	}
	var list []TableMetrics
	for level, metas := range s.version.Levels {
		for _, meta := range metas {
			list = append(list, meta.Handle.(*table).metrics(level, meta))
		}
	}
	return list
}

// metrics describes the table.
func (t *table) metrics(level int, meta *manifest.TableMeta) TableMetrics {
	m := TableMetrics{
		Level: level, Num: meta.Num, Path: t.path, Size: meta.Size,
		Smallest: base.UserKey(meta.Smallest), Largest: base.UserKey(meta.Largest),
		FilterPolicy: t.filterPolicy(), ExpectedFPR: 1, Err: t.lastErr(),
		AbsentLookups: t.traffic.AbsentKeys.Load(),
	}
	r := t.reader.Load()
	if r == nil {
		return m
	}
	if p := r.Properties(); p != nil {
		m.Entries, m.Keys, m.Deletions = p.NumEntries, p.NumKeys, p.NumDeletions
	}
	units := r.FilterUnits()
	m.FilterUnits, m.HeldUnits = len(units), t.unitsOf(r.HeldFilterSteps())
	for _, bytes := range units {
		m.WrittenBytes += bytes
	}
	if f := r.Filter(); f != nil {
		m.FilterBytes, m.ExpectedFPR = f.SizeBytes(), f.FPR()
	}
	_, m.FilterErr = r.FilterStatus()
	return m
}
