package serve

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"

	"github.com/siftdb/sift/internal/redisbloom"
)

// A filter is dumped in RedisBloom's format, so it can be moved in both directions:
//
//	type     1 byte: 7
//	module   the module type's name, 9 characters of 6 bits, and its version 4, 10 bits,
//	         as a length
//	values   each an opcode, encoded as a length, and the value: 2, a length; 4, a
//	         float64, little-endian; 5, a string
//	end      1 byte: 0
//
// The values of a Bloom filter are its items, links, options and expansion, and of each
// link: entries, error rate, hashes, bits per entry, bits, their log2 or 0, the bytes, and
// items. Those of a cuckoo filter are its links, buckets, items, deletions, slots per
// bucket, iterations and expansion, and of each link: buckets and slots.
const (
	dumpModule   = 7
	moduleEnd    = 0
	moduleUint   = 2
	moduleDouble = 4
	moduleString = 5

	moduleVersion = 4
	moduleLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	// The sizes of a Bloom filter's header without its links, and of a link in it.
	bloomHead, bloomLink = 20, 53
	maxDumpLinks         = 1024
)

var errTightDump = errors.New("ERR DUMP of a filter with the tight layout is not supported, since RedisBloom would misread it; BF.SCANDUMP is")

// moduleID returns the name and version of a kind of filter, in 64 bits.
func moduleID(k kind) (id uint64) {
	for _, ch := range []byte(k.String()) {
		for i := range len(moduleLetters) {
			if moduleLetters[i] == ch {
				id = id<<6 | uint64(i)
			}
		}
	}
	return id<<10 | moduleVersion
}

func appendModuleUint(dst []byte, n uint64) []byte {
	return appendDumpLen(append(dst, moduleUint), n)
}

func appendModuleString(dst, v []byte) []byte {
	return append(appendDumpLen(append(dst, moduleString), uint64(len(v))), v...)
}

func appendModuleFloat(dst []byte, bits uint64) []byte {
	return binary.LittleEndian.AppendUint64(append(dst, moduleDouble), bits)
}

// appendFilterDump appends the dump of a filter, which is locked.
func appendFilterDump(dst []byte, f *filter) ([]byte, error) {
	dst = appendDumpLen(append(dst, dumpModule), moduleID(f.kind))
	if f.kind == kindBloom {
		if f.bloom.Layout() != redisbloom.Redis {
			return nil, errTightDump
		}
		dst = appendBloom(dst, f.bloom)
	} else {
		dst = appendCuckoo(dst, f.cuckoo)
	}
	return appendDumpTail(append(dst, moduleEnd)), nil
}

func appendBloom(dst []byte, b *redisbloom.Bloom) []byte {
	h, le := b.Header(), binary.LittleEndian
	dst = appendModuleUint(dst, le.Uint64(h))
	for i := range 3 {
		dst = appendModuleUint(dst, uint64(le.Uint32(h[8+4*i:])))
	}
	h = h[bloomHead:]
	for i := range b.Links() {
		dst = appendModuleUint(dst, le.Uint64(h[44:]))
		dst = appendModuleFloat(dst, le.Uint64(h[24:]))
		dst = appendModuleUint(dst, uint64(le.Uint32(h[40:])))
		dst = appendModuleFloat(dst, le.Uint64(h[32:]))
		dst = appendModuleUint(dst, le.Uint64(h[8:]))
		dst = appendModuleUint(dst, uint64(h[52]))
		dst = appendModuleString(dst, b.Data(i))
		dst = appendModuleUint(dst, le.Uint64(h[16:]))
		h = h[bloomLink:]
	}
	return dst
}

func appendCuckoo(dst []byte, f *redisbloom.Cuckoo) []byte {
	dst = appendModuleUint(dst, uint64(f.Links()))
	for _, n := range []uint64{f.Buckets(), f.Items(), f.Deletes(), f.BucketSize(), f.MaxIterations(), f.Expansion()} {
		dst = appendModuleUint(dst, n)
	}
	for i := range f.Links() {
		dst = appendModuleUint(dst, uint64(len(f.Data(i)))/f.BucketSize())
		dst = appendModuleString(dst, f.Data(i))
	}
	return dst
}

// filterDump is a filter from a dump: the header as in SCANDUMP, and the links' bytes.
type filterDump struct {
	kind   kind
	header []byte
	links  [][]byte
}

// moduleReader reads the values of a dump. After one that is invalid, err is set.
type moduleReader struct {
	b    []byte
	most int
	err  error
}

func (r *moduleReader) fail() {
	if r.err == nil {
		r.err, r.b = errFormat, nil
	}
}

func (r *moduleReader) opcode(want uint64) bool {
	n, special, rest, err := dumpLen(r.b)
	if r.err != nil || err != nil || special || n != want {
		r.fail()
		return false
	}
	r.b = rest
	return true
}

// uint reads a number, which must not exceed most.
func (r *moduleReader) uint(most uint64) uint64 {
	if !r.opcode(moduleUint) {
		return 0
	}
	n, special, rest, err := dumpLen(r.b)
	if err != nil || special || n > most {
		r.fail()
		return 0
	}
	r.b = rest
	return n
}

