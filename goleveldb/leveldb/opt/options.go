// Package opt defines the options of databases, reads and writes. The comment of an option
// describes its effect in this module. Options without effect exist so that programs that set them
// compile.
package opt

import (
	"math"

	"github.com/syndtr/goleveldb/leveldb/cache"
	"github.com/syndtr/goleveldb/leveldb/comparer"
	"github.com/syndtr/goleveldb/leveldb/filter"
)

// Sizes in bytes.
const (
	KiB = 1024
	MiB = KiB * 1024
	GiB = MiB * 1024
)

// The defaults of fields that are not set.
var (
	DefaultBlockCacher                   = LRUCacher
	DefaultBlockCacheCapacity            = 8 * MiB
	DefaultBlockRestartInterval          = 16
	DefaultBlockSize                     = 4 * KiB
	DefaultCompactionExpandLimitFactor   = 25
	DefaultCompactionGPOverlapsFactor    = 10
	DefaultCompactionL0Trigger           = 4
	DefaultCompactionSourceLimitFactor   = 1
	DefaultCompactionTableSize           = 2 * MiB
	DefaultCompactionTableSizeMultiplier = 1.0
	DefaultCompactionTotalSize           = 10 * MiB
	DefaultCompactionTotalSizeMultiplier = 10.0
	DefaultCompressionType               = SnappyCompression
	DefaultFilterBaseLg                  = 11
	DefaultIteratorSamplingRate          = 1 * MiB
	DefaultMaxManifestFileSize           = int64(64 * MiB)
	DefaultOpenFilesCacher               = LRUCacher
	DefaultOpenFilesCacheCapacity        = 500
	DefaultWriteBuffer                   = 4 * MiB
	DefaultWriteL0PauseTrigger           = 12
	DefaultWriteL0SlowdownTrigger        = 8
)

// Cacher makes caches.
type Cacher interface {
	New(capacity int) cache.Cacher
}

type cacherFunc func(capacity int) cache.Cacher

// New implements Cacher.
func (f cacherFunc) New(capacity int) cache.Cacher {
	if f == nil {
		return nil
	}
	return f(capacity)
}

// CacherFunc returns a Cacher that calls f, which may be nil.
func CacherFunc(f func(capacity int) cache.Cacher) Cacher { return cacherFunc(f) }

type passthrough struct{ cacher cache.Cacher }

// New implements Cacher.
func (p *passthrough) New(int) cache.Cacher { return p.cacher }

// PassthroughCacher makes a Cacher that always returns x. Databases that share the
// Cacher share one block cache.
func PassthroughCacher(x cache.Cacher) Cacher { return &passthrough{x} }

// NewLRU returns a PassthroughCacher of a new LRU cache; capacity is in bytes.
func NewLRU(capacity int) Cacher { return PassthroughCacher(cache.NewLRU(capacity)) }

var (
	// LRUCacher evicts the least recently used values.
	LRUCacher = CacherFunc(cache.NewLRU)
	// NoCacher caches nothing.
	NoCacher = CacherFunc(nil)
)

// Compression is how blocks are compressed.
type Compression uint

// The kinds of compression.
const (
	DefaultCompression Compression = iota
	NoCompression
	SnappyCompression
	numCompressions
)

// String returns a word for the compression.
func (c Compression) String() string {
	switch c {
	case DefaultCompression:
		return "default"
	case NoCompression:
		return "none"
	case SnappyCompression:
		return "snappy"
	}
	return "invalid"
}

// Strict selects which damage is an error. A database of this module is always strict: all damage
// is an error, and Recover drops what it cannot read.
type Strict uint

const (
	// StrictManifest applies to MANIFESTs.
	StrictManifest Strict = 1 << iota
	// StrictJournalChecksum applies to checksums in logs.
	StrictJournalChecksum
	// StrictJournal applies to logs.
	StrictJournal
	// StrictBlockChecksum applies to checksums in tables.
	StrictBlockChecksum
	// StrictCompaction applies to tables in compactions.
	StrictCompaction
	// StrictReader applies to tables in reads.
	StrictReader
	// StrictRecovery applies to tables in Recover.
	StrictRecovery
	// StrictOverride makes the Strict of ReadOptions replace that of Options.
	StrictOverride

	// StrictAll is all of them.
	StrictAll = StrictManifest | StrictJournalChecksum | StrictJournal | StrictBlockChecksum | StrictCompaction | StrictReader | StrictRecovery
	// DefaultStrict is what 0 means in Options.
	DefaultStrict = StrictJournalChecksum | StrictBlockChecksum | StrictCompaction | StrictReader
	// NoStrict is none of them.
	NoStrict = ^StrictAll
)

