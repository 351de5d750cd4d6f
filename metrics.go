package sift

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/filtermem"
	"github.com/siftdb/sift/internal/manifest"
)

// Metrics describes the contents of the database, and its work since Open. All sizes are in
// bytes.
type Metrics struct {
	// Levels has the seven levels, 0 first.
	Levels [7]LevelMetrics

	// Gets counts lookups by Get, Lookup, Has, View and GetMany, each key once.
	Gets uint64
	// PrefixProbes counts the filter probes of iterators for their prefix, PrefixUseful those
	// that excluded the table; see Options.Prefix.
	PrefixProbes, PrefixUseful uint64
	// RangeProbes counts the range filter probes of iterators for their bounds, RangeUseful
	// those that excluded the table; see Options.RangeFilter.
	RangeProbes, RangeUseful uint64
	// BlockReads counts the reads of data blocks from files, except those of compactions; one read
	// may cover several adjacent blocks. BlockReadBytes counts their bytes. CacheHits counts the
	// blocks found in the block cache, or still in memory from the previous key of a GetMany.
	BlockReads, BlockReadBytes, CacheHits uint64
	// IndexLoads counts how often a read had to load a table's index again because all indexes
	// together exceed what Options.Memory leaves for them.
	IndexLoads uint64

	// WastedReadsPerSecond is the expected number of block reads per second that lookups of absent
	// keys cost, given the filters in memory and the lookups of the last seconds.
	// NextMiBSavesPerSecond is the number of these reads, and of reads in empty ranges, that
	// another MiB for filters would save per second. Without Options.FilterMemory both are 0 as
	// long as all filters fit in Options.Memory.
	WastedReadsPerSecond, NextMiBSavesPerSecond float64

	// Memory is the memory that the database uses.
	Memory MemoryMetrics

	// LogBytes counts the bytes that writes added to the log. FlushBytes and CompactWriteBytes
	// count the bytes that flushes and compactions wrote to tables. The tables of an Ingest are in
	// neither.
	LogBytes, FlushBytes, CompactWriteBytes uint64
	// CompactReadBytes counts bytes read by compactions.
	CompactReadBytes uint64
	// Flushes, Compactions and Moves count background work. A move puts a table into the next
	// level unchanged.
	Flushes, Compactions, Moves uint64
	// Slowdowns counts delays of writes because compactions were behind, Stalls counts waits of
	// writes for flushes and compactions. SlowdownTime and StallTime are their total durations.
	// Writes that are committed together count once.
	Slowdowns, Stalls       uint64
	SlowdownTime, StallTime time.Duration
	// Snapshots is the number of open snapshots. Transactions is the number of open
	// transactions that have not outlived Options.TxLifetime.
	Snapshots, Transactions int
	// TxCommits counts the transactions committed that had written something, TxConflicts the
	// commits that failed with ErrConflict, each attempt of a Transact separately.
	TxCommits, TxConflicts uint64
	// LastSequence is the sequence number of the last write. Each operation of a batch takes one,
	// an Ingest one in all.
	LastSequence uint64
	// Recovery describes what Open found in the logs.
	Recovery Recovery
}

var _ = [manifest.NumLevels]LevelMetrics(Metrics{}.Levels)

// LevelMetrics describes one level.
type LevelMetrics struct {
	Tables int
	Bytes  uint64 // size of the tables
	Filter FilterMetrics
}

// FilterMetrics describes the filters of a level, and counts their probes by lookups since Open.
type FilterMetrics struct {
	// Tables is the number of tables with a filter in memory. Damaged is the number of tables
	// without one because it is corrupt, of an unknown family, or otherwise unusable.
	Tables, Damaged int
	// Bytes is the memory that the filters take.
	Bytes uint64
	// Units is the number of units that can be loaded, HeldUnits the number in memory: all, if
	// they fit in Options.FilterMemory or Options.Memory. Large ribbon filters have several
	// units, other filters one; see filter.Ribbon.
	Units     int
	HeldUnits float64
	// Probes counts the filter probes of lookups. Of these, Useful excluded the key. TruePositive
	// did not exclude the key, and the table held it; FalsePositive did not exclude the key,
	// and the table did not hold it. Unfiltered counts searches of tables without a filter in
	// memory.
	Probes, Useful, TruePositive, FalsePositive, Unfiltered uint64
	// ExpectedFPR is the expected false positive rate of the filters in memory, weighted by table
	// size; NaN, which encoding/json rejects, if there are none.
	ExpectedFPR float64
}

