package live

// Filter is what most filters of this package have in common: all but Cuckoo and
// Pair, whose Add can fail, and those that are only read.
type Filter[T any] interface {
	// Add adds an element and reports whether that changed something. If it did,
	// the element was not in the filter before.
	Add(v T) bool
	// MayContain reports false only if the element was not added.
	MayContain(v T) bool
}

var (
	_ Filter[string] = (*Bloom[string])(nil)
	_ Filter[string] = (*Scalable[string])(nil)
	_ Filter[string] = (*Counting[string])(nil)
	_ Filter[string] = (*Rotating[string])(nil)
	_ Filter[string] = (*Generations[string])(nil)
)
