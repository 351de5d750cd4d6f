package sift

import (
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// Go collects its heap when it has grown to twice what was live at the last collection, or two
// minutes later. Large values are copied into memtables, blocks and buffers of their size, so
// after a burst of them the heap would stay as large as it ever was. collector therefore
// collects it when flushes and compactions have dropped enough such copies.
type collector struct {
	dropped atomic.Int64 // bytes, since the last collection
}

const (
	// largeCopies is how often a flush or compaction copies a large value: the memtable or the
	// block it is read from, the block it is written to, and the two compressed.
	largeCopies = 4
	// minDropped is the number of dropped bytes at which the heap is collected. In a large heap, the
	// threshold is one liveShare-th of what is live, so that collections cost little beside Go's own.
	minDropped = 32 << 20
	liveShare  = 4
)

// drop counts the garbage that a flush or compaction has left, given the total bytes of its large
// values. It reports whether to collect the heap.
func (c *collector) drop(bytes int64) bool {
	return c.dropped.Add(largeCopies*bytes) >= max(minDropped, liveHeap()/liveShare)
}

// collect collects the heap and returns free memory to the system.
func (c *collector) collect() {
	if c.dropped.Swap(0) > 0 {
		debug.FreeOSMemory()
	}
}

// droppedLarge is called when a flush or compaction of large values has been installed.
func (d *DB) droppedLarge(bytes int64) {
	if bytes > 0 && d.collector.drop(bytes) {
		d.retired.do(d.collector.collect) // after the release of the memtables and tables
	}
}

// liveHeap returns the bytes that were live when the heap was last collected.
func liveHeap() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return int64(sample[0].Value.Uint64())
}
