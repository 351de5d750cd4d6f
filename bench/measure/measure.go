// Package measure reads what a run cost: processor time, the bytes it moved,
// memory, and whether other programs were busy meanwhile.
package measure

import (
	"runtime"
	"time"
)

// Point is a moment, with what the process had used until then.
type Point struct {
	at      time.Time
	cpu     time.Duration
	io      ProcIO
	busy    machineTime
	mallocs uint64
	bytes   uint64
}

// ProcIO is what the operating system counts for the process.
type ProcIO struct {
	Known bool
	// ReadBytes and ReadCalls passed through read calls, WriteBytes through
	// write calls, whether a disk was touched or not.
	ReadBytes, ReadCalls, WriteBytes int64
	// DirtyBytes are the pages that were made dirty, through write calls and
	// through memory maps; a page that is written again before it has reached
	// the disk counts once.
	DirtyBytes int64
}

// Now takes a Point. It stops the world for some microseconds.
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

// Cost is what was used between two points.
type Cost struct {
	Elapsed time.Duration
	// CPU is user and system time of all threads, background work included.
	CPU time.Duration
	IO  ProcIO
	// Mallocs and AllocBytes are those of Go's heap.
	Mallocs, AllocBytes uint64
	// OthersCPU is the share of the machine's processors that other programs
	// used, or that the hypervisor took away, from 0 to 1; -1 if unknown.
	OthersCPU float64
}

// Since returns what was used since p.
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

// machineTime is processor time of the whole machine, in ticks.
type machineTime struct {
	known       bool
	used, total float64
	tick        float64 // seconds
}

// ClockCost is what reading the clock twice costs, as a timed operation does.
func ClockCost() time.Duration {
	const rounds = 20_000
	var sum time.Duration
	start := time.Now()
	for range rounds {
		t := time.Now()
		sum += time.Since(t)
	}
	took := time.Since(start)
	if sum < 0 {
		return 0
	}
	return took / rounds
}

// CPUTime returns the processor time, user and system, that the process has
// used in all its threads.
func CPUTime() time.Duration { return cpuTime() }
