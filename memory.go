package sift

import (
	"cmp"
	"math"
)

// Options.Memory is divided in this order:
//
//   - the memtables, of which three may be in use, get what they need;
//   - the block cache gets its default size, or what CacheBytes says;
//   - indexes take up to half of what is left: an index that is not in memory costs each
//     lookup that reads a block a larger read than the block's own;
//   - filters take the rest, and the filter memory manager chooses which parts save most;
//   - if Memory is set and CacheBytes is not, the block cache grows into what filters and
//     indexes leave.
//
// What lies in Go's heap counts gcFactor times, since the heap grows to twice the live memory
// before it is collected. Only the memory of blocks, indexes and memtables does.

// gcFactor is the size of a heap in proportion to what is live in it, with GOGC at its default
// of 100. Other values of GOGC are not taken into account.
const gcFactor = 2

const (
	// minMemory is the least Options.Memory.
	minMemory = 1 << 20
	// unknownMemory is the default where the memory of the machine is not known.
	unknownMemory = 1 << 30
	// fullMemtables is the number of memtables that may be in use.
	fullMemtables = maxFull + 1
	// memtableShare, cacheShare and tableShare bound the defaults of MemtableBytes and
	// CacheBytes, and the size of tables, in proportion to Memory: writing a table takes some
	// 33 bytes per key, and up to four are written at once by flushes and compactions.
	memtableShare = 32
	cacheShare    = 32
	tableShare    = 16
)

// resolveMemory sets the options that depend on how much memory the process may use; 0 if that
// is not known.
func (o *Options) resolveMemory(limit int64) {
	o.cacheGrows = o.Memory != 0 && o.CacheBytes == 0 && o.BlockCache == nil
	o.Memory = cmp.Or(o.Memory, max(cmp.Or(limit/2, unknownMemory), minMemory))
	o.MemtableBytes = cmp.Or(o.MemtableBytes, int(max(min(16<<20, o.Memory/memtableShare), 1<<20)))
	o.CacheBytes = cmp.Or(o.CacheBytes, min(8<<20, o.Memory/cacheShare))
	mapBytes := limit / 4
	if math.MaxInt == math.MaxInt32 {
		mapBytes = 0 // there are not addresses enough
	}
	o.MapBytes = cmp.Or(o.MapBytes, mapBytes)
}

// memoryShares returns what is left of Memory for filters, indexes and a growing block cache
// after the memtables and the least block cache.
func (o *Options) memoryShares() int64 {
	fixed := gcFactor * (fullMemtables*memtableMemory(int64(o.MemtableBytes)) + max(o.CacheBytes, 0))
	return max(o.Memory-fixed, o.Memory/4)
}

// memtableMemory returns the memory of a memtable, with links and index.
func memtableMemory(capacity int64) int64 { return capacity + capacity/8 }

// divideMemory sets the limits of indexes, filters and a growing block cache, given what there
// is of them, and returns that of filters. While tables are being loaded, indexes are taken to
// need all they may.
func (d *DB) divideMemory() (filters int64) {
	rest := d.opts.memoryShares()
	maxIndexes := rest / 2 / gcFactor
	d.indexes.SetLimit(maxIndexes)
	indexes := maxIndexes
	if d.loader.ended() {
		indexes = min(indexes, d.indexes.HeldBytes())
	}
	rest -= gcFactor * indexes
	filters = cmp.Or(d.opts.FilterMemory, rest)
	d.filters.SetLimit(filters)
	if d.opts.cacheGrows {
		rest -= min(d.filters.HeldBytes(), rest)
		d.opts.BlockCache.SetCapacity(d.opts.CacheBytes + rest/gcFactor)
	}
	return filters
}
