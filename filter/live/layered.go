package live

import (
	"sync/atomic"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// Layer is one of the filters of a Layered: a Cold, or any other filter through Hot. On an error
// MayContain returns true.
type Layer[T any] interface {
	MayContain(v T) (bool, error)
}

// Hot makes a layer of a filter in memory.
func Hot[T any](f Prober[T]) Layer[T] { return hot[T]{f} }

type hot[T any] struct{ f Prober[T] }

func (h hot[T]) MayContain(v T) (bool, error) { return h.f.MayContain(v), nil }

// Newer makes one layer of two filters that hold different elements. New elements are added
// to recent, since older, usually a Cold, cannot be changed. From time to time, write a
// new Cold that has both.
func Newer[T any](recent Prober[T], older Layer[T]) Layer[T] {
	return newer[T]{recent, older}
}

type newer[T any] struct {
	recent Prober[T]
	older  Layer[T]
}

func (n newer[T]) MayContain(v T) (bool, error) {
	if n.recent.MayContain(v) {
		return true, nil
	}
	return n.older.MayContain(v)
}

// Layered probes several filters with the same elements in order, until one excludes the element:
// a small, coarse one in memory first, then a more exact one in a file or in a store. The first
// excludes most absent elements; only its false positives cost a read. Every layer must hold every
// element.
//
// The FPR is the product of the layers' FPRs if they have different seeds. Layers with the same
// seed have the same false positives, and the FPR is hardly below that of the best one.
type Layered[T any] struct {
	key    funnel.Key[T] // for reading
	layers []Layer[T]
	stats  []layerCount
}

type layerCount struct{ probes, excluded, failed atomic.Uint64 }

// LayerStats counts the lookups of one layer.
type LayerStats struct {
	// Probes is the number of lookups that reached the layer, Excluded the number that it excluded,
	// Failed the number that gave an error.
	Probes, Excluded, Failed uint64
}

// NewLayered returns the layers as one filter, which probes them in this order.
func NewLayered[T any](layers ...Layer[T]) *Layered[T] {
	return &Layered[T]{layers: layers, stats: make([]layerCount, len(layers))}
}

// MayContain reports false only if a layer does. If a layer fails, the next ones are probed; if
// none excludes the element, MayContain returns true and the first error.
func (l *Layered[T]) MayContain(v T) (bool, error) {
	var first error
	for i, layer := range l.layers {
		s := &l.stats[i]
		s.probes.Add(1)
		positive, err := layer.MayContain(v)
		if err != nil {
			s.failed.Add(1)
			if first == nil {
				first = err
			}
			continue
		}
		if !positive {
			s.excluded.Add(1)
			return false, nil
		}
	}
	return true, first
}

// MayContainMany sets positive[i] to MayContain(vs[i]) for each i, and returns the first
// error. len(positive) >= len(vs).
func (l *Layered[T]) MayContainMany(vs []T, positive []bool) error {
	return manyInTurn(l, vs, positive)
}

// Layers returns the filters in memory, which were given to Hot and Newer, in order, so that
// elements can be added to them after OpenLayered.
func (l *Layered[T]) Layers() []Prober[T] {
	var fs []Prober[T]
	for _, layer := range l.layers {
		for {
			n, ok := layer.(newer[T])
			if !ok {
				break
			}
			fs, layer = append(fs, n.recent), n.older
		}
		if h, ok := layer.(hot[T]); ok {
			fs = append(fs, h.f)
		}
	}
	return fs
}

// MemoryBytes is the memory of the filters that Layers returns, if they report it. It does not
// count cold layers, not even those that ReadFrom has read into memory.
func (l *Layered[T]) MemoryBytes() int {
	n := 0
	for _, f := range l.Layers() {
		if m, ok := f.(interface{ MemoryBytes() int }); ok {
			n += m.MemoryBytes()
		}
	}
	return n
}

// Stats returns what each layer has done so far.
func (l *Layered[T]) Stats() []LayerStats {
	out := make([]LayerStats, len(l.stats))
	for i := range l.stats {
		s := &l.stats[i]
		out[i] = LayerStats{s.probes.Load(), s.excluded.Load(), s.failed.Load()}
	}
	return out
}