// Options are the options of a database. A nil *Options and zero fields mean the
// defaults.
type Options struct {
	// AltFilters is used by package table; a database always uses the filters of existing tables.
	AltFilters []filter.Filter

	// BlockCacher makes the Cacher whose capacity is the size of the block cache; NoCacher means no
	// block cache. Databases with the same PassthroughCacher share a block cache. Default:
	// LRUCacher, with BlockCacheCapacity.
	BlockCacher Cacher

	// BlockCacheCapacity is the size of the block cache in bytes; negative means none.
	// Default: 8 MiB.
	BlockCacheCapacity int

	// BlockCacheEvictRemoved is not used: blocks of removed tables always leave the cache.
	BlockCacheEvictRemoved bool

	// BlockRestartInterval is used by package table; in a database it is 16.
	BlockRestartInterval int

	// BlockSize is the size of a data block before compression, in bytes. Default: 4 KiB.
	BlockSize int

	// CompactionExpandLimitFactor is not used.
	CompactionExpandLimitFactor int

	// CompactionGPOverlapsFactor is not used.
	CompactionGPOverlapsFactor int

	// CompactionL0Trigger is the size of level 0, in write buffers, at which a compaction
	// begins. A flush writes a table of a third of a write buffer. Default: 4.
	CompactionL0Trigger int

	// CompactionSourceLimitFactor is not used.
	CompactionSourceLimitFactor int

	// CompactionTableSize times CompactionTableSizeMultiplier is the size at which a
	// compaction begins a new table in levels 1 and 2. It doubles with each further level.
	// Default: 2 MiB.
	CompactionTableSize int

	// CompactionTableSizeMultiplier is applied once: see CompactionTableSize. Default: 1.
	CompactionTableSizeMultiplier float64

	// CompactionTableSizeMultiplierPerLevel: the entry for level 1 replaces
	// CompactionTableSizeMultiplier. The others are not used.
	CompactionTableSizeMultiplierPerLevel []float64

	// CompactionTotalSize times CompactionTotalSizeMultiplier is the size of level 1. In a
	// database smaller than eight times that, level 1 is an eighth of the database, but at least
	// four thirds of WriteBuffer. Default: 10 MiB.
	CompactionTotalSize int

	// CompactionTotalSizeMultiplier is the ratio of the sizes of neighboring levels; for that it is
	// rounded, and at least 2. Default: 10.
	CompactionTotalSizeMultiplier float64

	// CompactionTotalSizeMultiplierPerLevel: the entry for level 1 replaces
	// CompactionTotalSizeMultiplier in the size of level 1. The others are not used.
	CompactionTotalSizeMultiplierPerLevel []float64

	// Comparer must be nil or the bytewise order: Open returns an error for others.
	Comparer comparer.Comparer

	// Compression is how blocks are compressed. Default: snappy.
	Compression Compression

	// DisableBufferPool is not used.
	DisableBufferPool bool

	// DisableBlockCache turns the block cache off.
	DisableBlockCache bool

	// DisableCompactionBackoff is not used.
	DisableCompactionBackoff bool

	// DisableLargeBatchTransaction is not used: large batches are written like others,
	// and so are durable only with WriteOptions.Sync.
	DisableLargeBatchTransaction bool

	// DisableSeeksCompaction is not used: reads cause no compactions.
	DisableSeeksCompaction bool

	// ErrorIfExist makes Open return os.ErrExist if there is a database.
	ErrorIfExist bool

	// ErrorIfMissing makes Open return os.ErrNotExist if there is none.
	ErrorIfMissing bool

	// Filter, if made by filter.NewBloomFilter, sets the bits per key of sift's filters, at most
	// 20. Default, also for any other Filter: sift's filters of about 10 bits per key.
	Filter filter.Filter

	// FilterBaseLg is used by package table; a database has one filter per table.
	FilterBaseLg int

	// IteratorSamplingRate is not used.
	IteratorSamplingRate int

	// MaxManifestFileSize is not used.
	MaxManifestFileSize int64

	// NoSync makes the database ignore WriteOptions.Sync.
	NoSync bool

	// NoWriteMerge is not used: concurrent writes may share a log record.
	NoWriteMerge bool

	// OpenFilesCacher is not used.
	OpenFilesCacher Cacher

	// OpenFilesCacheCapacity is the number of tables that are kept open. Default: 500.
	OpenFilesCacheCapacity int

	// ReadOnly opens the database without changing anything. Several processes may read it.
	ReadOnly bool

	// Strict is not used: see Strict.
	Strict Strict

	// WriteBuffer is the size of all memtables, in bytes. When it is reached, writes wait for a
	// flush. A memtable has a third of it. Default: 4 MiB.
	WriteBuffer int

	// WriteL0PauseTrigger is not used: writes wait at three times CompactionL0Trigger.
	WriteL0PauseTrigger int

	// WriteL0SlowdownTrigger is not used: writes are delayed from twice CompactionL0Trigger on.
	WriteL0SlowdownTrigger int
}

