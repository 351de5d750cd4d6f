package store

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/siftdb/sift/bench/data"
)

// zipfSkew is the skew of YCSB.
const zipfSkew = 0.99

// work is the source of a benchmark's keys.
type work struct {
	o    *Options
	set  data.Set
	rand *rand.Rand
	ops  int
}

// work returns the same keys for every store: the seed depends only on the benchmark,
// the round and the pass. salt distinguishes the warm-up from the measurement.
func (s *session) work(b *benchmark, ops int, salt uint64) *work {
	seed := s.o.Seed + uint64(s.round)<<32 + uint64(s.pass)<<40 + salt<<48
	for _, c := range b.name {
		seed = data.Mix(seed + uint64(c))
	}
	return &work{s.o, s.o.Set, data.Rand(seed), ops}
}

func presentKeys(w *work) (*data.Keys, int) {
	n := w.set.Len()
	return data.Collect(w.ops, func(dst []byte, _ int) []byte { return w.set.Key(dst, w.rand.IntN(n)) }), w.ops
}

func absentKeys(w *work) (*data.Keys, int) {
	n := w.set.Len()
	return data.Collect(w.ops, func(dst []byte, _ int) []byte { return w.set.Absent(dst, w.rand.IntN(n)) }), 0
}

func hotKeys(w *work) (*data.Keys, int) {
	n := (w.set.Len() + 99) / 100
	return data.Collect(w.ops, func(dst []byte, _ int) []byte { return w.set.Key(dst, w.rand.IntN(n)) }), w.ops
}

// outsideKeys returns keys of 16 bytes that start with eight bytes 00 or ff.
func outsideKeys(w *work) (*data.Keys, int) {
	return data.Collect(w.ops, func(dst []byte, i int) []byte {
		var key [16]byte
		if i%2 == 1 {
			for j := range 8 {
				key[j] = 0xff
			}
		}
		binary.BigEndian.PutUint64(key[8:], w.rand.Uint64())
		return append(dst, key[:]...)
	}), 0
}

func zipfAbsentKeys(w *work) (*data.Keys, int) {
	z := data.NewZipf(w.rand, w.set.Len(), zipfSkew)
	return data.Collect(w.ops, func(dst []byte, _ int) []byte { return w.set.Absent(dst, z.Next()) }), 0
}

// mixedKeys returns a function that draws the given percentage of present keys, the
// rest absent.
func mixedKeys(percent int) func(*work) (*data.Keys, int) {
	return func(w *work) (*data.Keys, int) {
		n, found := w.set.Len(), 0
		keys := data.Collect(w.ops, func(dst []byte, _ int) []byte {
			if w.rand.IntN(100) < percent {
				found++
				return w.set.Key(dst, w.rand.IntN(n))
			}
			return w.set.Absent(dst, w.rand.IntN(n))
		})
		return keys, found
	}
}

// deleted returns the numbers of the keys that deleterandom deletes, in its order.
func deleted(o *Options) []uint32 {
	p := data.Permutation(data.Rand(o.Seed+7), o.Set.Len())
	return p[:(len(p)+9)/10]
}

// deletedKeys draws from the keys that deleterandom deletes.
func deletedKeys(w *work) (*data.Keys, int) {
	gone := deleted(w.o)
	return data.Collect(w.ops, func(dst []byte, _ int) []byte {
		return w.set.Key(dst, int(gone[w.rand.IntN(len(gone))]))
	}), 0
}

// limited is the first n keys of a set.
type limited struct {
	data.Set
	n int
}

func (l limited) Len() int { return l.n }
