package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/sstable"
)

// tally counts what a filter answered for keys that its table does not hold.
type tally struct{ asked, maybe int }

func (t *tally) add(u tally) {
	t.asked += u.asked
	t.maybe += u.maybe
}

// fpr is the share of maybes; NaN if nothing was asked.
func (t tally) fpr() float64 { return float64(t.maybe) / float64(t.asked) }

// probeTable asks the filter of a table for about so many keys that look like
// the table's and are not in it, and returns the filter's family. A table
// without a filter in use gives an empty tally.
func probeTable(ctx context.Context, path string, probes int, seed uint64) (family string, t tally, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", t, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", t, err
	}
	r, err := sstable.NewReader(f, info.Size(), &sstable.ReaderOptions{Path: path})
	if err != nil {
		return "", t, err
	}
	defer r.Release()
	if r.Filter() == nil {
		return "", t, nil
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	models, err := sampleKeys(r, rng)
	if err != nil || len(models) == 0 {
		return r.FilterFamily(), t, err
	}
	var key []byte
	// More tries than probes: keys that turn out to be in the table do not count.
	for tries := 0; tries < 2*probes && t.asked < probes; tries++ {
		if tries%1024 == 0 && ctx.Err() != nil {
			return "", t, ctx.Err()
		}
		key = appendLookalike(key[:0], models[rng.IntN(len(models))], tries%2 == 1, rng)
		if r.Filter().MayContain(filter.NewKey(key)) {
			_, _, _, found, err := r.Get(key, base.MaxSequence)
			if err != nil {
				return "", t, err
			}
			if found {
				continue
			}
			t.maybe++
		}
		// What the filter excludes is not in the table (I1).
		t.asked++
	}
	return r.FilterFamily(), t, nil
}

// sampleKeys returns some user keys of a table. It walks from key to key, each
// time to the one after a lookalike of the last, so that a large table need not
// be read whole.
func sampleKeys(r *sstable.Reader, rng *rand.Rand) ([][]byte, error) {
	const steps = 200
	it := r.NewIter(&sstable.IterOptions{DontFillCache: true})
	defer it.Close()
	var keys [][]byte
	var seek, target []byte
	for ok, i := it.First(), 0; i < steps; i++ {
		if !ok {
			if it.Err() != nil {
				return nil, it.Err()
			}
			if !it.First() { // past the end, or an empty table
				return keys, it.Err()
			}
		}
		keys = append(keys, bytes.Clone(base.UserKey(it.Key())))
		seek = appendLookalike(seek[:0], keys[rng.IntN(len(keys))], false, rng)
		target = base.AppendInternalKey(target[:0], seek, base.MaxSequence, base.KindSeek)
		ok = it.SeekGE(target)
	}
	return keys, it.Err()
}

// appendLookalike appends to dst a key that looks like model: of the same
// length with other characters of the same kind in the last places, or, if
// longer is set, with some random characters more.
func appendLookalike(dst, model []byte, longer bool, rng *rand.Rand) []byte {
	dst = append(dst, model...)
	if longer || len(model) == 0 {
		// Of the kind that the key ends in, if that has more than one member.
		kind := byte('a')
		if len(model) > 0 && (sameKind(model[len(model)-1], rng) != model[len(model)-1]) {
			kind = model[len(model)-1]
		}
		for range 4 {
			dst = append(dst, sameKind(kind, rng))
		}
		return dst
	}
	for i := len(dst) - 1 - rng.IntN(min(len(model), 12)); i < len(dst); i++ {
		dst[i] = sameKind(dst[i], rng)
	}
	return dst
}

// sameKind returns a random byte of the kind of c: a digit for a digit, a letter
// for a letter; other printable characters stay, and other bytes can become any.
func sameKind(c byte, rng *rand.Rand) byte {
	switch {
	case c >= '0' && c <= '9':
		return '0' + byte(rng.IntN(10))
	case c >= 'a' && c <= 'z':
		return 'a' + byte(rng.IntN(26))
	case c >= 'A' && c <= 'Z':
		return 'A' + byte(rng.IntN(26))
	case c >= ' ' && c <= '~':
		return c
	}
	return byte(rng.IntN(256))
}
