package redisbloom

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// CuckooOptions are the parameters of a new cuckoo filter.
type CuckooOptions struct {
	Capacity      uint64 // items before the first growth; at least 2*BucketSize
	BucketSize    uint8  // items a bucket; at least 1
	MaxIterations uint16 // moves before the filter counts as full; at least 1
	// Expansion is the factor by which each new link grows, rounded up to a
	// power of 2. 0 makes a filter that does not grow.
	Expansion uint16
	MaxBytes  uint64 // of memory; 0: no limit
}

const (
	// maxCuckooLinks is how many links a filter may have at all.
	maxCuckooLinks = 1<<16 - 1
	// compactShare is the share of the items beyond which deletions make a
	// filter move what is left into fewer links.
	compactShare = 0.1
)

// Cuckoo is a chain of cuckoo filters with 8-bit fingerprints; 0 is an empty slot.
// A link i has buckets·expansion^i buckets.
type Cuckoo struct {
	items, deletes uint64
	buckets        uint64 // of the first link; a power of 2
	bucketSize     uint64
	maxIterations  uint64
	expansion      uint64
	links          []cuckooLink
	redo           []byte
	counted        [2]uint64 // items and deletes as of the last TakeRedo
	high           int       // links that there may be stored pages of
}

type cuckooLink struct {
	segment
	buckets uint64
}

// NewCuckoo returns an empty filter.
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

// fingerprint is what a filter keeps of an item: h picks the bucket.
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

// Count returns how many fingerprints like the item's the filter holds.
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

// find returns the offset of the first slot of a bucket that holds fp.
func (f *Cuckoo) find(l *cuckooLink, h uint64, fp byte) (uint64, bool) {
	slots, off := f.bucket(l, h)
	for i, s := range slots {
		if s == fp {
			return off + uint64(i), true
		}
	}
	return 0, false
}

// Add adds an item, once more if it is there. The filter may grow by up to room
// bytes. ErrFull, ErrMaxExpansions and ErrTooLarge leave it as it was.
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

// AddNew adds an item unless the filter may contain it, and reports whether it
// did.
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

// push makes room in the last link: a fingerprint takes the slot of another,
// which takes one in its other bucket, and so on; each step takes the slot
// after the one before. If that finds no end, all is put back.
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

// slotWas is a slot and what it held.
type slotWas struct {
	off uint64
	fp  byte
}

// grow adds a link of at most room bytes.
func (f *Cuckoo) grow(room uint64) error {
	size, ok := f.linkBytes(len(f.links))
	if !ok || size > room {
		return ErrTooLarge
	}
	l := cuckooLink{newSegment(size), size / f.bucketSize}
	if len(f.links) < f.high {
		// Pages of a link that was dropped may be stored: its zeros must replace them.
		l.touchRange(0, size)
	}
	f.links = append(f.links, l)
	f.high = max(f.high, len(f.links))
	f.redo = append(f.redo, redoGrow)
	return nil
}

// linkBytes returns the size of link i, and false if no memory has it.
func (f *Cuckoo) linkBytes(i int) (uint64, bool) {
	n := f.buckets
	for range i {
		hi, lo := bits.Mul64(n, max(1, f.expansion))
		if hi != 0 {
			return 0, false
		}
		n = lo
	}
	hi, size := bits.Mul64(n, f.bucketSize)
	return size, hi == 0 && size > 0 && size < 1<<48
}

// Delete removes one fingerprint like the item's and reports whether there was
// one. Enough deletions make the filter compact itself.
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
		f.items--
		f.deletes++
		if len(f.links) > 1 && float64(f.deletes) > float64(f.items)*compactShare {
			f.compact(false)
		}
		return true
	}
	return false
}

// Compact moves fingerprints of newer links into older ones and drops links
// that are empty then.
func (f *Cuckoo) Compact() { f.compact(true) }

// compact goes through the links from the last one on, to the first that it
// cannot empty, or, if all is set, to the end.
func (f *Cuckoo) compact(all bool) {
	for i := len(f.links) - 1; i > 0; i-- {
		if !f.empty(i) && !all {
			break
		}
	}
	f.deletes = 0
}

// empty moves what it can of link i into older ones. If nothing is left and
// the link is the last, it is dropped, and empty returns true.
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

// Items returns the number of items added and not deleted, Deletes the number
// deleted since the last compaction.
func (f *Cuckoo) Items() uint64 { return f.items }

// Deletes returns the number of items deleted since the last compaction.
func (f *Cuckoo) Deletes() uint64 { return f.deletes }

// Data returns the slots of link i, which must not be changed, and change with the filter.
func (f *Cuckoo) Data(i int) []byte { return f.links[i].data }

// Buckets returns the number of buckets of the first link.
func (f *Cuckoo) Buckets() uint64 { return f.buckets }

// BucketSize returns the number of slots of a bucket.
func (f *Cuckoo) BucketSize() uint64 { return f.bucketSize }

// MaxIterations returns the number of moves before the filter grows.
func (f *Cuckoo) MaxIterations() uint64 { return f.maxIterations }

// Expansion returns the growth factor, 0 for a filter that does not grow.
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

// ExpectedFPR returns the rate to expect from how full the filter is: the two
// buckets of an absent item hold that many fingerprints, each like its own with
// chance 1/255.
func (f *Cuckoo) ExpectedFPR() float64 {
	load := float64(2*f.bucketSize) * float64(len(f.links))
	if bytes := f.Bytes(); bytes > 0 {
		load *= float64(f.items) / float64(bytes)
	}
	return -math.Expm1(load * math.Log1p(-1.0/255))
}
