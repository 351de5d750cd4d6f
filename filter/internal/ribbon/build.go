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
	// rowShare is the number of rows per 1,000 keys of a bumping layer. With more, more rows stay
	// empty; with fewer, more keys are bumped.
	rowShare = 940
	// maxLast is the number of keys up to which a layer is the last one: its spare rows then take
	// less space than thresholds and another layer would.
	maxLast = 2048
	// maxLastSegments bounds the last layer. Only hashes chosen to collide reach it.
	maxLastSegments = 1 << 16 // below 1<<lastSeedShift
	// maxSeeds is the number of seeds tried for the last layer, seedsPerSize the number tried for
	// each size.
	maxSeeds     = 256
	seedsPerSize = 16
)

// bumpingSegments returns the number of segments that the starts of a bumping layer with n keys
// fill. The rows of the additional segment of each chunk are part of the layer's rows.
func bumpingSegments(n int) uint32 {
	rows := (uint64(n)*rowShare/1000 + width/2) / width
	s := rows - (rows+chunkSegments-1)/chunkSegments
	return uint32(min(max(s, 1), math.MaxUint32))
}

// lastSegments returns the number of segments of a last layer with n keys. With so few spare rows
// one seed in twenty succeeds; with twice as many, one in three would.
func lastSegments(n int) uint32 {
	return uint32(min((n+n/130+width-1)/width, maxLastSegments))
}

// The fractions of keys and of absent hashes that a layer bumps, as measured. Buckets with more
// keys bump more of their starts, so the fraction of keys is higher.
const (
	bumpedKeys   = 0.0604
	bumpedAbsent = 0.0555
)

// ExpectBumped returns the expected fraction of absent hashes that a layer bumps, the same for each
// layer but the last.
func ExpectBumped(layer int) float64 { return bumpedAbsent }

// Estimate returns the expected layers of a filter over n keys. The number of segments is off by
// one or two, or by 0.1%.
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

// Builder collects hashes and builds filters. The zero value is empty and ready for use. It is not
// safe for concurrent use; Build itself uses idle processors.
type Builder struct {
	hashes list
}

// Add adds the hash of a key. Duplicates are allowed.
func (b *Builder) Add(hash uint64) { b.hashes.add(hash) }

// Len returns the number of hashes added since the last Build, duplicates included.
func (b *Builder) Len() int { return b.hashes.len() }

// Filter is the result of Build.
type Filter struct {
	Layers     Layers
	Thresholds []byte    // of all layers but the last: 2 bits per bucket
	Columns    []Columns // for each of Planes
	Planes     [][]byte
}

// Build returns the filter over the hashes added, with a plane for each element of columns, and
// empties the builder. A Cut above the number of segments is lowered to it. The bytes depend only
// on columns, the set of hashes and the number of calls of Add. Planes are allocated with about
// spare bytes of capacity after their contents, for the caller to append to.
//
// REQUIRES: columns are consecutive from fingerprint bit 0 on, MaxColumns at most, and all but the
// last plane have PlaneColumns of them.
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
	segments int // of all layers so far
}

// extend adds a layer, given its entry in Layers, and extends the planes by its segments.
func (j *job) extend(layer uint32, segments int) {
	f := j.filter
	f.Layers = binary.LittleEndian.AppendUint32(f.Layers, layer)
	j.segments += segments
	for i, c := range j.columns {
		size := c.Size(j.segments)
		f.Planes[i] = slices.Grow(f.Planes[i], size-len(f.Planes[i]))[:size]
	}
}

// bump builds a bumping layer and returns the bumped keys' hashes in the next layer.
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

// finish builds the last layer. If no seed works, the layer has no segments.
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

// deal splits hashes by the chunk of their start.
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

// busy is the number of goroutines that build, of all builders.
var busy atomic.Int32

// sideBySide calls f for each i below n, in this goroutine and in others, as long as all builders
// together have no more than GOMAXPROCS.
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
