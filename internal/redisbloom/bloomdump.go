package redisbloom

import (
	"encoding/binary"
	"math"
)

// A dump is a header and then the bits of the links, one after another. The header
// is packed and little-endian:
//
//	0   8  items in the filter
//	8   4  number of links n
//	12  4  options: 5, or 13 for a filter that does not grow
//	16  4  expansion
//	20     n links of 53 bytes:
//	  0   8  bytes
//	  8   8  bits
//	  16  8  items in the link
//	  24  8  error rate, a float64
//	  32  8  bits per entry, a float64
//	  40  4  hashes
//	  44  8  entries
//	  52  1  log2 of the bits, or 0
//
// An empty filter for 5 items at 0.01 is
//
//	0000000000000000 01000000 05000000 02000000
//	0800000000000000 4000000000000000 0000000000000000 7b14ae47e17a743f
//	e9862fb2350e2640 08000000 0500000000000000 00
//
// The header of a Tight filter begins with tightMagic and the requested rate, a float64.
// These 16 bytes are not a multiple of 53, so RedisBloom rejects the dump instead of giving
// wrong answers.
//
// The reader checks the fields against each other, and allocates nothing before it has
// compared the size with the limit.
const (
	bloomHeaderBytes = 20
	linkHeaderBytes  = 53
	tightMagic       = "siftBF1\x00"
	// maxChunkBytes is the maximum size of a part of a dump.
	maxChunkBytes = 16 << 20
)

// Redo records begin with one of these. On disk; do not change.
const (
	redoAdd   = 1 // Bloom: link, then 16 bytes of hashes
	redoLink  = 2 // Bloom: the header of a new link, which has no items
	redoBytes = 3 // both: link, offset, length, bytes
	redoSlot  = 4 // cuckoo: link, offset, fingerprint
	redoCount = 5 // cuckoo: items, deletes
	redoGrow  = 6 // cuckoo: a link was added
	redoDrop  = 7 // cuckoo: the last link was dropped
)

// Header returns the header of the filter's dump.
func (f *Bloom) Header() []byte {
	var b []byte
	if f.layout == Tight {
		b = append(b, tightMagic...)
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f.promise))
	}
	le := binary.LittleEndian
	b = le.AppendUint64(b, f.size)
	b = le.AppendUint32(b, uint32(len(f.links)))
	b = le.AppendUint32(b, f.options)
	b = le.AppendUint32(b, f.growth)
	for i := range f.links {
		b = f.links[i].append(b)
	}
	return b
}

func (l *link) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, uint64(len(l.data)))
	b = le.AppendUint64(b, l.bits)
	b = le.AppendUint64(b, l.count)
	b = le.AppendUint64(b, math.Float64bits(l.err))
	b = le.AppendUint64(b, math.Float64bits(l.bpe))
	b = le.AppendUint32(b, l.hashes)
	b = le.AppendUint64(b, l.entries)
	return append(b, l.n2)
}

// ParseBloom returns a filter with the parameters of a header and no bits set.
// The error is ErrFormat, or ErrTooLarge if the bits take more than maxBytes.
func ParseBloom(header []byte, maxBytes uint64) (*Bloom, error) {
	f := &Bloom{}
	if len(header) >= len(tightMagic)+8 && string(header[:len(tightMagic)]) == tightMagic {
		header = header[len(tightMagic):]
		f.layout = Tight
		f.promise = math.Float64frombits(binary.LittleEndian.Uint64(header))
		if !(f.promise > 0 && f.promise < 1) {
			return nil, ErrFormat
		}
		header = header[8:]
	}
	if len(header) < bloomHeaderBytes {
		return nil, ErrFormat
	}
	le := binary.LittleEndian
	f.size = le.Uint64(header)
	n := uint64(le.Uint32(header[8:]))
	f.options = le.Uint32(header[12:])
	f.growth = le.Uint32(header[16:])
	header = header[bloomHeaderBytes:]
	if n == 0 || n > maxLinks || uint64(len(header)) != n*linkHeaderBytes || f.options&^optNonScaling != optBase {
		return nil, ErrFormat
	}
	links := make([]link, n)
	var bytes, count uint64
	for i := range links {
		l, size, err := parseLink(header[i*linkHeaderBytes:])
		if err != nil {
			return nil, err
		}
		links[i] = l
		// Sizes are below 2⁵⁰ and counts below 2⁵³: no overflow in 1024 of them.
		bytes += size
		count += l.count
	}
	if count != f.size {
		return nil, ErrFormat
	}
	if bytes > maxBytes {
		return nil, ErrTooLarge
	}
	for i := range links {
		links[i].alloc()
	}
	f.links = links
	return f, nil
}

