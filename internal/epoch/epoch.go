// Package epoch lets many readers use shared state without locks while a writer
// that has replaced the state waits until no reader can still be using the old
// one. A reader writes to a counter of its own stripe only, so readers on
// different processors do not share cache lines.
package epoch

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// NumStripes is the number of stripes that readers are spread over.
const NumStripes = 64

// Stripe returns a number in [0, NumStripes) that is stable for the calling
// goroutine's stack and differs for most others.
func Stripe() int {
	var here byte
	// The address serves as a number only. Stacks are at least 2 KiB apart.
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

// stripe counts who has entered and who has left, by the parity of the epoch in which
// they entered, alone on its pair of cache lines.
type stripe struct {
	entered [2]atomic.Uint64
	left    [2]atomic.Uint64
	_       [96]byte
}

// Guard is a reader's presence in a Domain.
type Guard struct {
	left *atomic.Uint64
	turn uint64
}

// Enter marks the caller as a reader. State that it loads afterwards stays
// usable until it calls Exit on the guard.
func (d *Domain) Enter() Guard {
	s := &d.stripes[Stripe()]
	for {
		e := d.epoch.Load()
		turn := s.entered[e&1].Add(1)
		// If the epoch has moved since, Synchronize may have missed the mark.
		if d.epoch.Load() == e {
			return Guard{&s.left[e&1], turn}
		}
		s.left[e&1].Add(1)
	}
}

// Turn counts up from guard to guard, by one from most of a goroutine's to its next,
// so that it can tell who is to take a sample.
func (g Guard) Turn() uint64 { return g.turn }

// Exit ends the reader's presence.
func (g Guard) Exit() { g.left.Add(1) }

// inside reports whether a reader that entered in an epoch of the parity may be
// inside. Who has left is counted first: if as many have entered by a later moment,
// all of them had left.
func (s *stripe) inside(parity uint32) bool {
	left := s.left[parity].Load()
	return s.entered[parity].Load() != left
}

// Synchronize looks again and again whether a reader has left, who tells nobody. It
// sleeps between looks, for longer if the reader takes long.
const (
	minSleep = 20 * time.Microsecond
	maxSleep = time.Millisecond
)

// Synchronize returns when every reader that had entered before the call has
// left. The caller must have replaced the shared state before.
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
