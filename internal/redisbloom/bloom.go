package redisbloom

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Layout says how items are spread over the bits of a Bloom filter and how it
// is sized. On disk; do not change.
type Layout uint8

const (
	// Redis is the layout of Redis' BF commands. Small links miss the promised
	// rate: bits that are found by double hashing modulo a small number
	// coincide too often.
	Redis Layout = 0
	// Tight finds bits by the high halves of a linear congruential sequence that
	// two words of hash begin, so they coincide no more often than chance has
	// it; it sizes each link so that its expected rate is exactly its share, and
	// gives link i the share 6/(π(i+1))² of the rate: the shares add up to the
	// whole, and shrink slowly, so growing costs fewer bits.
	//
	// A filter that does not grow has one link of the whole rate, and takes what
	// Redis' takes: at log2(e)·log2(1/rate) bits an item both are at the least that
	// any Bloom filter needs, so Tight's gain is where filters grow, and the rate.
	// Blocks of a cache line would need more, 17 % more false positives at the same
	// size. Tables of fingerprints would need less, 5 % at a rate of 1 % and 12 % at
	// 0.1 %, but refuse items, by chance and before they hold what was reserved,
	// where BF.ADD must not.
	Tight Layout = 1
)

// BloomOptions are the parameters of a new Bloom filter.
type BloomOptions struct {
	Capacity uint64  // items before the first growth; at least 1
	Error    float64 // the promised false positive rate, above 0, below 1
	// Expansion is the factor by which the capacity of each new link grows.
	// 0 makes a filter that is full when it holds Capacity items.
	Expansion uint32
	Layout    Layout
	MaxBytes  uint64 // of memory; 0: no limit
}

const (
	// maxErrorRate caps what is asked for.
	maxErrorRate = 0.25
	// ln2sq and ln2 are the constants, with the digits, that sizes depend on.
	ln2sq = 0.480453013918201
	ln2   = 0.693147180559945
	// tightening is the factor between the error rates of links.
	tightening = 0.5
	// tightMul is the multiplier of Tight's sequence: Knuth's, of MMIX. On disk; do
	// not change.
	tightMul = 6364136223846793005
	// maxHashes bounds what a dump may claim: 1e-300 makes 998.
	maxHashes = 4096
	// maxLinks bounds what a dump may claim; doubling reaches 2⁶⁴ before.
	maxLinks = 1024
)

// The options of a dump: bit 0 and bit 2 are set, bit 3 keeps it from growing.
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
	entries uint64  // items it is made for
	err     float64
	bpe     float64 // bits an entry
	hashes  uint32
	n2      uint8 // log2(bits) if the dump said so, else 0
}

// Bloom is a chain of Bloom filters, the last of which takes new items.
type Bloom struct {
	layout  Layout
	options uint32
	growth  uint32
	promise float64 // Tight: the rate of the whole filter
	size    uint64
	links   []link
	redo    []byte
}

// NewBloom returns an empty filter.
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
	f.links = []link{l}
	return f, nil
}

// share is the error rate of link i of a growing Tight filter.
func (f *Bloom) share(i int) float64 {
	n := math.Pi * float64(i+1)
	return f.promise * 6 / (n * n)
}

// sized returns a link for so many entries at an error rate.
func (f *Bloom) sized(entries uint64, rate float64, maxBytes uint64) (link, error) {
	l := link{entries: entries, err: rate}
	var need float64
	if f.layout == Tight {
		l.hashes = uint32(max(1, math.Round(-math.Log2(rate))))
		k := float64(l.hashes)
		// -log1p is exact where the rate is far below 1.
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
	if !(need < float64(maxBytes)*8) || need >= 1<<52 {
		return l, ErrTooLarge
	}
	l.bits = max(64, (uint64(need)+63)&^63)
	if l.bits/8 > maxBytes {
		return l, ErrTooLarge
	}
	l.alloc()
	return l, nil
}

// alloc makes the memory for a link's bits.
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

// set sets an item's bits, and reports whether one of them was not set. Nothing in
// it depends on what memory holds, so that its cache misses overlap.
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

// largeLink is the size from which most of a link's bits are not in a core's own caches.
const largeLink = 1 << 20

// read reads the bytes that hold the bits of items. Far more of these reads overlap than of those
// of set, which does more between them.
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

// keep keeps the compiler from dropping a read.
//
//go:noinline
func keep(byte) {}

// Add adds an item unless the filter may contain it, and reports whether it
// did. It may grow by up to room bytes. ErrFull and ErrTooLarge leave the
// filter as it was.
func (f *Bloom) Add(item []byte, room uint64) (bool, error) { return f.add(f.pair(item), room) }

// addBatch is how many items AddMany reads the bits of ahead.
const addBatch = 16

// AddMany adds items in order, up to one that Add would return an error for, and appends to added
// what Add would report. If the filter is larger than the caches, it takes less time than Add.
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
		// One pass over the bits of the last link is question and answer.
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

// grow adds a link.
func (f *Bloom) grow(room uint64) error {
	if f.options&optNonScaling != 0 || f.growth == 0 {
		return ErrFull
	}
	last := &f.links[len(f.links)-1]
	hi, entries := bits.Mul64(last.entries, uint64(f.growth))
	if hi != 0 || len(f.links) >= maxLinks || room == 0 {
		return ErrTooLarge
	}
	rate := last.err * tightening
	if f.layout == Tight {
		rate = f.share(len(f.links))
	}
	if rate <= 0 {
		return ErrTooLarge
	}
	l, err := f.sized(entries, rate, room)
	if err != nil {
		return err
	}
	f.links = append(f.links, l)
	f.redo = append(f.redo, redoLink)
	f.redo = f.links[len(f.links)-1].append(f.redo)
	return nil
}

// Layout returns the filter's layout.
func (f *Bloom) Layout() Layout { return f.layout }

// Size returns the number of items that were added.
func (f *Bloom) Size() uint64 { return f.size }

// Capacity returns the number of items that the present links are made for.
func (f *Bloom) Capacity() uint64 {
	var n uint64
	for i := range f.links {
		n += f.links[i].entries
	}
	return n
}

// Bytes returns the memory of the bits.
func (f *Bloom) Bytes() uint64 {
	var n uint64
	for i := range f.links {
		n += uint64(len(f.links[i].data))
	}
	return n
}

// Data returns the bits of link i, which must not be changed, and change with the filter.
func (f *Bloom) Data(i int) []byte { return f.links[i].data }

// Links returns the number of links.
func (f *Bloom) Links() int { return len(f.links) }

// Expansion returns the growth factor, and false for a filter that does not
// grow.
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

// ExpectedFPR returns the rate to expect with the items that the filter holds.
func (f *Bloom) ExpectedFPR() float64 {
	miss := 1.0
	for i := range f.links {
		l := &f.links[i]
		k := float64(l.hashes)
		miss *= 1 - math.Pow(-math.Expm1(-k*float64(l.count)/float64(l.bits)), k)
	}
	return 1 - miss
}

// PromisedFPR returns the rate that the filter was made for.
func (f *Bloom) PromisedFPR() float64 {
	switch {
	case f.layout == Tight:
		return f.promise
	case f.options&optNonScaling != 0:
		return f.links[0].err
	}
	return f.links[0].err / tightening
}
