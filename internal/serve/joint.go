package serve

import "sync"

// joint writes the plain SETs that several clients of a group have collected in one batch: a write
// to a group takes long and locks its keys meanwhile, and clients would wait for one after the
// other. A client that arrives while nobody writes, writes at once. Those that arrive meanwhile
// wait, and then the first of them writes for all.
type joint struct {
	mu      sync.Mutex
	busy    bool // somebody writes
	waiting []*writes
	all     *writes // of who writes
}

// commit is commitPending. Those who wait hold world, as the one who writes does.
func (j *joint) commit(w *writes) {
	if w.wake == nil {
		w.wake = make(chan bool, 1)
	}
	j.mu.Lock()
	j.waiting = append(j.waiting, w)
	first := !j.busy
	j.busy = true
	j.mu.Unlock()
	if first || <-w.wake {
		j.write()
	}
}

// write writes for the first of those who wait, who calls it, and for others.
func (j *joint) write() {
	j.mu.Lock()
	n, size := 0, 0
	for n < len(j.waiting) && (n == 0 || size+j.waiting[n].pending.Size() <= pendBytes) {
		size += j.waiting[n].pending.Size()
		n++
	}
	group := append([]*writes(nil), j.waiting[:n]...)
	j.mu.Unlock()
	if n == 1 {
		group[0].writePending()
	} else {
		j.writeAll(group)
	}
	j.mu.Lock()
	left := copy(j.waiting, j.waiting[n:])
	clear(j.waiting[left:])
	if j.waiting = j.waiting[:left]; left > 0 {
		j.waiting[0].wake <- true
	} else {
		j.busy = false
	}
	j.mu.Unlock()
	for _, w := range group[1:] {
		w.wake <- false
	}
}

// writeAll writes what several have collected.
func (j *joint) writeAll(group []*writes) {
	s := group[0].srv
	if j.all == nil {
		j.all = s.newWrites(pendBytes)
	}
	all := j.all
	for _, w := range group {
		from := len(all.pendKeys)
		all.pending.Append(&w.pending)
		all.pendKeys = append(all.pendKeys, w.pendKeys...)
		for _, p := range w.pended {
			p.end += from
			all.pended = append(all.pended, p)
		}
		all.pendStripes |= w.pendStripes
	}
	all.writePending()
	for _, w := range group {
		w.err = all.err
		w.forgetPending()
	}
	all.err = nil
}
