package redisbloom

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// CuckooOptions are the parameters of a new cuckoo filter.
type CuckooOptions struct {
	Capacity      uint64 // items before the filter first grows; at least 2*BucketSize
	BucketSize    uint8  // items per bucket; at least 1
	MaxIterations uint16 // moves before the filter counts as full; at least 1
	// Expansion is the factor by which each new link grows, rounded up to a
	// power of 2. 0 makes a filter that does not grow.
	Expansion uint16
	MaxBytes  uint64 // of memory; 0: no limit
}

const (
	// maxCuckooLinks is the maximum number of links.
	maxCuckooLinks = 1<<16 - 1
	// compactShare is the ratio of deletions to items above which a filter compacts
	// itself.
	compactShare = 0.1
	drainBytes   = 1 << 20
)

// Cuckoo is a chain of cuckoo filters with 8-bit fingerprints; 0 is an empty slot.
// Link i has buckets·expansion^i buckets.
type Cuckoo struct {
	items, deletes uint64
	buckets        uint64 // of the first link; a power of 2
	bucketSize     uint64
	maxIterations  uint64
	expansion      uint64
	links          []cuckooLink
	redo           []byte
	counted        [2]uint64 // items and deletes at the last TakeRedo
	high           int       // number of links for which stored pages may exist

	// Drain, if not nil, is called by Compact, and by a Delete that compacts, whenever the redo log
	// has reached drainBytes, so that TakeRedo can empty it: the redo log of a whole compaction may
	// take many times the memory of the filter.
	Drain func()
}

type cuckooLink struct {
	segment
	buckets uint64
}

// NewCuckoo returns an empty filter, or ErrTooLarge.
func NewCuckoo(o CuckooOptions) (*Cuckoo, error) {
	size := uint64(o.BucketSize)
	f := &Cuckoo{
		buckets: nextPow2(o.Capacity / size), bucketSize: size,
		maxIterations: uint64(o.MaxIterations), expansion: nextPow2(uint64(o.Expansion)),
	}
	if err := f.grow(limit(o.MaxBytes)); err != nil {
		return nil, err
	}
	f.redo = nil
	return f, nil
}

func limit(maxBytes uint64) uint64 {
	if maxBytes == 0 {
		return math.MaxInt64
	}
	return maxBytes
}

// nextPow2 returns the smallest power of 2 that is at least n; 0 for 0.
func nextPow2(n uint64) uint64 {
	if n <= 1 {
		return n
	}
	return 1 << bits.Len64(n-1)
}

// fingerprint returns the fingerprint of an item, and the hash that selects its first bucket.
func fingerprint(item []byte) (fp byte, h uint64) {
	h = murmur64A(item, 0)
	return byte(h%255 + 1), h
}

func altHash(fp byte, h uint64) uint64 { return h ^ uint64(fp)*altMul }

// bucket returns the slots of a hash and the offset of the first.
func (f *Cuckoo) bucket(l *cuckooLink, h uint64) ([]byte, uint64) {
	off := h & (l.buckets - 1) * f.bucketSize
	return l.data[off : off+f.bucketSize], off
}

// Count returns how often the item's fingerprint is in its buckets.
func (f *Cuckoo) Count(item []byte) uint64 {
	fp, h := fingerprint(item)
	var n uint64
	for i := range f.links {
		l := &f.links[i]
		first, a := f.bucket(l, h)
		second, b := f.bucket(l, altHash(fp, h))
		n += count(first, fp)
		if a != b {
			n += count(second, fp)
		}
	}
	return n
}

func count(slots []byte, fp byte) (n uint64) {
	for _, s := range slots {
		if s == fp {
			n++
		}
	}
	return n
}

// Contains reports whether the filter may contain an item; false is certain.
func (f *Cuckoo) Contains(item []byte) bool {
	fp, h := fingerprint(item)
	for i := range f.links {
		l := &f.links[i]
		if _, ok := f.find(l, h, fp); ok {
			return true
		}
		if _, ok := f.find(l, altHash(fp, h), fp); ok {
			return true
		}
	}
	return false
}

// find returns the offset of the first slot in a bucket with fp.
func (f *Cuckoo) find(l *cuckooLink, h uint64, fp byte) (uint64, bool) {
	slots, off := f.bucket(l, h)
	for i, s := range slots {
		if s == fp {
			return off + uint64(i), true
		}
	}
	return 0, false
}

