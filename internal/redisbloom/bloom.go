package redisbloom

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Layout determines which bits of a Bloom filter an item sets, and how the filter is
// sized. On disk; do not change.
type Layout uint8

const (
	// Redis is the layout of RedisBloom. Its small links exceed the requested rate:
	// positions from double hashing modulo a small number coincide too often.
	Redis Layout = 0
	// Tight takes positions from the high halves of a linear congruential sequence that
	// starts from two words of hash, so they coincide no more often than random ones.
	// It sizes each link so that its expected rate is exactly its share. The share of
	// link i is 6/(π(i+1))² of the requested rate: these add up to the whole, and shrink
	// slowly, so that growth costs fewer bits.
	//
	// A filter that does not grow has one link with the whole rate and takes as much
	// memory as Redis: log2(e)·log2(1/rate) bits per item, which is the minimum for Bloom
	// filters. So Tight gains memory only where filters grow, and otherwise accuracy.
	// Blocks of a cache line would have 17% more false positives at the same size.
	// Tables of fingerprints would be smaller, by 5% at a rate of 1% and by 12% at
	// 0.1%, but may by chance reject items before they hold the reserved number, which
	// BF.ADD must not.
	Tight Layout = 1
)

// BloomOptions are the parameters of a new Bloom filter.
type BloomOptions struct {
	Capacity uint64  // items before the filter first grows; at least 1
	Error    float64 // the false positive rate, above 0, below 1
	// Expansion is the factor by which the capacity of each new link grows.
	// 0 makes a filter that is full when it holds Capacity items.
	Expansion uint32
	Layout    Layout
	MaxBytes  uint64 // of memory; 0: no limit
}

const (
	// maxErrorRate is the maximum rate; higher ones are lowered to it.
	maxErrorRate = 0.25
	// ln2sq and ln2 have exactly the digits on which sizes depend.
	ln2sq = 0.480453013918201
	ln2   = 0.693147180559945
	// tightening is the factor between the error rates of links.
	tightening = 0.5
	// tightMul is the multiplier of Tight's sequence, which is Knuth's for MMIX. On disk;
	// do not change.
	tightMul = 6364136223846793005
	// maxHashes bounds the hashes in a dump: a rate of 1e-300 needs 998.
	maxHashes = 4096
	// maxLinks bounds the links in a dump: doubling reaches 2⁶⁴ items with fewer.
	maxLinks = 1024
)

// The options in a dump: bits 0 and 2 are always set; with bit 3 the filter does not grow.
const (
	optBase       = 1 | 4
	optNonScaling = 8
)

// link is one Bloom filter of a chain.
type link struct {
	segment
	bits    uint64
	div     divisor // by bits
	count   uint64  // items added
	entries uint64  // items that it is made for
	err     float64
	bpe     float64 // bits per entry
	hashes  uint32
	n2      uint8 // log2(bits) if a dump had it, else 0
}

// Bloom is a chain of Bloom filters. New items are added to the last one.
type Bloom struct {
	layout  Layout
	options uint32
	growth  uint32
	promise float64 // Tight: the requested rate of the whole filter
	size    uint64
	links   []link
	redo    []byte
}

// NewBloom returns an empty filter, or ErrTooLarge.
func NewBloom(o BloomOptions) (*Bloom, error) {
	f := &Bloom{layout: o.Layout, options: optBase, growth: o.Expansion, promise: o.Error}
	rate := o.Error
	if o.Layout == Redis {
		rate = min(rate, maxErrorRate)
	}
	switch {
	case o.Expansion == 0:
		f.options |= optNonScaling
		f.growth = 0
	case o.Layout == Tight:
		rate = f.share(0)
	default:
		rate *= tightening
	}
	l, err := f.sized(o.Capacity, rate, o.MaxBytes)
	if err != nil {
		return nil, err
	}
	l.alloc()
	f.links = []link{l}
	return f, nil
}

// share returns the error rate of link i of a Tight filter that grows.
func (f *Bloom) share(i int) float64 {
	n := math.Pi * float64(i+1)
	return f.promise * 6 / (n * n)
}

