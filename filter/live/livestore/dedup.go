// Package livestore removes duplicates exactly: unlike the filters of package live, it keeps every
// element, in a database of package sift. It is for programs that must not lose an element, or that
// have more elements than fit in memory. Programs that import only package live do not link the
// store.
package livestore

import (
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter/live"
	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// Options are the parameters of a Dedup.
type Options[T any] struct {
	// Prefix is the prefix of the Dedup's keys in the store. No other key in the store
	// may have it.
	Prefix string
	// Items is the expected number of different elements. It determines the initial size
	// of the filter in memory, which grows. Default: 1,000.
	Items uint64
	// FPR is the share of new elements for which the store is read. It does not affect
	// results. Default: 0.01.
	FPR float64
	// NoSync makes Add return before its write is synced. After a crash of the machine,
	// some of the latest elements may then be new again.
	NoSync bool
	// Funnel appends the bytes of an element; see live.BloomOptions. Elements with the
	// same bytes are equal.
	Funnel func(dst []byte, v T) []byte
}

// Dedup remembers exactly which elements it has seen. Each is a key in a store. A live.Scalable in
// memory limits reads of the store to duplicates and to a share FPR of the new elements. Dedup
// survives restarts and crashes: when Add has returned true, the element is in the store.
//
// It is safe for concurrent use: if several callers add the same new element, Add returns
// true to exactly one. Only one Dedup at a time may use a prefix.
type Dedup[T any] struct {
	db     *sift.DB
	prefix string
	write  *sift.WriteOptions
	key    funnel.Key[T]
	front  *live.Scalable[[]byte]
	locks  [64]sync.Mutex // by element
	batch  sync.RWMutex   // write-locked to add many, read-locked to add one
	n      struct{ seen, dropped, reads atomic.Uint64 }
}

const (
	defaultFPR = 0.01
	batchSize  = 512
)

// Open returns the Dedup with o.Prefix in db, or a new one if no key has the prefix. It reads all
// keys with the prefix to fill the filter in memory. The caller closes db, after the last use of
// the Dedup.
func Open[T any](db *sift.DB, o Options[T]) (*Dedup[T], error) {
	key, err := funnel.For(o.Funnel)
	if err != nil {
		return nil, fmt.Errorf("livestore: %w", &live.OptionError{Field: "Funnel", Problem: "is missing: " + err.Error()})
	}
	if o.FPR == 0 {
		o.FPR = defaultFPR
	}
	front, err := live.NewScalable(live.ScalableOptions[[]byte]{Items: o.Items, FPR: o.FPR})
	if err != nil {
		return nil, fmt.Errorf("livestore: %w", err)
	}
	d := &Dedup[T]{db: db, prefix: o.Prefix, write: &sift.WriteOptions{NoSync: o.NoSync}, key: key, front: front}
	it, err := db.NewIter(&sift.IterOptions{Prefix: []byte(o.Prefix)})
	if err != nil {
		return nil, fmt.Errorf("livestore: %w", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		front.Add(it.Key()[len(o.Prefix):])
	}
	if err := it.Close(); err != nil {
		return nil, fmt.Errorf("livestore: %w", err)
	}
	return d, nil
}

// stored returns the key of an element in the store.
func (d *Dedup[T]) stored(v T) []byte { return d.key.Append([]byte(d.prefix), v) }

// has reports whether the store has a key. It reads the store only if the filter does not
// exclude the key.
func (d *Dedup[T]) has(key []byte) (bool, error) {
	if !d.front.MayContain(key[len(d.prefix):]) {
		return false, nil
	}
	d.n.reads.Add(1)
	return d.db.Has(key)
}

// Add adds an element and reports whether it is new. After an error the element may or may
// not be in the store; add it again.
func (d *Dedup[T]) Add(v T) (isNew bool, err error) {
	d.batch.RLock()
	defer d.batch.RUnlock()
	key := d.stored(v)
	mu := &d.locks[d.key.Sum64(v)%uint64(len(d.locks))]
	mu.Lock()
	defer mu.Unlock()
	there, err := d.has(key)
	if err != nil {
		return false, err
	}
	if !there {
		if err := d.db.Put(key, nil, d.write); err != nil {
			return false, err
		}
		d.front.Add(key[len(d.prefix):])
	}
	d.count(!there)
	return !there, nil
}

func (d *Dedup[T]) count(isNew bool) {
	d.n.seen.Add(1)
	if !isNew {
		d.n.dropped.Add(1)
	}
}

// AddMany adds elements, several hundred per write, and sets isNew[i] to what Add would
// have returned for vs[i]; isNew may be nil. It returns how many it has added. After an error
// some of the others may be in the store; add them again.
func (d *Dedup[T]) AddMany(vs []T, isNew []bool) (n int, err error) {
	for part := range slices.Chunk(vs, batchSize) {
		var out []bool
		if isNew != nil {
			out = isNew[n : n+len(part)]
		}
		if err := d.addBatch(part, out); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

func (d *Dedup[T]) addBatch(vs []T, isNew []bool) error {
	d.batch.Lock()
	defer d.batch.Unlock()
	var b sift.Batch
	first := make([]bool, len(vs))
	within := make(map[string]bool, len(vs)) // the new elements of this batch
	for i, v := range vs {
		key := d.stored(v)
		if within[string(key)] {
			continue
		}
		there, err := d.has(key)
		if err != nil {
			return err
		}
		if !there {
			first[i], within[string(key)] = true, true
			b.Put(key, nil)
		}
	}
	if len(within) > 0 {
		if err := d.db.Write(&b, d.write); err != nil {
			return err
		}
	}
	for key := range within {
		d.front.Add([]byte(key[len(d.prefix):]))
	}
	copy(isNew, first)
	for _, f := range first {
		d.count(f)
	}
	return nil
}

// Contains reports whether an element was added. The answer is exact.
func (d *Dedup[T]) Contains(v T) (bool, error) { return d.has(d.stored(v)) }

// Unique adds the elements of a stream and returns the new ones. On an error it returns the error
// with the element that caused it, and ends.
func (d *Dedup[T]) Unique(stream iter.Seq[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for v := range stream {
			isNew, err := d.Add(v)
			if err != nil {
				yield(v, err)
				return
			}
			if isNew && !yield(v, nil) {
				return
			}
		}
	}
}

// Seen is the number of elements added since Open, including duplicates.
func (d *Dedup[T]) Seen() uint64 { return d.n.seen.Load() }

// Dropped is the number of duplicates among the elements added since Open.
func (d *Dedup[T]) Dropped() uint64 { return d.n.dropped.Load() }

// Reads is the number of reads of the store since Open.
func (d *Dedup[T]) Reads() uint64 { return d.n.reads.Load() }

// ApproxCount is the number of elements in the store, except those that were false positives of
// the filter when they were added: a share of at most FPR is missing.
func (d *Dedup[T]) ApproxCount() uint64 { return d.front.ApproxCount() }

// MemoryBytes is the memory that the filter takes.
func (d *Dedup[T]) MemoryBytes() int { return d.front.MemoryBytes() }
