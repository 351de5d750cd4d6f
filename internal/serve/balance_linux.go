package serve

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// One event loop is best as long as it keeps up: it finds more clients ready at a time, so that
// each costs less. When the loops in use are always busy, another one helps if a CPU is free for
// it. Where clients on the same machine use all other CPUs, it would only take their time. Clients
// move to another loop when their replies have been sent.

const (
	balanceEvery = 250 * time.Millisecond
	// busyShare is the share of its time during which a busy loop is not asleep.
	busyShare = 0.9
	// fitShare is how busy the loops may become if there is one fewer.
	fitShare = 0.6
	// A loop is added only if freeCPU of a CPU is unused. One is removed if other processes take
	// takenCPU of a CPU from the loops. In between nothing changes: clients on the same machine use
	// more CPU time when there are more loops.
	freeCPU, takenCPU = 0.4, 0.75
)

// balanced returns how many loops to use, 1 to most. busy is the share of the time that each of
// those in use was busy. free is how many CPUs nobody used, and own how many this process used.
func balanced(busy []float64, most int, free, own float64) int {
	n := len(busy)
	least, sum := 1.0, 0.0
	for _, v := range busy {
		least = min(least, v)
		sum += v
	}
	switch {
	case n > 1 && (sum <= fitShare*float64(n-1) || free+own <= float64(n)-takenCPU):
		return n - 1
	case n < most && least >= busyShare && free >= freeCPU:
		return n + 1
	}
	return n
}

// balance sets how many loops are in use.
func (s *Server) balance() {
	tick := time.NewTicker(balanceEvery)
	defer tick.Stop()
	last := time.Now()
	busy := make([]float64, len(s.loops))
	slept := make([]int64, len(s.loops))
	var cpu cpuClock
	cpu.step(0)
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-tick.C:
			for i, l := range s.loops {
				// A loop that sleeps through a step reports it only at the end.
				ns := l.idle.Load()
				if asleep := l.asleepSince.Load(); asleep != 0 {
					ns += now.UnixNano() - asleep
				}
				busy[i] = 1 - float64(ns-slept[i])/float64(now.Sub(last))
				slept[i] = ns
			}
			free, own := cpu.step(now.Sub(last))
			last = now
			inUse := int(s.inUse.Load())
			if n := balanced(busy[:inUse], len(s.loops), free, own); n != inUse {
				s.inUse.Store(int32(n))
			}
		}
	}
}

// cpuClock measures how the CPUs that this process may use are used.
type cpuClock struct {
	idle, own float64 // seconds in all
}

// step returns how many CPUs nobody used, and how many this process used, on average since the
// previous call, d ago. If the system does not report idle time, all that this process does not use
// counts as free.
func (c *cpuClock) step(d time.Duration) (free, own float64) {
	user, system := cpuSeconds()
	before := *c
	c.own = user + system
	own = (c.own - before.own) / d.Seconds()
	stat, _ := os.ReadFile("/proc/stat")
	c.idle = allowedCPUs().idle(stat)
	if c.idle == 0 {
		return float64(runtime.NumCPU()) - own, own
	}
	return (c.idle - before.idle) / d.Seconds(), own
}

// cpuSet is a set of CPUs.
type cpuSet []uint64

// allowedCPUs returns the CPUs that this process may use, none if that is not known.
func allowedCPUs() cpuSet {
	set := make(cpuSet, 128)
	n, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, uintptr(8*len(set)), uintptr(unsafe.Pointer(&set[0])))
	if errno != 0 {
		return nil
	}
	return set[:(n+7)/8]
}

// idle returns for how many seconds the CPUs have been idle, according to /proc/stat. The first
// line is for all CPUs together. Each further one has a CPU's name and times in hundredths of a
// second, where the fourth and the fifth are idle time.
func (set cpuSet) idle(stat []byte) (seconds float64) {
	for line := range bytes.Lines(stat) {
		name, isCPU := bytes.CutPrefix(line, []byte("cpu"))
		if !isCPU {
			break
		}
		fields := bytes.Fields(name)
		if len(fields) < 6 || name[0] == ' ' {
			continue
		}
		cpu, err := strconv.Atoi(string(fields[0]))
		if err != nil || cpu/64 >= len(set) || set[cpu/64]>>(cpu%64)&1 == 0 {
			continue
		}
		for _, f := range fields[4:6] {
			ticks, _ := strconv.ParseFloat(string(f), 64)
			seconds += ticks / 100
		}
	}
	return seconds
}
