package live

import (
	"fmt"
	"io"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// WriteTo writes the filter in the form that ReadBloom reads. Elements that are
// added meanwhile may or may not be in it.
func (f *Bloom[T]) WriteTo(w io.Writer) (int64, error) {
	return f.write(w, f.key.Kind(), 0)
}

// ReadBloom reads a filter that WriteTo wrote. The funnel must give the bytes
// that the writer's gave; it may be nil for strings, byte slices and integers.
// The bits may take up to maxBytes of memory; a filter that claims more gives
// ErrTooLarge. Damage gives an error that matches ErrFormat. What follows the
// filter in r is not read.
func ReadBloom[T any](r io.Reader, maxBytes int64, f func(dst []byte, v T) []byte) (*Bloom[T], error) {
	key, err := newKey(f)
	if err != nil {
		return nil, err
	}
	t, items, err := readTable(r, maxBytes, key.Kind())
	if err == nil && items != 0 {
		err = formatError("a link of a Scalable")
	}
	if err != nil {
		return nil, fmt.Errorf("read Bloom filter: %w", err)
	}
	return &Bloom[T]{key, t}, nil
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

func readTable(r io.Reader, maxBytes int64, elements funnel.Kind) (t table, items uint64, err error) {
	rec, err := readHeader(r, kindBloom, elements)
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
	case rec.scheme == Blocked && rec.words%blockWords != 0:
		return table{}, 0, formatError("%d words are not whole blocks", rec.words)
	case rec.fpr != 0 || rec.growth != 0:
		return table{}, 0, formatError("fields that a Bloom does not have")
	}
	words, err := readBody(r, rec, maxBytes)
	if err != nil {
		return table{}, 0, err
	}
	return tableOf(rec.scheme, words, int(rec.hashes), rec.seed), rec.items, nil
}
