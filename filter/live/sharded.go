package live

import (
	"iter"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// Sharded splits elements over several filters of any type F: each element
// belongs to one of them. Parallel writers then meet in one filter, and on one
// cache line, less often, each filter can be saved, rebuilt or dropped alone, and a
// filter that locks (Counting and Cuckoo, for deletes) locks less.
//
//	s, err := live.NewSharded[string](16, nil, func(int) (*live.Scalable[string], error) {
//		return live.NewScalable(live.ScalableOptions[string]{FPR: 0.001})
//	})
//	s.Of("alice").Add("alice")
//
// A lookup asks one filter, so the FPR is that of one. Sharded is safe for
// concurrent use if F is.
type Sharded[T, F any] struct {
	key    funnel.Key[T]
	shards []F
}

// maxShards is far more than there are cores.
const maxShards = 1 << 16

// NewSharded returns n filters, each made by newShard, which gets its number. The
// numbers of the elements' filters depend on n and on their bytes only. The funnel
// may be nil for strings, byte slices and integers.
func NewSharded[T, F any](n int, f func(dst []byte, v T) []byte, newShard func(i int) (F, error)) (*Sharded[T, F], error) {
	if n < 1 || n > maxShards {
		return nil, optionError("n", "%d is not in 1..65536", n)
	}
	key, err := newKey(f)
	if err != nil {
		return nil, err
	}
	s := &Sharded[T, F]{key: key}
	for i := range n {
		shard, err := newShard(i)
		if err != nil {
			return nil, err
		}
		s.shards = append(s.shards, shard)
	}
	return s, nil
}

// Of returns the filter that an element belongs to.
func (s *Sharded[T, F]) Of(v T) F { return s.shards[s.Index(v)] }

// Index returns the number of the filter that an element belongs to. It is
// hi64(mix(XXH64) × n), with the finalizer of package live, so that the bits
// within a filter, which come from the same hash, are independent of it.
func (s *Sharded[T, F]) Index(v T) int {
	return int(scale(mix(s.key.Sum64(v)), uint64(len(s.shards))))
}

// All goes over the filters, with their numbers.
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
