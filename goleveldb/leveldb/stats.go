package leveldb

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/siftdb/sift"

	"github.com/syndtr/goleveldb/leveldb/cache"
)

// DBStats holds statistics of a database.
type DBStats struct {
	WriteDelayCount    int32         // delayed writes
	WriteDelayDuration time.Duration // total delay
	WritePaused        bool          // always false

	AliveSnapshots int32
	AliveIterators int32

	IOWrite uint64 // bytes
	IORead  uint64 // bytes

	BlockCacheSize    int // bytes
	OpenedTablesCount int // of all tables, open or not

	FileCache  cache.Stats // Nodes and Size, both the number of tables
	BlockCache cache.Stats // Size and the counts of hits and misses

	LevelSizes        Sizes // of each level
	LevelTablesCounts []int
	LevelRead         Sizes           // bytes, by compactions into the level
	LevelWrite        Sizes           // bytes, by flushes and compactions into the level
	LevelDurations    []time.Duration // of these

	MemComp       uint32 // flushes
	Level0Comp    uint32 // compactions of level 0
	NonLevel0Comp uint32 // compactions of other levels
	SeekComp      uint32 // always 0
}

// levelStats sums up flushes and compactions by the level that they wrote to.
type levelStats struct {
	mu         sync.Mutex
	levels     []levelStat
	fromLevel0 uint32
	fromOthers uint32
}

type levelStat struct {
	took          time.Duration
	read, written int64
}

// at returns the sums of a level. REQUIRES: mu.
func (l *levelStats) at(level int) *levelStat {
	for len(l.levels) <= level {
		l.levels = append(l.levels, levelStat{})
	}
	return &l.levels[level]
}

