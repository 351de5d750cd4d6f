package redisbloom

import (
	"bytes"
	"encoding/binary"
)

// CuckooHeaderBytes is the size of a dump's header, which is packed and little-endian, 38 bytes:
//
//	0   8  items
//	8   8  buckets of the first link, a power of 2
//	16  8  items deleted since the last compaction
//	24  8  number of links, 1 to 65535
//	32  2  slots per bucket, 1 to 255
//	34  2  iterations
//	36  2  expansion, 0 or a power of 2
//
// A filter of 40 items, in two links of 16 buckets of 2 slots, has the header
//
//	2800000000000000 1000000000000000 0000000000000000 0200000000000000
//	0200 1400 0100
//
// The slots follow, one byte each, link after link.
const CuckooHeaderBytes = 38

// Header returns the header of the filter's dump.
func (f *Cuckoo) Header() []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, f.Items())
	b = le.AppendUint64(b, f.buckets)
	b = le.AppendUint64(b, f.Deletes())
	b = le.AppendUint64(b, uint64(len(f.links)))
	b = le.AppendUint16(b, uint16(f.bucketSize))
	b = le.AppendUint16(b, uint16(f.maxIterations))
	return le.AppendUint16(b, uint16(f.expansion))
}

// ParseCuckoo returns a filter with the parameters of a header and empty slots.
// The error is ErrFormat, or ErrTooLarge if the slots take more than maxBytes.
func ParseCuckoo(header []byte, maxBytes uint64) (*Cuckoo, error) {
	if len(header) != CuckooHeaderBytes {
		return nil, ErrFormat
	}
	le := binary.LittleEndian
	f := &Cuckoo{
		items: le.Uint64(header), buckets: le.Uint64(header[8:]), deletes: le.Uint64(header[16:]),
		bucketSize:    uint64(le.Uint16(header[32:])),
		maxIterations: uint64(le.Uint16(header[34:])),
		expansion:     uint64(le.Uint16(header[36:])),
	}
	links := le.Uint64(header[24:])
	switch {
	case f.buckets == 0, f.buckets != nextPow2(f.buckets), links == 0, links > maxCuckooLinks,
		f.bucketSize == 0, f.bucketSize > 255, f.maxIterations == 0,
		f.expansion != nextPow2(f.expansion), f.expansion == 0 && links > 1, f.deletes >= 1<<63:
		return nil, ErrFormat
	}
	var total uint64
	for i := range int(links) {
		size, ok := f.linkBytes(i)
		if !ok || size > maxBytes || total > maxBytes-size {
			return nil, ErrTooLarge
		}
		total += size
	}
	if f.items > total {
		return nil, ErrFormat
	}
	for range links {
		if err := f.grow(maxBytes); err != nil {
			return nil, err
		}
	}
	f.redo = nil
	f.counted = [2]uint64{f.items, f.deletes}
	f.high = maxCuckooLinks
	return f, nil
}

// Dump returns the part of the dump at iter, and the iter of the next part, as Bloom.Dump
// does. An empty filter has no dump.
func (f *Cuckoo) Dump(iter int64) (next int64, part []byte) {
	if f.items == 0 && f.vacant() {
		return 0, nil
	}
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

// vacant reports whether all slots are empty.
func (f *Cuckoo) vacant() bool {
	for i := range f.links {
		if data := f.links[i].data; bytes.Count(data, []byte{0}) < len(data) {
			return false
		}
	}
	return true
}

func (f *Cuckoo) at(off int64) ([]byte, int) {
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

// Load restores a part of a dump, as Bloom.Load does. All its errors are ErrOffset.
func (f *Cuckoo) Load(iter int64, part []byte) error {
	rest, i := f.at(iter - int64(len(part)) - 1)
	if iter < 0 || rest == nil || len(part) > len(rest) {
		return ErrOffset
	}
	if len(part) == 0 {
		return nil
	}
	copy(rest, part)
	l := &f.links[i]
	off := uint64(len(l.data) - len(rest))
	l.touchRange(off, uint64(len(part)))
	f.redo = appendRedoBytes(f.redo, i, off, part)
	return nil
}

// TakeRedo appends to dst the redo log since the last call.
func (f *Cuckoo) TakeRedo(dst []byte) []byte {
	dst = append(dst, f.redo...)
	f.redo = resetRedo(f.redo, f.Bytes())
	if now := [2]uint64{f.items, f.deletes}; now != f.counted {
		f.counted = now
		dst = append(dst, redoCount)
		dst = binary.AppendUvarint(dst, f.items)
		dst = binary.AppendUvarint(dst, f.deletes)
	}
	return dst
}

// RedoBytes returns a lower bound on how many bytes TakeRedo would append, 0 only for none.
func (f *Cuckoo) RedoBytes() int {
	n := len(f.redo)
	if f.counted != [2]uint64{f.items, f.deletes} {
		n++
	}
	return n
}

// Replay applies a redo log of TakeRedo. The links may take up to maxBytes. After an error
// the filter must not be used.
func (f *Cuckoo) Replay(redo []byte, maxBytes uint64) error {
	c := redoCursor{b: redo}
	for len(c.b) > 0 {
		switch c.byte() {
		case redoSlot:
			i, off, fp := c.uvarint(), c.uvarint(), c.byte()
			if c.bad || i >= uint64(len(f.links)) || off >= uint64(len(f.links[i].data)) {
				return ErrFormat
			}
			f.links[i].data[off] = fp
			f.links[i].touch(off)
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
		case redoCount:
			f.items, f.deletes = c.uvarint(), c.uvarint()
			f.counted = [2]uint64{f.items, f.deletes}
			if c.bad {
				return ErrFormat
			}
		case redoGrow:
			bytes := f.Bytes()
			if len(f.links) >= maxCuckooLinks || bytes > maxBytes {
				return ErrFormat
			}
			if err := f.grow(maxBytes - bytes); err != nil {
				return err
			}
			f.redo = f.redo[:0]
		case redoDrop:
			if len(f.links) < 2 {
				return ErrFormat
			}
			f.links = f.links[:len(f.links)-1]
		default:
			return ErrFormat
		}
	}
	return nil
}

// TakeDirty calls fn with each dirty page; see Bloom.TakeDirty.
func (f *Cuckoo) TakeDirty(link, page int, fn func(link, page int, data []byte) bool) bool {
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

// SetPage restores a page; see Bloom.SetPage.
func (f *Cuckoo) SetPage(link, page int, data []byte) error {
	if link >= len(f.links) {
		return nil
	}
	return f.links[link].setPage(page, data)
}
