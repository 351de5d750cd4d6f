package sift

import (
	"cmp"
	"math"
	"runtime/metrics"
)

// Options.Memory is divided in this order:
//
//   - the memtables, of which three may be in use, get what they need;
//   - the block cache gets CacheBytes, or its default size;
//   - indexes take up to half of the remainder: if the index is not in memory, each lookup that
//     reads a block must first read the index, which is larger than the block; small indexes, which
//     save more reads per byte than filters, take up to seven eighths; with FilterMemory, both
//     leave what filters use, down to an eighth and seven thirty-seconds of the remainder;
//   - filters take the rest, and the filter memory manager chooses the steps that save the most
//     reads;
//   - if Memory is set and CacheBytes is not, the block cache also gets what filters and
//     indexes do not use.
//
// Memory in Go's heap counts gcFactor times, since the heap grows to twice its live bytes before
// it is collected. On Linux large filters lie outside the heap, and count once.

// gcFactor is the ratio of the heap's maximum size to its live bytes, with GOGC at its default of
// 100. Other values of GOGC are ignored.
const gcFactor = 2

const (
	// minMemory is the minimum of Options.Memory.
	minMemory = 1 << 20
	// unknownMemory is the default if the memory of the machine is unknown.
	unknownMemory = 1 << 30
	// fullMemtables is the maximum number of memtables in use.
	fullMemtables = maxFull + 1
	// The defaults of MemtableBytes and CacheBytes, and the size of tables, are at most
	// 1/memtableShare, 1/cacheShare and 1/tableShare of Memory: writing a table takes some 33
	// bytes per key, and flushes and compactions write up to four at once.
	memtableShare = 32
	leastShare    = 16 // the default of MemtableBytes is at least 1 MiB, or 1/leastShare of Memory if that is less
	cacheShare    = 32
	tableShare    = 16
)

// resolveMemory sets the options that depend on limit, the memory that the process may use, or 0
// if unknown, and on space, its address space, or 0 if unlimited.
func (o *Options) resolveMemory(limit, space int64) {
	o.cacheGrows = o.Memory != 0 && o.CacheBytes == 0 && o.BlockCache == nil
	o.Memory = cmp.Or(o.Memory, max(cmp.Or(limit/2, unknownMemory), minMemory))
	o.MemtableBytes = cmp.Or(o.MemtableBytes, int(max(min(16<<20, o.Memory/memtableShare), min(1<<20, o.Memory/leastShare))))
	o.CacheBytes = cmp.Or(o.CacheBytes, min(8<<20, o.Memory/cacheShare))
	mapBytes := limit + limit/4 // up to this total size, mapped tables are read faster
	if space != 0 {
		mapBytes = min(mapBytes, space/4) // Go's heap needs the rest
	}
	if math.MaxInt == math.MaxInt32 {
		mapBytes = 0 // the address space is too small
	}
	o.MapBytes = cmp.Or(o.MapBytes, mapBytes)
}

// spareMemory returns the part of Memory for filters, indexes and a growing block cache: what the
// memtables and CacheBytes leave. Like Memory, it includes the heap's garbage.
func (o *Options) spareMemory() int64 {
	cache := min(max(o.CacheBytes, 0), o.Memory/gcFactor) // no limit, a huge size, would overflow
	fixed := fullMemtables*memtableMemory(int64(o.MemtableBytes)) + cache
	return max(o.Memory-gcFactor*fixed, o.Memory/4)
}

// maxIndexBytes returns the limit of indexes beside filters that take the given part of
// spareMemory: half of spareMemory, or less, so that small indexes fit, which may exceed the limit
// by three quarters.
func (o *Options) maxIndexBytes(filters int64) int64 {
	spare := o.spareMemory()
	return max(min(spare/2, (spare-filters)/7*4), spare/8) / gcFactor
}

// filterCost returns the part of spareMemory that filters take now.
func (d *DB) filterCost() int64 {
	off, unused := d.filters.OffHeap()
	return off + gcFactor*(d.filters.HeldBytes()-(off-unused))
}

// memtableMemory returns the memory of a memtable, links and index included.
func memtableMemory(capacity int64) int64 { return capacity + capacity/8 }

// divideMemory sets the limits of indexes, filters and a growing block cache according to the
// memory that they use now, and returns the limit of filters. While tables are being loaded, it
// assumes that indexes will use all that they may, and the block cache does not grow.
func (d *DB) divideMemory() (filters int64) {
	rest, reserved := d.opts.spareMemory(), d.opts.FilterMemory
	if reserved != 0 && d.loader.ended() {
		reserved = d.filterCost() // the filters may need less
	}
	maxIndexes := d.opts.maxIndexBytes(reserved)
	d.indexes.SetLimit(maxIndexes)
	indexes := d.indexes.HeldBytes() // may exceed maxIndexes: small indexes have a higher limit
	if !d.loader.ended() {
		indexes = max(indexes, maxIndexes)
	}
	rest = max(rest-gcFactor*indexes, rest/8) // less is left only if LevelDB filters need the indexes
	filters = cmp.Or(d.opts.FilterMemory, d.filters.Capacity(rest, gcFactor))
	d.filters.SetLimit(filters)
	if d.opts.cacheGrows {
		if d.loader.ended() {
			rest -= d.filterCost()
		} else {
			rest = 0 // filters and indexes are going to take it
		}
		d.opts.BlockCache.SetCapacity(d.opts.CacheBytes + max(rest, 0)/gcFactor)
	}
	return filters
}

// garbageOf returns the share of the heap's garbage and free space that belongs to held live bytes,
// in proportion to all live bytes.
func garbageOf(held uint64) uint64 {
	sample := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(sample)
	var v [4]uint64
	for i, s := range sample {
		if s.Value.Kind() == metrics.KindUint64 {
			v[i] = s.Value.Uint64()
		}
	}
	live, taken := max(v[0], held), v[1]+v[2]+v[3] // held may exceed what was live at the last collection
	if live == 0 || taken < live {
		return 0
	}
	return uint64(float64(taken-live) * float64(held) / float64(live))
}
