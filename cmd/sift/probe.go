package main

import (
	"bytes"
	"context"
	"math/rand/v2"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/sstable"
)

// tally counts the probes of filters with keys that their tables do not hold.
type tally struct{ probes, positives int }

func (t *tally) add(u tally) {
	t.probes += u.probes
	t.positives += u.positives
}

// fpr returns the false positive rate, NaN without a probe.
func (t tally) fpr() float64 { return float64(t.positives) / float64(t.probes) }

// probeTable probes the filter of a table with up to probes keys that look like the
// table's but are not in it. It also returns the filter's family. Without a usable
// filter the tally is empty.
func probeTable(ctx context.Context, path string, probes int, seed uint64) (family string, t tally, err error) {
	err = withTable(path, func(r *sstable.Reader) error {
		if r.Filter() == nil {
			return nil
		}
		family = r.FilterFamily()
		t, err = probeFilter(ctx, r, probes, seed)
		return err
	})
	return family, t, err
}

// probeFilter probes the filter of an open table.
func probeFilter(ctx context.Context, r *sstable.Reader, probes int, seed uint64) (t tally, err error) {
	rng := rand.New(rand.NewPCG(seed, 0))
	models, err := sampleKeys(r, rng)
	if err != nil || len(models) == 0 {
		return t, err
	}
	var key []byte
	// Keys that are in the table do not count, so there are more tries than probes.
	for tries := 0; tries/2 < probes && t.probes < probes; tries++ {
		if tries%1024 == 0 && ctx.Err() != nil {
			return t, ctx.Err()
		}
		key = appendLookalike(key[:0], models[rng.IntN(len(models))], tries%2 == 1, rng)
		if r.Filter().MayContain(filter.NewKey(key)) {
			_, _, _, found, err := r.Get(key, base.MaxSequence)
			if err != nil {
				return t, err
			}
			if found {
				continue
			}
			t.positives++
		}
		// If the filter excludes the key, it is not in the table (I1).
		t.probes++
	}
	return t, nil
}

// sampleKeys returns some user keys of a table. It seeks to lookalikes of the keys that it
// has found so far, so it need not read all of a large table.
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

// appendLookalike appends to dst a key that looks like model: of the same length with
// other characters of the same kind near the end, or, if longer is set, with a few random
// characters added.
func appendLookalike(dst, model []byte, longer bool, rng *rand.Rand) []byte {
	dst = append(dst, model...)
	if longer || len(model) == 0 {
		// Add characters like the last one, if others are of its kind.
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

// sameKind returns a random byte of the kind of c: a digit for a digit, a letter for a
// letter, c itself for other printable characters, and any byte for the rest.
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
