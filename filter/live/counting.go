package live

import (
	"fmt"
	"io"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// CountingOptions are the parameters of a Counting.
type CountingOptions[T any] struct {
	// Items is the number of elements up to which FPR holds.
	Items uint64
	// FPR is the false positive rate with Items elements, above 0 and below 1.
	FPR float64
	// Seed, if not zero, makes false positives independent of those of filters
	// with other seeds.
	Seed uint64
	// Funnel appends the bytes of an element; see BloomOptions.
	Funnel func(dst []byte, v T) []byte
}

// Counting is a Bloom filter that supports deletion. It has 4-bit counters instead of bits, and so
// takes four times the memory. An element that was added several times must be deleted as many
// times.
//
// A counter that reaches 15 stays there, since it is then unknown how many elements it counts:
// elements that use it can no longer be deleted completely. With the number of elements that the
// filter was made for, all different, this happens to one counter in 10¹⁵. An element that is
// added 15 times does this to all of its counters.
//
// Delete only what was added. Deleting an absent element usually does nothing, since the filter
// excludes it. But if it is a false positive, its counters are those of other elements, and up to
// Hashes of these are lost: they become false negatives, which a Bloom filter never has. A full
// filter of 2,000 elements with an FPR of 5% lost 1,223 of them when 20,000 absent ones were
// deleted (TestCountingDeleteAbsent).
//
// Counting is safe for concurrent use. MayContain takes no locks. Add and Delete take one of 64
// locks, chosen by the element, so that the saved form contains each addition completely or not at
// all.
type Counting[T any] struct {
	key funnel.Key[T]
	counters
	locks [64]paddedMutex
}

type paddedMutex struct {
	sync.Mutex
	_ [56]byte
}

const (
	countersPerWord = 16
	maxCounter      = 15
)

// counters is an array of 4-bit counters with atomic operations. Counter i is bits
// 4(i mod 16) to 4(i mod 16)+3 of word i/16. Those of an element are at
// hi64(h_i × number of counters), with the chain h_i of table.
type counters struct {
	words  []uint64
	n      uint64
	hashes int
	seed   uint64
}

// NewCounting returns an empty filter, or an *OptionError.
func NewCounting[T any](o CountingOptions[T]) (*Counting[T], error) {
	key, err := newKey(o.Funnel)
	if err != nil {
		return nil, err
	}
	if err := checkItems(o.Items, o.FPR); err != nil {
		return nil, err
	}
	n := OptimalBits(o.Items, o.FPR)
	numWords := (n + countersPerWord - 1) / countersPerWord
	if numWords > maxWords {
		return nil, optionError("Items", "%d at an FPR of %v need %d words, too many",
			o.Items, o.FPR, numWords)
	}
	hashes := min(maxHashes, OptimalHashes(n, o.Items))
	return &Counting[T]{key: key, counters: countersOf(alignedWords(numWords), hashes, o.Seed)}, nil
}

func countersOf(words []uint64, hashes int, seed uint64) counters {
	return counters{words, uint64(len(words)) * countersPerWord, hashes, seed}
}

func (c *counters) at(h uint64) (*uint64, uint64) {
	i := scale(h, c.n)
	return &c.words[i/countersPerWord], i % countersPerWord * 4
}

func (c *counters) has(h uint64) bool {
	for range c.hashes {
		if w, shift := c.at(h); atomic.LoadUint64(w)>>shift&maxCounter == 0 {
			return false
		}
		h *= chain
	}
	return true
}

// add counts an element and reports whether one of its counters was 0.
func (c *counters) add(h uint64) bool {
	changed := false
	for range c.hashes {
		w, shift := c.at(h)
		for {
			old := atomic.LoadUint64(w)
			count := old >> shift & maxCounter
			if count == maxCounter {
				break
			}
			if atomic.CompareAndSwapUint64(w, old, old+1<<shift) {
				changed = changed || count == 0
				break
			}
		}
		h *= chain
	}
	return changed
}

// remove decrements the counters of an element. Counters of 15 stay, and so do those of 0, which
// only an element that was not added can have.
func (c *counters) remove(h uint64) {
	for range c.hashes {
		w, shift := c.at(h)
		for {
			old := atomic.LoadUint64(w)
			if count := old >> shift & maxCounter; count == maxCounter || count == 0 {
				break
			}
			if atomic.CompareAndSwapUint64(w, old, old-1<<shift) {
				break
			}
		}
		h *= chain
	}
}

func (f *Counting[T]) hash(v T) uint64 { return seedHash(f.key.Sum64(v), f.seed) }

// Add adds an element, once more if it was added before, and reports whether one of its
// counters was 0. If so, the element was not in the filter before.
func (f *Counting[T]) Add(v T) bool { return f.addSum(f.key.Sum64(v)) }

// AddMany adds elements, faster than one by one; see Adder.
func (f *Counting[T]) AddMany(vs []T, isNew []bool) { addMany(f.key.Sum64, f, vs, isNew) }

// MayContain reports false only if the element was not added, or was deleted as often
// as it was added.
func (f *Counting[T]) MayContain(v T) bool { return f.has(f.hash(v)) }

// MayContainMany sets positive[i] to MayContain(vs[i]) for each i, faster than one by
// one. len(positive) >= len(vs).
func (f *Counting[T]) MayContainMany(vs []T, positive []bool) {
	mayContainMany(f.key.Sum64, f, vs, positive)
}

func (f *Counting[T]) hasSum(sum uint64) bool { return f.has(seedHash(sum, f.seed)) }

func (f *Counting[T]) addSum(sum uint64) bool {
	h := seedHash(sum, f.seed)
	mu := f.lockOf(h)
	mu.Lock()
	defer mu.Unlock()
	return f.add(h)
}

// lockOf returns the lock to hold while changing the counters of an element.
func (f *Counting[T]) lockOf(h uint64) *paddedMutex { return &f.locks[mix(h)%uint64(len(f.locks))] }

// whileUnchanged calls fn while no elements are added or deleted.
func (f *Counting[T]) whileUnchanged(fn func()) {
	for i := range f.locks {
		f.locks[i].Lock()
		defer f.locks[i].Unlock()
	}
	fn()
}

// cut returns a consistent copy: it contains each addition and deletion completely or not at all.
func (f *Counting[T]) cut() counters {
	c := f.counters
	f.whileUnchanged(func() { c.words = copyWords(f.words) })
	return c
}

// Delete undoes one Add of an element. It returns false, and changes nothing,
// if the element is not in the filter. See the type's comment for what deleting
// an absent element may do.
func (f *Counting[T]) Delete(v T) bool {
	h := f.hash(v)
	// Of two concurrent deletes of an element, the second must see the result of the first.
	mu := f.lockOf(h)
	mu.Lock()
	defer mu.Unlock()
	if !f.has(h) {
		return false
	}
	f.remove(h)
	return true
}

// tally returns how many counters are not 0 and how many are 15.
func (c *counters) tally() (used, saturated uint64) {
	const low = 0x1111111111111111
	for i := range c.words {
		w := atomic.LoadUint64(&c.words[i])
		any, all := w|w>>1, w&(w>>1)
		used += uint64(bits.OnesCount64((any | any>>2) & low))
		saturated += uint64(bits.OnesCount64(all & (all >> 2) & low))
	}
	return used, saturated
}

// ApproxCount estimates how many different elements are in the filter;
// MaxUint64 if no counter is 0. It reads the whole filter.
func (f *Counting[T]) ApproxCount() uint64 {
	used, _ := f.tally()
	m := float64(f.n)
	return roundCount(-math.Log1p(-float64(used)/m) * m / float64(f.hashes))
}

// FPR is the share of absent elements for which MayContain is true now. It reads
// the whole filter.
func (f *Counting[T]) FPR() float64 {
	used, _ := f.tally()
	return math.Pow(float64(used)/float64(f.n), float64(f.hashes))
}

// Saturated is the number of counters that have reached 15 and no longer go down. It
// reads the whole filter.
func (f *Counting[T]) Saturated() uint64 {
	_, saturated := f.tally()
	return saturated
}

// FillRatio is the share of counters that are not 0, 0 to 1. It reads the whole
// filter.
func (f *Counting[T]) FillRatio() float64 {
	used, _ := f.tally()
	return float64(used) / float64(f.n)
}

// MemoryBytes is the memory that the counters take.
func (f *Counting[T]) MemoryBytes() int { return len(f.words) * 8 }

// Hashes is the number of counters of an element.
func (f *Counting[T]) Hashes() int { return f.hashes }

// Compatible returns nil if o can be merged into f; see Merger.
func (f *Counting[T]) Compatible(o *Counting[T]) error {
	switch {
	case f.key.Kind() != o.key.Kind():
		return incompatible("kinds of elements", f.key.Kind(), o.key.Kind())
	case f.n != o.n:
		return incompatible("counters", f.n, o.n)
	case f.hashes != o.hashes:
		return incompatible("hashes", f.hashes, o.hashes)
	case f.seed != o.seed:
		return incompatible("seeds", f.seed, o.seed)
	}
	return nil
}

// Merge adds all elements of o to f, each as often as it is in o; see Merger. It
// needs the memory of a third filter while it runs.
func (f *Counting[T]) Merge(o *Counting[T]) error {
	if err := f.Compatible(o); err != nil {
		return err
	}
	other := o.cut()
	f.whileUnchanged(func() {
		for i, w := range other.words {
			if w != 0 {
				atomic.StoreUint64(&f.words[i], addCounters(atomic.LoadUint64(&f.words[i]), w))
			}
		}
	})
	return nil
}

// addCounters adds two words of counters. Those that reach 15 stay there.
func addCounters(a, b uint64) uint64 {
	sum := uint64(0)
	for shift := 0; shift < wordBits; shift += wordBits / countersPerWord {
		sum |= min(maxCounter, a>>shift&maxCounter+b>>shift&maxCounter) << shift
	}
	return sum
}

// Clone returns a consistent copy.
func (f *Counting[T]) Clone() *Counting[T] { return &Counting[T]{key: f.key, counters: f.cut()} }

// Equal reports whether the filters have the same parameters and counters.
func (f *Counting[T]) Equal(o *Counting[T]) bool {
	return f.Compatible(o) == nil && equalWords(f.words, o.words)
}

// Reset removes all elements.
func (f *Counting[T]) Reset() {
	f.whileUnchanged(func() {
		for i := range f.words {
			atomic.StoreUint64(&f.words[i], 0)
		}
	})
}

// WriteTo writes the filter in the format that ReadCounting and ReadFrom read. What it
// writes is consistent even while others add and delete: it first copies the filter in
// memory, which takes the memory of a second filter, and they wait for that.
func (f *Counting[T]) WriteTo(w io.Writer) (int64, error) {
	c := f.cut()
	return writeRecord(w, record{
		kind:     kindCounting,
		elements: f.key.Kind(),
		hashes:   uint32(c.hashes),
		words:    uint64(len(c.words)),
		seed:     c.seed,
	}, c.words)
}

// ReadFrom replaces the filter with one that WriteTo wrote; see Filter.
func (f *Counting[T]) ReadFrom(r io.Reader) (int64, error) { return readFrom(f, r) }

// MarshalBinary returns what WriteTo writes.
func (f *Counting[T]) MarshalBinary() ([]byte, error) { return marshal(f) }

// UnmarshalBinary replaces the filter with one that MarshalBinary wrote; see Filter.
func (f *Counting[T]) UnmarshalBinary(data []byte) error { return unmarshal(f, data) }

// ReadCounting reads a filter that WriteTo wrote; see ReadBloom.
func ReadCounting[T any](r io.Reader, o ReadOptions[T]) (*Counting[T], error) {
	return readNew(r, o, func(key funnel.Key[T]) *Counting[T] { return &Counting[T]{key: key} })
}

func (f *Counting[T]) elementKind() (funnel.Kind, error) { return elementKind(&f.key) }

func (f *Counting[T]) read(s *source) error {
	c, err := readCounters(s)
	if err != nil {
		return fmt.Errorf("read counting filter: %w", err)
	}
	f.counters = c
	return nil
}

func readCounters(s *source) (counters, error) {
	rec, err := readHeader(s, kindCounting)
	if err != nil {
		return counters{}, err
	}
	switch {
	case rec.hashes < 1 || rec.hashes > maxHashes:
		return counters{}, formatError("%d hashes", rec.hashes)
	case rec.words < 1 || rec.words > maxBits/wordBits:
		return counters{}, formatError("%d words", rec.words)
	case rec.scheme != 0 || rec.items != 0 || rec.fpr != 0 || rec.growth != 0:
		return counters{}, formatError("fields that a Counting does not have")
	}
	words, err := readBody(s, rec)
	if err != nil {
		return counters{}, err
	}
	return countersOf(words, int(rec.hashes), rec.seed), nil
}