// parseLink decodes a link's header, without memory for its bits.
func parseLink(b []byte) (l link, bytes uint64, err error) {
	if len(b) < linkHeaderBytes {
		return l, 0, ErrFormat
	}
	le := binary.LittleEndian
	bytes = le.Uint64(b)
	l.bits = le.Uint64(b[8:])
	l.count = le.Uint64(b[16:])
	l.err = math.Float64frombits(le.Uint64(b[24:]))
	l.bpe = math.Float64frombits(le.Uint64(b[32:]))
	l.hashes = le.Uint32(b[40:])
	l.entries = le.Uint64(b[44:])
	l.n2 = b[52]
	switch {
	case l.bits == 0, l.bits >= 1<<52, l.bits%64 != 0, bytes != l.bits/8,
		l.n2 != 0 && (l.n2 > 51 || l.bits != 1<<l.n2),
		!(l.err > 0 && l.err < 1), !(l.bpe > 0) || math.IsInf(l.bpe, 0),
		l.hashes == 0, l.hashes > maxHashes,
		l.entries == 0, l.entries >= 1<<53, l.count >= 1<<53, l.count > l.entries:
		return l, 0, ErrFormat
	case bytes > maxSegment:
		return l, 0, ErrTooLarge
	}
	return l, bytes, nil
}

// Dump returns the part of the dump at iter, and the iter of the next part. At 0 it is the
// header, at any other iter what follows the first iter-1 bytes of the links, up to the end
// of a link. next is 0 if there is nothing at iter. The part may alias the filter, and then
// shows its later changes; the caller must not change it.
func (f *Bloom) Dump(iter int64) (next int64, part []byte) {
	if iter == 0 {
		return 1, f.Header()
	}
	data, _ := f.at(iter - 1)
	if len(data) == 0 {
		return 0, nil
	}
	part = data[:min(len(data), maxChunkBytes)]
	return iter + int64(len(part)), part
}

// at returns the bytes from offset off in all links to the end of the link that contains
// it, and the number of that link; nil if there is none.
func (f *Bloom) at(off int64) ([]byte, int) {
	for i := range f.links {
		data := f.links[i].data
		if off < 0 {
			return nil, 0
		}
		if off < int64(len(data)) {
			return data[off:], i
		}
		off -= int64(len(data))
	}
	return nil, 0
}

// Load restores a part of a dump. iter is the next that Dump returned with it: the offset of
// its end, plus 1. The error is ErrFormat if iter is 0 or less, or less than the length of the
// part, ErrOffset if no link has that offset, and ErrPart if the part is longer than the rest
// of the link.
func (f *Bloom) Load(iter int64, part []byte) error {
	if iter <= 0 || iter < int64(len(part)) {
		return ErrFormat
	}
	rest, i := f.at(iter - int64(len(part)) - 1)
	switch {
	case rest == nil:
		return ErrOffset
	case len(part) > len(rest):
		return ErrPart
	case len(part) == 0:
		return nil
	}
	copy(rest, part)
	l := &f.links[i]
	off := uint64(len(l.data) - len(rest))
	l.touchRange(off, uint64(len(part)))
	f.redo = appendRedoBytes(f.redo, i, off, part)
	return nil
}

