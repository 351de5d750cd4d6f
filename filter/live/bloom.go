package live

import (
	"math"

	"github.com/siftdb/sift/filter/live/internal/blocks"
	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// BloomOptions are the parameters of a Bloom. Give either Items and FPR, or Bits
// and Hashes.
type BloomOptions[T any] struct {
	// Items is the number of elements up to which FPR holds. More can be added, but raise the FPR.
	Items uint64
	// FPR is the false positive rate with Items elements, above 0 and below 1.
	FPR float64
	// Bits is the size in bits, rounded up to a multiple of 64 (512 for Blocked).
	Bits uint64
	// Hashes is the number of bits that an element sets, 1 to 255.
	Hashes int
	// Scheme determines which bits an element sets; Scattered if zero.
	Scheme Scheme
	// Seed, if not zero, makes the false positives of this filter independent of those of filters
	// with other seeds. Guava's schemes have no seed. A secret seed does not protect against those
	// who choose elements: no seed distinguishes elements that have the same hash, and such
	// elements can be computed. A Funnel that appends a keyed hash, such as HMAC, prevents that.
	Seed uint64
	// Unshared makes additions take up to a third less time, with plain stores instead of
	// atomic ones. It is for a filter that one goroutine fills: until Share is called, no
	// other call may run at the same time as an Add. It is not saved, and a Clone is not
	// Unshared.
	Unshared bool
	// Funnel appends the bytes of an element to dst and returns the result. It
	// may be nil for strings, byte slices and integers. It must be safe for
	// concurrent use, and append the same bytes in every program that reads the
	// filter.
	Funnel func(dst []byte, v T) []byte
}

// Bloom is a Bloom filter. Unless it is Unshared, it is safe for concurrent use and takes
// no locks: every MayContain that starts after an Add has returned finds the element.
type Bloom[T any] struct {
	key funnel.Key[T]
	table
}

// maxBits is the maximum size, for which all arithmetic is exact.
const maxBits = 1 << 43

// maxWords is the maximum number of words of a filter in memory. On 32-bit systems the address
// space bounds it.
const maxWords = min(maxBits/wordBits, maxMemory/8)

// maxMemory is the maximum number of bytes that filter.AlignedBytes can allocate.
const maxMemory = math.MaxInt - blockBits/8

// maxHashes fits into one byte of the saved form.
const maxHashes = 255

// Element is any type that needs no Funnel: a string, a byte slice, an integer, or a type defined
// as one.
type Element interface {
	~string | ~[]byte | ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

// New returns an empty Bloom filter for items elements with a false positive rate of fpr, or an
// *OptionError. NewBloom has more parameters and supports any type.
func New[T Element](items uint64, fpr float64) (*Bloom[T], error) {
	return NewBloom(BloomOptions[T]{Items: items, FPR: fpr})
}

// NewBloom returns an empty filter, or an *OptionError.
func NewBloom[T any](o BloomOptions[T]) (*Bloom[T], error) {
	key, err := newKey(o.Funnel)
	if err != nil {
		return nil, err
	}
	numWords, hashes, err := o.size()
	if err != nil {
		return nil, err
	}
	f := &Bloom[T]{key, newTable(o.Scheme, numWords, hashes, o.Seed)}
	f.unshared = o.Unshared
	return f, nil
}

func newKey[T any](f func(dst []byte, v T) []byte) (funnel.Key[T], error) {
	key, err := funnel.For(f)
	if err != nil {
		return key, optionError("Funnel", "is missing: %v", err)
	}
	return key, nil
}

// size returns the number of words and of hashes for the options.
func (o *BloomOptions[T]) size() (numWords uint64, hashes int, err error) {
	bits, hashes := o.Bits, o.Hashes
	switch {
	case o.Scheme > GuavaMitz32:
		return 0, 0, optionError("Scheme", "%d is unknown", o.Scheme)
	case o.Seed != 0 && o.Scheme.guava():
		return 0, 0, optionError("Seed", "cannot be used with scheme %v", o.Scheme)
	case bits == 0 && hashes == 0:
		if err := checkItems(o.Items, o.FPR); err != nil {
			return 0, 0, err
		}
		if bits, hashes = o.optimal(); bits > maxBits { // see blocks.Optimal
			return 0, 0, optionError("FPR", "%v with %d items needs more than 2^43 bits in scheme %v", o.FPR, o.Items, o.Scheme)
		}
	case o.Items != 0 || o.FPR != 0:
		return 0, 0, optionError("Bits and Hashes", "cannot be combined with Items and FPR")
	case bits == 0 || bits > maxBits:
		return 0, 0, optionError("Bits", "%d is not in 1..2^43", bits)
	case hashes < 1 || hashes > maxHashes:
		return 0, 0, optionError("Hashes", "%d is not in 1..255", hashes)
	}
	align := uint64(wordBits)
	if o.Scheme == Blocked {
		align = blockBits
	}
	numWords = (bits + align - 1) / align * (align / wordBits)
	if numWords > maxWords {
		return 0, 0, optionError("Items or Bits",
			"need %d words, more than this system can address", numWords)
	}
	if o.Scheme.guava() && numWords > math.MaxInt32 {
		return 0, 0, optionError("Items or Bits", "need %d words; Guava's format has at most 2^31-1", numWords)
	}
	return numWords, hashes, nil
}

// checkItems checks a size given as a number of elements and an FPR.
func checkItems(items uint64, fpr float64) error {
	if fpr == 0 {
		return optionError("FPR", "is missing or zero")
	}
	if !(fpr > 0 && fpr < 1) {
		return optionError("FPR", "%v is not between 0 and 1", fpr)
	}
	if items == 0 { // its first elements would fill it
		return optionError("Items", "is zero")
	}
	if float64(items)*-math.Log2(fpr)*1.5 >= maxBits {
		return optionError("Items", "%d at an FPR of %v need more than 2^43 bits", items, fpr)
	}
	return nil
}

func (o *BloomOptions[T]) optimal() (bits uint64, hashes int) {
	switch o.Scheme {
	case Blocked:
		n, hashes := blocks.Optimal(o.Items, o.FPR, blockBits)
		return n * blockBits, hashes
	case Guava, GuavaMitz32:
		// Guava 31.1 truncates, and computes the hashes from the bits before they
		// are rounded up to words. Later versions use round(-log2 p) hashes; readers
		// take the number from the file.
		bits := uint64(-float64(o.Items) * math.Log(o.FPR) / (math.Ln2 * math.Ln2))
		return max(1, bits), min(maxHashes, OptimalHashes(bits, o.Items))
	}
	bits = max(1, OptimalBits(o.Items, o.FPR))
	return bits, min(maxHashes, OptimalHashes(bits, o.Items))
}

func (f *Bloom[T]) digest(v T) digest {
	if f.scheme.guava() {
		a, b := f.key.Sum128(v)
		return digest{a, b}
	}
	return digest{a: f.key.Sum64(v)}
}

// Add adds an element and reports whether one of its bits was clear. If so, the
// element was not in the filter before. Of several concurrent calls with the
// same new element, at least one returns true.
func (f *Bloom[T]) Add(v T) bool {
	if f.scheme.guava() {
		return f.add(f.digest(v))
	}
	h := seedHash(f.key.Sum64(v), f.seed)
	switch {
	case f.unshared && f.scheme == Blocked:
		return f.addBlockedPlain(h)
	case f.unshared:
		return f.addScatteredPlain(h)
	case f.scheme == Blocked:
		return f.addBlocked(h)
	}
	return f.addScattered(h)
}

// Share makes an Unshared filter safe for concurrent use. No other call may run at the
// same time.
func (f *Bloom[T]) Share() { f.unshared = false }

// MayContain reports false only if the element was not added.
func (f *Bloom[T]) MayContain(v T) bool {
	if f.scheme.guava() {
		return f.has(f.digest(v))
	}
	h := seedHash(f.key.Sum64(v), f.seed)
	if f.scheme == Blocked {
		return f.hasBlocked(h)
	}
	return f.hasScattered(h)
}

// AddMany adds elements, faster than one by one; see Adder.
func (f *Bloom[T]) AddMany(vs []T, isNew []bool) {
	var ds [batch]digest
	for len(vs) > 0 {
		n := min(batch, len(vs))
		for i, v := range vs[:n] {
			ds[i] = f.digest(v)
		}
		for i, d := range ds[:n] {
			if changed := f.add(d); isNew != nil {
				isNew[i] = changed
			}
		}
		vs = vs[n:]
		if isNew != nil {
			isNew = isNew[n:]
		}
	}
}

// MayContainMany sets positive[i] to MayContain(vs[i]) for each i, faster than one by
// one. len(positive) >= len(vs).
func (f *Bloom[T]) MayContainMany(vs []T, positive []bool) {
	var ds [batch]digest
	for len(vs) > 0 {
		n := min(batch, len(vs))
		for i, v := range vs[:n] {
			ds[i] = f.digest(v)
		}
		for i, d := range ds[:n] {
			positive[i] = f.has(d)
		}
		vs, positive = vs[n:], positive[n:]
	}
}

// ApproxCount estimates how many different elements were added, from the bits
// that are set; MaxUint64 if all are. It reads the whole filter.
func (f *Bloom[T]) ApproxCount() uint64 { return f.approxCount() }

// FPR is the share of absent elements for which MayContain is true now, computed from
// the bits that are set. It reads the whole filter.
func (f *Bloom[T]) FPR() float64 { return f.fpr() }

// ExpectedFPR is the FPR to expect once items elements are in the filter.
func (f *Bloom[T]) ExpectedFPR(items uint64) float64 { return f.expectedFPR(items) }

// FillRatio is the share of bits that are set, 0 to 1. It reads the whole filter.
func (f *Bloom[T]) FillRatio() float64 { return float64(f.ones()) / float64(f.bits) }

// Bits is the size in bits.
func (f *Bloom[T]) Bits() uint64 { return f.bits }

// Hashes is the number of bits that an element sets.
func (f *Bloom[T]) Hashes() int { return f.hashes }

// Scheme determines which bits an element sets.
func (f *Bloom[T]) Scheme() Scheme { return f.scheme }

// MemoryBytes is the memory that the bits take.
func (f *Bloom[T]) MemoryBytes() int { return len(f.words) * 8 }

// Compatible returns nil if o can be merged into f; see Merger.
func (f *Bloom[T]) Compatible(o *Bloom[T]) error {
	if f.key.Kind() != o.key.Kind() {
		return incompatible("kinds of elements", f.key.Kind(), o.key.Kind())
	}
	return f.compatible(&o.table)
}

// Merge adds all elements of o to f; see Merger.
func (f *Bloom[T]) Merge(o *Bloom[T]) error {
	if err := f.Compatible(o); err != nil {
		return err
	}
	f.merge(&o.table)
	return nil
}

// ApproxUnion estimates how many different elements were added to f or to o, which
// must be Compatible. It needs the memory of a third filter while it runs.
func (f *Bloom[T]) ApproxUnion(o *Bloom[T]) (uint64, error) {
	if err := f.Compatible(o); err != nil {
		return 0, err
	}
	both := f.clone()
	both.merge(&o.table)
	return both.approxCount(), nil
}

// ApproxIntersection estimates how many elements were added to both f and o, which must be
// Compatible: the sum of their counts minus that of their union. Its error is about as large as
// theirs, so a small intersection of large filters is lost in noise.
func (f *Bloom[T]) ApproxIntersection(o *Bloom[T]) (uint64, error) {
	union, err := f.ApproxUnion(o)
	if err != nil {
		return 0, err
	}
	a, b := f.approxCount(), o.approxCount()
	if a == math.MaxUint64 || b == math.MaxUint64 || union == math.MaxUint64 {
		return math.MaxUint64, nil
	}
	return a + b - min(union, a+b), nil
}

// Clone returns a copy with at least the elements whose Add has returned.
func (f *Bloom[T]) Clone() *Bloom[T] { return &Bloom[T]{f.key, f.clone()} }

// Equal reports whether the filters have the same parameters and bits.
func (f *Bloom[T]) Equal(o *Bloom[T]) bool {
	return f.Compatible(o) == nil && equalWords(f.words, o.words)
}

// Reset removes all elements. An element whose Add runs at the same time may be
// lost.
func (f *Bloom[T]) Reset() { f.reset() }

// The operations on a hash, for filters that consist of several Blooms and hash an element once.
// Guava's schemes do not support them.
func (f *Bloom[T]) hasSum(sum uint64) bool { return f.has(digest{a: sum}) }
func (f *Bloom[T]) addSum(sum uint64) bool { return f.add(digest{a: sum}) }