// ObservedFPR is the share of false positives among the probes of absent keys; NaN if
// there were none.
func (f FilterMetrics) ObservedFPR() float64 {
	return float64(f.FalsePositive) / float64(f.FalsePositive+f.Useful)
}

// MemoryMetrics is the memory that a database uses, in bytes.
type MemoryMetrics struct {
	Memtables    uint64 // arenas at full size, and their indexes
	Filters      uint64
	RangeFilters uint64 // Options.FilterMemory limits the sum of Filters and RangeFilters
	Indexes      uint64 // decoded table indexes, and table metadata
	BlockCache   uint64 // blocks in the cache, those of other databases included if it is shared
	// Transactions is the memory of open transactions, and of the keys of recent writes, against
	// which their commits are checked.
	Transactions uint64
	// Garbage is the database's share, in proportion to its live memory in Go's heap, of the
	// heap's garbage and free space, plus the unused memory of filter slabs outside the heap.
	Garbage uint64
}

// Total returns the sum.
func (m MemoryMetrics) Total() uint64 {
	return m.Memtables + m.Filters + m.RangeFilters + m.Indexes + m.BlockCache + m.Transactions + m.Garbage
}

// Recovery describes what Open found in the logs.
type Recovery struct {
	// Logs is the number of logs, Batches the number of records replayed from them, without those
	// that have no operations. Writes that were committed together are one record.
	Logs, Batches int
	// Torn lists the ends of logs, and of the MANIFEST, that Open has cut off or, with ReadOnly,
	// left out: what remains of writes that a crash has interrupted. It also lists a log that is
	// missing although the MANIFEST names it, as may be the case after a crash of goleveldb. Each
	// error is a *CorruptionError with the file and the offset, which is -1 for a missing log.
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
	txBytes                                                   atomic.Int64 // memory of open transactions
}

func (s *stats) slowed(t time.Duration)  { s.slowdowns.Add(1); s.slowdownTime.Add(int64(t)) }
func (s *stats) stalled(t time.Duration) { s.stalls.Add(1); s.stallTime.Add(int64(t)) }

// drained updates drainRate after a compaction of level 0.
func (s *stats) drained(bytes uint64, took time.Duration) {
	rate := int64(float64(bytes) / max(took.Seconds(), 1e-3))
	if old := s.drainRate.Load(); old != 0 {
		rate = (3*old + rate) / 4
	}
	s.drainRate.Store(rate)
}

// metrics implements Metrics.
func (d *DB) metrics() Metrics {
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
		// Lookups may be running, and the counters are not read at the same moment.
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

// fill sets l to the sums over the tables of a level, and adds their memory to m.
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
	// if the table does not record them, as LevelDB's tables do not, or cannot be read.
	Entries, Keys, Deletions uint64
	// FilterPolicy is the policy that built the table's filter, loaded or not: "none" if there is
	// no usable filter, the family's name for LevelDB's own filters, "unknown" if the table does
	// not record it.
	FilterPolicy string
	FilterBytes  int     // size of the filter in memory
	WrittenBytes int64   // size of all its units on disk
	FilterUnits  int     // units that can be loaded
	HeldUnits    float64 // units in memory; 1.25 is one unit and a quarter of the next
	ExpectedFPR  float64 // of the units in memory; 1 without any
	// AbsentLookups estimates, from a sample of one in 16, the number of lookups since Open that
	// probed or searched the table for a key that it does not hold, and of scans of a prefix that
	// its filter excluded.
	AbsentLookups uint64
	FilterErr     error // why the filter, or a unit of it, is unusable; else nil
	Err           error // why the table cannot be read; nil if it can
}

// tables implements Tables.
func (d *DB) tables() []TableMetrics {
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

// metrics returns the table's metrics.
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