// sized returns a link for a number of entries at an error rate, without memory for its bits.
func (f *Bloom) sized(entries uint64, rate float64, maxBytes uint64) (link, error) {
	l := link{entries: entries, err: rate}
	var need float64
	if f.layout == Tight {
		l.hashes = uint32(max(1, math.Round(-math.Log2(rate))))
		k := float64(l.hashes)
		// log1p is precise even if the rate is far below 1.
		l.bpe = -k / math.Log1p(-math.Pow(rate, 1/k))
		need = math.Ceil(float64(entries) * l.bpe)
	} else {
		l.bpe = -math.Log(rate) / ln2sq
		l.hashes = uint32(min(math.Ceil(ln2*l.bpe), maxHashes))
		need = math.Floor(float64(entries) * l.bpe)
	}
	if maxBytes == 0 {
		maxBytes = math.MaxInt64 / 8
	}
	maxBytes = min(maxBytes, maxSegment)
	if !(need < float64(maxBytes)*8) || need >= 1<<52 {
		return l, ErrTooLarge
	}
	l.bits = max(64, (uint64(need)+63)&^63)
	if l.bits/8 > maxBytes {
		return l, ErrTooLarge
	}
	return l, nil
}

// alloc allocates the memory for a link's bits.
func (l *link) alloc() {
	l.div = newDivisor(l.bits)
	l.segment = newSegment(l.bits / 8)
}

// pair hashes an item.
func (f *Bloom) pair(item []byte) hashPair {
	if f.layout == Tight {
		return tightPair(item)
	}
	return redisPair(item)
}

// Contains reports whether the filter may contain an item; false is certain.
func (f *Bloom) Contains(item []byte) bool { return f.contains(f.pair(item)) }

func (f *Bloom) contains(h hashPair) bool {
	for i := len(f.links) - 1; i >= 0; i-- {
		if f.links[i].contains(f.layout, h) {
			return true
		}
	}
	return false
}

func (l *link) contains(layout Layout, h hashPair) bool {
	x, y := h.a, h.b
	if layout == Tight {
		for range l.hashes {
			pos := scale(x, l.bits)
			if l.data[pos/8]&(1<<(pos%8)) == 0 {
				return false
			}
			x = x*tightMul + y
		}
		return true
	}
	for range l.hashes {
		pos := l.div.mod(x)
		if l.data[pos/8]&(1<<(pos%8)) == 0 {
			return false
		}
		x += y
	}
	return true
}

// set sets an item's bits and reports whether one of them was clear. It has no branch that
// depends on the bits, so its cache misses overlap.
func (l *link) set(layout Layout, h hashPair) bool {
	x, y := h.a, h.b
	added := byte(0)
	for range l.hashes {
		var pos uint64
		if layout == Tight {
			pos = scale(x, l.bits)
			x = x*tightMul + y
		} else {
			pos = l.div.mod(x)
			x += y
		}
		p := &l.data[pos/8]
		now := ^*p >> (pos % 8) & 1
		*p |= 1 << (pos % 8)
		l.touchIf(pos/8, now)
		added |= now
	}
	return added != 0
}

// largeLink is the size above which most of a link's bits are not in the private caches of a core.
const largeLink = 1 << 20

// read reads the bytes with the bits of items, so that set then finds them in the cache. Far more
// reads overlap here than in set, which does more work between them: adding ten items to a filter
// of 20 million takes 2.7 µs instead of 3.5 (BenchmarkAddTen).
func (l *link) read(layout Layout, items []hashPair) (sum byte) {
	data := l.data
	for _, h := range items {
		x, y := h.a, h.b
		for range l.hashes {
			var pos uint64
			if layout == Tight {
				pos = scale(x, l.bits)
				x = x*tightMul + y
			} else {
				pos = l.div.mod(x)
				x += y
			}
			sum ^= data[pos/8]
		}
	}
	return sum
}

// keep uses its argument, so that the compiler does not remove the reads.
//
//go:noinline
func keep(byte) {}

// Add adds an item unless the filter may contain it, and reports whether it added it. The
// filter may grow by up to room bytes. After ErrFull and ErrTooLarge it is unchanged.
func (f *Bloom) Add(item []byte, room uint64) (bool, error) { return f.add(f.pair(item), room) }

// addBatch is the number of items whose bits AddMany reads in advance.
const addBatch = 16

// AddMany adds items in order, until one fails, and appends to added what Add would
// report for each. If the filter is larger than the caches, it takes less time than Add.
func (f *Bloom) AddMany(items [][]byte, room uint64, added []bool) ([]bool, error) {
	var hashes [addBatch]hashPair
	for len(items) > 0 {
		n := min(addBatch, len(items))
		last := &f.links[len(f.links)-1]
		for i, item := range items[:n] {
			hashes[i] = f.pair(item)
		}
		if len(last.data) >= largeLink && n > 1 {
			keep(last.read(f.layout, hashes[:n]))
		}
		for _, h := range hashes[:n] {
			isNew, err := f.add(h, room)
			if err != nil {
				return added, err
			}
			added = append(added, isNew)
		}
		items = items[n:]
	}
	return added, nil
}

