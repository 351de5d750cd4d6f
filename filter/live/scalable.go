package live

import (
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// ScalableOptions are the parameters of a Scalable.
type ScalableOptions[T any] struct {
	// Items is the number of elements that the first link is for; 1,000 if zero.
	// A good estimate saves memory and time; a bad one is not an error.
	Items uint64
	// FPR is the false positive rate that the filter stays below, at least 1e-300. With a Growth of
	// 1, it does so only up to 64 times Items elements.
	FPR float64
	// Growth is the ratio between the sizes of a link and the one before, 1 to 16;
	// 2 if zero.
	Growth int
	// Seed, if not zero, makes false positives independent of those of filters
	// with other seeds.
	Seed uint64
	// Funnel appends the bytes of an element; see BloomOptions.
	Funnel func(dst []byte, v T) []byte
}

// Scalable is a Bloom filter that grows: a chain of Bloom filters, called links. When the
// last link is full, another one is added (Almeida, Baquero, Preguiça, Hutchison, "Scalable
// Bloom Filters", IPL 101(6), 2007). Link i is made for an FPR of FPR/((i+1)(i+2)). The sum
// of these is less than FPR for any number of links, and they fall slowly enough to cost few
// bits. A lookup of an absent element probes every link. There are at most 64 links; the
// last of them is filled beyond its size.
//
// Scalable is safe for concurrent use. Add and MayContain take no locks, except for the Add
// that adds a link.
type Scalable[T any] struct {
	key    funnel.Key[T]
	items  uint64
	fpr    float64
	growth uint64
	seed   uint64
	links  atomic.Pointer[[]*link] // the newest last; replaced, never changed
	mu     sync.Mutex              // held to add a link
}

// link is one filter of a chain.
type link struct {
	table
	capacity uint64
	count    atomic.Uint64 // of elements that changed a bit
}

const (
	defaultScalableItems = 1000
	defaultGrowth        = 2
	maxGrowth            = 16
	maxLinks             = 64
	maxLinkItems         = 1 << 36
	minScalableFPR       = 1e-300 // the FPR of a link must not become zero
)

// NewScalable returns an empty filter, or an *OptionError.
func NewScalable[T any](o ScalableOptions[T]) (*Scalable[T], error) {
	key, err := newKey(o.Funnel)
	if err != nil {
		return nil, err
	}
	if o.Items == 0 {
		o.Items = defaultScalableItems
	}
	if o.Growth == 0 {
		o.Growth = defaultGrowth
	}
	if o.Growth < 1 || o.Growth > maxGrowth {
		return nil, optionError("Growth", "%d is not in 1..16", o.Growth)
	}
	if o.Items > maxLinkItems {
		return nil, optionError("Items", "%d are more than 2^36", o.Items)
	}
	if err := checkItems(o.Items, o.FPR); err != nil {
		return nil, err
	}
	if o.FPR < minScalableFPR {
		return nil, optionError("FPR", "%v is less than %v", o.FPR, minScalableFPR)
	}
	f := &Scalable[T]{key: key, items: o.Items, fpr: o.FPR, growth: uint64(o.Growth), seed: o.Seed}
	if numWords, _ := f.linkSize(0); numWords > maxWords {
		return nil, optionError("Items", "%d at an FPR of %v need %d words, too many",
			o.Items, o.FPR, numWords)
	}
	f.links.Store(&[]*link{f.newLink(0)})
	return f, nil
}

// linkItems returns the number of elements that link i is for.
func linkItems(items, growth uint64, i int) uint64 {
	for range i {
		items = min(items*growth, maxLinkItems)
	}
	return items
}

// linkSize returns the number of words and of hashes of link i.
func (f *Scalable[T]) linkSize(i int) (numWords uint64, hashes int) {
	items, fpr := linkItems(f.items, f.growth, i), f.fpr/float64((i+1)*(i+2))
	// The FPR of a filter varies around the expected one, with a relative standard
	// deviation of 0.46 √(k/n): 15% for a hundred elements at 0.05%. The margin is
	// four times that.
	fpr /= 1 + 1.85*math.Sqrt(-math.Log2(fpr)/float64(items))
	bits := max(1, OptimalBits(items, fpr))
	hashes = min(maxHashes, OptimalHashes(bits, items))
	for ExpectedFPR(bits, hashes, items) > fpr { // since hashes was rounded
		bits += bits/100 + 1
	}
	return (bits + wordBits - 1) / wordBits, hashes
}

func (f *Scalable[T]) newLink(i int) *link {
	numWords, hashes := f.linkSize(i)
	return &link{
		table:    newTable(Scattered, numWords, hashes, f.seed),
		capacity: linkItems(f.items, f.growth, i),
	}
}

// Add adds an element and reports whether it was new. If the filter may contain the
// element, Add returns false and does nothing. Of several concurrent calls with the
// same new element, at least one returns true.
func (f *Scalable[T]) Add(v T) bool { return f.addSum(f.key.Sum64(v)) }

// AddMany adds elements, faster than one by one; see Adder.
func (f *Scalable[T]) AddMany(vs []T, isNew []bool) { addMany(f.key.Sum64, f, vs, isNew) }

func (f *Scalable[T]) addSum(sum uint64) bool {
	d := digest{a: sum}
	for {
		links := *f.links.Load()
		if hasAny(links, d) {
			return false
		}
		last := links[len(links)-1]
		if last.reserve(len(links) == maxLinks) {
			if !last.add(d) { // another caller has added it
				last.count.Add(^uint64(0))
				return false
			}
			return true
		}
		f.grow(last)
	}
}

// reserve counts an element before it is added, so that concurrent callers do not fill a
// link above its capacity, unless more is set. It returns false if the link is full.
func (l *link) reserve(more bool) bool {
	if l.count.Add(1) <= l.capacity || more {
		return true
	}
	l.count.Add(^uint64(0))
	return false
}

func hasAny(links []*link, d digest) bool {
	for i := len(links) - 1; i >= 0; i-- { // most elements are in the largest
		if links[i].has(d) {
			return true
		}
	}
	return false
}

// grow adds a link after last, unless there already is one.
func (f *Scalable[T]) grow(last *link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	links := *f.links.Load()
	if links[len(links)-1] != last {
		return
	}
	longer := append(links[:len(links):len(links)], f.newLink(len(links)))
	f.links.Store(&longer)
}

// MayContain reports false only if the element was not added.
func (f *Scalable[T]) MayContain(v T) bool {
	return hasAny(*f.links.Load(), digest{a: f.key.Sum64(v)})
}

// MayContainMany sets positive[i] to MayContain(vs[i]) for each i, faster than one by
// one. len(positive) >= len(vs).
func (f *Scalable[T]) MayContainMany(vs []T, positive []bool) {
	mayContainMany(f.key.Sum64, f, vs, positive)
}

func (f *Scalable[T]) hasSum(sum uint64) bool { return hasAny(*f.links.Load(), digest{a: sum}) }

// ApproxCount is the number of different elements that were added, except those that were
// false positives.
func (f *Scalable[T]) ApproxCount() uint64 {
	n := uint64(0)
	for _, l := range *f.links.Load() {
		n += l.count.Load()
	}
	return n
}

// FPR is the share of absent elements for which MayContain is true now, or slightly
// more. It reads the whole filter.
func (f *Scalable[T]) FPR() float64 {
	no := 1.0
	for _, l := range *f.links.Load() {
		no *= 1 - l.fpr()
	}
	return 1 - no
}

// FillRatio is the share of bits that are set, 0 to 1. It reads the whole filter.
func (f *Scalable[T]) FillRatio() float64 {
	ones, bits := uint64(0), uint64(0)
	for _, l := range *f.links.Load() {
		ones, bits = ones+l.ones(), bits+l.bits
	}
	return float64(ones) / float64(bits)
}

// Links is the number of filters in the chain.
func (f *Scalable[T]) Links() int { return len(*f.links.Load()) }

// MemoryBytes is the memory that the bits take.
func (f *Scalable[T]) MemoryBytes() int {
	n := 0
	for _, l := range *f.links.Load() {
		n += len(l.words) * 8
	}
	return n
}

// Clone returns a copy with at least the elements whose Add has returned.
func (f *Scalable[T]) Clone() *Scalable[T] {
	c := &Scalable[T]{key: f.key, items: f.items, fpr: f.fpr, growth: f.growth, seed: f.seed}
	links := f.copyLinks()
	c.links.Store(&links)
	return c
}

func (f *Scalable[T]) copyLinks() []*link {
	var links []*link
	for _, l := range *f.links.Load() {
		links = append(links, l.copy())
	}
	return links
}

// copy copies a link. It copies the count last, so that it covers all elements in the bits.
func (l *link) copy() *link {
	c := &link{table: l.clone(), capacity: l.capacity}
	c.count.Store(l.count.Load())
	return c
}

// Equal reports whether the filters have the same parameters and bits.
func (f *Scalable[T]) Equal(o *Scalable[T]) bool {
	a, b := *f.links.Load(), *o.links.Load()
	if f.key.Kind() != o.key.Kind() || f.items != o.items || f.fpr != o.fpr || f.growth != o.growth || f.seed != o.seed || len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].compatible(&b[i].table) != nil || a[i].count.Load() != b[i].count.Load() || !equalWords(a[i].words, b[i].words) {
			return false
		}
	}
	return true
}

