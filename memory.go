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
//   - indexes take up to half of what is left: without the index in memory, each lookup that
//     reads a block first reads the index, which is larger;
//   - filters take the rest, and the filter memory manager chooses the parts that save the most
//     reads;
//   - if Memory is set and CacheBytes is not, the block cache grows into what filters and
//     indexes leave.
//
// What lies in Go's heap counts gcFactor times, since the heap grows to twice the
// live memory before it is collected. On Linux large filters lie outside it, and count once.

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
	leastShare    = 16 // a memtable has at least 1 MiB, unless that is more than this share
	cacheShare    = 32
	tableShare    = 16
)

// resolveMemory sets the options that depend on limit, the memory that the process may use, 0
// if unknown, and on space, its address space, 0 if unlimited.
func (o *Options) resolveMemory(limit, space int64) {
	o.cacheGrows = o.Memory != 0 && o.CacheBytes == 0 && o.BlockCache == nil
	o.Memory = cmp.Or(o.Memory, max(cmp.Or(limit/2, unknownMemory), minMemory))
	o.MemtableBytes = cmp.Or(o.MemtableBytes, int(max(min(16<<20, o.Memory/memtableShare), min(1<<20, o.Memory/leastShare))))
	o.CacheBytes = cmp.Or(o.CacheBytes, min(8<<20, o.Memory/cacheShare))
	mapBytes := limit + limit/4 // tables of that total size are still read faster if mapped
	if space != 0 {
		mapBytes = min(mapBytes, space/4) // Go's heap needs the rest
	}
	if math.MaxInt == math.MaxInt32 {
		mapBytes = 0 // the address space is too small
	}
	o.MapBytes = cmp.Or(o.MapBytes, mapBytes)
}

// spareMemory returns what Memory leaves for filters, indexes and a growing block cache, after the
// memtables and the least block cache. Like Memory, it counts the garbage that the heap adds.
func (o *Options) spareMemory() int64 {
	fixed := fullMemtables*memtableMemory(int64(o.MemtableBytes)) + max(o.CacheBytes, 0)
	return max(o.Memory-gcFactor*fixed, o.Memory/4)
}

// memtableMemory returns the memory of a memtable, with links and index.
func memtableMemory(capacity int64) int64 { return capacity + capacity/8 }

// divideMemory sets the limits of indexes, filters and a growing block cache, given what they
// take now, and returns the limit of filters. While tables are being loaded, indexes are
// assumed to need all that they may have.
func (d *DB) divideMemory() (filters int64) {
	rest := d.opts.spareMemory()
	maxIndexes := rest / 2 / gcFactor
	d.indexes.SetLimit(maxIndexes)
	indexes := d.indexes.HeldBytes() // more than maxIndexes if there are many small ones, which stay
	if !d.loader.ended() {
		indexes = max(indexes, maxIndexes)
	}
	rest = max(rest-gcFactor*indexes, rest/4) // without filters, lookups would cost more than the memory is worth
	filters = cmp.Or(d.opts.FilterMemory, d.filters.Capacity(rest, gcFactor))
	d.filters.SetLimit(filters)
	if d.opts.cacheGrows {
		off, unused := d.filters.OffHeap()
		rest -= off + gcFactor*(d.filters.HeldBytes()-(off-unused))
		d.opts.BlockCache.SetCapacity(d.opts.CacheBytes + max(rest, 0)/gcFactor)
	}
	return filters
}

// garbageOf returns the share of what Go's heap takes beyond live memory that belongs to held
// bytes in the heap.
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
	live, taken := max(v[0], held), v[1]+v[2]+v[3] // what came after the last collection counts as live
	if live == 0 || taken < live {
		return 0
	}
	return uint64(float64(taken-live) * float64(held) / float64(live))
}