// Add adds an item, once more if it was added before. The filter may grow by up to room
// bytes. After ErrFull, ErrMaxExpansions and ErrTooLarge it is unchanged.
func (f *Cuckoo) Add(item []byte, room uint64) error {
	fp, h := fingerprint(item)
	if len(f.links) >= maxCuckooLinks {
		return ErrMaxExpansions
	}
	for i := len(f.links) - 1; i >= 0; i-- {
		if f.place(i, h, fp) {
			f.items++
			return nil
		}
	}
	if f.push(h, fp) {
		f.items++
		return nil
	}
	if f.expansion == 0 {
		return ErrFull
	}
	if err := f.grow(room); err != nil {
		return err
	}
	f.place(len(f.links)-1, h, fp)
	f.items++
	return nil
}

// AddNew adds an item unless the filter may contain it, and reports whether it added it.
func (f *Cuckoo) AddNew(item []byte, room uint64) (bool, error) {
	if f.Contains(item) {
		return false, nil
	}
	err := f.Add(item, room)
	return err == nil, err
}

// place puts a fingerprint into an empty slot of its two buckets in link i.
func (f *Cuckoo) place(i int, h uint64, fp byte) bool {
	l := &f.links[i]
	off, ok := f.find(l, h, 0)
	if !ok {
		off, ok = f.find(l, altHash(fp, h), 0)
	}
	if ok {
		f.setSlot(i, off, fp)
	}
	return ok
}

// setSlot changes a slot and logs it.
func (f *Cuckoo) setSlot(i int, off uint64, fp byte) {
	l := &f.links[i]
	l.data[off] = fp
	l.touch(off)
	f.redo = append(f.redo, redoSlot)
	f.redo = binary.AppendUvarint(f.redo, uint64(i))
	f.redo = binary.AppendUvarint(f.redo, off)
	f.redo = append(f.redo, fp)
}

// push adds a fingerprint to the last link by moving others: it takes the slot of another
// fingerprint, which takes a slot in the other one of its two buckets, and so on, until one of them
// finds an empty slot. Each step replaces the slot after that of the previous step. After
// maxIterations steps, push undoes them and returns false.
func (f *Cuckoo) push(h uint64, fp byte) bool {
	last := len(f.links) - 1
	l := &f.links[last]
	mark := len(f.redo)
	moved := make([]slotWas, 0, min(f.maxIterations, 64))
	var victim uint64
	for range f.maxIterations {
		slots, off := f.bucket(l, h)
		was := slots[victim]
		moved = append(moved, slotWas{off + victim, was})
		f.setSlot(last, off+victim, fp)
		fp = was
		h = altHash(fp, h&(l.buckets-1))
		if free, ok := f.find(l, h, 0); ok {
			f.setSlot(last, free, fp)
			return true
		}
		victim = (victim + 1) % f.bucketSize
	}
	for i := len(moved) - 1; i >= 0; i-- {
		l.data[moved[i].off] = moved[i].fp
	}
	f.redo = f.redo[:mark]
	return false
}

// slotWas is the former contents of a slot.
type slotWas struct {
	off uint64
	fp  byte
}

// grow adds a link of at most room bytes.
func (f *Cuckoo) grow(room uint64) error {
	size, ok := f.linkBytes(len(f.links))
	if !ok || size > room || size > maxSegment {
		return ErrTooLarge
	}
	l := cuckooLink{newSegment(size), size / f.bucketSize}
	if len(f.links) < f.high {
		// There may be stored pages of a dropped link: the zeros of this one must replace them.
		l.touchRange(0, size)
	}
	f.links = append(f.links, l)
	f.high = max(f.high, len(f.links))
	f.redo = append(f.redo, redoGrow)
	return nil
}

// GrowBytes returns how much room Add needs when the filter grows, 0 if it cannot.
func (f *Cuckoo) GrowBytes() uint64 {
	size, ok := f.linkBytes(len(f.links))
	if !ok || f.expansion == 0 {
		return 0
	}
	return size
}

// linkBytes returns the size of link i, and false if it is too large for any memory.
func (f *Cuckoo) linkBytes(i int) (uint64, bool) {
	shift := i * bits.TrailingZeros64(max(1, f.expansion)) // buckets is a power of 2, too
	if shift > bits.LeadingZeros64(f.buckets) {
		return 0, false
	}
	hi, size := bits.Mul64(f.buckets<<shift, f.bucketSize)
	return size, hi == 0 && size > 0 && size < 1<<48
}

