package live

import (
	"fmt"
	"io"
	"iter"
	"math"
	"reflect"
	"time"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// ShardedOptions are the parameters of a Sharded.
type ShardedOptions[T any] struct {
	// Shards is the number of filters, 1 to 65,536.
	Shards int
	// Funnel appends the bytes of an element; see BloomOptions. It replaces the Funnel of the
	// shards, so that an element is hashed only once. A shard that has elements when it is returned
	// to NewSharded must have been filled with the same Funnel.
	Funnel func(dst []byte, v T) []byte
}

// Sharded splits elements over several filters of any other kind F: each element belongs to
// one of them. Parallel writers then contend less for cache lines and for the locks of a
// Counting or a Cuckoo, and each filter can be saved, rebuilt or dropped on its own.
//
//	s, err := live.NewSharded(live.ShardedOptions[string]{Shards: 16}, func(int) (*live.Scalable[string], error) {
//		return live.NewScalable(live.ScalableOptions[string]{FPR: 0.001})
//	})
//	isNew, err := s.Add("alice")
//
// A lookup probes one filter, so the FPR is that of one. The numbers of elements in the shards
// differ by a few percent, so leave some room in filters of a fixed capacity. Sharded is safe for
// concurrent use if F is.
//
// To delete, use the filter that the element belongs to: s.Of(v).Delete(v).
type Sharded[T any, F Filter[T]] struct {
	key    funnel.Key[T]
	shards []F
}

// maxShards is far more than there are cores.
const maxShards = 1 << 16

// keyed is a filter whose funnel can be set.
type keyed[T any] interface{ useKey(key funnel.Key[T]) }

// anySharded is a Sharded with any kind of shards.
type anySharded interface {
	indexOf(sum uint64) int
	first() any
}

// first returns the first shard, or nil if there is none yet.
func (s *Sharded[T, F]) first() any {
	if len(s.shards) == 0 {
		return nil
	}
	return s.shards[0]
}

// NewSharded returns a filter of shards. It calls newShard with the number of each. The shard of an
// element depends only on the element's bytes and on the number of shards. So a shard cannot be a
// Sharded itself: all of its elements would belong to the same one of its filters. That gives an
// *OptionError.
func NewSharded[T any, F Filter[T]](o ShardedOptions[T], newShard func(i int) (F, error)) (*Sharded[T, F], error) {
	if o.Shards < 1 || o.Shards > maxShards {
		return nil, optionError("Shards", "%d is not in 1..65536", o.Shards)
	}
	key, err := newKey(o.Funnel)
	if err != nil {
		return nil, err
	}
	s := &Sharded[T, F]{key: key}
	for i := range o.Shards {
		shard, err := newShard(i)
		if err != nil {
			return nil, err
		}
		switch f := any(shard).(type) {
		case anySharded:
			return nil, optionError("newShard", "has returned a Sharded, which cannot be a shard")
		case keyed[T]:
			f.useKey(key)
		}
		s.shards = append(s.shards, shard)
	}
	return s, nil
}

func (f *Bloom[T]) useKey(key funnel.Key[T])    { f.key = key }
func (f *Counting[T]) useKey(key funnel.Key[T]) { f.key = key }
func (f *Cuckoo[T]) useKey(key funnel.Key[T])   { f.key = key }
func (f *Scalable[T]) useKey(key funnel.Key[T]) { f.key = key }
func (f *Pair[T]) useKey(key funnel.Key[T])     { f.added.key, f.removed.key = key, key }
func (d *Dedup[T]) useKey(key funnel.Key[T]) {
	d.key = key
	if k, ok := d.filter.(keyed[T]); ok {
		k.useKey(key)
	}
}
func (g *Generations[T]) useKey(key funnel.Key[T]) {
	g.key = key
	for _, f := range g.ring.Load().filters {
		f.key = key
	}
}

// Of returns the filter that an element belongs to.
func (s *Sharded[T, F]) Of(v T) F { return s.shards[s.Index(v)] }

// Index returns the number of the filter that an element belongs to: hi64(mix(XXH64) × n).
// The positions within a filter, which come from the same hash, are independent of it.
func (s *Sharded[T, F]) Index(v T) int { return s.indexOf(s.key.Sum64(v)) }

func (s *Sharded[T, F]) indexOf(sum uint64) int { return shardOf(sum, len(s.shards)) }

// shardOf returns to which of n shards the elements with a hash belong.
func shardOf(sum uint64, n int) int { return int(scale(mix(sum), uint64(n))) }

// All returns the filters with their numbers.
func (s *Sharded[T, F]) All() iter.Seq2[int, F] {
	return func(yield func(int, F) bool) {
		for i, f := range s.shards {
			if !yield(i, f) {
				return
			}
		}
	}
}

// Len is the number of filters.
func (s *Sharded[T, F]) Len() int { return len(s.shards) }

// Add adds an element to the filter that it belongs to, and returns that filter's error:
// nil for filters that cannot fail.
func (s *Sharded[T, F]) Add(v T) (isNew bool, err error) {
	sum := s.key.Sum64(v)
	shard := s.shards[s.indexOf(sum)]
	switch f := any(shard).(type) { // see has
	case *Bloom[T]:
		if !f.scheme.guava() {
			return f.addSum(sum), nil
		}
	case *Counting[T]:
		return f.addSum(sum), nil
	case *Scalable[T]:
		return f.addSum(sum), nil
	case *Cuckoo[T]:
		return f.addSum(sum)
	}
	return TryAdd(Prober[T](shard), v)
}

// has is MayContain for an element whose hash is sum. The kinds that use this hash themselves get
// it, so that an element is hashed once. Any other kind gets the element, also one of the caller's
// that embeds one of these, whose methods may differ. Whether a Bloom gets the hash is decided for
// each call, since the caller may read a filter of another scheme into a shard.
func (s *Sharded[T, F]) has(v T, sum uint64) bool {
	shard := s.shards[s.indexOf(sum)]
	switch f := any(shard).(type) {
	case *Bloom[T]:
		if !f.scheme.guava() {
			return f.hasSum(sum)
		}
	case *Counting[T]:
		return f.hasSum(sum)
	case *Scalable[T]:
		return f.hasSum(sum)
	case *Cuckoo[T]:
		return f.hasSum(sum)
	}
	return shard.MayContain(v)
}

// AddMany adds elements until one is rejected; see FallibleAdder.
func (s *Sharded[T, F]) AddMany(vs []T, isNew []bool) (n int, err error) {
	return addEach(s, vs, isNew)
}

// MayContain calls MayContain of the filter that the element belongs to.
func (s *Sharded[T, F]) MayContain(v T) bool { return s.has(v, s.key.Sum64(v)) }

// MayContainMany sets positive[i] to MayContain(vs[i]) for each i, faster than one by
// one. len(positive) >= len(vs).
func (s *Sharded[T, F]) MayContainMany(vs []T, positive []bool) {
	eachBatch(s.key.Sum64, vs, func(at int, sums []uint64) {
		for i, sum := range sums {
			positive[at+i] = s.has(vs[at+i], sum)
		}
	})
}

// ApproxCount is the sum of the filters' counts.
func (s *Sharded[T, F]) ApproxCount() uint64 {
	n := uint64(0)
	for _, f := range s.shards {
		k := f.ApproxCount()
		if n+k < n {
			return math.MaxUint64
		}
		n += k
	}
	return n
}

// FPR is the mean of the filters' FPRs.
func (s *Sharded[T, F]) FPR() float64 {
	sum := 0.0
	for _, f := range s.shards {
		sum += f.FPR()
	}
	return sum / float64(len(s.shards))
}

// FillRatio is the mean of the filters' fill ratios.
func (s *Sharded[T, F]) FillRatio() float64 {
	sum := 0.0
	for _, f := range s.shards {
		sum += f.FillRatio()
	}
	return sum / float64(len(s.shards))
}

// MemoryBytes is the memory that the filters take.
func (s *Sharded[T, F]) MemoryBytes() int {
	n := 0
	for _, f := range s.shards {
		n += f.MemoryBytes()
	}
	return n
}

// Compatible returns nil if o can be merged into s: if it has the same number of shards,
// and each is Compatible. See Merger.
func (s *Sharded[T, F]) Compatible(o *Sharded[T, F]) error {
	if len(s.shards) != len(o.shards) {
		return incompatible("shards", len(s.shards), len(o.shards))
	}
	for i, f := range s.shards {
		if err := compatibleAs(f, o.shards[i]); err != nil {
			return fmt.Errorf("shard %d: %w", i, err)
		}
	}
	return nil
}

// Merge merges each shard of o into that of s; see Merger. If a shard fails, as a Cuckoo does
// with ErrFull, the shards before it remain merged.
func (s *Sharded[T, F]) Merge(o *Sharded[T, F]) error {
	if err := s.Compatible(o); err != nil {
		return err
	}
	for i, f := range s.shards {
		if err := any(f).(anyMerger).mergeAny(o.shards[i]); err != nil {
			return fmt.Errorf("shard %d: %w", i, err)
		}
	}
	return nil
}

// Clone returns a copy with at least the elements whose Add has returned. It panics if the shards
// are of a kind that the caller has defined, and have no Clone.
func (s *Sharded[T, F]) Clone() *Sharded[T, F] {
	c := &Sharded[T, F]{key: s.key}
	for _, f := range s.shards {
		c.shards = append(c.shards, cloneAs(f))
	}
	return c
}

// Equal reports whether the shards are equal. Shards that cannot be compared are not equal.
func (s *Sharded[T, F]) Equal(o *Sharded[T, F]) bool {
	if len(s.shards) != len(o.shards) {
		return false
	}
	for i, f := range s.shards {
		if !equalAs(f, o.shards[i]) {
			return false
		}
	}
	return true
}

// Reset empties each shard that is a Resetter.
func (s *Sharded[T, F]) Reset() {
	for _, f := range s.shards {
		if r, ok := any(f).(Resetter); ok {
			r.Reset()
		}
	}
}

// WriteTo writes the filter in the format that ReadSharded and ReadFrom read, with the
// WriteTo of each shard in turn.
func (s *Sharded[T, F]) WriteTo(w io.Writer) (int64, error) {
	return writeParts(w, record{kind: kindSharded, elements: s.key.Kind(), hashes: uint32(len(s.shards))}, nil, s.shards...)
}

// ReadFrom replaces the filter with one that WriteTo wrote, with shards of the same kind; see
// Filter. Generations and Dedups keep their clocks. It cannot read shards of a kind that the caller
// has defined. It reads a shard that is a Rotating as a Bloom, which F must allow.
func (s *Sharded[T, F]) ReadFrom(r io.Reader) (int64, error) { return readFrom(s, r) }

// MarshalBinary returns what WriteTo writes.
func (s *Sharded[T, F]) MarshalBinary() ([]byte, error) { return marshal(s) }

// UnmarshalBinary replaces the filter with one that MarshalBinary wrote; see ReadFrom.
func (s *Sharded[T, F]) UnmarshalBinary(data []byte) error { return unmarshal(s, data) }

// ReadSharded reads a filter that WriteTo wrote; see ReadBloom.
func ReadSharded[T any, F Filter[T]](r io.Reader, o ReadOptions[T]) (*Sharded[T, F], error) {
	return readNew(r, o, func(key funnel.Key[T]) *Sharded[T, F] { return &Sharded[T, F]{key: key} })
}

func (s *Sharded[T, F]) elementKind() (funnel.Kind, error) { return elementKind(&s.key) }

func (s *Sharded[T, F]) read(src *source) error {
	shards, err := readShards(src, s.key, s.shards)
	if err != nil {
		return fmt.Errorf("read sharded filter: %w", err)
	}
	s.shards = shards
	return nil
}

// shardOverhead is the memory of a shard in addition to its words, mostly locks. It counts
// against MaxBytes, so that input with many tiny shards is bounded too.
const shardOverhead = 8 << 10

// clockOf returns the clock of a Generations, or of the one in a Dedup, or nil.
func clockOf[T any](f any) func() time.Time {
	switch f := f.(type) {
	case *Generations[T]:
		return f.now
	case *Dedup[T]:
		return clockOf[T](f.filter)
	}
	return nil
}

// readShards reads the shards. They get the clocks of the old ones.
func readShards[T any, F Filter[T]](src *source, key funnel.Key[T], old []F) ([]F, error) {
	rec, err := readHeader(src, kindSharded)
	switch {
	case err != nil:
		return nil, err
	case rec != record{kind: kindSharded, elements: rec.elements, hashes: rec.hashes}:
		return nil, formatError("fields that a Sharded does not have")
	case rec.hashes < 1 || rec.hashes > maxShards:
		return nil, formatError("%d shards", rec.hashes)
	}
	if _, err := readBody(src, rec); err != nil {
		return nil, err
	}
	var shards []F
	for i := range rec.hashes {
		if len(old) > 0 {
			src.now = clockOf[T](old[min(int(i), len(old)-1)])
		}
		if err := src.take(shardOverhead / 8); err != nil {
			return nil, err
		}
		kind, err := peekKind(src)
		if err == nil && kind == kindSharded {
			err = formatError("a Sharded")
		}
		if err != nil {
			return nil, fmt.Errorf("shard %d: %w", i, err)
		}
		f, err := readAny[T](src, key)
		if err != nil {
			return nil, fmt.Errorf("shard %d: %w", i, err)
		}
		shard, ok := f.(F)
		if !ok {
			return nil, fmt.Errorf("shard %d: %w", i, incompatible("kinds of filter", reflect.TypeFor[F](), reflect.TypeOf(f)))
		}
		shards = append(shards, shard)
	}
	return shards, nil
}
