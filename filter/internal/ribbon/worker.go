package ribbon

import "sync"

// worker is the memory it takes to build one chunk: 8 bytes for each key and 16
// for each row.
type worker struct {
	keys []uint64
	band band
	// ends counts the keys of each class of each bucket, then tells where they end.
	ends [chunkStarts / bucketStarts * 4]uint32
}

var workerPool = sync.Pool{New: func() any { return new(worker) }}

// maxPooled is the number of keys up to which a worker's memory is kept for the
// next build. A chunk has more only if its keys do not hash well.
const maxPooled = 2 * chunkStarts

func (w *worker) release() {
	if max(cap(w.keys), cap(w.band.rows), cap(w.band.queue)) <= maxPooled {
		workerPool.Put(w)
	}
}

// room makes keys n long. The spare room is for chunks with a few keys more.
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

// group moves hashes to keys, sorted by bucket and class. first is the first start
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

// groupOf is a start's bucket within its chunk, times 4, plus its class.
func groupOf(start uint64) uint64 { return start>>bucketShift*4 + classOf(start) }

// chunk places the keys of chunk i, writes its thresholds, and returns the bumped
// hashes, as the next layer has them.
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

// last places keys in a last layer of so many segments, if the seed allows.
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

// solve writes the columns of the band from a segment on.
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
