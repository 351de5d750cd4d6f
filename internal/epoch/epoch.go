// Package epoch lets readers use shared state without locks, while a writer that has replaced
// the state waits until no reader can still be using the old one. A reader only writes to the
// counters of its stripe, so readers on different cores do not share cache lines.
package epoch

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// NumStripes is the number of stripes over which readers are spread.
const NumStripes = 64

// Stripe returns a number in [0, NumStripes) that is stable for the calling
// goroutine's stack and differs for most others. Go has no number for the current goroutine or
// core.
func Stripe() int {
	var here byte
	// The address only serves as a number. Stacks are at least 2 KiB apart.
	return int(uint64(uintptr(unsafe.Pointer(&here))>>11) * 0x9e3779b97f4a7c15 >> 58)
}

// Domain is a set of readers and the state that they use. The zero Domain is
// ready for use; it must not be copied.
type Domain struct {
	epoch   atomic.Uint32
	_       [60]byte
	stripes [NumStripes]stripe
	wait    sync.Mutex // one Synchronize at a time
}

// stripe counts entries and exits, by the parity of the epoch at entry. It has a pair of cache
// lines to itself, since processors may prefetch lines in pairs. An addition to a counter in the
// same line as that of another core takes four times as long (BenchmarkCounters).
type stripe struct {
	entered [2]atomic.Uint64
	left    [2]atomic.Uint64
	_       [96]byte
}

// Guard represents a reader that has entered a Domain.
type Guard struct {
	left *atomic.Uint64
	turn uint64
}

// Enter registers the caller as a reader. State that it loads afterwards remains usable until
// it calls Exit on the guard.
func (d *Domain) Enter() Guard {
	s := &d.stripes[Stripe()]
	for {
		e := d.epoch.Load()
		turn := s.entered[e&1].Add(1)
		// If the epoch has advanced in between, Synchronize may have missed this reader.
		if d.epoch.Load() == e {
			return Guard{&s.left[e&1], turn}
		}
		s.left[e&1].Add(1)
	}
}

// Turn returns a number that usually grows by one from one guard of a goroutine to its next. It is
// used for sampling.
func (g Guard) Turn() uint64 { return g.turn }

// Exit unregisters the reader.
func (g Guard) Exit() { g.left.Add(1) }

// inside reports whether a reader that entered in an epoch of that parity may still be inside.
// Exits are read before entries: if the counts agree, all those readers had left.
func (s *stripe) inside(parity uint32) bool {
	left := s.left[parity].Load()
	return s.entered[parity].Load() != left
}

// Synchronize polls, since readers do not notify it. It sleeps between polls, longer if a reader
// takes long.
const (
	minSleep = 20 * time.Microsecond
	maxSleep = time.Millisecond
)

// Synchronize returns when every reader that entered before the call has left. The caller must
// have replaced the shared state before the call.
func (d *Domain) Synchronize() {
	d.wait.Lock()
	defer d.wait.Unlock()
	old := d.epoch.Load() & 1
	d.epoch.Add(1)
	for i := range d.stripes {
		sleep := minSleep
		for spins := 0; d.stripes[i].inside(old); spins++ {
			if spins < 100 {
				runtime.Gosched()
			} else {
				time.Sleep(sleep)
				sleep = min(2*sleep, maxSleep)
			}
		}
	}
}
