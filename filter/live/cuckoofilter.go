package live

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// Add adds an element, once more if it was added before, and reports whether it was new:
// if so, it was not in the filter before. If there is no space for it, Add returns ErrFull
// and changes nothing.
func (f *Cuckoo[T]) Add(v T) (isNew bool, err error) { return f.addSum(f.key.Sum64(v)) }

func (c *cuckoo) addSum(sum uint64) (isNew bool, err error) {
	isNew, ok := c.add(sum)
	if !ok {
		return false, ErrFull
	}
	return isNew, nil
}

// AddMany adds elements until there is no space for one; see FallibleAdder.
func (f *Cuckoo[T]) AddMany(vs []T, isNew []bool) (n int, err error) {
	var sums [batch]uint64
	for n < len(vs) {
		part := vs[n:min(n+batch, len(vs))]
		for i, v := range part {
			sums[i] = f.key.Sum64(v)
		}
		for i := range part {
			added, err := f.addSum(sums[i])
			if err != nil {
				return n, err
			}
			if isNew != nil {
				isNew[n] = added
			}
			n++
		}
	}
	return n, nil
}

// AddNew adds an element unless the filter may contain it, and reports whether it
// did. Of several concurrent calls with the same new element exactly one adds it. If there
// is no space for it, AddNew returns ErrFull.
func (f *Cuckoo[T]) AddNew(v T) (bool, error) {
	h := f.key.Sum64(v)
	mu := &f.newer[mix(h)%uint64(len(f.newer))]
	mu.Lock()
	defer mu.Unlock()
	if f.has(h) {
		return false, nil
	}
	if _, ok := f.add(h); !ok {
		return false, ErrFull
	}
	return true, nil
}

// MayContain reports false only if the element was not added, or was deleted as often
// as it was added.
func (f *Cuckoo[T]) MayContain(v T) bool { return f.has(f.key.Sum64(v)) }

// MayContainMany sets positive[i] to MayContain(vs[i]) for each i, faster than one by
// one. len(positive) >= len(vs).
func (f *Cuckoo[T]) MayContainMany(vs []T, positive []bool) {
	mayContainMany(f.key.Sum64, f, vs, positive)
}

func (c *cuckoo) hasSum(sum uint64) bool { return c.has(sum) }

// Delete undoes one Add of an element. It returns false, and changes nothing,
// if the element is not in the filter.
func (f *Cuckoo[T]) Delete(v T) bool { return f.remove(f.key.Sum64(v)) }

// CountOf returns how often an element was added and not deleted. The result may be too
// high, since other elements with the same fingerprint count too.
func (f *Cuckoo[T]) CountOf(v T) int { return f.count(f.key.Sum64(v)) }

// ApproxCount is the number of elements in the filter, each as often as it was
// added. It is exact while nothing is added or deleted. It reads the whole filter.
func (f *Cuckoo[T]) ApproxCount() uint64 { return f.used() }

// Capacity is the number of slots. With Items elements, about 3% (9-bit fingerprints) to
// 16% (32-bit fingerprints) of them are empty.
func (f *Cuckoo[T]) Capacity() uint64 { return f.n * uint64(f.slots) }

// FillRatio is the share of slots that are used, 0 to 1. It reads the whole filter.
func (f *Cuckoo[T]) FillRatio() float64 { return float64(f.used()) / float64(f.Capacity()) }

// FPR is the share of absent elements for which MayContain is true now. It reads
// the whole filter.
func (f *Cuckoo[T]) FPR() float64 { return f.fpr(f.FillRatio()) }

// FingerprintBits is the size of a fingerprint.
func (f *Cuckoo[T]) FingerprintBits() int { return int(f.width) }

// MemoryBytes is the memory that the buckets take.
func (f *Cuckoo[T]) MemoryBytes() int { return len(f.words)*8 + len(f.halfs)*4 }

// Compatible returns nil if o can be merged into f; see Merger.
func (f *Cuckoo[T]) Compatible(o *Cuckoo[T]) error {
	switch {
	case f.key.Kind() != o.key.Kind():
		return incompatible("kinds of elements", f.key.Kind(), o.key.Kind())
	case f.width != o.width:
		return incompatible("bits of a fingerprint", f.width, o.width)
	case f.n != o.n:
		return incompatible("buckets", f.n, o.n)
	case f.seed != o.seed:
		return incompatible("seeds", f.seed, o.seed)
	}
	return nil
}

// Merge adds all elements of o to f, each as often as it is in o; see Merger. If they do
// not fit, it removes those that it has added and returns ErrFull. It needs the memory of
// a third filter while it runs.
func (f *Cuckoo[T]) Merge(o *Cuckoo[T]) error {
	if err := f.Compatible(o); err != nil {
		return err
	}
	other := o.cut()
	return f.merge(&other)
}

// merge inserts the fingerprints of o. If one does not fit, it removes those that it has
// inserted.
func (c *cuckoo) merge(o *cuckoo) error {
	n := 0
	full := o.each(func(bucket uint64, fp uint32) bool {
		n++
		return !c.insert(fp, bucket, c.other(bucket, fp))
	})
	if !full {
		return nil
	}
	o.each(func(bucket uint64, fp uint32) bool {
		if n--; n > 0 {
			c.removeFrom(fp, bucket, c.other(bucket, fp))
		}
		return n == 0
	})
	return ErrFull
}