func appendRedoBytes(redo []byte, link int, off uint64, data []byte) []byte {
	redo = append(redo, redoBytes)
	redo = binary.AppendUvarint(redo, uint64(link))
	redo = binary.AppendUvarint(redo, off)
	redo = binary.AppendUvarint(redo, uint64(len(data)))
	return append(redo, data...)
}

// TakeRedo appends to dst the redo log since the last call.
func (f *Bloom) TakeRedo(dst []byte) []byte {
	dst = append(dst, f.redo...)
	f.redo = resetRedo(f.redo, f.Bytes())
	return dst
}

// maxKeptRedo is the maximum memory that an empty redo log keeps.
const maxKeptRedo = 64 << 10

// resetRedo empties the redo log of a filter that takes some bytes. It keeps only a small part of
// these for the next one: memory of an empty log counts nowhere, and there may be many small
// filters.
func resetRedo(redo []byte, bytes uint64) []byte {
	if uint64(cap(redo)) > min(maxKeptRedo, 64+bytes/16) {
		return nil
	}
	return redo[:0]
}

// RedoBytes returns how many bytes TakeRedo would append.
func (f *Bloom) RedoBytes() int { return len(f.redo) }

// Replay applies a redo log of TakeRedo. The links may take up to maxBytes. After an error
// the filter must not be used.
func (f *Bloom) Replay(redo []byte, maxBytes uint64) error {
	c := redoCursor{b: redo}
	for len(c.b) > 0 {
		switch c.byte() {
		case redoAdd:
			i := c.uvarint()
			h := hashPair{c.uint64(), c.uint64()}
			if c.bad || i >= uint64(len(f.links)) || f.links[i].count >= f.links[i].entries {
				return ErrFormat
			}
			f.put(&f.links[i], h)
		case redoLink:
			l, bytes, err := parseLink(c.bytes(linkHeaderBytes))
			if err != nil {
				return err
			}
			if l.count != 0 || len(f.links) >= maxLinks {
				return ErrFormat
			}
			if bytes > maxBytes || f.Bytes() > maxBytes-bytes {
				return ErrTooLarge
			}
			l.alloc()
			f.links = append(f.links, l)
		case redoBytes:
			i, off, n := c.uvarint(), c.uvarint(), c.uvarint()
			data := c.bytes(n)
			if c.bad || n == 0 || i >= uint64(len(f.links)) {
				return ErrFormat
			}
			l := &f.links[i]
			if off > uint64(len(l.data)) || n > uint64(len(l.data))-off {
				return ErrFormat
			}
			copy(l.data[off:], data)
			l.touchRange(off, n)
		default:
			return ErrFormat
		}
	}
	return nil
}

// TakeDirty calls fn with each dirty page, from the given page of the given link on, and
// marks it clean, until fn returns false. It reports whether it reached the end.
func (f *Bloom) TakeDirty(link, page int, fn func(link, page int, data []byte) bool) bool {
	for i := link; i < len(f.links); i++ {
		from := 0
		if i == link {
			from = page
		}
		if !f.links[i].takeDirty(from, func(page int, data []byte) bool { return fn(i, page, data) }) {
			return false
		}
	}
	return true
}

// SetPage restores a page of a filter that ParseBloom returned. It ignores pages of links
// that the header does not have: the redo log restores these links and their contents.
func (f *Bloom) SetPage(link, page int, data []byte) error {
	if link >= len(f.links) {
		return nil
	}
	return f.links[link].setPage(page, data)
}

func (s *segment) setPage(page int, data []byte) error {
	p := s.page(page)
	if p == nil || len(p) != len(data) {
		return ErrFormat
	}
	copy(p, data)
	return nil
}

// redoCursor reads a redo log. A read past its end sets bad, and from then on all reads
// return zeros.
type redoCursor struct {
	b   []byte
	bad bool
}

func (c *redoCursor) bytes(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.b, c.bad = nil, true
		return nil
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *redoCursor) byte() byte {
	if b := c.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *redoCursor) uint64() uint64 {
	if b := c.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (c *redoCursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.b, c.bad = nil, true
		return 0
	}
	c.b = c.b[n:]
	return v
}