// or returns the field of an Options that may be nil, or the default if it is zero.
func or[T comparable](o *Options, field func(*Options) T, def T) T {
	var zero T
	if o != nil {
		if v := field(o); v != zero {
			return v
		}
	}
	return def
}

// positive is or for numbers, where negative ones mean 0.
func positive(o *Options, field func(*Options) int, def int) int {
	return max(or(o, field, def), 0)
}

// GetAltFilters returns AltFilters.
func (o *Options) GetAltFilters() []filter.Filter {
	if o == nil {
		return nil
	}
	return o.AltFilters
}

// GetBlockCacher returns BlockCacher or its default.
func (o *Options) GetBlockCacher() Cacher {
	if o == nil || o.BlockCacher == nil {
		return DefaultBlockCacher
	}
	return o.BlockCacher
}

// GetBlockCacheCapacity returns BlockCacheCapacity or its default.
func (o *Options) GetBlockCacheCapacity() int {
	return positive(o, func(o *Options) int { return o.BlockCacheCapacity }, DefaultBlockCacheCapacity)
}

// GetBlockCacheEvictRemoved returns BlockCacheEvictRemoved.
func (o *Options) GetBlockCacheEvictRemoved() bool { return o != nil && o.BlockCacheEvictRemoved }

// GetBlockRestartInterval returns BlockRestartInterval or its default.
func (o *Options) GetBlockRestartInterval() int {
	if o == nil || o.BlockRestartInterval <= 0 {
		return DefaultBlockRestartInterval
	}
	return o.BlockRestartInterval
}

// GetBlockSize returns BlockSize or its default.
func (o *Options) GetBlockSize() int {
	if o == nil || o.BlockSize <= 0 {
		return DefaultBlockSize
	}
	return o.BlockSize
}

// factor returns a factor or its default.
func factor(o *Options, field func(*Options) int, def int) int {
	if o != nil && field(o) > 0 {
		return field(o)
	}
	return def
}

// GetCompactionExpandLimit returns CompactionExpandLimitFactor, or its default, times the table
// size of the next level, in bytes.
func (o *Options) GetCompactionExpandLimit(level int) int {
	return o.GetCompactionTableSize(level+1) *
		factor(o, func(o *Options) int { return o.CompactionExpandLimitFactor }, DefaultCompactionExpandLimitFactor)
}

// GetCompactionGPOverlaps returns CompactionGPOverlapsFactor, or its default, times the table size
// two levels below, in bytes.
func (o *Options) GetCompactionGPOverlaps(level int) int {
	return o.GetCompactionTableSize(level+2) *
		factor(o, func(o *Options) int { return o.CompactionGPOverlapsFactor }, DefaultCompactionGPOverlapsFactor)
}