// each calls fn with the fingerprints and their buckets, always in the same order,
// until fn returns true. It reports whether fn did.
func (c *cuckoo) each(fn func(bucket uint64, fp uint32) bool) bool {
	for bucket := range c.n {
		w := c.load(bucket)
		for i := range c.slots {
			if fp := c.get(w, uint(i)*c.width); fp != 0 && fn(bucket, fp) {
				return true
			}
		}
	}
	return false
}

// Clone returns a copy with at least the elements whose Add has returned.
func (f *Cuckoo[T]) Clone() *Cuckoo[T] { return &Cuckoo[T]{key: f.key, cuckoo: f.cut()} }

// cut returns a copy. It runs while neither a move nor removeFrom does, so the copy has the
// fingerprints of all elements that are neither added nor deleted meanwhile.
func (c *cuckoo) cut() cuckoo {
	k := newCuckoo(0, c.width, c.seed)
	k.n = c.n
	c.moves.Lock()
	defer c.moves.Unlock()
	if c.halfs == nil {
		k.words = copyWords(c.words)
		return k
	}
	k.halfs = make([]uint32, len(c.halfs))
	for i := range c.halfs {
		k.halfs[i] = atomic.LoadUint32(&c.halfs[i])
	}
	return k
}

// Equal reports whether the filters have the same parameters and buckets. Filters to which
// the same elements were added in another order may differ.
func (f *Cuckoo[T]) Equal(o *Cuckoo[T]) bool {
	if f.Compatible(o) != nil {
		return false
	}
	for i := range f.n {
		if f.load(i) != o.load(i) {
			return false
		}
	}
	return true
}

// Reset removes all elements. An element whose Add runs at the same time may be
// lost.
func (f *Cuckoo[T]) Reset() {
	f.moves.Lock()
	defer f.moves.Unlock()
	// With all locks held, no fingerprint is moved.
	for i := range f.locks {
		acquire(&f.locks[i])
		defer release(&f.locks[i])
	}
	for i := range f.words {
		atomic.StoreUint64(&f.words[i], 0)
	}
	for i := range f.halfs {
		atomic.StoreUint32(&f.halfs[i], 0)
	}
}

// WriteTo writes the filter in the format that ReadCuckoo and ReadFrom read. An element
// that is added or deleted meanwhile is in it completely or not at all. WriteTo first
// copies the filter in memory, which takes the memory of a second filter; an Add that has
// to move fingerprints waits for that, and so does a Delete that takes a lock.
func (f *Cuckoo[T]) WriteTo(w io.Writer) (int64, error) {
	c := f.cut()
	words := c.words
	if c.halfs != nil {
		words = make([]uint64, c.n/2)
		for i := range words {
			words[i] = c.load(uint64(2*i)) | c.load(uint64(2*i+1))<<32
		}
	}
	return writeRecord(w, record{
		kind:     kindCuckoo,
		elements: f.key.Kind(),
		hashes:   uint32(c.width),
		words:    uint64(len(words)),
		seed:     c.seed,
	}, words)
}

// ReadFrom replaces the filter with one that WriteTo wrote; see Filter.
func (f *Cuckoo[T]) ReadFrom(r io.Reader) (int64, error) { return readFrom(f, r) }

// MarshalBinary returns what WriteTo writes.
func (f *Cuckoo[T]) MarshalBinary() ([]byte, error) { return marshal(f) }

// UnmarshalBinary replaces the filter with one that MarshalBinary wrote; see Filter.
func (f *Cuckoo[T]) UnmarshalBinary(data []byte) error { return unmarshal(f, data) }

// ReadCuckoo reads a filter that WriteTo wrote; see ReadBloom.
func ReadCuckoo[T any](r io.Reader, o ReadOptions[T]) (*Cuckoo[T], error) {
	return readNew(r, o, func(key funnel.Key[T]) *Cuckoo[T] { return &Cuckoo[T]{key: key} })
}

func (f *Cuckoo[T]) elementKind() (funnel.Kind, error) { return elementKind(&f.key) }

func (f *Cuckoo[T]) read(s *source) error {
	c, err := readCuckoo(s)
	if err != nil {
		return fmt.Errorf("read cuckoo filter: %w", err)
	}
	f.cuckoo = c
	return nil
}

func readCuckoo(s *source) (cuckoo, error) {
	rec, err := readHeader(s, kindCuckoo)
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
	words, err := readBody(s, rec)
	if err != nil {
		return cuckoo{}, err
	}
	c := newCuckoo(0, uint(rec.hashes), rec.seed)
	if c.half() {
		c.n = 2 * rec.words
		c.halfs = make([]uint32, c.n)
		for i, w := range words {
			c.halfs[2*i], c.halfs[2*i+1] = uint32(w), uint32(w>>32)
		}
		return c, nil
	}
	c.n, c.words = rec.words, words
	for i, w := range words {
		if w > c.high|c.low {
			return cuckoo{}, formatError("word %d has bits above its slots", i)
		}
	}
	return c, nil
}
