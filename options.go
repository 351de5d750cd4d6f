package sift

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/memlimit"
	"github.com/siftdb/sift/internal/testhook"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/memtable"
	"github.com/siftdb/sift/sstable"
)

// Options configure Open. A nil *Options and zero fields mean the defaults, which are safe.
// Sizes are in bytes. Open copies the Options, and returns an error that names a field with an
// invalid value. The database does not store them: it can be opened with others the next time.
type Options struct {
	// Behavior.

	// ReadOnly opens the database without changing anything on disk, except that it may create a
	// missing LOCK file. Several processes can have one database open with ReadOnly, but only while
	// no process has it open for writing; if LOCK is missing and may not be created, as on a
	// read-only volume, Open takes no lock. Writes, Flush, Compact, BuildFilters and Checkpoint
	// return ErrReadOnly. Open fails with ErrNotExist if there is no database. The contents of the
	// logs stay in memory and do not count against Memory.
	ReadOnly bool
	// ErrorIfExists makes Open fail with ErrExists if there is a database. It cannot be combined
	// with ReadOnly.
	ErrorIfExists bool
	// ErrorIfMissing makes Open fail with ErrNotExist if there is no database. Otherwise
	// Open creates one.
	ErrorIfMissing bool
	// Logger receives messages about recovery, flushes, compactions, stalls and damage. The rules
	// for callbacks in Events also apply to its handler. Default: slog.Default() at the time of
	// Open, for warnings and errors only: damage, torn ends of logs and MANIFESTs, and failed
	// background work. slog.New(slog.DiscardHandler) silences these, too.
	Logger *slog.Logger
	// Filter builds the filter of every table; filter.None() writes none.
	// Default: filter.DefaultForFlush() in level 0, filter.Default() below.
	Filter filter.Policy
	// LevelFilters overrides Filter by level: entry i is for tables written to level i.
	// Nil entries, and levels past the end, use Filter. At most 7 entries.
	LevelFilters []filter.Policy
	// FilterReaders open the filters of existing tables whose families neither package filter nor
	// the policies in Filter and LevelFilters know.
	FilterReaders []filter.Policy
	// KeyedFilters keys the filters with a secret that the database stores in the file FILTERKEY,
	// so that someone who chooses keys cannot construct false positives. Use it if keys come from
	// untrusted sources. It works with Bloom, Fuse, Ribbon, RibbonFPR, None and filter.Range; Open
	// rejects other policies. Once a database has a secret, new filters of these policies are keyed
	// even if a later Open does not set the option. Older tables get keyed filters when they are
	// compacted, or from BuildFilters. Without permission to read the file, the database ignores
	// keyed filters, and with this option writes tables without filters. If the file is missing or
	// damaged, this option creates a new secret. Other programs and LevelDB can use the database as
	// before.
	KeyedFilters bool

	// Prefix makes the filters contain key prefixes as well. An Iter whose range is within one
	// prefix, as with IterOptions.Prefix, then skips the tables whose filters exclude the prefix.
	// The filters are probed when an Iter is created or Reset, not when it seeks, and only if its
	// range has both bounds, as a Prefix does. Tables that were written without this option, or
	// with another Prefixer, are not skipped. A prefix takes as much filter memory as a key.
	// FixedPrefix, PrefixUpTo and EachPrefix return the usual extractors. Default: none.
	Prefix Prefixer

	// FS is the file system for the database. Default: the host's. NewMemFS returns one in
	// memory; see OpenMemory.
	FS FS
	// Lock is a lock on the directory that the caller holds, from LockDirectory. With it, Open
	// takes no lock, Close releases none, and nothing prevents a second Open with the same lock:
	// two writers would damage the database. Default: Open takes the lock.
	Lock *DirLock
	// Events are callbacks for flushes, compactions, write stalls and failures.
	Events Events

	// RangeFilter builds a range filter for every table, such as filter.Range(12, 0). An Iter,
	// HasRange and HasRanges then skip the tables whose range filter excludes the range, without
	// reading a block, if the range has both bounds. The filters are probed when an Iter is created
	// or Reset, not when it seeks. Set the option at every Open: otherwise the range filters that
	// tables have are not used. A range filter splits a key into a prefix and a number, and can
	// exclude ranges within one prefix. The prefix is that of Options.Prefix; without one, or with
	// an EachPrefix, each table chooses a prefix that suits its keys. The number consists of the
	// next 8 bytes or, if fewer than 256 byte values occur at some positions, of as many bytes as
	// fit: 19 decimal digits, 16 hexadecimal ones. A range filter is loaded on first use and then
	// stays in memory; with FilterMemory, it counts against that. Older tables get one when a
	// compaction rewrites them. A flush or compaction keeps all keys of a table in memory while it
	// builds one. Default: none.
	RangeFilter filter.RangePolicy

	// Performance.

	// Memory limits what the database adds to the memory of the process, including the overhead of
	// Go's garbage collector with GOGC at its default. The database divides it between memtables,
	// indexes, filters and, if Memory is set and CacheBytes is not, the block cache; if not all
	// filters fit, it loads the steps of filters that save the most reads. The sizes that the
	// options below set count against it, but are used as they are even if they exceed it: filters
	// and indexes get at least a quarter of Memory. Newly loaded indexes may exceed it until the
	// database divides memory again, in the background. It does not limit range filters,
	// transactions (see TxBytes), batches larger than a memtable, open iterators, or the read-ahead
	// of compactions: up to 256 KiB for each group of level 0 tables without overlap, of which only
	// DisableAutoCompaction lets there be many. The database takes that much only if filters and
	// indexes need it. At least 1 MiB. Default: half of the memory that the process may use, which
	// is the least of what its container, its machine, GOMEMLIMIT and ulimit -v allow, on 32-bit
	// systems at most 2 GiB; if none of these is known, as on Windows without GOMEMLIMIT, 1 GiB.
	// The limit of a container, or of another control group on Linux, is the lowest memory.max or
	// memory.high of the group and its visible ancestors; with version 1 of control groups, the
	// lowest memory.limit_in_bytes.
	Memory int64
	// BlockCache is a cache for uncompressed data blocks. Databases can share it. Memory counts
	// CacheBytes for it, whatever its capacity. Default: a cache of CacheBytes for this database
	// alone.
	BlockCache *BlockCache
	// CacheBytes is the size of the block cache if BlockCache is nil. Default: 8 MiB, or a
	// thirty-second of Memory if that is less; if Memory is set, the cache grows into what
	// filters and indexes leave of it. Negative: no cache.
	CacheBytes int64
	// MapBytes is the total size of the tables up to which they are memory-mapped. If they are
	// larger, none is, since mapped pages that do not stay in memory cost more than they save.
	// Reading a block of at most 64 KiB from a mapped table takes no system call if its pages have
	// been read before and are in the page cache. Mapped pages that were read count as
	// resident memory of the process (RssFile), and as page cache: the system reclaims them when it
	// needs them. At most 16,384 files of a process are mapped. Reading a truncated or unreadable
	// file is an error, mapped or not. Negative: tables are not mapped. Systems other than Linux
	// and macOS never map tables. Default: 1.25 times the memory that the process may use,
	// according to its container, its machine and GOMEMLIMIT, but at most a quarter of its address
	// space, if that is limited (ulimit -v); on 32-bit systems, tables are not mapped.
	MapBytes int64
	// MaxOpenFiles is the maximum number of open table files; other files are opened when they
	// are read. Filters and indexes stay in memory when a file is closed. More files are open only
	// while more than that are being read at once. Default: none; a limit of half of the
	// process's file descriptors applies to all its databases together.
	MaxOpenFiles int
	// FilterMemory is the maximum memory of filters, range filters included. If not all filters
	// fit, the database chooses how many steps of each to load, according to the lookups of absent
	// keys that each table receives, and for range filters according to the scans of ranges in
	// which the table has no key. It loads ribbon and range filters with more or fewer bits per
	// key, others as a whole, and none of LevelDB's and goleveldb's: each table that has one is
	// reported to Events.Failed, and lookups read its blocks until a compaction or BuildFilters
	// gives it another filter. Filters may take more memory than that: a quarter plus 8 MiB (20 MiB
	// if this is at least 128 MiB) for unused parts of the slabs that hold large filters, and on
	// Linux another eighth, or 8 MiB if that is more, for slabs that await garbage collection; see
	// sstable.FilterPool. Default: what Memory leaves, for filters other than range filters.
	FilterMemory int64
	// MemtableBytes is the size at which a memtable is flushed to a table. Up to two full
	// memtables wait for flushes while a third one fills, so three times as much memory may be in
	// use. From 1 KiB to 1 GiB. Default: 16 MiB, less if Memory is less than 512 MiB, less than
	// 1 MiB only if Memory is less than 16 MiB.
	MemtableBytes int
	// TableBytes is the size at which a compaction begins a new table in levels 1 and 2. It doubles
	// with each further level, up to a sixteenth of Memory and at most 1 GiB; the size of the
	// tables of an Ingest grows likewise with the bytes ingested. From 1 KiB to 1 GiB. Default:
	// half of MemtableBytes, but at least 1 and at most 8 MiB.
	TableBytes int
	// BlockBytes is the maximum size of a data block before compression. Only a block with a
	// single entry may be larger. From 64 bytes to 4 MiB. Default: 4 KiB.
	BlockBytes int
	// LevelBaseBytes is the target size of level 1, at least 1 KiB; the target of each further
	// level is LevelMultiplier, 2 to 1,000, times that of the level above. In a database smaller
	// than eight times LevelBaseBytes, the target of level 1 is an eighth of the database, but at
	// least four memtables and at most LevelBaseBytes. Defaults: 64 MiB, 10.
	LevelBaseBytes  int64
	LevelMultiplier int
	// L0Tables is the number of tables in level 0 at which a compaction begins; while nothing is
	// written, fewer suffice. At twice that number of overlapping tables, or eight times that
	// number in all, each write is delayed, by at most a tenth of a second. At one and a half times
	// these limits, writes wait for compactions, or return ErrTryAgain if a compaction of level 0
	// has failed. Apart from failures, only large batches, memtables of a few KiB, frequent calls
	// of Flush, and an Ingest of many tables among existing keys lead to that.
	// Independently, a write may wait for a memtable that is being flushed: up to 3 × MemtableBytes
	// / Y seconds on a disk that writes Y bytes per second. From 1 to 1,000. Default: 8.
	L0Tables int
	// TxBytes is the maximum memory of a transaction, for its writes and for the keys and ranges
	// that it has read. From 1 KiB to 1 GiB. Default: 64 MiB.
	TxBytes int
	// TxLifetime is the maximum lifetime of a transaction. Flushes and compactions may drop entries
	// that an older transaction would read: its reads then fail with ErrTxLimit, as does its Commit
	// if it has written anything. Negative: no limit. Default: a minute.
	TxLifetime time.Duration
	// DisableCompression stores blocks uncompressed. Default: data and index blocks are compressed
	// with snappy if that saves at least an eighth.
	DisableCompression bool
	// DisableAutoCompaction leaves compaction to calls of Compact. The number of tables then
	// does not delay writes.
	DisableAutoCompaction bool

	prefixName   string               // Prefix.Name()
	rangeReaders []filter.RangePolicy // open range filters
	cacheGrows   bool                 // the block cache gets what filters and indexes leave of Memory

	// Tests replace these.
	manifestBytes int64         // the size at which a new MANIFEST is started
	retryDelay    time.Duration // the pause after a failed flush or compaction
	cleanNow      bool          // the cleaners and the loader run synchronously
	loadLate      bool          // tables are loaded only on demand
	arenaBytes    int           // the maximum capacity of a memtable
	gapBytes      int           // the maximum memory of gaps; negative: gaps are not recorded
}

