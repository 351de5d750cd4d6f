package ribbon

// Batch is the number of hashes that ContainsMany takes at most.
const Batch = 64

// ContainsMany sets maybe[i] to contains(hashes[i]) for up to Batch hashes. It asks
// for the memory of several hashes before it reads that of the first, so that the
// cache misses overlap.
func (t *Table) ContainsMany(hashes []uint64, maybe []bool) {
	hashes = hashes[:min(len(hashes), Batch)]
	maybe = maybe[:len(hashes)]
	// Hashes that probe does not reject wait in the queue for the next plane:
	// those that it passes from the right on, the others from the left.
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
		maybe[i] = v == Passed
		if v == Rejected || v == Passed && len(t.planes) == 1 {
			continue
		}
		if len(t.layers) == 0 {
			continue
		}
		w, ok := t.layers.find(t.thresholds, hash, 0)
		if !ok {
			maybe[i] = true
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
	left = q.pass(&t.planes[0], 0, left, maybe)
	for p := 1; p < len(t.planes); p++ {
		for i := range left {
			t.planes[p].prefetch(q.windows[i].segment)
		}
		if p > 1 {
			for i := right; i < end; i++ {
				t.planes[p].prefetch(q.windows[i%Batch].segment)
			}
		}
		left = q.pass(&t.planes[p], 0, left, maybe)
		end = q.pass(&t.planes[p], right, end, maybe)
	}
}

// queue holds windows that no plane has rejected.
type queue struct {
	windows [Batch]Window
	index   [Batch]uint8 // in the batch
}

func (q *queue) put(at, i int, w Window) {
	q.windows[at%Batch] = w
	q.index[at%Batch] = uint8(i)
}

// pass asks a plane for the windows in [from, to), tells maybe, and moves
// those that pass to from on. It returns where they end.
func (q *queue) pass(p *Plane, from, to int, maybe []bool) int {
	n := from
	for i := from; i < to; i++ {
		k := q.index[i%Batch]
		ok := p.Match(p.Data, q.windows[i%Batch])
		maybe[k] = ok
		q.put(n, int(k), q.windows[i%Batch])
		if ok {
			n++
		}
	}
	return n
}
