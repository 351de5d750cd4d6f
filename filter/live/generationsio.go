package live

import (
	"fmt"
	"io"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// WriteTo writes the filter in the format that ReadGenerations and ReadFrom read. It
// includes the times, so elements are forgotten when they would have been without a
// restart. It includes all elements whose Add has returned; one that is added meanwhile
// may be missing. It needs the memory for a copy of the newest filter.
func (g *Generations[T]) WriteTo(w io.Writer) (int64, error) {
	r := g.current()
	filters := slices.Clone(r.filters)
	filters[0] = filters[0].Clone() // before the count, which then covers its elements
	return writeParts(w, record{
		kind:     kindGenerations,
		scheme:   g.o.Scheme,
		elements: g.key.Kind(),
		hashes:   uint32(len(r.filters)),
		words:    3,
		seed:     g.o.Seed,
		items:    g.o.Items,
		fpr:      math.Float64bits(g.o.FPR),
		growth:   uint64(g.count),
	}, []uint64{uint64(g.each), uint64(r.until), r.used.Load()}, filters...)
}

// ReadFrom replaces the filter with one that WriteTo wrote, which may have other parameters; see
// Filter. It keeps its clock, GenerationsOptions.Now.
func (g *Generations[T]) ReadFrom(r io.Reader) (int64, error) { return readFrom(g, r) }

// MarshalBinary returns what WriteTo writes.
func (g *Generations[T]) MarshalBinary() ([]byte, error) { return marshal(g) }

// UnmarshalBinary replaces the filter with one that MarshalBinary wrote; see ReadFrom.
func (g *Generations[T]) UnmarshalBinary(data []byte) error { return unmarshal(g, data) }

// ReadGenerations reads a filter that WriteTo wrote; see ReadBloom. Its clock is
// time.Now.
func ReadGenerations[T any](r io.Reader, o ReadOptions[T]) (*Generations[T], error) {
	return readNew(r, o, func(key funnel.Key[T]) *Generations[T] { return &Generations[T]{key: key} })
}

func (g *Generations[T]) elementKind() (funnel.Kind, error) { return elementKind(&g.key) }

func (g *Generations[T]) read(s *source) error {
	if err := g.readRing(s); err != nil {
		return fmt.Errorf("read generations: %w", err)
	}
	return nil
}

func (g *Generations[T]) readRing(s *source) error {
	rec, err := readHeader(s, kindGenerations)
	if err != nil {
		return err
	}
	o := BloomOptions[T]{Items: rec.items, FPR: math.Float64frombits(rec.fpr), Scheme: rec.scheme, Seed: rec.seed}
	switch {
	case checkItems(o.Items, o.FPR) != nil:
		return formatError("%d items at an FPR of %v", o.Items, o.FPR)
	case rec.words != 3:
		return formatError("%d words", rec.words)
	case rec.growth < 2 || rec.growth > maxGenerations || rec.hashes < 1 || uint64(rec.hashes) > rec.growth:
		return formatError("%d of %d filters", rec.hashes, rec.growth)
	}
	words, err := readBody(s, rec)
	if err != nil {
		return err
	}
	each, until := time.Duration(words[0]), int64(words[1])
	if each < 0 || until < 0 || words[2] > maxBits {
		return formatError("filters of %v until %d with %d elements", each, until, words[2])
	}
	n := &ring[T]{until: until, used: new(atomic.Uint64)}
	n.used.Store(words[2])
	for i := range rec.hashes {
		f := &Bloom[T]{key: g.key}
		if err := f.read(s); err != nil {
			return fmt.Errorf("filter %d: %w", i, err)
		}
		n.filters = append(n.filters, f)
		if f.scheme != o.Scheme || f.seed != o.Seed || n.filters[0].compatible(&f.table) != nil {
			return formatError("filter %d has other parameters", i)
		}
	}
	// The filters that the ring still lacks count, too.
	if err := s.take(uint64(len(n.filters[0].words)) * (rec.growth - uint64(rec.hashes))); err != nil {
		return err
	}
	if g.now == nil {
		g.now = s.now
	}
	if g.now == nil {
		g.now = time.Now
	}
	g.o, g.count, g.each = o, int(rec.growth), each
	// If the clock was ahead when the filter was written, until may be far in the future.
	// The newest filter is not used longer than any other.
	if each != 0 {
		n.until = min(n.until, g.deadline(g.now()))
	}
	g.ring.Store(n)
	if words[2] >= rec.items { // the newest is full
		g.rotate(n, g.deadline(g.now()))
	}
	return nil
}
