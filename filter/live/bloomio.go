package live

import (
	"fmt"
	"io"
	"math"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// WriteTo writes the filter in the format that ReadBloom and ReadFrom read. It includes
// all elements whose Add has returned; one that is added meanwhile may be missing.
func (f *Bloom[T]) WriteTo(w io.Writer) (int64, error) {
	return f.write(w, f.key.Kind(), 0)
}

// ReadFrom replaces the filter with one that WriteTo wrote; see Filter.
func (f *Bloom[T]) ReadFrom(r io.Reader) (int64, error) { return readFrom(f, r) }

// MarshalBinary returns what WriteTo writes.
func (f *Bloom[T]) MarshalBinary() ([]byte, error) { return marshal(f) }

// UnmarshalBinary replaces the filter with one that MarshalBinary wrote; see Filter.
func (f *Bloom[T]) UnmarshalBinary(data []byte) error { return unmarshal(f, data) }

// ReadBloom reads a filter that WriteTo wrote. The error matches ErrFormat if the input is
// damaged, ErrIncompatible if the kind of filter or of its elements differs, and ErrTooLarge if
// the filter is larger than o.MaxBytes. ReadBloom reads nothing after the filter.
func ReadBloom[T any](r io.Reader, o ReadOptions[T]) (*Bloom[T], error) {
	return readNew(r, o, func(key funnel.Key[T]) *Bloom[T] { return &Bloom[T]{key: key} })
}

// readNew reads a filter into the one that empty returns.
func readNew[T any, F saved](r io.Reader, o ReadOptions[T], empty func(key funnel.Key[T]) F) (f F, err error) {
	key, err := newKey(o.Funnel)
	if err != nil {
		return f, err
	}
	read := empty(key)
	if err := read.read(newSource(r, o.MaxBytes, key.Kind())); err != nil {
		return f, err
	}
	return read, nil
}

func (f *Bloom[T]) elementKind() (funnel.Kind, error) { return elementKind(&f.key) }

func (f *Bloom[T]) read(s *source) error {
	t, items, err := readTable(s)
	if err == nil && items != 0 {
		err = formatError("a link of a Scalable")
	}
	if err != nil {
		return fmt.Errorf("read Bloom filter: %w", err)
	}
	f.table = t
	return nil
}

// write writes a table as a Bloom record; items is for links of a Scalable.
func (t *table) write(w io.Writer, elements funnel.Kind, items uint64) (int64, error) {
	return writeRecord(w, record{
		kind:     kindBloom,
		scheme:   t.scheme,
		elements: elements,
		hashes:   uint32(t.hashes),
		words:    uint64(len(t.words)),
		seed:     t.seed,
		items:    items,
	}, t.words)
}

func readTable(s *source) (t table, items uint64, err error) {
	rec, err := readHeader(s, kindBloom)
	if err != nil {
		return table{}, 0, err
	}
	switch {
	case rec.scheme > GuavaMitz32:
		return table{}, 0, formatError("scheme %d", uint8(rec.scheme))
	case rec.scheme.guava() && rec.seed != 0:
		return table{}, 0, formatError("a seed in scheme %v", rec.scheme)
	case rec.hashes < 1 || rec.hashes > maxHashes:
		return table{}, 0, formatError("%d hashes", rec.hashes)
	case rec.words < 1 || rec.words > maxBits/wordBits:
		return table{}, 0, formatError("%d words", rec.words)
	case rec.scheme.guava() && rec.words > math.MaxInt32:
		return table{}, 0, formatError("%d words in scheme %v", rec.words, rec.scheme)
	case rec.scheme == Blocked && rec.words%blockWords != 0:
		return table{}, 0, formatError("%d words are not whole blocks", rec.words)
	case rec.fpr != 0 || rec.growth != 0:
		return table{}, 0, formatError("fields that a Bloom does not have")
	}
	words, err := readBody(s, rec)
	if err != nil {
		return table{}, 0, err
	}
	return tableOf(rec.scheme, words, int(rec.hashes), rec.seed), rec.items, nil
}
