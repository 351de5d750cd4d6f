package live

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// The saved form of a filter: a record, followed by the saved forms of its parts if the
// filter consists of other filters. Little-endian.
//
//	offset  size  field
//	     0     8  "siftlive"
//	     8     1  version, 1
//	     9     1  kind, see below
//	    10     1  scheme of a Bloom or Generations, else 0
//	    11     1  how elements are encoded (internal/funnel.Kind)
//	    12     4  hashes of a Bloom or Counting, fingerprint bits of a Cuckoo,
//	              else the number of parts
//	    16     8  number of words
//	    24     8  seed
//	    32     8  Scalable: items of the first link; Generations: items of one
//	              filter; Bloom that is a link: elements that were added to it; else 0
//	    40     8  FPR of a Scalable, or of one filter of Generations, as the bits of
//	              a float64, else 0
//	    48     8  growth of a Scalable, maximum number of filters of Generations, else 0
//	    56     8  XXH64, seed 0, of bytes 0 to 55
//	    64   8×n  words
//	 64+8n     8  XXH64, seed 0, of the words
//
//	kind            words                              parts
//	1  Bloom        bits, see table                    -
//	2  Counting     counters                           -
//	3  Cuckoo       buckets                            -
//	4  Scalable     none                               links, each a Bloom, the first one first
//	5  Pair         none                               added and removed, each a Bloom
//	6  Generations  how long elements are added to     filters, each a Bloom, the newest first
//	                a filter, in nanoseconds; when
//	                the newest is replaced, in Unix
//	                nanoseconds; elements in it
//	7  Dedup        seen, dropped, loss (a float64)    a Bloom or a Generations
//	8  Sharded      none                               one for each shard, no Sharded
//	9  Layered      for each layer 0 if hot, 1 if      the layers; a cold one in the format
//	                cold; plus 2 if there is a         of Cold; a recent filter before the
//	                recent filter                      layer that it belongs to
//
// A Rotating is saved as its current Bloom. A reader rejects anything else: there are no fields to
// skip. The first checksum lets it trust the size before it has read the rest, which the second one
// covers. Bytes after the parts do not belong to the filter.
//
// A Bloom of strings with 64 bits, one hash and no seed that holds "a" begins with
//
//	73 69 66 74 6c 69 76 65  01 01 00 01 01 00 00 00  01 00 00 00 00 00 00 00
//
// and has the word 0010000000000000, which is bit 52: the hash of "a" is d24ec4f1a98c6e5b, and its
// upper six bits are 52 (TestRecordExample).
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
	kindBloom       recordKind = 1
	kindCounting    recordKind = 2
	kindCuckoo      recordKind = 3
	kindScalable    recordKind = 4
	kindPair        recordKind = 5
	kindGenerations recordKind = 6
	kindDedup       recordKind = 7
	kindSharded     recordKind = 8
	kindLayered     recordKind = 9
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

// decodeRecord decodes a header and checks what all kinds have in common.
func decodeRecord(b *[recordSize]byte) (record, error) {
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	switch {
	case string(b[:8]) != recordMagic:
		return record{}, formatError("magic %q", b[:8])
	case b[8] != recordVersion:
		return record{}, formatError("version %d", b[8])
	case u64(56) != xxhash.Sum64(b[:56]):
		return record{}, formatError("wrong checksum of the header")
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

// writeParts writes a record and the saved forms of its parts.
func writeParts[F io.WriterTo](w io.Writer, r record, words []uint64, parts ...F) (int64, error) {
	written, err := writeRecord(w, r, words)
	for _, p := range parts {
		if err != nil {
			return written, err
		}
		var n int64
		n, err = p.WriteTo(w)
		written += n
	}
	return written, err
}

// readAnyHeader reads a header of any kind. Its elements must be of the source's kind.
func readAnyHeader(s *source) (record, error) {
	if rec := s.peeked; rec != nil {
		s.peeked = nil
		return *rec, nil
	}
	var b [recordSize]byte
	if err := readFull(s, b[:]); err != nil {
		return record{}, err
	}
	rec, err := decodeRecord(&b)
	switch {
	case err != nil:
		return record{}, err
	case rec.elements != s.elements:
		return record{}, incompatible("kinds of elements", s.elements, rec.elements)
	}
	return rec, nil
}

// peekKind returns the kind of the next filter.
func peekKind(s *source) (recordKind, error) {
	rec, err := readAnyHeader(s)
	if err != nil {
		return 0, err
	}
	s.peeked = &rec
	return rec.kind, nil
}

// readHeader reads a header, which must be of the given kind.
func readHeader(s *source, kind recordKind) (record, error) {
	rec, err := readAnyHeader(s)
	if err == nil && rec.kind != kind {
		err = incompatible("kinds of filter", kind, rec.kind)
	}
	return rec, err
}

// readBody reads the words that follow a header.
func readBody(s *source, rec record) ([]uint64, error) {
	if err := s.take(rec.words); err != nil {
		return nil, err
	}
	sum := xxhash.New()
	words, err := readWords(io.TeeReader(s, sum), binary.LittleEndian, rec.words)
	if err != nil {
		return nil, err
	}
	var b [8]byte
	if err := readFull(s, b[:]); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint64(b[:]) != sum.Sum64() {
		return nil, formatError("wrong checksum of the words")
	}
	return words, nil
}

var kindNames = [...]string{
	kindBloom: "Bloom", kindCounting: "Counting", kindCuckoo: "Cuckoo", kindScalable: "Scalable",
	kindPair: "Pair", kindGenerations: "Generations", kindDedup: "Dedup", kindSharded: "Sharded", kindLayered: "Layered",
}

func (k recordKind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("unknown kind %d", uint8(k))
}
