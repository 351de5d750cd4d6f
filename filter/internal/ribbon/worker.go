package ribbon

import "sync"

// worker is the memory for building one chunk: 8 bytes per key and 16 per row.
type worker struct {
	keys []uint64
	band band
	// ends holds, by groupOf, the number of keys of each class of each bucket, and then the end of
	// these keys in keys.
	ends [chunkStarts / bucketStarts * 4]uint32
}

var workerPool = sync.Pool{New: func() any { return new(worker) }}

// maxPooled is the number of keys or rows up to which a worker's memory is kept for later builds. A
// chunk has more only if its keys do not hash well.
const maxPooled = 2 * chunkStarts

// release returns a worker to the pool, unless it is too large.
func (w *worker) release() {
	if max(cap(w.keys), cap(w.band.rows), cap(w.band.queue)) <= maxPooled {
		workerPool.Put(w)
	}
}

// room sets the length of keys to n. Its spare capacity is for chunks with slightly more keys.
func (w *worker) room(n int) {
	if cap(w.keys) < n {
		w.keys = make([]uint64, n+n/32)
	}
	w.keys = w.keys[:n]
}

// fill moves hashes to keys.
func (w *worker) fill(l *list) {
	w.room(l.len())
	n := 0
	l.drain(func(hashes []uint64) { n += copy(w.keys[n:], hashes) })
}

// group moves hashes to keys, sorted by bucket and class, and sets ends. first is the first start
// of the chunk.
func (w *worker) group(l *list, starts, first uint64) {
	w.room(l.len())
	ends := &w.ends
	clear(ends[:])
	l.each(func(hashes []uint64) {
		for _, h := range hashes {
			ends[groupOf(startOf(h, starts)-first)%uint64(len(ends))]++
		}
	})
	sum := uint32(0)
	for i, n := range ends {
		ends[i] = sum
		sum += n
	}
	keys := w.keys
	l.drain(func(hashes []uint64) {
		for _, h := range hashes {
			end := &ends[groupOf(startOf(h, starts)-first)%uint64(len(ends))]
			keys[*end] = h
			*end++
		}
	})
}

// groupOf returns bucket × 4 + class for a start relative to its chunk.
func groupOf(start uint64) uint64 { return start>>bucketShift*4 + classOf(start) }

// chunk places the keys of chunk i, writes its thresholds, and returns the bumped keys' hashes in
// the next layer.
func (w *worker) chunk(l *list, starts uint64, i int, thresholds []byte) (bumped list) {
	first := uint64(i) << chunkShift
	w.group(l, starts, first)
	n := min(starts-first, chunkStarts)
	w.band.reset(int(n) + width)

	begin := uint32(0)
	for bucket := range (n + bucketStarts - 1) >> bucketShift {
		var classes [numClasses][]uint64
		for c := range classes {
			end := w.ends[bucket*4+uint64(c)]
			classes[c] = w.keys[begin:end]
			begin = end
		}
		t := w.band.placeBucket(classes, starts, first)
		for _, hashes := range classes[t:] {
			for _, h := range hashes {
				bumped.add(nextHash(h))
			}
		}
		at := first>>bucketShift + bucket
		thresholds[at/4] |= byte(t << (at % 4 * 2))
	}
	return bumped
}

// last places keys in a last layer with the given number of segments. It returns false if the seed
// does not work.
func (w *worker) last(segments uint32, seed uint8) bool {
	w.band.reset(int(segments) * width)
	starts := uint64(segments)*width - (width - 1)
	var run [64]uint64
	for keys := w.keys; len(keys) > 0; {
		n := min(len(keys), len(run))
		for i, h := range keys[:n] {
			run[i] = lastHash(h, seed)
		}
		if !w.band.place(run[:n], starts, 0) {
			return false
		}
		keys = keys[n:]
	}
	return true
}

// solve computes the columns of the band and writes them to the planes, from segment base on.
func (w *worker) solve(planes [][]byte, columns []Columns, base int) {
	rows := w.band.rows
	var s solver
	for i := len(rows)/width - 1; i >= 0; i-- {
		for p, c := range columns {
			at, n := c.position(uint64(base + i))
			s.segment(planes[p][at*8:], rows[i*width:][:width], c, int(n))
		}
	}
}