// GetCompactionL0Trigger returns CompactionL0Trigger or its default.
func (o *Options) GetCompactionL0Trigger() int {
	return or(o, func(o *Options) int { return o.CompactionL0Trigger }, DefaultCompactionL0Trigger)
}

// GetCompactionSourceLimit returns CompactionSourceLimitFactor, or its default, times the table
// size of the next level, in bytes.
func (o *Options) GetCompactionSourceLimit(level int) int {
	return o.GetCompactionTableSize(level+1) *
		factor(o, func(o *Options) int { return o.CompactionSourceLimitFactor }, DefaultCompactionSourceLimitFactor)
}

// multiplier returns the multiplier of a level: the one that is set for this level, or a power of
// the common one.
func multiplier(level int, perLevel []float64, common, def float64) float64 {
	switch {
	case level < len(perLevel) && perLevel[level] > 0:
		return perLevel[level]
	case common > 0:
		return math.Pow(common, float64(level))
	}
	return math.Pow(def, float64(level))
}

// GetCompactionTableSize returns the size of a level's tables in bytes, as in goleveldb. A database
// uses only that of level 1: see CompactionTableSize.
func (o *Options) GetCompactionTableSize(level int) int {
	if o == nil {
		o = &Options{}
	}
	size := factor(o, func(o *Options) int { return o.CompactionTableSize }, DefaultCompactionTableSize)
	return int(float64(size) * multiplier(level, o.CompactionTableSizeMultiplierPerLevel, o.CompactionTableSizeMultiplier, DefaultCompactionTableSizeMultiplier))
}

// GetCompactionTotalSize returns the size of a level in bytes, as in goleveldb. A database uses
// only that of level 1: see CompactionTotalSize.
func (o *Options) GetCompactionTotalSize(level int) int64 {
	if o == nil {
		o = &Options{}
	}
	size := factor(o, func(o *Options) int { return o.CompactionTotalSize }, DefaultCompactionTotalSize)
	return int64(float64(size) * multiplier(level, o.CompactionTotalSizeMultiplierPerLevel, o.CompactionTotalSizeMultiplier, DefaultCompactionTotalSizeMultiplier))
}

// GetComparer returns Comparer or its default.
func (o *Options) GetComparer() comparer.Comparer {
	if o == nil || o.Comparer == nil {
		return comparer.DefaultComparer
	}
	return o.Comparer
}

// GetCompression returns Compression or its default.
func (o *Options) GetCompression() Compression {
	if o == nil || o.Compression <= DefaultCompression || o.Compression >= numCompressions {
		return DefaultCompressionType
	}
	return o.Compression
}

// GetDisableBufferPool returns DisableBufferPool.
func (o *Options) GetDisableBufferPool() bool { return o != nil && o.DisableBufferPool }

// GetDisableBlockCache returns DisableBlockCache.
func (o *Options) GetDisableBlockCache() bool { return o != nil && o.DisableBlockCache }

// GetDisableCompactionBackoff returns DisableCompactionBackoff.
func (o *Options) GetDisableCompactionBackoff() bool { return o != nil && o.DisableCompactionBackoff }

// GetDisableLargeBatchTransaction returns DisableLargeBatchTransaction.
func (o *Options) GetDisableLargeBatchTransaction() bool {
	return o != nil && o.DisableLargeBatchTransaction
}

// GetDisableSeeksCompaction returns DisableSeeksCompaction.
func (o *Options) GetDisableSeeksCompaction() bool { return o != nil && o.DisableSeeksCompaction }

// GetErrorIfExist returns ErrorIfExist.
func (o *Options) GetErrorIfExist() bool { return o != nil && o.ErrorIfExist }

// GetErrorIfMissing returns ErrorIfMissing.
func (o *Options) GetErrorIfMissing() bool { return o != nil && o.ErrorIfMissing }

// GetFilter returns Filter.
func (o *Options) GetFilter() filter.Filter {
	if o == nil {
		return nil
	}
	return o.Filter
}

// GetFilterBaseLg returns FilterBaseLg or its default.
func (o *Options) GetFilterBaseLg() int {
	return factor(o, func(o *Options) int { return o.FilterBaseLg }, DefaultFilterBaseLg)
}