func (l *levelStats) events() sift.Events {
	return sift.Events{
		Flushed: func(e sift.FlushEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			s := l.at(0)
			s.took += e.Took
			s.written += int64(e.Bytes)
		},
		Compacted: func(e sift.CompactionEvent) {
			if e.Moved {
				return
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			s := l.at(e.To)
			s.took += e.Took
			s.read += int64(e.Read)
			s.written += int64(e.Written)
			if e.From == 0 {
				l.fromLevel0++
			} else {
				l.fromOthers++
			}
		},
	}
}

// Stats fills in s.
func (db *DB) Stats(s *DBStats) error {
	if err := db.ok(); err != nil {
		return err
	}
	m := db.s.Metrics()
	s.WriteDelayCount = int32(m.Slowdowns + m.Stalls)
	s.WriteDelayDuration = m.SlowdownTime + m.StallTime
	s.WritePaused = false
	s.AliveSnapshots, s.AliveIterators = db.aliveSnaps.Load(), db.aliveIters.Load()
	s.IOWrite = m.LogBytes + m.FlushBytes + m.CompactWriteBytes
	s.IORead = m.BlockReadBytes + m.CompactReadBytes
	s.BlockCacheSize = int(m.Memory.BlockCache)
	s.BlockCache = cache.Stats{Size: int64(m.Memory.BlockCache), HitCount: int64(m.CacheHits), MissCount: int64(m.BlockReads)}

	db.levels.mu.Lock()
	defer db.levels.mu.Unlock()
	s.OpenedTablesCount = 0
	s.LevelSizes, s.LevelTablesCounts = s.LevelSizes[:0], s.LevelTablesCounts[:0]
	s.LevelRead, s.LevelWrite, s.LevelDurations = s.LevelRead[:0], s.LevelWrite[:0], s.LevelDurations[:0]
	used := len(db.levels.levels)
	for level, l := range m.Levels {
		if l.Tables > 0 {
			used = max(used, level+1)
		}
		s.OpenedTablesCount += l.Tables
	}
	for level := range used {
		did := db.levels.at(level)
		s.LevelSizes = append(s.LevelSizes, int64(m.Levels[level].Bytes))
		s.LevelTablesCounts = append(s.LevelTablesCounts, m.Levels[level].Tables)
		s.LevelRead = append(s.LevelRead, did.read)
		s.LevelWrite = append(s.LevelWrite, did.written)
		s.LevelDurations = append(s.LevelDurations, did.took)
	}
	s.FileCache = cache.Stats{Nodes: int64(s.OpenedTablesCount), Size: int64(s.OpenedTablesCount)}
	s.MemComp, s.Level0Comp, s.NonLevel0Comp, s.SeekComp = uint32(m.Flushes), db.levels.fromLevel0, db.levels.fromOthers, 0
	return nil
}

// GetProperty returns the value of a property, or ErrNotFound:
//
//	leveldb.num-files-at-level{n}  the number of tables of level n
//	leveldb.stats                  a table of the levels
//	leveldb.compcount              compactions by kind
//	leveldb.iostats                MB read and written
//	leveldb.writedelay             how often and for how long writes were delayed
//	leveldb.sstables               the tables of each level: number, size, first and last key
//	leveldb.blockpool              always <nil>; there is no block pool
//	leveldb.cachedblock            bytes in the block cache; <nil> without one
//	leveldb.openedtables           the number of tables
//	leveldb.alivesnaps             the number of snapshots that are not released
//	leveldb.aliveiters             the number of iterators that are not released
func (db *DB) GetProperty(name string) (value string, err error) {
	var s DBStats
	if err := db.Stats(&s); err != nil {
		return "", err
	}
	p, ok := strings.CutPrefix(name, "leveldb.")
	if !ok {
		return "", ErrNotFound
	}
	if digits, ok := strings.CutPrefix(p, "num-files-at-level"); ok {
		level, err := strconv.ParseUint(digits, 10, 31)
		switch {
		case err != nil:
			return "", ErrNotFound
		case int(level) < len(s.LevelTablesCounts):
			return strconv.Itoa(s.LevelTablesCounts[level]), nil
		}
		return "0", nil
	}
	switch p {
	case "stats":
		return s.table(), nil
	case "compcount":
		return fmt.Sprintf("MemComp:%d Level0Comp:%d NonLevel0Comp:%d SeekComp:%d", s.MemComp, s.Level0Comp, s.NonLevel0Comp, s.SeekComp), nil
	case "iostats":
		return fmt.Sprintf("Read(MB):%.5f Write(MB):%.5f", mb(s.IORead), mb(s.IOWrite)), nil
	case "writedelay":
		return fmt.Sprintf("DelayN:%d Delay:%s Paused:%t", s.WriteDelayCount, s.WriteDelayDuration, s.WritePaused), nil
	case "sstables":
		return db.tables(len(s.LevelSizes)), nil
	case "blockpool":
		return "<nil>", nil
	case "cachedblock":
		if db.blocks == nil {
			return "<nil>", nil
		}
		return strconv.Itoa(s.BlockCacheSize), nil
	case "openedtables":
		return strconv.Itoa(s.OpenedTablesCount), nil
	case "alivesnaps":
		return strconv.Itoa(int(s.AliveSnapshots)), nil
	case "aliveiters":
		return strconv.Itoa(int(s.AliveIterators)), nil
	}
	return "", ErrNotFound
}

func mb[T int64 | uint64](bytes T) float64 { return float64(bytes) / (1 << 20) }

// table returns the property leveldb.stats, in the columns that programs parse.
func (s *DBStats) table() string {
	const rule = "-------+------------+---------------+---------------+---------------+---------------\n"
	var b strings.Builder
	b.WriteString("Compactions\n" +
		" Level |   Tables   |    Size(MB)   |    Time(sec)  |    Read(MB)   |   Write(MB)\n" + rule)
	var took time.Duration
	tables := 0
	for level, n := range s.LevelTablesCounts {
		tables += n
		took += s.LevelDurations[level]
		if n > 0 || s.LevelDurations[level] > 0 {
			fmt.Fprintf(&b, " %3d   | %10d | %13.5f | %13.5f | %13.5f | %13.5f\n", level, n,
				mb(s.LevelSizes[level]), s.LevelDurations[level].Seconds(), mb(s.LevelRead[level]), mb(s.LevelWrite[level]))
		}
	}
	b.WriteString(rule)
	fmt.Fprintf(&b, " Total | %10d | %13.5f | %13.5f | %13.5f | %13.5f\n", tables,
		mb(s.LevelSizes.Sum()), took.Seconds(), mb(s.LevelRead.Sum()), mb(s.LevelWrite.Sum()))
	return b.String()
}

// tables returns the property leveldb.sstables.
func (db *DB) tables(levels int) string {
	var b strings.Builder
	tables := db.s.Tables()
	for level := range levels {
		fmt.Fprintf(&b, "--- level %d ---\n", level)
		for ; len(tables) > 0 && tables[0].Level == level; tables = tables[1:] {
			t := tables[0]
			fmt.Fprintf(&b, "%d:%d[%q .. %q]\n", t.Num, t.Size, t.Smallest, t.Largest)
		}
	}
	return b.String()
}
