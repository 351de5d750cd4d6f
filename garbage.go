package sift

import (
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// collector calls the garbage collector when flushes and compactions have dropped many copies of
// large values. Go itself collects the heap when it has grown to twice its live bytes, or two
// minutes after the last collection. Large values are copied into memtables, blocks and buffers of
// their size, so after a burst of them the heap would stay at its maximum size.
type collector struct {
	dropped atomic.Int64 // bytes dropped since the last collection
}

const (
	// largeCopies is the number of copies that a flush or compaction makes of a large value: in the
	// memtable or block that it reads, in the block that it writes, and a compressed copy of each.
	largeCopies = 4
	// minDropped is the number of dropped bytes at which the heap is collected. In a large heap the
	// threshold is 1/liveShare of the live bytes, so that these collections cost little in
	// comparison with those that Go itself starts.
	minDropped = 32 << 20
	liveShare  = 4
)

// drop counts the garbage of a flush or compaction, given the total bytes of its large values. It
// reports whether to collect the heap.
func (c *collector) drop(bytes int64) bool {
	return c.dropped.Add(largeCopies*bytes) >= max(minDropped, liveHeap()/liveShare)
}

// collect collects the heap and returns free memory to the system.
func (c *collector) collect() {
	if c.dropped.Swap(0) > 0 {
		debug.FreeOSMemory()
	}
}

// droppedLarge is called when the result of a flush or compaction has been installed, with the
// total bytes of its large values.
func (d *DB) droppedLarge(bytes int64) {
	if bytes > 0 && d.collector.drop(bytes) {
		d.retired.do(d.collector.collect) // after the release of the memtables and tables
	}
}

// liveHeap returns the number of live bytes at the last collection of the heap.
func liveHeap() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return int64(sample[0].Value.Uint64())
}