// GetIteratorSamplingRate returns IteratorSamplingRate or its default.
func (o *Options) GetIteratorSamplingRate() int {
	return positive(o, func(o *Options) int { return o.IteratorSamplingRate }, DefaultIteratorSamplingRate)
}

// GetMaxManifestFileSize returns MaxManifestFileSize or its default.
func (o *Options) GetMaxManifestFileSize() int64 {
	if o == nil || o.MaxManifestFileSize <= 0 {
		return DefaultMaxManifestFileSize
	}
	return o.MaxManifestFileSize
}

// GetNoSync returns NoSync.
func (o *Options) GetNoSync() bool { return o != nil && o.NoSync }

// GetNoWriteMerge returns NoWriteMerge.
func (o *Options) GetNoWriteMerge() bool { return o != nil && o.NoWriteMerge }

// GetOpenFilesCacher returns OpenFilesCacher or its default.
func (o *Options) GetOpenFilesCacher() Cacher {
	if o == nil || o.OpenFilesCacher == nil {
		return DefaultOpenFilesCacher
	}
	return o.OpenFilesCacher
}

// GetOpenFilesCacheCapacity returns OpenFilesCacheCapacity or its default.
func (o *Options) GetOpenFilesCacheCapacity() int {
	return positive(o, func(o *Options) int { return o.OpenFilesCacheCapacity }, DefaultOpenFilesCacheCapacity)
}

// GetReadOnly returns ReadOnly.
func (o *Options) GetReadOnly() bool { return o != nil && o.ReadOnly }

// GetStrict reports whether Strict has any of the given flags.
func (o *Options) GetStrict(strict Strict) bool {
	return or(o, func(o *Options) Strict { return o.Strict }, DefaultStrict)&strict != 0
}

// GetWriteBuffer returns WriteBuffer or its default.
func (o *Options) GetWriteBuffer() int {
	if o == nil || o.WriteBuffer <= 0 {
		return DefaultWriteBuffer
	}
	return o.WriteBuffer
}

// GetWriteL0PauseTrigger returns WriteL0PauseTrigger or its default.
func (o *Options) GetWriteL0PauseTrigger() int {
	return or(o, func(o *Options) int { return o.WriteL0PauseTrigger }, DefaultWriteL0PauseTrigger)
}

// GetWriteL0SlowdownTrigger returns WriteL0SlowdownTrigger or its default.
func (o *Options) GetWriteL0SlowdownTrigger() int {
	return or(o, func(o *Options) int { return o.WriteL0SlowdownTrigger }, DefaultWriteL0SlowdownTrigger)
}

// ReadOptions are the options of a read. nil means the defaults.
type ReadOptions struct {
	// DontFillCache means that blocks that are read do not enter the block cache. Only iterators
	// honor it.
	DontFillCache bool
	// Strict is used by package table: with StrictOverride and without StrictReader, iterators skip
	// damaged blocks. A database is always strict.
	Strict Strict
}

// GetDontFillCache returns DontFillCache.
func (ro *ReadOptions) GetDontFillCache() bool { return ro != nil && ro.DontFillCache }

// GetStrict reports whether Strict has any of the given flags.
func (ro *ReadOptions) GetStrict(strict Strict) bool { return ro != nil && ro.Strict&strict != 0 }

// WriteOptions are the options of a write. nil means the defaults.
type WriteOptions struct {
	// NoWriteMerge is not used.
	NoWriteMerge bool
	// Sync makes the write durable before it returns. Otherwise it survives a crash
	// of the process, but a crash of the machine may lose the last writes.
	Sync bool
}

// GetNoWriteMerge returns NoWriteMerge.
func (wo *WriteOptions) GetNoWriteMerge() bool { return wo != nil && wo.NoWriteMerge }

// GetSync returns Sync.
func (wo *WriteOptions) GetSync() bool { return wo != nil && wo.Sync }

// GetStrict reports whether a read is strict about any of the given flags.
func GetStrict(o *Options, ro *ReadOptions, strict Strict) bool {
	return ro.GetStrict(strict) || !ro.GetStrict(StrictOverride) && o.GetStrict(strict)
}
