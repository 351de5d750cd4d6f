// Package groupcommit implements the queue of a group commit. Concurrent calls join the queue; the
// caller of the first, the leader, does the work of a whole group of them, for example with one
// write and one sync of a log.
package groupcommit

import (
	"runtime"
	"sync"
)

// Member is embedded in what joins a Queue. It can join again once Do has returned.
type Member struct {
	wake chan bool // true: become the leader; false: done
}

// NewMember returns a Member.
func NewMember() Member { return Member{make(chan bool, 1)} }

func (m *Member) member() *Member { return m }

// Work is what a Queue does with its members. Only the leader calls its functions.
type Work[M any] struct {
	// Expect returns how many members, itself included, the leader should expect in the queue. It
	// waits for them a moment, and then continues even if they have not come.
	Expect func(leader M) int
	// Take returns how many members the next group has, at least one. waiting[0] is the leader.
	// The queue is locked during the call.
	Take func(waiting []M) int
	// Run does the work of a group, on the goroutine of group[0], the leader. It may panic or end
	// the goroutine: the others are woken even then.
	Run func(group []M)
}

// Queue runs the work of its members in groups, in the order in which they have joined. There is
// at most one leader at a time.
type Queue[M interface{ member() *Member }] struct {
	work Work[M]

	mu      sync.Mutex
	waiting []M
	leading bool
	idle    sync.Cond // on mu: leading has become false
	closed  bool

	group []M // used only by the leader
}

// Init prepares an empty queue.
func (q *Queue[M]) Init(work Work[M]) {
	q.work = work
	q.idle.L = &q.mu
}

// Do adds m to the queue, and returns true once a group with m has run. It returns false if the
// queue is closed.
func (q *Queue[M]) Do(m M) bool {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	q.waiting = append(q.waiting, m)
	lead := !q.leading
	q.leading = true
	q.mu.Unlock()
	// Every member is woken: a leader wakes the members of its group, and makes the first of the
	// later ones the next leader.
	if lead || <-m.member().wake {
		q.lead(m)
	}
	return true
}

// lead runs the group that begins with leader, and makes another member the leader.
func (q *Queue[M]) lead(leader M) {
	if n := q.work.Expect(leader); n > 1 {
		q.gather(n)
	}
	q.mu.Lock()
	n := q.work.Take(q.waiting)
	q.group = append(q.group[:0], q.waiting[:n]...)
	q.waiting = q.waiting[:copy(q.waiting, q.waiting[n:])]
	q.mu.Unlock()

	defer q.handOver()
	q.work.Run(q.group)
}

// gatherYields is the maximum number of times that a leader yields to other goroutines before it
// forms a group.
const gatherYields = 16

// gather waits a little until n members wait. It yields instead of sleeping, so it costs little if
// they do not come.
func (q *Queue[M]) gather(n int) {
	for range gatherYields {
		if q.Len() >= n {
			return
		}
		runtime.Gosched()
	}
}

// Len returns the number of members that wait for a group, including a leader that has not formed
// its group yet.
func (q *Queue[M]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// handOver makes the first member of the queue the leader, and wakes the members of the group.
func (q *Queue[M]) handOver() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 {
		q.waiting[0].member().wake <- true
	} else {
		q.leading = false
		q.idle.Broadcast()
	}
	// The next leader may overwrite q.group as soon as the lock is released.
	for _, m := range q.group[1:] {
		m.member().wake <- false
	}
}

// Close makes later calls of Do return false, and waits for the members in the queue.
func (q *Queue[M]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for q.leading { // the last leader broadcasts under mu, and no new one starts
		q.idle.Wait()
	}
}
