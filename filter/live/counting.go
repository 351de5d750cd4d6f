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
	// Items is the number of elements for which FPR shall hold.
	Items uint64
	// FPR is the false positive rate with Items elements, above 0 and below 1.
	FPR float64
	// Seed, if not zero, makes false positives independent of those of filters
	// with other seeds.
	Seed uint64
	// Funnel appends the bytes of an element; see BloomOptions.
	Funnel func(dst []byte, v T) []byte
}

// Counting is a Bloom filter that deletes: 4-bit counters in place of bits, and
// so four times the memory. An element that was added several times must be
// deleted as many times.
//
// A counter that reaches 15 stays there, since nobody knows how many elements
// it stands for: what it counts can then no longer be deleted wholly. With the
// elements that the filter was made for, all different, that happens to one
// counter in 10¹⁵. An element that is added 15 times does it to all of its own.
//
// Delete only what was added. To delete an element that is absent mostly does
// nothing, for the filter sees that it is absent. But if it is a false positive,
// its counters are those of other elements, and up to Hashes of them are lost:
// false negatives, the one thing that a Bloom filter never gives. A full filter of
// 2,000 elements with an FPR of 5 % lost 1,223 of them to the deletion of 20,000
// absent ones (TestCountingDeleteAbsent).
//
// Counting is safe for concurrent use: Add and MayContain take no locks, Delete
// takes one of 64, by element.
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

// NewCounting returns an empty filter.
func NewCounting[T any](o CountingOptions[T]) (*Counting[T], error) {
	key, err := newKey(o.Funnel)
	if err != nil {
		return nil, err
	}
	if err := checkItems(o.Items, o.FPR); err != nil {
		return nil, err
	}
	n := OptimalBits(o.Items, o.FPR)
	words := alignedWords((n + countersPerWord - 1) / countersPerWord)
	return &Counting[T]{key: key, counters: countersOf(words, min(maxHashes, OptimalHashes(n, o.Items)), o.Seed)}, nil
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

// remove counts an element down. Counters of 15 stay, and so do those of 0, which
// can only be met by an element that was not added.
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

// Add adds an element, once more if it is there already, and reports whether one
// of its counters was 0. If so, it was not in the filter before.
func (f *Counting[T]) Add(v T) bool { return f.add(f.hash(v)) }

// MayContain reports false only if the element was not added, or deleted as often
// as it was added.
func (f *Counting[T]) MayContain(v T) bool { return f.has(f.hash(v)) }

// Delete takes back one Add of an element. It returns false, and changes nothing,
// if the element is not in the filter. See the type's comment for what deleting
// an absent element may do.
func (f *Counting[T]) Delete(v T) bool {
	h := f.hash(v)
	// Of two deletes of the same element, the second must see what the first left.
	mu := &f.locks[mix(h)%uint64(len(f.locks))]
	mu.Lock()
	defer mu.Unlock()
	if !f.has(h) {
		return false
	}
	f.remove(h)
	return true
}

// tally returns how many counters are not 0 and how many are 15.
func (c *counters) tally() (used, stuck uint64) {
	const low = 0x1111111111111111
	for i := range c.words {
		w := atomic.LoadUint64(&c.words[i])
		any, all := w|w>>1, w&(w>>1)
		used += uint64(bits.OnesCount64((any | any>>2) & low))
		stuck += uint64(bits.OnesCount64(all & (all >> 2) & low))
	}
	return used, stuck
}

// ApproxCount estimates how many different elements are in the filter;
// MaxUint64 when no counter is 0. It reads the whole filter.
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

// Stuck is the number of counters that have reached 15 and no longer go down. It
// reads the whole filter.
func (f *Counting[T]) Stuck() uint64 {
	_, stuck := f.tally()
	return stuck
}

// SizeBytes is the memory that the counters take.
func (f *Counting[T]) SizeBytes() int { return len(f.words) * 8 }

// Hashes is the number of counters of an element.
func (f *Counting[T]) Hashes() int { return f.hashes }

// WriteTo writes the filter in the form that ReadCounting reads. Elements that
// are added or deleted meanwhile may be in it in part; do neither.
func (f *Counting[T]) WriteTo(w io.Writer) (int64, error) {
	return writeRecord(w, record{
		kind:     kindCounting,
		elements: f.key.Kind(),
		hashes:   uint32(f.hashes),
		words:    uint64(len(f.words)),
		seed:     f.seed,
	}, f.words)
}

// ReadCounting reads a filter that WriteTo wrote; see ReadBloom.
func ReadCounting[T any](r io.Reader, maxBytes int64, f func(dst []byte, v T) []byte) (*Counting[T], error) {
	key, err := newKey(f)
	if err != nil {
		return nil, err
	}
	c, err := readCounters(r, maxBytes, key.Kind())
	if err != nil {
		return nil, fmt.Errorf("read counting filter: %w", err)
	}
	return &Counting[T]{key: key, counters: c}, nil
}

func readCounters(r io.Reader, maxBytes int64, elements funnel.Kind) (counters, error) {
	rec, err := readHeader(r, kindCounting, elements)
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
	words, err := readBody(r, rec, maxBytes)
	if err != nil {
		return counters{}, err
	}
	return countersOf(words, int(rec.hashes), rec.seed), nil
}