// MayCompact reports whether the next Delete may compact the filter, which can be slow.
func (f *Cuckoo) MayCompact() bool {
	return len(f.links) > 1 && float64(f.deletes)+1 > (float64(f.items)-1)*compactShare
}

// Delete removes one fingerprint that is equal to the item's, and reports whether there was
// one. After enough deletions the filter compacts itself.
func (f *Cuckoo) Delete(item []byte) bool {
	fp, h := fingerprint(item)
	for i := len(f.links) - 1; i >= 0; i-- {
		l := &f.links[i]
		off, ok := f.find(l, h, fp)
		if !ok {
			off, ok = f.find(l, altHash(fp, h), fp)
		}
		if !ok {
			continue
		}
		f.setSlot(i, off, 0)
		if f.items > 0 {
			f.items--
		}
		f.deletes++
		if len(f.links) > 1 && float64(f.deletes) > float64(f.items)*compactShare {
			f.compact(false)
		}
		return true
	}
	return false
}

// Compact moves fingerprints from newer links to older ones, and drops the links at the end
// that are then empty.
func (f *Cuckoo) Compact() { f.compact(true) }

// compact empties links, starting with the last one. It stops at the first that it cannot empty,
// unless all is set.
func (f *Cuckoo) compact(all bool) {
	for i := len(f.links) - 1; i > 0; i-- {
		if !f.empty(i) && !all {
			break
		}
	}
	f.deletes = 0
}

// empty moves as many fingerprints as it can from link i to older links. If the link is then
// empty and the last one, empty drops it and returns true.
func (f *Cuckoo) empty(i int) bool {
	l := &f.links[i]
	left := false
	for off, fp := range l.data {
		if fp == 0 {
			continue
		}
		h := uint64(off) / f.bucketSize
		moved := false
		for j := 0; j < i && !moved; j++ {
			moved = f.place(j, h, fp)
		}
		if moved {
			f.setSlot(i, uint64(off), 0)
			if f.Drain != nil && len(f.redo) >= drainBytes {
				f.Drain()
			}
		} else {
			left = true
		}
	}
	if left || i != len(f.links)-1 {
		return false
	}
	f.links = f.links[:i]
	f.redo = append(f.redo, redoDrop)
	return true
}

// Items returns the number of items added and not deleted. It may be wrong if the filter is from a
// dump whose header was wrong, but it is at most the number of slots.
func (f *Cuckoo) Items() uint64 { return min(f.items, f.Bytes()) }

// Deletes returns the number of items deleted since the last compaction.
func (f *Cuckoo) Deletes() uint64 { return min(f.deletes, math.MaxInt64) }

// Data returns the slots of link i. The slice aliases the filter, whose later changes it shows; the
// caller must not change it.
func (f *Cuckoo) Data(i int) []byte { return f.links[i].data }

// Buckets returns the number of buckets of the first link.
func (f *Cuckoo) Buckets() uint64 { return f.buckets }

// BucketSize returns the number of slots per bucket.
func (f *Cuckoo) BucketSize() uint64 { return f.bucketSize }

// MaxIterations returns the number of moves after which the filter counts as full.
func (f *Cuckoo) MaxIterations() uint64 { return f.maxIterations }

// Expansion returns the growth factor, 0 if the filter does not grow.
func (f *Cuckoo) Expansion() uint64 { return f.expansion }

// Links returns the number of links.
func (f *Cuckoo) Links() int { return len(f.links) }

// Bytes returns the memory of the slots.
func (f *Cuckoo) Bytes() uint64 {
	var n uint64
	for i := range f.links {
		n += uint64(len(f.links[i].data))
	}
	return n
}

// ExpectedFPR returns the expected rate at the current load: an absent item is a false positive if
// any of the fingerprints in its buckets is equal to the item's, each with probability 1/255.
func (f *Cuckoo) ExpectedFPR() float64 {
	load := float64(2*f.bucketSize) * float64(len(f.links))
	if bytes := f.Bytes(); bytes > 0 {
		load *= float64(f.items) / float64(bytes)
	}
	return -math.Expm1(load * math.Log1p(-1.0/255))
}
