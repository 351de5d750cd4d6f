package live

import (
	"math"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// CuckooOptions are the parameters of a Cuckoo.
type CuckooOptions[T any] struct {
	// Items is the number of elements that the filter has space for.
	Items uint64
	// FPR is the maximum false positive rate, down to 10⁻⁹. The filter uses the
	// smallest fingerprint that reaches it; see Cuckoo.
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
// word of 64 bits, or of 32 for 8-bit fingerprints:
//
//	fingerprint bits      8     9      10     12      16        21       32
//	slots per bucket      4     7      6      5       4         3        2
//	FPR when full, %      2.9   2.7    1.13   0.24    0.0116    0.00026  0.00000008
//	bits per element      8.5   9.4    11.0   13.3    16.8      23.2     38.1
//
// An element may be added several times, up to the number of slots in its two buckets,
// and must be deleted as often. If there is no space, Add returns ErrFull and changes
// nothing. Up to Items elements fit.
//
// Delete only what was added: an absent element that is a false positive has the
// fingerprint of another one, which would be lost.
//
// Cuckoo is safe for concurrent use. MayContain takes a lock only if it finds nothing and a
// fingerprint with the same lock, one in 512, is moved or deleted meanwhile. Add takes one in that
// case, too, and if it has to move fingerprints, and Delete if both buckets have the fingerprint or
// its lock is taken meanwhile.
type Cuckoo[T any] struct {
	key funnel.Key[T]
	cuckoo
	newer [64]paddedMutex // of AddNew, by element
}

// cuckoo is a table of buckets. With h the hash of an element:
//
//	fingerprint  the low bits of h, or 1 if they are 0, which marks an empty slot
//	first bucket  hi64(h × buckets)
//	other bucket  (hi64((fingerprint × chain mod 2⁶⁴) × buckets) - this bucket) mod buckets
//
// The sum of the two buckets depends only on the fingerprint, so each can be computed
// from the other, for any number of buckets. Slot i is bits i×width to (i+1)×width-1;
// bits above the last slot are 0. Where buckets are half words, bucket i of the saved
// form is the lower half of word i/2 if i is even, else the upper half. Saved filters
// depend on all of this; do not change.
//
// Concurrency. Fingerprints are put into empty slots and, unless both buckets have one, taken
// out of slots with a compare-and-swap, without a lock. They are moved only under one of 512
// locks, chosen by the fingerprint: it is first put into its other bucket and then taken out of
// this one, so that it is always in one of them. A reader that examines one bucket before a move
// and the other one after it could still miss it. So the lock has a version, odd while it is
// held, and a negative result counts only if the version was even and has not changed. See remove
// and removeFrom for concurrent deletes.
type cuckoo struct {
	n     uint64   // buckets
	words []uint64 // of n buckets, or
	halfs []uint32 // of n buckets, an even number; one of the two is nil
	lanes
	seed  uint64
	locks *[512]atomic.Uint32 // versions, by fingerprint
	moves *sync.RWMutex       // read-locked by moves and removeFrom, write-locked to prevent both
}

// lanes is the arithmetic on the slots of a word.
type lanes struct {
	width uint   // bits of a slot
	slots int    // in a word
	mask  uint32 // the lowest width bits
	ones  uint64 // 1 in each slot
	low   uint64 // all bits of each slot but the highest
	high  uint64 // the highest bit of each slot
}

func lanesOf(width uint) lanes {
	l := lanes{width: width, slots: wordBits / int(width), mask: uint32(1<<width - 1)}
	if l.half() {
		l.slots /= 2
	}
	for i := range l.slots {
		l.ones |= 1 << (uint(i) * width)
	}
	l.high = l.ones << (width - 1)
	l.low = l.high - l.ones
	return l
}

// half reports whether a bucket is half a word: with 8-bit fingerprints the FPR is 3%, and
// with eight of them per bucket it would be 6%.
func (l *lanes) half() bool { return l.width == 8 }

// find returns a word with the highest bit set of each slot of w that is fp.
func (l *lanes) find(w uint64, fp uint32) uint64 { return l.zeros(w ^ uint64(fp)*l.ones) }

func (l *lanes) zeros(x uint64) uint64 { return l.high &^ l.marks(x) }

// marks returns a word in which the highest bit of a slot is clear if the slot of x is 0.
// Its other bits are undefined.
func (l *lanes) marks(x uint64) uint64 { return ((x & l.low) + l.low) | x }

// lowest returns the shift of the first slot that find has marked.
func (l *lanes) lowest(found uint64) uint { return uint(bits.TrailingZeros64(found)) + 1 - l.width }

func (l *lanes) get(w uint64, shift uint) uint32 { return uint32(w>>shift) & l.mask }

// cuckooSizes are the widths of fingerprints, and the load that a table of each reaches.
var cuckooSizes = [...]struct {
	width uint
	load  float64
}{{8, 0.94}, {9, 0.97}, {10, 0.97}, {12, 0.965}, {16, 0.95}, {21, 0.92}, {32, 0.84}}

// fpr returns the FPR of a table in which the share load of the slots is used.
func (l *lanes) fpr(load float64) float64 {
	return -math.Expm1(2 * float64(l.slots) * load * math.Log1p(-1/float64(l.mask)))
}

// NewCuckoo returns an empty filter, or an *OptionError.
func NewCuckoo[T any](o CuckooOptions[T]) (*Cuckoo[T], error) {
	key, err := newKey(o.Funnel)
	if err != nil {
		return nil, err
	}
	if err := checkItems(o.Items, o.FPR); err != nil {
		return nil, err
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
		// In a small table, a few buckets may by chance get more elements than they have slots.
		// With these additional buckets that did not happen in 20,000 tables of any size and width.
		buckets += 2 + 160/uint64(l.slots*l.slots)
		if buckets > maxWords {
			return nil, optionError("Items", "%d at an FPR of %v need %d words, too many", o.Items, o.FPR, buckets)
		}
		return &Cuckoo[T]{key: key, cuckoo: newCuckoo(buckets, s.width, o.Seed)}, nil
	}
	return nil, optionError("FPR", "%v cannot be reached with 32-bit fingerprints", o.FPR)
}

// newCuckoo makes an empty table of at least the given number of buckets.
func newCuckoo(buckets uint64, width uint, seed uint64) cuckoo {
	c := cuckoo{lanes: lanesOf(width), seed: seed, locks: new([512]atomic.Uint32), moves: new(sync.RWMutex)}
	if c.half() {
		c.n = (buckets + 1) &^ 1
		c.halfs = make([]uint32, c.n)
	} else {
		c.n = buckets
		c.words = alignedWords(buckets)
	}
	return c
}

// place returns the fingerprint and the two buckets of a hash.
func (c *cuckoo) place(h uint64) (fp uint32, a, b uint64) {
	h = seedHash(h, c.seed)
	fp, a = c.fingerprint(h), c.first(h)
	return fp, a, c.other(a, fp)
}

func (c *cuckoo) fingerprint(h uint64) uint32 {
	fp := uint32(h) & c.mask
	if fp == 0 {
		fp = 1
	}
	return fp
}

func (c *cuckoo) first(h uint64) uint64 { return scale(h, c.n) }

func (c *cuckoo) other(bucket uint64, fp uint32) uint64 {
	b, below := bits.Sub64(scale(uint64(fp)*chain, c.n), bucket, 0)
	return b + c.n&-below // no branch: it would be unpredictable
}

func (c *cuckoo) load(bucket uint64) uint64 {
	if c.halfs != nil {
		return uint64(atomic.LoadUint32(&c.halfs[bucket]))
	}
	return atomic.LoadUint64(&c.words[bucket])
}

func (c *cuckoo) swap(bucket, old, new uint64) bool {
	if c.halfs != nil {
		return atomic.CompareAndSwapUint32(&c.halfs[bucket], uint32(old), uint32(new))
	}
	return atomic.CompareAndSwapUint64(&c.words[bucket], old, new)
}

func (c *cuckoo) lock(fp uint32) *atomic.Uint32 { return &c.locks[fp%uint32(len(c.locks))] }

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
	l := c.lock(fp)
	version := l.Load()
	// Both buckets at once: their cache misses overlap, and no branch can be mispredicted.
	if c.pairHas(c.load(a), c.load(b), fp) {
		return true
	}
	if version&1 == 0 && l.Load() == version {
		return false
	}
	return c.hasLocked(fp, a, b)
}

// pairHas reports whether one of two buckets has a fingerprint.
func (c *cuckoo) pairHas(wa, wb uint64, fp uint32) bool {
	all := uint64(fp) * c.ones
	return c.high&^(c.marks(wa^all)&c.marks(wb^all)) != 0
}

// hasLocked is has for a reader that may have missed a fingerprint being moved.
func (c *cuckoo) hasLocked(fp uint32, a, b uint64) bool {
	l := c.lock(fp)
	acquire(l)
	found := c.pairHas(c.load(a), c.load(b), fp)
	release(l)
	return found
}

// put puts a fingerprint into an empty slot of a bucket, if there is one.
func (c *cuckoo) put(bucket uint64, fp uint32) bool {
	for {
		w := c.load(bucket)
		empty := c.zeros(w)
		if empty == 0 {
			return false
		}
		if c.swap(bucket, w, w|uint64(fp)<<c.lowest(empty)) {
			return true
		}
	}
}

// take takes one fingerprint fp out of a bucket, and reports whether there was one.
func (c *cuckoo) take(bucket uint64, fp uint32) bool {
	for {
		w := c.load(bucket)
		found := c.find(w, fp)
		if found == 0 {
			return false
		}
		if c.swap(bucket, w, w&^(uint64(c.mask)<<c.lowest(found))) {
			return true
		}
	}
}

// clear empties a slot that a move has copied to its other bucket. If a concurrent delete
// has emptied it, clear removes the copy, or another slot with the same fingerprint.
func (c *cuckoo) clear(from uint64, shift uint, fp uint32, to uint64) {
	for {
		w := c.load(from)
		if c.get(w, shift) != fp {
			_ = c.take(to, fp) || c.take(from, fp)
			return
		}
		if c.swap(from, w, w&^(uint64(c.mask)<<shift)) {
			return
		}
	}
}

// add adds a fingerprint. isNew reports whether it was absent before, ok whether there
// was space.
func (c *cuckoo) add(h uint64) (isNew, ok bool) {
	h = seedHash(h, c.seed)
	fp := c.fingerprint(h)
	a := c.first(h)
	b := c.other(a, fp)
	l := c.lock(fp)
	version := l.Load()
	wa, wb := c.load(a), c.load(b)
	all := uint64(fp) * c.ones
	isNew = c.high&^(c.marks(wa^all)&c.marks(wb^all)) == 0
	if isNew && (version&1 != 0 || l.Load() != version) {
		isNew = !c.hasLocked(fp, a, b)
	}
	if empty := c.zeros(wa); empty != 0 && c.swap(a, wa, wa|uint64(fp)<<c.lowest(empty)) {
		return isNew, true
	}
	return isNew, c.insert(fp, a, b)
}

// insert adds a fingerprint to one of its buckets.
func (c *cuckoo) insert(fp uint32, a, b uint64) bool {
	return c.put(a, fp) || c.put(b, fp) || c.addMoving(fp, a, b)
}

// addMoving adds a fingerprint whose two buckets are full.
func (c *cuckoo) addMoving(fp uint32, a, b uint64) bool {
	c.moves.RLock()
	defer c.moves.RUnlock()
	// Others may take the slot that was freed; then search again.
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

// step is a bucket in the search for an empty slot. It is reached by moving here the
// fingerprint at shift in the bucket of the step from.
type step struct {
	bucket uint64
	from   int16
	shift  uint8
}

// makeRoom moves fingerprints along the shortest path, so that a or b gets an empty slot.
// It returns false, and changes nothing, if there is no path within about 250 buckets.
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
			if c.zeros(c.load(next)) != 0 {
				return c.follow(steps[:], n)
			}
			if n < len(steps)-1 { // otherwise the next bucket overwrites it: it can only end the path
				n++
			}
		}
	}
	return false
}

