// Package measure measures the cost of a run: CPU time, I/O, memory, and the
// CPU time that other programs used meanwhile.
package measure

import (
	"runtime"
	"time"
)

// Point is a point in time with the resources that the process had used until
// then.
type Point struct {
	at      time.Time
	cpu     time.Duration
	io      ProcIO
	busy    machineTime
	mallocs uint64
	bytes   uint64
}

// ProcIO holds the operating system's I/O counts of the process.
type ProcIO struct {
	Known bool
	// ReadBytes and ReadCalls count read calls, WriteBytes counts write calls,
	// whether they reached a disk or not.
	ReadBytes, ReadCalls, WriteBytes int64
	// DirtyBytes is the size of the pages dirtied by write calls and through
	// memory maps; a page that is written again before it reaches the disk
	// counts once.
	DirtyBytes int64
}

// Now returns the current Point. It stops the world for a few microseconds.
func Now() Point {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Point{
		at:      time.Now(),
		cpu:     cpuTime(),
		io:      procIO(),
		busy:    readMachineTime(),
		mallocs: m.Mallocs,
		bytes:   m.TotalAlloc,
	}
}

// Cost holds the resources used between two points.
type Cost struct {
	Elapsed time.Duration
	// CPU is the user and system time of all threads, background work included.
	CPU time.Duration
	IO  ProcIO
	// Mallocs and AllocBytes count allocations on Go's heap.
	Mallocs, AllocBytes uint64
	// OthersCPU is the share of the machine's CPU time, from 0 to 1, that other
	// programs used or the hypervisor took away; -1 if unknown.
	OthersCPU float64
}

// Since returns the cost since p.
func (p Point) Since() Cost {
	q := Now()
	c := Cost{
		Elapsed:    q.at.Sub(p.at),
		CPU:        q.cpu - p.cpu,
		Mallocs:    q.mallocs - p.mallocs,
		AllocBytes: q.bytes - p.bytes,
		IO: ProcIO{
			Known:      p.io.Known && q.io.Known,
			ReadBytes:  q.io.ReadBytes - p.io.ReadBytes,
			ReadCalls:  q.io.ReadCalls - p.io.ReadCalls,
			WriteBytes: q.io.WriteBytes - p.io.WriteBytes,
			DirtyBytes: q.io.DirtyBytes - p.io.DirtyBytes,
		},
		OthersCPU: -1,
	}
	if total := q.busy.total - p.busy.total; p.busy.known && q.busy.known && total > 0 {
		own := c.CPU.Seconds() / q.busy.tick
		c.OthersCPU = max(0, (q.busy.used-p.busy.used-own)/total)
	}
	return c
}

// machineTime is the CPU time of the whole machine, in ticks.
type machineTime struct {
	known       bool
	used, total float64
	tick        float64 // seconds
}

// CPUTime returns the user and system time of all threads of the process.
func CPUTime() time.Duration { return cpuTime() }
