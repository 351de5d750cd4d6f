package live

import (
	"encoding/binary"
	"io"

	"github.com/cespare/xxhash/v2"
	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// The saved form of the filters of this package: a record, or for Scalable a
// record and one Bloom record for each link. Little-endian.
//
//	offset  size  field
//	     0     8  "siftlive"
//	     8     1  version, 1
//	     9     1  kind: 1 Bloom, 2 Counting, 3 Cuckoo, 4 Scalable
//	    10     1  scheme of a Bloom, else 0
//	    11     1  how elements become bytes (internal/funnel.Kind)
//	    12     4  hashes of a Bloom or Counting, bits of a fingerprint of a
//	              Cuckoo, number of links of a Scalable
//	    16     8  number of words
//	    24     8  seed
//	    32     8  Scalable: items of the first link; Bloom that is a link: elements
//	              that were added to it; else 0
//	    40     8  FPR of a Scalable, as the bits of a float64, else 0
//	    48     8  growth of a Scalable, else 0
//	    56     8  XXH64, seed 0, of bytes 0 to 55
//	    64   8×n  words
//	 64+8n     8  XXH64, seed 0, of the words
//
// Everything that is not as above is refused; there is nothing to skip. The
// first checksum lets a reader trust the size before it has read the rest, the
// second covers the rest. What follows the record belongs to somebody else.
//
// A Bloom of strings of 64 bits, one hash, no seed, that holds "a" begins with
//
//	73 69 66 74 6c 69 76 65  01 01 00 01 01 00 00 00  01 00 00 00 00 00 00 00
//
// and has the word 0010000000000000, bit 52, since the hash of "a" is
// d24ec4f1a98c6e5b and its upper six bits are 52 (TestRecordExample).
//
// On disk; do not change.
const (
	recordMagic   = "siftlive"
	recordVersion = 1
	recordSize    = 64
)

type recordKind uint8

// On disk; do not change.
const (
	kindBloom    recordKind = 1
	kindCounting recordKind = 2
	kindCuckoo   recordKind = 3
	kindScalable recordKind = 4
)

// record is the header of a saved filter.
type record struct {
	kind     recordKind
	scheme   Scheme
	elements funnel.Kind
	hashes   uint32
	words    uint64
	seed     uint64
	items    uint64
	fpr      uint64
	growth   uint64
}

func appendRecord(dst []byte, r record) []byte {
	from := len(dst)
	dst = append(dst, recordMagic...)
	dst = append(dst, recordVersion, uint8(r.kind), uint8(r.scheme), uint8(r.elements))
	dst = binary.LittleEndian.AppendUint32(dst, r.hashes)
	for _, v := range [...]uint64{r.words, r.seed, r.items, r.fpr, r.growth} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return binary.LittleEndian.AppendUint64(dst, xxhash.Sum64(dst[from:]))
}

// decodeRecord checks what is the same for all kinds.
func decodeRecord(b *[recordSize]byte) (record, error) {
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	switch {
	case string(b[:8]) != recordMagic:
		return record{}, formatError("magic %q", b[:8])
	case b[8] != recordVersion:
		return record{}, formatError("version %d", b[8])
	case u64(56) != xxhash.Sum64(b[:56]):
		return record{}, formatError("checksum of the header")
	}
	return record{
		kind:     recordKind(b[9]),
		scheme:   Scheme(b[10]),
		elements: funnel.Kind(b[11]),
		hashes:   binary.LittleEndian.Uint32(b[12:]),
		words:    u64(16), seed: u64(24), items: u64(32), fpr: u64(40), growth: u64(48),
	}, nil
}

// writeRecord writes a header and its words.
func writeRecord(w io.Writer, r record, words []uint64) (int64, error) {
	n, err := w.Write(appendRecord(nil, r))
	written := int64(n)
	if err != nil {
		return written, err
	}
	sum := xxhash.New()
	m, err := writeWords(io.MultiWriter(w, sum), binary.LittleEndian, words)
	written += m
	if err != nil {
		return written, err
	}
	n, err = w.Write(binary.LittleEndian.AppendUint64(nil, sum.Sum64()))
	return written + int64(n), err
}

// readHeader reads a header and checks that it is of the kind, and of elements
// like key's.
func readHeader(r io.Reader, kind recordKind, elements funnel.Kind) (record, error) {
	var b [recordSize]byte
	if err := readFull(r, b[:]); err != nil {
		return record{}, err
	}
	rec, err := decodeRecord(&b)
	switch {
	case err != nil:
		return record{}, err
	case rec.kind != kind:
		return record{}, incompatible("kinds of filter", kind, rec.kind)
	case rec.elements != elements:
		return record{}, incompatible("kinds of elements", elements, rec.elements)
	}
	return rec, nil
}

// readBody reads the words that follow a header.
func readBody(r io.Reader, rec record, maxBytes int64) ([]uint64, error) {
	sum := xxhash.New()
	words, err := readWords(io.TeeReader(r, sum), binary.LittleEndian, rec.words, maxBytes)
	if err != nil {
		return nil, err
	}
	var b [8]byte
	if err := readFull(r, b[:]); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint64(b[:]) != sum.Sum64() {
		return nil, formatError("checksum of the words")
	}
	return words, nil
}

func (k recordKind) String() string {
	switch k {
	case kindBloom:
		return "Bloom"
	case kindCounting:
		return "Counting"
	case kindCuckoo:
		return "Cuckoo"
	case kindScalable:
		return "Scalable"
	}
	return "unknown kind"
}