func init() {
	testhook.Apply = func(options any, s testhook.Settings) {
		o := options.(*Options)
		o.FS, o.manifestBytes, o.retryDelay, o.cleanNow = s.FS, s.ManifestBytes, s.RetryDelay, s.CleanNow
		o.loadLate = s.LoadLate
		o.gapBytes = s.GapBytes
	}
}

// BlockCache is a cache of uncompressed data blocks with a capacity in bytes. Databases can share
// one. Make one with NewBlockCache. It is safe for concurrent use and need not be closed. See
// sstable.BlockCache for its methods.
type BlockCache = sstable.BlockCache

// NewBlockCache returns a cache with the given capacity in bytes; with 0 or less it caches
// nothing.
func NewBlockCache(bytes int64) *BlockCache { return sstable.NewBlockCache(bytes) }

// Prefixer is a prefix extractor: it determines which parts of a key are prefixes. See
// sstable.Prefixer for its methods and the rule that an implementation must satisfy.
type Prefixer = sstable.Prefixer

// FixedPrefix returns the Prefixer whose prefixes are the first n bytes of keys. Shorter keys
// have no prefix. An n below 1 is treated as 1.
func FixedPrefix(n int) Prefixer { return sstable.FixedPrefix(n) }

// PrefixUpTo returns the Prefixer whose prefixes end with the n-th delimiter of keys: with '/'
// and 2, the prefix of "user/17/name" is "user/17/". Keys with fewer delimiters have no prefix.
// An n below 1 is treated as 1.
func PrefixUpTo(delimiter byte, n int) Prefixer { return sstable.PrefixUpTo(delimiter, n) }