func (f *Bloom) add(h hashPair, room uint64) (bool, error) {
	last := len(f.links) - 1
	if f.links[last].count < f.links[last].entries {
		// In the last link, one pass over the bits both looks up and adds the item.
		for i := last - 1; i >= 0; i-- {
			if f.links[i].contains(f.layout, h) {
				return false, nil
			}
		}
		if !f.links[last].set(f.layout, h) {
			return false, nil
		}
	} else {
		if f.contains(h) {
			return false, nil
		}
		if err := f.grow(room); err != nil {
			return false, err
		}
		last++
		f.links[last].set(f.layout, h)
	}
	f.links[last].count++
	f.size++
	f.redo = append(f.redo, redoAdd)
	f.redo = binary.AppendUvarint(f.redo, uint64(last))
	f.redo = binary.LittleEndian.AppendUint64(f.redo, h.a)
	f.redo = binary.LittleEndian.AppendUint64(f.redo, h.b)
	return true, nil
}

func (f *Bloom) put(l *link, h hashPair) {
	l.set(f.layout, h)
	l.count++
	f.size++
}

// next returns the link that grow adds, without memory for its bits.
func (f *Bloom) next(room uint64) (link, error) {
	if f.options&optNonScaling != 0 || f.growth == 0 {
		return link{}, ErrFull
	}
	last := &f.links[len(f.links)-1]
	hi, entries := bits.Mul64(last.entries, uint64(f.growth))
	if hi != 0 || len(f.links) >= maxLinks || room == 0 {
		return link{}, ErrTooLarge
	}
	rate := last.err * tightening
	if f.layout == Tight {
		rate = f.share(len(f.links))
	}
	if rate <= 0 {
		return link{}, ErrTooLarge
	}
	return f.sized(entries, rate, room)
}

// GrowBytes returns how much room Add needs when the filter grows, 0 if it cannot.
func (f *Bloom) GrowBytes() uint64 {
	l, err := f.next(1 << 50)
	if err != nil {
		return 0
	}
	return l.bits/8 + 8 // sized requires slightly more than it takes
}

// grow adds a link.
func (f *Bloom) grow(room uint64) error {
	l, err := f.next(room)
	if err != nil {
		return err
	}
	l.alloc()
	f.links = append(f.links, l)
	f.redo = append(f.redo, redoLink)
	f.redo = f.links[len(f.links)-1].append(f.redo)
	return nil
}

// Layout returns the filter's layout.
func (f *Bloom) Layout() Layout { return f.layout }

// Size returns the number of items that were added.
func (f *Bloom) Size() uint64 { return f.size }

// Capacity returns the number of items that the links so far are made for.
func (f *Bloom) Capacity() uint64 {
	var n uint64
	for i := range f.links {
		n += f.links[i].entries
	}
	return n
}

// Room returns how many items can be added before the filter grows. Links before the last one may
// not be full if they come from a dump, but get no more items.
func (f *Bloom) Room() uint64 {
	last := &f.links[len(f.links)-1]
	return last.entries - last.count
}

// Bytes returns the memory of the bits.
func (f *Bloom) Bytes() uint64 {
	var n uint64
	for i := range f.links {
		n += uint64(len(f.links[i].data))
	}
	return n
}

// Data returns the bits of link i. The slice aliases the filter, whose later changes it shows; the
// caller must not change it.
func (f *Bloom) Data(i int) []byte { return f.links[i].data }

// Links returns the number of links.
func (f *Bloom) Links() int { return len(f.links) }

// Expansion returns the growth factor, and false if the filter does not grow.
func (f *Bloom) Expansion() (uint32, bool) {
	return f.growth, f.options&optNonScaling == 0
}

// LinkInfo describes one link.
type LinkInfo struct {
	Bytes, Bits, Capacity, Size uint64
	Hashes                      uint32
	Error                       float64
}

// Link describes link i.
func (f *Bloom) Link(i int) LinkInfo {
	l := &f.links[i]
	return LinkInfo{uint64(len(l.data)), l.bits, l.entries, l.count, l.hashes, l.err}
}

// ExpectedFPR returns the expected rate with the current number of items.
func (f *Bloom) ExpectedFPR() float64 {
	miss := 1.0
	for i := range f.links {
		l := &f.links[i]
		k := float64(l.hashes)
		miss *= 1 - math.Pow(-math.Expm1(-k*float64(l.count)/float64(l.bits)), k)
	}
	return 1 - miss
}

// PromisedFPR returns the rate for which the filter was made.
func (f *Bloom) PromisedFPR() float64 {
	switch {
	case f.layout == Tight:
		return f.promise
	case f.options&optNonScaling != 0:
		return f.links[0].err
	}
	return f.links[0].err / tightening
}