// Reset removes all elements, and all links except the first. An element whose Add runs at
// the same time may be lost.
func (f *Scalable[T]) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.links.Store(&[]*link{f.newLink(0)})
}

// WriteTo writes the filter in the format that ReadScalable and ReadFrom read. It
// includes all elements whose Add has returned; one that is added meanwhile may be
// missing. It needs the memory for a copy of the newest link.
func (f *Scalable[T]) WriteTo(w io.Writer) (int64, error) {
	links := *f.links.Load()
	written, err := writeRecord(w, record{
		kind:     kindScalable,
		elements: f.key.Kind(),
		hashes:   uint32(len(links)),
		seed:     f.seed,
		items:    f.items,
		fpr:      math.Float64bits(f.fpr),
		growth:   f.growth,
	}, nil)
	for i, l := range links {
		if err != nil {
			return written, err
		}
		if i == len(links)-1 {
			l = l.copy()
		}
		var n int64
		n, err = l.write(w, f.key.Kind(), l.count.Load())
		written += n
	}
	return written, err
}

// ReadFrom replaces the filter with one that WriteTo wrote; see Filter.
func (f *Scalable[T]) ReadFrom(r io.Reader) (int64, error) { return readFrom(f, r) }

// MarshalBinary returns what WriteTo writes.
func (f *Scalable[T]) MarshalBinary() ([]byte, error) { return marshal(f) }

