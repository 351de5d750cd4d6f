package live

import (
	"io"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// Read reads a filter of any kind that WriteTo wrote, except a Layered and a Cold, for which there
// are OpenLayered and OpenCold. The result is a *Bloom[T], a *Cuckoo[T] and so on, and for a
// Sharded a *Sharded[T, Filter[T]]. See ReadBloom.
func Read[T any](r io.Reader, o ReadOptions[T]) (Filter[T], error) {
	key, err := newKey(o.Funnel)
	if err != nil {
		return nil, err
	}
	return readAny(newSource(r, o.MaxBytes, key.Kind()), key)
}

// readAny reads the next filter, of any kind.
func readAny[T any](s *source, key funnel.Key[T]) (Filter[T], error) {
	kind, err := peekKind(s)
	if err != nil {
		return nil, err
	}
	f := emptyOf(kind, key)
	if f == nil {
		return nil, formatError("a %v, which cannot be read here", kind)
	}
	if err := f.read(s); err != nil {
		return nil, err
	}
	return f, nil
}

// savedFilter is a filter that can be read.
type savedFilter[T any] interface {
	Filter[T]
	saved
}

// emptyOf returns a filter of a kind to read into, or nil if there is no such kind.
func emptyOf[T any](kind recordKind, key funnel.Key[T]) savedFilter[T] {
	switch kind {
	case kindBloom:
		return &Bloom[T]{key: key}
	case kindCounting:
		return &Counting[T]{key: key}
	case kindCuckoo:
		return &Cuckoo[T]{key: key}
	case kindScalable:
		return &Scalable[T]{key: key}
	case kindPair:
		return &Pair[T]{added: &Bloom[T]{key: key}, removed: &Bloom[T]{key: key}}
	case kindGenerations:
		return &Generations[T]{key: key}
	case kindDedup:
		return &Dedup[T]{key: key}
	case kindSharded:
		return &Sharded[T, Filter[T]]{key: key}
	}
	return nil
}