// follow makes the moves that lead to a step, the last one first: each moves a fingerprint into the
// slot that the previous move has emptied. It always returns true: if a move has become impossible,
// the caller searches again.
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

// move moves the fingerprint in a slot to its other bucket, if that is still to and has
// an empty slot.
func (c *cuckoo) move(from uint64, shift uint, to uint64) bool {
	fp := c.get(c.load(from), shift)
	if fp == 0 || c.other(from, fp) != to {
		return false
	}
	l := c.lock(fp)
	acquire(l)
	moved := c.get(c.load(from), shift) == fp && c.put(to, fp)
	if moved {
		c.clear(from, shift, fp, to)
	}
	release(l)
	return moved
}

// remove removes one fingerprint of an element. It takes no locks unless both buckets have the
// fingerprint, or its lock is taken meanwhile. While a fingerprint is moved, there is one more of
// it than there are elements, so a delete that may have seen the extra one waits for the end of the
// move, which then removes one more (see clear). Otherwise the move could remove a fingerprint that
// is added after the delete has returned.
func (c *cuckoo) remove(h uint64) bool {
	fp, a, b := c.place(h)
	l := c.lock(fp)
	for version := l.Load(); version&1 == 0; version = l.Load() {
		from, w, wb := a, c.load(a), c.load(b)
		found := c.find(w, fp)
		if other := c.find(wb, fp); other != 0 && a != b {
			if found != 0 {
				break
			}
			from, w, found = b, wb, other
		}
		if found == 0 {
			if l.Load() == version {
				return false
			}
			break
		}
		if c.swap(from, w, w&^(uint64(c.mask)<<c.lowest(found))) {
			if l.Load() != version {
				acquire(l)
				release(l)
			}
			return true
		}
	}
	return c.removeFrom(fp, a, b)
}

// removeFrom is remove with the locks. If both buckets have the fingerprint, removing one of them
// is like a move to some readers: one that examined a bucket before its fingerprint was added, and
// the other bucket after its fingerprint was removed, would miss an element that was in the filter
// all the time. So readers must see a new version, and no copy of the filter may be in progress.
func (c *cuckoo) removeFrom(fp uint32, a, b uint64) bool {
	c.moves.RLock()
	defer c.moves.RUnlock()
	l := c.lock(fp)
	acquire(l)
	defer release(l)
	return c.take(a, fp) || c.take(b, fp)
}

func (c *cuckoo) count(h uint64) int {
	fp, a, b := c.place(h)
	l := c.lock(fp)
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
	for i := range c.n {
		n += c.slots - bits.OnesCount64(c.zeros(c.load(i)))
	}
	return uint64(n)
}