// EachPrefix returns a Prefixer for paths and URLs: filters contain each prefix of a key that
// ends with the delimiter. With '/' these are "user/" and "user/17/" for "user/17/name". A scan
// of all keys below a path, at any depth, then skips tables whose filters exclude the path. It does
// not skip a table in which a key has more than 64 prefixes that the key before it lacks.
func EachPrefix(delimiter byte) Prefixer { return sstable.EachPrefix(delimiter) }

// WriteOptions determine whether a write is durable when it returns. A nil *WriteOptions means
// Sync.
type WriteOptions struct {
	// NoSync lets the write return once it has been passed to the operating system. It then
	// survives a crash of the program; a crash of the machine may lose the most recent writes, and
	// only those: if a write is there afterwards, so are all earlier ones. A later write with Sync,
	// a Flush or Close makes it durable.
	NoSync bool
}

// The options for a write; nil means Sync. They must not be modified.
var (
	Sync   = &WriteOptions{}
	NoSync = &WriteOptions{NoSync: true}
)

// IterOptions bound an iterator. A nil *IterOptions means all keys.
type IterOptions struct {
	// LowerBound is the inclusive lower bound of the keys; nil means no bound.
	LowerBound []byte
	// UpperBound is the exclusive upper bound of the keys; nil means no bound. If it is not
	// above LowerBound, the iterator is empty.
	UpperBound []byte
	// Prefix restricts the iterator to keys that begin with it; nil or empty means all keys. It
	// may be combined with bounds. It works without Options.Prefix, but then skips no tables by
	// their filters, unless Options.RangeFilter is set.
	Prefix []byte
	// DontFillCache is for large scans: the iterator adds no blocks to the block cache, but
	// uses blocks that are in it.
	DontFillCache bool
}

