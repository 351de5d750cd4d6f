package ribbon

import (
	"encoding/binary"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Sizing of layers.
const (
	// rowShare is the number of rows of a layer that bumps, for a thousand keys. With
	// more, more rows stay empty; with fewer, more keys are bumped.
	rowShare = 940
	// maxLast is the number of keys from which on a layer bumps. Fewer keys fit
	// a last layer with less loss than thresholds and a further layer cost.
	maxLast = 2048
	// maxLastSegments bounds a last layer. Only hashes chosen to collide reach it.
	maxLastSegments = 1 << 16 // below 1<<lastSeedShift
	// maxSeeds is the number of seeds tried for a last layer, and seedsPerSize that
	// for one size.
	maxSeeds     = 256
	seedsPerSize = 16
)

// bumpingSegments is the number of segments that the starts of a layer that bumps
// fill. The one more of each chunk counts as rows.
func bumpingSegments(n int) uint32 {
	rows := (uint64(n)*rowShare/1000 + width/2) / width
	s := rows - (rows+chunkSegments-1)/chunkSegments
	return uint32(min(max(s, 1), math.MaxUint32))
}

// lastSegments is the number of segments of a last layer that takes n keys with one
// seed in twenty. With twice the spare rows it is one in three.
func lastSegments(n int) uint32 {
	return uint32(min((n+n/130+width-1)/width, maxLastSegments))
}

// The fraction that a layer bumps, as measured, of its keys and of other hashes.
// Thresholds are high where keys are dense.
const (
	bumpedKeys   = 0.0604
	bumpedAbsent = 0.0555
)

// ExpectBumped is the expected fraction of absent hashes that a layer bumps.
func ExpectBumped(layer int) float64 { return bumpedAbsent }

// Estimate returns the layers that a filter over n keys will have, give or take a segment
// or two, or 0.1 %.
func Estimate(n int) Layers {
	var l Layers
	for n > maxLast && l.Len() < MaxLayers-1 {
		l = binary.LittleEndian.AppendUint32(l, bumpingSegments(n))
		n = int(float64(n)*bumpedKeys) + n/1000
	}
	if n > 0 {
		l = binary.LittleEndian.AppendUint32(l, lastSegments(n))
	}
	return l
}

// Builder collects hashes and builds filters. Its zero value is empty and ready.
type Builder struct {
	hashes list
}

// Add adds a key's hash.
func (b *Builder) Add(hash uint64) { b.hashes.add(hash) }

// Len is the number of hashes added since the last Build.
func (b *Builder) Len() int { return b.hashes.len() }

// Filter is the result of Build: the planes, and what is needed to find a key's rows in
// them.
type Filter struct {
	Layers     Layers
	Thresholds []byte
	Columns    []Columns
	Planes     [][]byte
}

// Build returns the filter over the hashes added, with a plane for each element of
// columns, and empties the builder. A Cut above the number of segments is lowered. The
// bytes depend only on the set of hashes and the number of calls of Add. The slices of the
// planes have some spare capacity.
func (b *Builder) Build(columns []Columns, spare int) Filter {
	keys := b.hashes
	b.hashes = list{}
	n := keys.len()
	expected, _, _ := Estimate(n).Sizes()
	f := Filter{Columns: slices.Clone(columns), Planes: make([][]byte, len(columns))}
	for i, c := range columns {
		size := c.Size(int(expected))
		f.Planes[i] = make([]byte, 0, size+size/256+spare)
	}
	j := job{filter: &f, columns: columns}
	if n > 0 {
		busy.Add(1)
		defer busy.Add(-1)
		for n > maxLast && f.Layers.Len() < MaxLayers-1 {
			keys = j.bump(keys, bumpingSegments(n))
			n = keys.len()
		}
		j.finish(keys, maxSeeds)
	}
	for i := range f.Columns {
		f.Columns[i].Cut = min(f.Columns[i].Cut, j.segments)
	}
	return f
}

// job is a Build in progress.
type job struct {
	filter   *Filter
	columns  []Columns
	segments int // of the layers so far
}

// extend adds a layer to the filter, with room for its segments in the planes.
func (j *job) extend(layer uint32, segments int) {
	f := j.filter
	f.Layers = binary.LittleEndian.AppendUint32(f.Layers, layer)
	j.segments += segments
	for i, c := range j.columns {
		size := c.Size(j.segments)
		f.Planes[i] = slices.Grow(f.Planes[i], size-len(f.Planes[i]))[:size]
	}
}

// bump builds a layer that bumps and returns the bumped hashes, as the next layer
// has them.
func (j *job) bump(keys list, layer uint32) list {
	f, base := j.filter, j.segments
	starts := uint64(layer) * width
	j.extend(layer, int(segments(starts)))
	size := len(f.Thresholds)
	f.Thresholds = append(f.Thresholds, make([]byte, thresholdBytes(starts))...)
	thresholds := f.Thresholds[size:]

	parts := deal(keys, starts)
	bumped := make([]list, len(parts))
	sideBySide(len(parts), func(w *worker, i int) {
		bumped[i] = w.chunk(&parts[i], starts, i, thresholds)
		w.solve(f.Planes, j.columns, base+i*chunkSegments)
	})
	all := bumped[0]
	for i := range bumped[1:] {
		all.take(&bumped[1+i])
	}
	return all
}

// finish builds the last layer. The layer has no segments if no seed places all of its
// keys.
func (j *job) finish(keys list, seeds int) {
	w := workerPool.Get().(*worker)
	defer w.release()
	w.fill(&keys)
	base := j.segments
	n := max(lastSegments(len(w.keys)), 1)
	for seed := range seeds {
		if seed > 0 && seed%seedsPerSize == 0 {
			n = min(n+1+n/32, maxLastSegments)
		}
		if w.last(n, uint8(seed)) {
			j.extend(n|uint32(seed)<<lastSeedShift, int(n))
			w.solve(j.filter.Planes, j.columns, base)
			return
		}
	}
	j.extend(0, 0)
}

// deal splits hashes by the chunk that their start falls into.
func deal(keys list, starts uint64) []list {
	parts := make([]list, chunks(starts))
	if len(parts) == 1 {
		parts[0] = keys
		return parts
	}
	keys.drain(func(hashes []uint64) {
		for _, h := range hashes {
			parts[startOf(h, starts)>>chunkShift].add(h)
		}
	})
	return parts
}

// busy is the number of goroutines that build, over all builders.
var busy atomic.Int32

// sideBySide calls f for each i below n, in this goroutine and in as many others as there are
// idle processors.
func sideBySide(n int, f func(w *worker, i int)) {
	var at atomic.Int32
	var wg sync.WaitGroup
	run := func() {
		w := workerPool.Get().(*worker)
		defer w.release()
		for {
			i := int(at.Add(1)) - 1
			if i >= n {
				return
			}
			f(w, i)
		}
	}
	for range n - 1 {
		if int(busy.Add(1)) > runtime.GOMAXPROCS(0) {
			busy.Add(-1)
			break
		}
		wg.Go(func() {
			defer busy.Add(-1)
			run()
		})
	}
	run()
	wg.Wait()
}