// UnmarshalBinary replaces the filter with one that MarshalBinary wrote; see Filter.
func (f *Scalable[T]) UnmarshalBinary(data []byte) error { return unmarshal(f, data) }

// ReadScalable reads a filter that WriteTo wrote; see ReadBloom.
func ReadScalable[T any](r io.Reader, o ReadOptions[T]) (*Scalable[T], error) {
	return readNew(r, o, func(key funnel.Key[T]) *Scalable[T] { return &Scalable[T]{key: key} })
}

func (f *Scalable[T]) elementKind() (funnel.Kind, error) { return elementKind(&f.key) }

func (f *Scalable[T]) read(s *source) error {
	rec, links, err := readLinks(s)
	if err != nil {
		return fmt.Errorf("read scalable filter: %w", err)
	}
	f.items, f.fpr, f.growth, f.seed = rec.items, math.Float64frombits(rec.fpr), rec.growth, rec.seed
	f.links.Store(&links)
	return nil
}

func readLinks(s *source) (rec record, links []*link, err error) {
	if rec, err = readHeader(s, kindScalable); err != nil {
		return rec, nil, err
	}
	fpr := math.Float64frombits(rec.fpr)
	switch {
	case rec.hashes < 1 || rec.hashes > maxLinks:
		return rec, nil, formatError("%d links", rec.hashes)
	case rec.words != 0 || rec.scheme != 0:
		return rec, nil, formatError("fields that a Scalable does not have")
	case rec.growth < 1 || rec.growth > maxGrowth:
		return rec, nil, formatError("growth %d", rec.growth)
	case rec.items < 1 || rec.items > maxLinkItems || !(fpr >= minScalableFPR) || checkItems(rec.items, fpr) != nil:
		return rec, nil, formatError("%d items at an FPR of %v", rec.items, fpr)
	}
	if _, err := readBody(s, rec); err != nil {
		return rec, nil, err
	}
	for i := range int(rec.hashes) {
		t, count, err := readTable(s)
		if err != nil {
			return rec, nil, fmt.Errorf("link %d: %w", i, err)
		}
		if t.scheme != Scattered || t.seed != rec.seed {
			return rec, nil, formatError("link %d is of scheme %v, seed %d", i, t.scheme, t.seed)
		}
		l := &link{table: t, capacity: linkItems(rec.items, rec.growth, i)}
		// A file that claims more elements than its links are for would make an Add, which adds a
		// link of that size, allocate far more than the file has. Half is for other rounding.
		if t.bits < OptimalBits(l.capacity, fpr/float64((i+1)*(i+2)))/2 {
			return rec, nil, formatError("link %d of %d bits for %d elements", i, t.bits, l.capacity)
		}
		l.count.Store(count)
		links = append(links, l)
	}
	return rec, links, nil
}
