package serve

import "sync"

// combiner combines the plain SETs that several clients of a group have collected into one batch: a
// write to a group is slow and keeps its keys locked, so clients would wait for one another. A
// client that arrives while no other writes becomes the writer. Those that arrive meanwhile wait;
// then the first of them becomes the writer, for all of them.
type combiner struct {
	mu      sync.Mutex
	busy    bool // there is a writer
	waiting []*writes
	merged  *writes // the writer's
}

// commit is commitPending. Clients hold world while they wait, as the writer does.
func (j *combiner) commit(w *writes) {
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

// write writes for the first client in waiting, which is the caller, and for as many others as fit
// in pendBytes.
func (j *combiner) write() {
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

// writeAll writes the SETs of several clients as one batch.
func (j *combiner) writeAll(group []*writes) {
	s := group[0].srv
	if j.merged == nil {
		j.merged = s.newWrites(pendBytes)
	}
	all := j.merged
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