// tableBytes returns the default of TableBytes. If tables were much larger than what one
// compaction of level 0 writes, there would be little choice of what to compact next, and write
// amplification would grow.
func tableBytes(memtableBytes int) int { return min(max(memtableBytes/2, 1<<20), 8<<20) }

// resolve returns a copy of o, which may be nil, with the defaults filled in, or an error that
// names an invalid field.
func (o *Options) resolve() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	if r.ReadOnly && r.ErrorIfExists {
		return r, errors.New("sift: Options.ReadOnly and ErrorIfExists exclude each other")
	}
	if err := r.resolveFilters(); err != nil {
		return r, err
	}
	if err := r.resolveSizes(); err != nil {
		return r, err
	}
	if r.BlockCache == nil && r.CacheBytes > 0 {
		r.BlockCache = NewBlockCache(r.CacheBytes)
		if r.cacheGrows {
			r.BlockCache = NewBlockCache(r.CacheBytes + r.spareMemory()/gcFactor)
		}
	}
	if r.Logger == nil {
		r.Logger = defaultLogger()
	}
	if r.Prefix != nil {
		r.prefixName = r.Prefix.Name()
	}
	if r.FS == nil {
		r.FS = vfs.OS
	}
	r.TxLifetime = cmp.Or(r.TxLifetime, defaultTxLifetime)
	r.manifestBytes = cmp.Or(r.manifestBytes, maxManifestBytes)
	r.arenaBytes = cmp.Or(r.arenaBytes, memtable.MaxCapacity)
	r.gapBytes = cmp.Or(r.gapBytes, gapBytes)
	r.retryDelay = cmp.Or(r.retryDelay, retryDelay)
	return r, nil
}