func (r *moduleReader) float() uint64 {
	if !r.opcode(moduleDouble) || len(r.b) < 8 {
		r.fail()
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *moduleReader) string() []byte {
	if !r.opcode(moduleString) {
		return nil
	}
	v, rest, err := dumpedString(r.b, r.most)
	if err != nil {
		r.fail()
		return nil
	}
	r.b, r.most = rest, r.most-len(v)
	return v
}

// unpackedStrings returns how long the compressed strings of a filter's dump claim to be, up to the
// first value that is invalid. b is the dump without its type.
func unpackedStrings(b []byte) (size uint64) {
	_, _, b, err := dumpLen(b)
	for err == nil && len(b) > 0 {
		var opcode, skip uint64
		if opcode, _, b, err = dumpLen(b); err != nil {
			break
		}
		switch opcode {
		case moduleUint:
			_, _, b, err = dumpLen(b)
		case moduleDouble:
			skip = 8
		case moduleString:
			claim, packed := unpackedSize(b)
			var special bool
			skip, special, b, err = dumpLen(b)
			switch {
			case packed:
				size += min(claim, longestBulk)
				skip, _, b, _ = dumpLen(b)
				_, _, b, _ = dumpLen(b) // the claim
			case special: // an integer of 1, 2 or 4 bytes
				skip = 1 << skip
			}
		default:
			return size
		}
		if skip > uint64(len(b)) {
			return size
		}
		b = b[skip:]
	}
	return size
}

// parseFilterDump parses the part of a dump between its type and its version.
func parseFilterDump(b []byte, most int) (d filterDump, err error) {
	id, special, b, err := dumpLen(b)
	if err != nil || special {
		return d, errFormat
	}
	r := &moduleReader{b: b, most: most}
	switch id {
	case moduleID(kindBloom):
		d.kind = kindBloom
		r.bloom(&d)
	case moduleID(kindCuckoo):
		d.kind = kindCuckoo
		r.cuckoo(&d)
	default:
		return d, errFormat
	}
	if r.opcode(moduleEnd); r.err == nil && len(r.b) > 0 {
		r.fail()
	}
	return d, r.err
}

func (r *moduleReader) bloom(d *filterDump) {
	le := binary.LittleEndian
	h := le.AppendUint64(nil, r.uint(math.MaxUint64))
	links := r.uint(maxDumpLinks)
	h = le.AppendUint32(h, uint32(links))
	h = le.AppendUint32(h, uint32(r.uint(math.MaxUint32)))
	h = le.AppendUint32(h, uint32(r.uint(math.MaxUint32)))
	for i := uint64(0); i < links && r.err == nil; i++ {
		entries, rate := r.uint(math.MaxUint64), r.float()
		hashes, bitsEntry := r.uint(math.MaxUint32), r.float()
		bits, log2, data := r.uint(math.MaxUint64), r.uint(math.MaxUint8), r.string()
		h = le.AppendUint64(h, uint64(len(data)))
		h = le.AppendUint64(h, bits)
		h = le.AppendUint64(h, r.uint(math.MaxUint64))
		h = le.AppendUint64(h, rate)
		h = le.AppendUint64(h, bitsEntry)
		h = le.AppendUint32(h, uint32(hashes))
		h = append(le.AppendUint64(h, entries), byte(log2))
		d.links = append(d.links, data)
	}
	d.header = h
}

func (r *moduleReader) cuckoo(d *filterDump) {
	le := binary.LittleEndian
	links, buckets := r.uint(maxDumpLinks), r.uint(math.MaxUint64)
	items, deletes := r.uint(math.MaxUint64), r.uint(math.MaxUint64)
	h := le.AppendUint64(nil, items)
	for _, n := range []uint64{buckets, deletes, links} {
		h = le.AppendUint64(h, n)
	}
	bucketSize := r.uint(math.MaxUint16)
	h = le.AppendUint16(h, uint16(bucketSize))
	for range 2 {
		h = le.AppendUint16(h, uint16(r.uint(math.MaxUint16)))
	}
	for i := uint64(0); i < links && r.err == nil; i++ {
		n, slots := r.uint(math.MaxUint64), r.string()
		if hi, size := bits.Mul64(n, bucketSize); hi != 0 || size != uint64(len(slots)) {
			r.fail()
		}
		d.links = append(d.links, slots)
	}
	d.header = h
}

// fillFrom creates the filter of a dump.
func (s *Server) fillFrom(d *filterDump, f *filter, room uint64) (err error) {
	size := uint64(0)
	for _, link := range d.links {
		size += uint64(len(link))
	}
	var load func(iter int64, part []byte) error
	if d.kind == kindBloom {
		if f.bloom, err = redisbloom.ParseBloom(d.header, room); err == nil {
			load = f.bloom.Load
		}
	} else if f.cuckoo, err = s.parseCuckoo(d.header, min(room, size)); err == nil {
		load = f.cuckoo.Load
	} else if errors.Is(err, redisbloom.ErrTooLarge) && size <= room {
		err = redisbloom.ErrFormat // the header claims more slots than there are
	}
	if err != nil {
		return err
	}
	end := int64(1)
	for _, link := range d.links {
		end += int64(len(link))
		if err := load(end, link); err != nil {
			return redisbloom.ErrFormat
		}
	}
	if uint64(end-1) != f.parts().Bytes() {
		return redisbloom.ErrFormat
	}
	return nil
}
