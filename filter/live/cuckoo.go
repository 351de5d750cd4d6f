package live

import (
	"fmt"
	"io"
	"math"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// CuckooOptions are the parameters of a Cuckoo.
type CuckooOptions[T any] struct {
	// Items is the number of elements that there shall be room for.
	Items uint64
	// FPR is the highest false positive rate, down to 10⁻⁹. The filter takes the
	// next size of fingerprint that reaches it; see Cuckoo.
	FPR float64
	// Seed, if not zero, makes false positives independent of those of filters
	// with other seeds.
	Seed uint64
	// Funnel appends the bytes of an element; see BloomOptions.
	Funnel func(dst []byte, v T) []byte
}

// Cuckoo is a cuckoo filter: it keeps a fingerprint of each element in one of two
// buckets, and so can delete and count (Fan, Andersen, Kaminsky, Mitzenmacher,
// "Cuckoo Filter: Practically Better Than Bloom", CoNEXT 2014). A bucket is one
// 64-bit word:
//
//	fingerprint, bits    8     9      10     12      16        21       32
//	slots a bucket       8     7      6      5       4         3        2
//	FPR when full, %     6.0   2.7    1.14   0.24    0.0116    0.00026  0.00000008
//	bits an element      8.2   9.3    10.9   13.2    16.8      23.2     38.1
//
// An element may be added several times, up to all the slots of its two buckets,
// and must be deleted as often. An Add that finds no room returns ErrFull, and
// the filter holds all that it held. Up to Items elements fit.
//
// Delete only what was added: an absent element that is a false positive has the
// fingerprint of another one, which would be lost.
//
// Cuckoo is safe for concurrent use. MayContain takes no locks; Add takes one
// only when it must move others, Delete always one of many.
type Cuckoo[T any] struct {
	key funnel.Key[T]
	cuckoo
	newer [64]paddedMutex // of AddNew, by element
}

// cuckoo is a table of buckets. With h the hash of an element:
//
//	fingerprint  1 + (low32(h) × (2^bits-1)) / 2³²; 0 is an empty slot
//	first bucket  hi64(h × buckets)
//	other bucket  (hi64((fingerprint × chain mod 2⁶⁴) × buckets) - this bucket) mod buckets
//
// so that the sum of the two buckets depends on the fingerprint only, and each
// leads to the other for any number of buckets. Slot i is bits i×width to
// (i+1)×width-1; bits above the last slot are 0. Saved filters depend on it.
//
// Concurrency. A fingerprint may be put into an empty slot by anyone, with a
// compare-and-swap. It is taken out of a slot only under the lock of its pair of
// buckets. To move it, it is first put into its other bucket and then taken out of
// this one, so that it is always in one of them. A reader who looks at one bucket
// before and at the other after a move could still miss it; so the lock has a
// version, odd while it is held, and a "no" counts only if the version was even
// and stayed the same.
type cuckoo struct {
	words []uint64
	lanes
	seed  uint64
	locks []atomic.Uint32 // versions, by pair; a power of two of them
	moves *sync.RWMutex   // read: moving; write: no one may move
}

// lanes is the arithmetic on the slots of a word.
type lanes struct {
	width uint   // bits of a slot
	slots int    // in a word
	ones  uint64 // 1 in each slot
	low   uint64 // all bits of each slot but the highest
	high  uint64 // the highest bit of each slot
}

func lanesOf(width uint) lanes {
	l := lanes{width: width, slots: wordBits / int(width)}
	for i := range l.slots {
		l.ones |= 1 << (uint(i) * width)
	}
	l.high = l.ones << (width - 1)
	l.low = l.high - l.ones
	return l
}

// find returns a word with the highest bit set of each slot of w that is fp.
func (l *lanes) find(w uint64, fp uint32) uint64 {
	x := w ^ uint64(fp)*l.ones
	return l.high &^ (((x & l.low) + l.low) | x)
}

// first returns the shift of the first slot that find has marked.
func (l *lanes) first(found uint64) uint { return uint(bits.TrailingZeros64(found)) + 1 - l.width }

func (l *lanes) get(w uint64, shift uint) uint32 { return uint32(w >> shift & (1<<l.width - 1)) }

// cuckooSizes are the widths of fingerprints and how full a table of them gets.
var cuckooSizes = [...]struct {
	width uint
	load  float64
}{{8, 0.98}, {9, 0.98}, {10, 0.98}, {12, 0.97}, {16, 0.95}, {21, 0.92}, {32, 0.84}}

// cuckooFPR is the FPR of a table whose slots are filled to load.
func (l *lanes) fpr(load float64) float64 {
	return -math.Expm1(2 * float64(l.slots) * load * math.Log1p(-1/float64(uint64(1)<<l.width-1)))
}

// NewCuckoo returns an empty filter.
func NewCuckoo[T any](o CuckooOptions[T]) (*Cuckoo[T], error) {
	key, err := newKey(o.Funnel)
	if err != nil {
		return nil, err
	}
	if !(o.FPR > 0 && o.FPR < 1) {
		return nil, optionError("FPR", "%v is not between 0 and 1", o.FPR)
	}
	if o.Items > maxBits/wordBits {
		return nil, optionError("Items", "%d are more than 2^37", o.Items)
	}
	for _, s := range cuckooSizes {
		l := lanesOf(s.width)
		if l.fpr(s.load) > o.FPR {
			continue
		}
		buckets := uint64(float64(o.Items) / (float64(l.slots) * s.load))
		// In a small table more elements than there are slots may meet in a few
		// buckets by chance. With this many more buckets that was not seen in
		// 20,000 tables of any size and width.
		buckets += 2 + 160/uint64(l.slots*l.slots)
		return &Cuckoo[T]{key: key, cuckoo: cuckooOf(alignedWords(buckets), s.width, o.Seed)}, nil
	}
	return nil, optionError("FPR", "%v is below what 32-bit fingerprints reach", o.FPR)
}

func cuckooOf(words []uint64, width uint, seed uint64) cuckoo {
	locks := 1
	for locks < len(words)/8 && locks < 4096 {
		locks *= 2
	}
	return cuckoo{words, lanesOf(width), seed, make([]atomic.Uint32, locks), new(sync.RWMutex)}
}

// place returns the fingerprint and the two buckets of a hash.
func (c *cuckoo) place(h uint64) (fp uint32, a, b uint64) {
	fp = uint32((h&math.MaxUint32)*(1<<c.width-1)>>32) + 1
	a = scale(h, uint64(len(c.words)))
	return fp, a, c.other(a, fp)
}

func (c *cuckoo) other(bucket uint64, fp uint32) uint64 {
	n := uint64(len(c.words))
	sum := scale(uint64(fp)*chain, n)
	if sum < bucket {
		sum += n
	}
	return sum - bucket
}

func (c *cuckoo) load(bucket uint64) uint64 { return atomic.LoadUint64(&c.words[bucket]) }

func (c *cuckoo) lock(a, b uint64) *atomic.Uint32 {
	return &c.locks[min(a, b)&uint64(len(c.locks)-1)]
}

// acquire takes a lock. It is held for a few instructions at a time.
func acquire(l *atomic.Uint32) {
	for {
		if v := l.Load(); v&1 == 0 && l.CompareAndSwap(v, v+1) {
			return
		}
		runtime.Gosched()
	}
}

func release(l *atomic.Uint32) { l.Add(1) }

func (c *cuckoo) has(h uint64) bool {
	fp, a, b := c.place(h)
	l := c.lock(a, b)
	for {
		version := l.Load()
		if c.find(c.load(a), fp) != 0 || c.find(c.load(b), fp) != 0 {
			return true
		}
		if version&1 == 0 && l.Load() == version {
			return false
		}
		runtime.Gosched()
	}
}

// put puts a fingerprint into an empty slot of a bucket, if there is one.
func (c *cuckoo) put(bucket uint64, fp uint32) bool {
	for {
		w := c.load(bucket)
		empty := c.find(w, 0)
		if empty == 0 {
			return false
		}
		if atomic.CompareAndSwapUint64(&c.words[bucket], w, w|uint64(fp)<<c.first(empty)) {
			return true
		}
	}
}

// clear empties a slot. The caller holds the lock of the fingerprint in it.
func (c *cuckoo) clear(bucket uint64, shift uint) {
	for {
		w := c.load(bucket)
		if atomic.CompareAndSwapUint64(&c.words[bucket], w, w&^((1<<c.width-1)<<shift)) {
			return
		}
	}
}

// add adds a fingerprint and reports whether there was room.
func (c *cuckoo) add(h uint64) bool {
	fp, a, b := c.place(h)
	if c.put(a, fp) || c.put(b, fp) {
		return true
	}
	c.moves.RLock()
	defer c.moves.RUnlock()
	// Others may take the slot that a move has freed; then there is another search.
	for range 1000 {
		if !c.makeRoom(a, b) {
			return false
		}
		if c.put(a, fp) || c.put(b, fp) {
			return true
		}
	}
	return false
}

// step is a bucket on the search for an empty slot: to reach it, the fingerprint
// at shift in the bucket of the step from moves here.
type step struct {
	bucket uint64
	from   int16
	shift  uint8
}

// makeRoom moves fingerprints so that a or b has an empty slot, along the
// shortest path. It returns false, and has changed nothing, if there is none
// within the reach of some 250 buckets.
func (c *cuckoo) makeRoom(a, b uint64) bool {
	var steps [256]step
	steps[0], steps[1] = step{bucket: a, from: -1}, step{bucket: b, from: -1}
	n := 2
	for at := 0; at < n; at++ {
		bucket := steps[at].bucket
		w := c.load(bucket)
		for i := range c.slots {
			shift := uint(i) * c.width
			fp := c.get(w, shift)
			if fp == 0 {
				return c.follow(steps[:], at) // emptied meanwhile
			}
			next := c.other(bucket, fp)
			if next == bucket {
				continue
			}
			steps[n] = step{next, int16(at), uint8(shift)}
			if c.find(c.load(next), 0) != 0 {
				return c.follow(steps[:], n)
			}
			if n < len(steps)-1 { // else it can still end the path, not go on from there
				n++
			}
		}
	}
	return false
}

// follow makes the moves that lead to a step, the last one first: each moves a
// fingerprint into the slot that the one before has emptied. It always reports
// true: where a move has become impossible, the caller searches again.
func (c *cuckoo) follow(steps []step, at int) bool {
	for steps[at].from >= 0 {
		s := steps[at]
		at = int(s.from)
		if !c.move(steps[at].bucket, uint(s.shift), s.bucket) {
			break
		}
	}
	return true
}

// move moves the fingerprint in a slot to its other bucket, to, if it still
// belongs there and there is room.
func (c *cuckoo) move(from uint64, shift uint, to uint64) bool {
	l := c.lock(from, to)
	acquire(l)
	defer release(l)
	fp := c.get(c.load(from), shift)
	if fp == 0 || c.other(from, fp) != to || !c.put(to, fp) {
		return false
	}
	c.clear(from, shift)
	return true
}

func (c *cuckoo) remove(h uint64) bool {
	fp, a, b := c.place(h)
	l := c.lock(a, b)
	acquire(l)
	defer release(l)
	for _, bucket := range [...]uint64{a, b} {
		if found := c.find(c.load(bucket), fp); found != 0 {
			c.clear(bucket, c.first(found))
			return true
		}
	}
	return false
}

func (c *cuckoo) count(h uint64) int {
	fp, a, b := c.place(h)
	l := c.lock(a, b)
	acquire(l)
	defer release(l)
	n := bits.OnesCount64(c.find(c.load(a), fp))
	if a != b {
		n += bits.OnesCount64(c.find(c.load(b), fp))
	}
	return n
}

// used counts the slots that are not empty.
func (c *cuckoo) used() uint64 {
	n := 0
	for i := range c.words {
		n += c.slots - bits.OnesCount64(c.find(c.load(uint64(i)), 0))
	}
	return uint64(n)
}

func (f *Cuckoo[T]) hash(v T) uint64 { return seedHash(f.key.Sum64(v), f.seed) }

// Add adds an element, once more if it is there already. It returns ErrFull, and
// has changed nothing, if there is no room for it.
func (f *Cuckoo[T]) Add(v T) error {
	if !f.add(f.hash(v)) {
		return ErrFull
	}
	return nil
}

// AddNew adds an element unless the filter may contain it, and reports whether it
// did. Of several concurrent calls with the same new element exactly one adds it.
func (f *Cuckoo[T]) AddNew(v T) (bool, error) {
	h := f.hash(v)
	mu := &f.newer[mix(h)%uint64(len(f.newer))]
	mu.Lock()
	defer mu.Unlock()
	if f.has(h) {
		return false, nil
	}
	if !f.add(h) {
		return false, ErrFull
	}
	return true, nil
}

// MayContain reports false only if the element was not added, or deleted as often
// as it was added.
func (f *Cuckoo[T]) MayContain(v T) bool { return f.has(f.hash(v)) }

// Delete takes back one Add of an element. It returns false, and changes nothing,
// if the element is not in the filter.
func (f *Cuckoo[T]) Delete(v T) bool { return f.remove(f.hash(v)) }

// CountOf returns how often an element was added and not deleted, or more: equal
// fingerprints are counted too.
func (f *Cuckoo[T]) CountOf(v T) int { return f.count(f.hash(v)) }

// ApproxCount is the number of elements in the filter, each as often as it was
// added; exact while nothing is added or deleted. It reads the whole filter.
func (f *Cuckoo[T]) ApproxCount() uint64 { return f.used() }

// Capacity is the number of slots. Some 2 % (8-bit fingerprints) to 16 %
// (32 bits) of them stay empty when the filter is full.
func (f *Cuckoo[T]) Capacity() uint64 { return uint64(len(f.words)) * uint64(f.slots) }

// FPR is the share of absent elements for which MayContain is true now. It reads
// the whole filter.
func (f *Cuckoo[T]) FPR() float64 { return f.fpr(float64(f.used()) / float64(f.Capacity())) }

// FingerprintBits is the size of a fingerprint.
func (f *Cuckoo[T]) FingerprintBits() int { return int(f.width) }

// SizeBytes is the memory that the buckets take.
func (f *Cuckoo[T]) SizeBytes() int { return len(f.words) * 8 }

// WriteTo writes the filter in the form that ReadCuckoo reads. Elements that are
// added or deleted meanwhile may or may not be in it; an Add that must move others
// waits until it is written.
func (f *Cuckoo[T]) WriteTo(w io.Writer) (int64, error) {
	f.moves.Lock()
	defer f.moves.Unlock()
	return writeRecord(w, record{
		kind:     kindCuckoo,
		elements: f.key.Kind(),
		hashes:   uint32(f.width),
		words:    uint64(len(f.words)),
		seed:     f.seed,
	}, f.words)
}

// ReadCuckoo reads a filter that WriteTo wrote; see ReadBloom.
func ReadCuckoo[T any](r io.Reader, maxBytes int64, f func(dst []byte, v T) []byte) (*Cuckoo[T], error) {
	key, err := newKey(f)
	if err != nil {
		return nil, err
	}
	c, err := readCuckoo(r, maxBytes, key.Kind())
	if err != nil {
		return nil, fmt.Errorf("read cuckoo filter: %w", err)
	}
	return &Cuckoo[T]{key: key, cuckoo: c}, nil
}

func readCuckoo(r io.Reader, maxBytes int64, elements funnel.Kind) (cuckoo, error) {
	rec, err := readHeader(r, kindCuckoo, elements)
	if err != nil {
		return cuckoo{}, err
	}
	known := false
	for _, s := range cuckooSizes {
		known = known || rec.hashes == uint32(s.width)
	}
	switch {
	case !known:
		return cuckoo{}, formatError("fingerprints of %d bits", rec.hashes)
	case rec.words < 1 || rec.words > maxBits/wordBits:
		return cuckoo{}, formatError("%d words", rec.words)
	case rec.scheme != 0 || rec.items != 0 || rec.fpr != 0 || rec.growth != 0:
		return cuckoo{}, formatError("fields that a Cuckoo does not have")
	}
	words, err := readBody(r, rec, maxBytes)
	if err != nil {
		return cuckoo{}, err
	}
	c := cuckooOf(words, uint(rec.hashes), rec.seed)
	for i, w := range words {
		if w > c.high|c.low {
			return cuckoo{}, formatError("word %d has bits above its slots", i)
		}
	}
	return c, nil
}