// resolveFilters sets the fields for filters, and checks that the filters can be keyed if
// KeyedFilters is set.
func (r *Options) resolveFilters() error {
	if len(r.LevelFilters) > manifest.NumLevels {
		return fmt.Errorf("sift: Options.LevelFilters has %d entries, and there are %d levels", len(r.LevelFilters), manifest.NumLevels)
	}
	flushFilter := r.Filter
	if r.Filter == nil {
		r.Filter, flushFilter = filter.Default(), filter.DefaultForFlush()
	}
	levels := make([]filter.Policy, manifest.NumLevels)
	copy(levels, r.LevelFilters)
	for i, p := range levels {
		switch {
		case p == nil && i == 0:
			levels[i] = flushFilter
		case p == nil:
			levels[i] = r.Filter
		}
	}
	r.LevelFilters = levels
	r.FilterReaders = slices.Concat(levels, r.FilterReaders)
	r.rangeReaders = []filter.RangePolicy{filter.Range(0, 0)}
	if r.RangeFilter != nil {
		r.rangeReaders = append(r.rangeReaders, r.RangeFilter)
	}
	if !r.KeyedFilters {
		return nil
	}
	if r.RangeFilter != nil {
		if _, err := filter.KeyedRange(r.RangeFilter, filter.Secret{}); err != nil {
			return fmt.Errorf("sift: Options.KeyedFilters: RangeFilter: %w", err)
		}
	}
	for i, p := range levels {
		if _, err := filter.Keyed(p, filter.Secret{}); err != nil {
			return fmt.Errorf("sift: Options.KeyedFilters: level %d: %w", i, err)
		}
	}
	return nil
}

// resolveSizes sets the numeric fields, and checks their bounds.
func (r *Options) resolveSizes() error {
	r.resolveMemory(memlimit.Bytes(), memlimit.AddressSpace())
	if r.Memory < minMemory {
		return fmt.Errorf("sift: Options.Memory is %d, and must be at least %d", r.Memory, minMemory)
	}
	for _, f := range []struct {
		name     string
		value    *int
		def, min int
		max      int
	}{
		{"MemtableBytes", &r.MemtableBytes, 0, 1 << 10, 1 << 30},
		{"TableBytes", &r.TableBytes, tableBytes(r.MemtableBytes), 1 << 10, 1 << 30},
		{"BlockBytes", &r.BlockBytes, 4 << 10, 64, 4 << 20},
		{"LevelMultiplier", &r.LevelMultiplier, 10, 2, 1000},
		{"L0Tables", &r.L0Tables, 8, 1, 1000},
		{"TxBytes", &r.TxBytes, defaultTxBytes, 1 << 10, 1 << 30},
	} {
		*f.value = cmp.Or(*f.value, f.def)
		if *f.value < f.min || *f.value > f.max {
			return fmt.Errorf("sift: Options.%s is %d, and must be from %d to %d", f.name, *f.value, f.min, f.max)
		}
	}
	r.LevelBaseBytes = cmp.Or(r.LevelBaseBytes, 64<<20)
	if r.LevelBaseBytes < 1<<10 {
		return fmt.Errorf("sift: Options.LevelBaseBytes is %d, and must be at least 1024", r.LevelBaseBytes)
	}
	if r.MaxOpenFiles < 0 {
		return fmt.Errorf("sift: Options.MaxOpenFiles is %d, and must not be negative", r.MaxOpenFiles)
	}
	if r.FilterMemory < 0 {
		return fmt.Errorf("sift: Options.FilterMemory is %d, and must not be negative", r.FilterMemory)
	}
	return nil
}
