package ribbon

// Batch is the maximum number of hashes for ContainsMany.
const Batch = 64

// ContainsMany sets positive[i] to whether the filter may contain hashes[i], for the first Batch
// hashes. It prefetches the memory for several hashes before it reads that for the first, so that
// the cache misses overlap. REQUIRES: len(positive) >= min(len(hashes), Batch).
func (t *Table) ContainsMany(hashes []uint64, positive []bool) {
	hashes = hashes[:min(len(hashes), Batch)]
	positive = positive[:len(hashes)]
	// The queue holds the hashes that probe has not rejected. Those that have passed the first
	// plane are in [right, end), the others, which still have to be probed there, in [0, left).
	var q queue
	left, right, end := 0, Batch, Batch
	var verdicts [Batch]uint8
	if t.count != 0 && len(hashes) > 0 {
		probeMany(&t.quads, &hashes[0], &verdicts[0], len(hashes))
	}
	for i, hash := range hashes {
		v := verdicts[i]
		if t.count == 0 {
			v = Elsewhere
		}
		positive[i] = v == Passed
		if v == Rejected || v == Passed && len(t.planes) == 1 {
			continue
		}
		if len(t.layers) == 0 {
			continue
		}
		w, ok := t.layers.find(t.thresholds, hash, 0)
		if !ok {
			positive[i] = true
		} else if v == Passed {
			right--
			q.put(right, i, w)
			t.planes[1].prefetch(w.segment)
		} else {
			q.put(left, i, w)
			left++
			t.planes[0].prefetch(w.segment)
		}
	}
	left = q.pass(&t.planes[0], 0, left, positive)
	for p := 1; p < len(t.planes); p++ {
		for i := range left {
			t.planes[p].prefetch(q.windows[i].segment)
		}
		if p > 1 {
			for i := right; i < end; i++ {
				t.planes[p].prefetch(q.windows[i%Batch].segment)
			}
		}
		left = q.pass(&t.planes[p], 0, left, positive)
		end = q.pass(&t.planes[p], right, end, positive)
	}
}

// queue holds the windows of hashes that no plane has rejected so far.
type queue struct {
	windows [Batch]Window
	index   [Batch]uint8 // of the hash in the batch
}

func (q *queue) put(at, i int, w Window) {
	q.windows[at%Batch] = w
	q.index[at%Batch] = uint8(i)
}

// pass probes a plane for the windows in [from, to), sets positive for each, and moves those that
// pass to [from, n).
func (q *queue) pass(p *Plane, from, to int, positive []bool) int {
	n := from
	for i := from; i < to; i++ {
		k := q.index[i%Batch]
		ok := p.Match(p.Data, q.windows[i%Batch])
		positive[k] = ok
		q.put(n, int(k), q.windows[i%Batch])
		if ok {
			n++
		}
	}
	return n
}
