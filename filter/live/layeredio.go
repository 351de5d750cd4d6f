package live

import (
	"fmt"
	"io"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// The kinds of layers in a saved Layered.
//
// On disk; do not change.
const (
	layerHot   = 0
	layerCold  = 1
	layerNewer = 2 // a flag, in addition to one of the others
)

// maxLayers is far more than is useful.
const maxLayers = 64

// WriteTo writes all layers, including the cold ones, in the format of OpenLayered, which
// reads the cold ones in place. It includes all elements whose Add has returned. Each layer
// must be a Cold or a Hot of a filter of this package, possibly as the older part of a Newer;
// otherwise the error matches ErrIncompatible.
func (l *Layered[T]) WriteTo(w io.Writer) (int64, error) {
	var words []uint64
	var parts []io.WriterTo
	var elements funnel.Kind
	for i, layer := range l.layers {
		word := uint64(0)
		if n, ok := layer.(newer[T]); ok {
			f, ok := n.recent.(savedFilter[T])
			if !ok {
				return 0, fmt.Errorf("%w: layer %d: a %T cannot be saved", ErrIncompatible, i, n.recent)
			}
			word, layer, parts = layerNewer, n.older, append(parts, f)
		}
		switch older := layer.(type) {
		case hot[T]:
			f, ok := older.f.(savedFilter[T])
			if !ok {
				return 0, fmt.Errorf("%w: layer %d: a %T cannot be saved", ErrIncompatible, i, older.f)
			}
			word, parts = word|layerHot, append(parts, f)
		case *Cold[T]:
			word, parts = word|layerCold, append(parts, older)
		default:
			return 0, fmt.Errorf("%w: layer %d: a %T cannot be saved", ErrIncompatible, i, layer)
		}
		words = append(words, word)
	}
	if len(parts) == 0 || len(l.layers) > maxLayers {
		return 0, incompatible("number of layers, actual and allowed", len(l.layers), "1 to 64")
	}
	for i, p := range parts {
		kind, err := kindOf[T](p)
		if err == nil && i > 0 && kind != elements {
			err = incompatible("kinds of elements", elements, kind)
		}
		if err != nil {
			return 0, err
		}
		elements = kind
	}
	return writeParts(w, record{kind: kindLayered, elements: elements, hashes: uint32(len(parts)), words: uint64(len(words))}, words, parts...)
}

func kindOf[T any](p io.WriterTo) (funnel.Kind, error) {
	if c, ok := p.(*Cold[T]); ok {
		return c.key.Kind(), nil
	}
	return p.(saved).elementKind()
}

// OpenLayered opens a filter that WriteTo wrote: it reads the hot layers into memory, and the cold
// ones stay in r, which the caller keeps open while the filter is in use, and then closes. size is
// the size of r in bytes. o.MaxBytes bounds the hot layers. The errors are those of ReadBloom.
func OpenLayered[T any](r io.ReaderAt, size int64, o ReadOptions[T]) (*Layered[T], error) {
	key, err := newKey(o.Funnel)
	if err != nil {
		return nil, err
	}
	l := &Layered[T]{key: key}
	in := io.NewSectionReader(r, 0, size)
	if err := l.read(newSource(in, o.MaxBytes, key.Kind()), in); err != nil {
		return nil, err
	}
	return l, nil
}

// ReadFrom reads into memory a filter that WriteTo wrote, cold layers included. Use
// OpenLayered for files. See Filter.
func (l *Layered[T]) ReadFrom(r io.Reader) (int64, error) {
	kind, err := elementKind(&l.key)
	if err != nil {
		return 0, err
	}
	s := newSource(r, 0, kind)
	err = l.read(s, nil)
	return s.n, err
}

// MarshalBinary returns what WriteTo writes.
func (l *Layered[T]) MarshalBinary() ([]byte, error) { return marshal(l) }

// UnmarshalBinary replaces the filter with the one in data, which it copies.
func (l *Layered[T]) UnmarshalBinary(data []byte) error { return unmarshal(l, data) }

// read reads the layers. Cold ones stay in file, which is what s reads, unless it is nil.
func (l *Layered[T]) read(s *source, file *io.SectionReader) error {
	layers, err := readLayers(s, file, l.key)
	if err != nil {
		return fmt.Errorf("read layered filter: %w", err)
	}
	l.layers, l.stats = layers, make([]layerCount, len(layers))
	return nil
}

func readLayers[T any](s *source, file *io.SectionReader, key funnel.Key[T]) ([]Layer[T], error) {
	rec, err := readHeader(s, kindLayered)
	switch {
	case err != nil:
		return nil, err
	case rec != record{kind: kindLayered, elements: rec.elements, hashes: rec.hashes, words: rec.words}:
		return nil, formatError("fields that a Layered does not have")
	case rec.words < 1 || rec.words > maxLayers:
		return nil, formatError("%d layers", rec.words)
	}
	words, err := readBody(s, rec)
	if err != nil {
		return nil, err
	}
	var layers []Layer[T]
	parts := uint32(0)
	for i, word := range words {
		if word > layerNewer|layerCold {
			return nil, formatError("layer %d is a %d", i, word)
		}
		var recent Prober[T]
		if word&layerNewer != 0 {
			if recent, err = readAny(s, key); err != nil {
				return nil, fmt.Errorf("layer %d, recent: %w", i, err)
			}
			parts++
		}
		layer, err := readLayer(s, file, key, word&layerCold != 0)
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
		parts++
		if recent != nil {
			layer = Newer(recent, layer)
		}
		layers = append(layers, layer)
	}
	if parts != rec.hashes {
		return nil, formatError("%d parts, not %d", parts, rec.hashes)
	}
	return layers, nil
}

func readLayer[T any](s *source, file *io.SectionReader, key funnel.Key[T], cold bool) (Layer[T], error) {
	switch {
	case !cold:
		f, err := readAny(s, key)
		if err != nil {
			return nil, err
		}
		return Hot[T](f), nil
	case file == nil:
		return readCold(s, key)
	}
	left := file.Size() - s.n
	c, err := openCold(io.NewSectionReader(file, s.n, left), left, key)
	if err != nil {
		return nil, err
	}
	s.n += c.SizeBytes()
	_, err = file.Seek(s.n, io.SeekStart)
	return c, err
}
