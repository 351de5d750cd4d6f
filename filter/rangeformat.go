package filter

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"slices"
	"sort"
)

// A range filter contains n distinct places in a universe of size r, in ascending order and in
// Elias-Fano coding. The lowest l bits of each place are stored in binary. The other bits, the
// place's rest, are stored in unary in the upper part, where each place has a one: the rest is the
// number of zeros before that one.
//
//	offset from the start  size   field
//	0                      8u     upper: the ones of the places, and a zero for each
//	                              possible rest, 0 to (r-1)>>l
//	8u                     8v     lower: l bits per place
//
//	offset from the end    size   field
//	40                     8      n
//	32                     8      r
//	24                     8      salt, as in keyed filters; 0 if not keyed
//	16                     8      check, as in keyed filters; 0 if not keyed
//	8                      1      l
//	7                      1      number of low bits of each number that are dropped
//	6                      1      version, 1
//	5                      1      0
//	4                      4      CRC-32C of all bytes before it
//
// Integers are little-endian. Bit strings consist of words of 64 bits, the lowest bit first, and
// are padded with zeros. u is the number of words for n + (r-1>>l) + 1 bits, v the number of words
// for n*l bits; both are 0 if n is 0.
//
// The place of a number x, without its dropped bits, after a prefix P is
//
//	(start(P, x/r) + x%r) mod r,  start(P, j) = the high 64 bits of r * salted(v)
//
// where v is Hash(P) + j*9e3779b97f4a7c15. In a keyed filter v is the hash, under the secret,
// of 16 bytes: the hash of P under the secret, and j. salted is that of keyed filters.
//
// TestRangeFormat has the bytes for the keys 1, 2 and 100 with an empty prefix at 4 bits per
// key, where r is 12. All of this is on disk; do not change.
const (
	rangeTrailer  = 40
	rangeVersion  = 1
	maxRangeCodes = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// rangeShape holds the parameters of a range filter and the sizes of its parts.
type rangeShape struct {
	n, r  uint64
	l     uint
	upper int // size in words
	lower int // size in words
}

func newRangeShape(n, r uint64, l uint) rangeShape {
	s := rangeShape{n: n, r: r, l: l}
	if n > 0 {
		s.upper = int((s.upperBits() + 63) / 64)
		s.lower = int((n*uint64(l) + 63) / 64)
	}
	return s
}

// upperBits returns the size of the upper part without its padding.
func (s *rangeShape) upperBits() uint64 { return s.n + (s.r-1)>>s.l + 1 }

// sampleBytes returns the size of a reader's samples.
func (s *rangeShape) sampleBytes() int { return 4 * ((s.upper + rankEvery/64 - 1) / (rankEvery / 64)) }

// size returns the size of the block in bytes.
func (s *rangeShape) size() int { return 8*(s.upper+s.lower) + rangeTrailer }

// appendRange returns the block for ascending places. It drops duplicates.
func appendRange(places []uint64, h *rangeHash, p rangePolicy) []byte {
	places = slices.Compact(places)
	s := newRangeShape(uint64(len(places)), h.universe, uint(p.bits-2))
	b := AlignedBytes(s.size())
	s.encode(b, places)
	t := b[len(b)-rangeTrailer:]
	binary.LittleEndian.PutUint64(t, s.n)
	binary.LittleEndian.PutUint64(t[8:], h.universe)
	if h.secret != nil {
		binary.LittleEndian.PutUint64(t[16:], h.salt)
		binary.LittleEndian.PutUint64(t[24:], saltCheck(h.secret, h.salt))
	}
	t[32], t[33], t[34] = byte(s.l), byte(p.drop), rangeVersion
	binary.LittleEndian.PutUint32(t[36:], crc32.Checksum(b[:len(b)-4], castagnoli))
	return b
}

// encode writes the upper and the lower part of strictly ascending places.
func (s *rangeShape) encode(b []byte, places []uint64) {
	set := func(words []byte, bit uint64) { words[bit/8] |= 1 << (bit % 8) }
	lower := b[8*s.upper:]
	for i, c := range places {
		set(b, c>>s.l+uint64(i))
		low, at := c&(1<<s.l-1), uint64(i)*uint64(s.l)
		w := lower[at/64*8:]
		binary.LittleEndian.PutUint64(w, binary.LittleEndian.Uint64(w)|low<<(at%64))
		if at%64+uint64(s.l) > 64 {
			binary.LittleEndian.PutUint64(w[8:], low>>(64-at%64))
		}
	}
}

// rankEvery is the number of bits of the upper part for which a reader keeps one sample.
const rankEvery = 512

// rangeReader is the RangeReader of Range.
type rangeReader struct {
	rangeShape
	hash  rangeHash
	drop  uint
	bytes []byte   // the whole block; after Trim its trailer is zero
	lows  []byte   // bytes from the lower part on
	ranks []uint32 // samples: the number of ones before each rankEvery bits of the upper part
}

// openRange opens a range filter. secret is nil if the filter is not keyed.
func openRange(b []byte, secret *Secret) (RangeReader, error) {
	if len(b) < rangeTrailer {
		return nil, damaged("range filter of %d bytes, shorter than its trailer", len(b))
	}
	t := b[len(b)-rangeTrailer:]
	if t[34] != rangeVersion || t[35] != 0 {
		return nil, damaged("range filter of unknown version %d", t[34])
	}
	if binary.LittleEndian.Uint32(t[36:]) != crc32.Checksum(b[:len(b)-4], castagnoli) {
		return nil, damaged("checksum mismatch in a range filter")
	}
	n, r := binary.LittleEndian.Uint64(t), binary.LittleEndian.Uint64(t[8:])
	l := uint(t[32])
	if n > maxRangeCodes || n > r || l < minRangeBits-2 || l > maxRangeBits-2 || r>>l > maxRangeCodes || t[33] > maxRangeShift {
		return nil, damaged("range filter with %d places in a universe of %d and %d low bits", n, r, l)
	}
	f := &rangeReader{rangeShape: newRangeShape(n, r, l), drop: uint(t[33]), bytes: b}
	if want := 8*(uint64(f.upper)+uint64(f.lower)) + rangeTrailer; uint64(len(b)) != want { // may exceed an int
		return nil, damaged("range filter of %d bytes, want %d", len(b), want)
	}
	f.hash = rangeHash{universe: r, salt: binary.LittleEndian.Uint64(t[16:]), secret: secret}
	switch check := binary.LittleEndian.Uint64(t[24:]); {
	case secret != nil && check != saltCheck(secret, f.hash.salt):
		return nil, ErrSecret
	case secret == nil && (check != 0 || f.hash.salt != 0):
		return nil, damaged("range filter is keyed")
	}
	ones := f.sample()
	if end := f.upperBits() % 64; f.upper > 0 && end != 0 && f.word(f.upper-1)>>end != 0 || ones != n {
		return nil, damaged("range filter with %d ones for %d places", ones, n)
	}
	return f, nil
}

// sample sets lows and ranks, and returns the number of ones in the upper part.
func (f *rangeReader) sample() (ones uint64) {
	f.lows = f.bytes[8*f.upper:]
	f.ranks = make([]uint32, 0, f.sampleBytes()/4)
	for i := range f.upper {
		if i%(rankEvery/64) == 0 {
			f.ranks = append(f.ranks, uint32(ones))
		}
		ones += uint64(bits.OnesCount64(f.word(i)))
	}
	return ones
}

// word returns word i of the upper part.
func (f *rangeReader) word(i int) uint64 { return binary.LittleEndian.Uint64(f.bytes[8*i:]) }

// low returns the lowest bits of place i.
func (f *rangeReader) low(i uint64) uint64 {
	at := i * uint64(f.l)
	w := f.lows[at/64*8:]
	v := binary.LittleEndian.Uint64(w) >> (at % 64)
	if at%64+uint64(f.l) > 64 {
		v |= binary.LittleEndian.Uint64(w[8:]) << (64 - at%64)
	}
	return v & (1<<f.l - 1)
}

// afterZeros returns the position right after the given number of zeros of the upper part.
// REQUIRES: there are that many.
func (f *rangeReader) afterZeros(zeros uint64) uint64 {
	if zeros == 0 {
		return 0
	}
	k := zeros - 1 // the number of zeros before the last of them
	// before returns the number of zeros before sample i.
	before := func(i int) uint64 { return uint64(i)*rankEvery - uint64(f.ranks[i]) }
	// Except in clusters of keys, zeros are spread evenly: start a galloping search at the sample
	// where the zero would be if all were.
	lo, hi := 0, len(f.ranks)
	for at, step := int(float64(k)/float64(f.upperBits()-f.n)*float64(len(f.ranks))), 1; ; step *= 2 {
		if at = min(max(at, lo), hi-1); before(at) <= k {
			if lo = at; at+step >= hi {
				break
			}
			at += step
		} else {
			if hi = at; at-step < lo {
				break
			}
			at -= step
		}
		if hi-lo == 1 {
			break
		}
	}
	lo += sort.Search(hi-lo-1, func(i int) bool { return before(lo+1+i) > k })
	k -= before(lo)
	for i := lo * (rankEvery / 64); ; i++ {
		w := ^f.word(i)
		if n := uint64(bits.OnesCount64(w)); k >= n {
			k -= n
			continue
		}
		return uint64(64*i+selectBit(w, int(k))) + 1
	}
}

// selectBit returns the position of the k-th one of a word; k counts from 0.
func selectBit(w uint64, k int) int {
	at := 0
	for size := 32; size >= 8; size /= 2 {
		if n := bits.OnesCount64(w & (1<<size - 1)); k >= n {
			k -= n
			w >>= size
			at += size
		}
	}
	for ; k > 0; k-- {
		w &= w - 1
	}
	return at + bits.TrailingZeros64(w)
}

// run returns the number of consecutive zeros from a position of the upper part on. If invert is
// all ones, it returns the number of consecutive ones.
func (f *rangeReader) run(pos uint64, invert uint64) uint64 {
	start := pos
	for i := int(pos / 64); i < f.upper; i++ {
		if w := (f.word(i) ^ invert) >> (pos % 64); w != 0 {
			return pos + uint64(bits.TrailingZeros64(w)) - start
		}
		pos = uint64(i+1) * 64
	}
	return pos - start
}

func (f *rangeReader) ones(pos uint64) uint64  { return f.run(pos, ^uint64(0)) }
func (f *rangeReader) zeros(pos uint64) uint64 { return f.run(pos, 0) }

// any reports whether the filter contains a place from lo to hi.
func (f *rangeReader) any(lo, hi uint64) bool {
	rest := lo >> f.l
	pos := f.afterZeros(rest)
	i := pos - rest // the number of places with a smaller rest
	if n := f.ones(pos); n > 0 {
		low := lo & (1<<f.l - 1)
		at := uint64(0)
		if n <= 4 {
			for at < n && f.low(i+at) < low {
				at++
			}
		} else {
			at = uint64(sort.Search(int(n), func(j int) bool { return f.low(i+uint64(j)) >= low }))
		}
		if at < n {
			return rest<<f.l|f.low(i+at) <= hi
		}
		i, pos = i+n, pos+n
	}
	if i == f.n || rest == hi>>f.l {
		return false
	}
	rest += f.zeros(pos)
	return rest<<f.l|f.low(i) <= hi
}

// from reports whether the filter contains any of the length+1 places from place on, which wrap
// around at the end of the universe.
func (f *rangeReader) from(place, length uint64) bool {
	if f.r != f.hash.universe {
		place %= f.r // trimmed
	}
	if length < f.r-place {
		return f.any(place, place+length)
	}
	return f.any(place, f.r-1) || f.any(0, length-(f.r-place))
}

// MayContainRange implements RangeReader.
func (f *rangeReader) MayContainRange(prefix []byte, lo, hi uint64) bool {
	if f.n == 0 || lo > hi {
		return false
	}
	lo, hi = lo>>f.drop, hi>>f.drop
	if hi-lo >= f.r-1 {
		return true
	}
	p := f.hash.prefix(prefix)
	block := f.hash.universe
	first, last := lo/block, hi/block
	if first == last {
		return f.from(f.hash.place(p, lo), hi-lo)
	}
	next := last * block
	return f.from(f.hash.place(p, lo), next-1-lo) || f.from(f.hash.place(p, next), hi-next)
}

// FPR implements RangeReader.
func (f *rangeReader) FPR(length uint64) float64 {
	if f.n == 0 {
		return 0
	}
	units := (length-1)>>f.drop + 1
	if f.drop > 0 {
		units++ // a range may begin within a unit
	}
	return min(1, float64(units)*float64(f.n)/float64(f.r))
}

// SizeBytes implements RangeReader.
func (f *rangeReader) SizeBytes() int { return len(f.bytes) + 4*len(f.ranks) }
