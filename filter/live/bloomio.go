package live

import (
	"fmt"
	"io"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// WriteTo writes the filter in the form that ReadBloom reads. Elements that are
// added meanwhile may or may not be in it.
func (f *Bloom[T]) WriteTo(w io.Writer) (int64, error) {
	return f.write(w, f.key.Kind())
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
	t, err := readTable(r, maxBytes, key.Kind())
	if err != nil {
		return nil, fmt.Errorf("read Bloom filter: %w", err)
	}
	return &Bloom[T]{key, t}, nil
}

func (t *table) write(w io.Writer, elements funnel.Kind) (int64, error) {
	return writeRecord(w, record{
		kind:     kindBloom,
		scheme:   t.scheme,
		elements: elements,
		hashes:   uint32(t.hashes),
		words:    uint64(len(t.words)),
		seed:     t.seed,
	}, t.words)
}

func readTable(r io.Reader, maxBytes int64, elements funnel.Kind) (table, error) {
	rec, err := readHeader(r, kindBloom, elements)
	if err != nil {
		return table{}, err
	}
	switch {
	case rec.scheme > GuavaMitz32:
		return table{}, formatError("scheme %d", uint8(rec.scheme))
	case rec.scheme.guava() && rec.seed != 0:
		return table{}, formatError("a seed in scheme %v", rec.scheme)
	case rec.hashes < 1 || rec.hashes > maxHashes:
		return table{}, formatError("%d hashes", rec.hashes)
	case rec.words < 1 || rec.words > maxBits/wordBits:
		return table{}, formatError("%d words", rec.words)
	case rec.scheme == Blocked && rec.words%blockWords != 0:
		return table{}, formatError("%d words are not whole blocks", rec.words)
	case rec.items != 0 || rec.fpr != 0 || rec.growth != 0:
		return table{}, formatError("fields that a Bloom does not have")
	}
	words, err := readBody(r, rec, maxBytes)
	if err != nil {
		return table{}, err
	}
	return tableOf(rec.scheme, words, int(rec.hashes), rec.seed), nil
}
