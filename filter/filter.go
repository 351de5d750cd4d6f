// Package filter implements approximate membership filters: Bloom, ribbon and binary fuse filters
// for keys, and a range filter. A filter represents a set of keys in a few bits per key. It never
// excludes a key of the set; it fails to exclude other keys at a known rate, the false positive
// rate (FPR).
package filter

import "github.com/siftdb/sift/filter/internal/xxh3"

// Policy is what a user configures: a family of filters and its parameters. It makes
// writers, and opens filters that any policy of its family has written. A Policy is
// immutable and safe for concurrent use.
type Policy interface {
	// Name is the configuration, "bloom(10)" for example. For every policy of this package
	// that is not keyed, Parse(Name()) returns an equal policy.
	Name() string
	// Family identifies the format of the units. It is stored with them, and any policy
	// of the same family can open them. A new format gets a new name. On disk; do not
	// change.
	Family() string
	// NewWriter returns an empty writer.
	NewWriter() Writer
	// Open checks units that a writer of this family has written and returns a reader over them. It
	// takes all units or a non-empty prefix of them. The reader aliases the units, which must not
	// change while it is in use; it may copy units that are not aligned to cache lines. Nothing but
	// the reader's methods may read the units after Open: they may lie outside Go's heap and be
	// freed when the filter is dropped. An error, which should match ErrDamaged or
	// ErrUnknownFamily, means that the units cannot be trusted; the caller then proceeds as if
	// there were no filter.
	Open(units [][]byte) (Reader, error)
}

// Writer collects keys and builds a filter over them. It is not safe for concurrent
// use. It can be used again after Finish.
type Writer interface {
	// Add adds a key. Adding a key more than once is allowed, and costs nothing if it was
	// the last one added. Add does not retain key.Bytes.
	Add(key Key)
	// NumKeys returns the number of keys added since the last Finish. Duplicates may or
	// may not count.
	NumKeys() int
	// Finish returns the filter over the keys added since the last Finish, as one or more units
	// (none if the policy is None), and empties the writer. The caller owns the units. Finish fails
	// if there are too many keys; the writer is then empty, too. A filter over no keys may exclude
	// every key.
	Finish() ([][]byte, error)
}

// Reader probes one filter. It is immutable and safe for concurrent use. Its methods
// cannot fail and do not allocate.
type Reader interface {
	// MayContain reports false only if the key was not added.
	MayContain(key Key) bool
	// MayContainMany sets positive[i] to MayContain(keys[i]) for each i, and overlaps the
	// cache misses of the keys. len(positive) must be at least len(keys).
	MayContainMany(keys []Key, positive []bool)
	// FPR is the expected share of absent keys for which MayContain is true, 0 to 1.
	FPR() float64
	// SizeBytes is the size of the units.
	SizeBytes() int
}

// BytesReader is a Reader that can be probed for an unhashed key. If only one filter is
// probed for a key, that is faster than MayContain of a new Key, since it hashes and
// probes in one function. The readers of this package are BytesReaders.
type BytesReader interface {
	Reader
	// MayContainBytes is MayContain(NewKey(key)).
	MayContainBytes(key []byte) bool
}

// Key is a key together with its hash, so that a lookup hashes the key once, however many filters
// it probes. Make one with NewKey: some policies use the bytes, others the hash, and the zero Key
// has the wrong hash for an empty key. A Key aliases the key's bytes.
type Key struct {
	Bytes []byte
	Hash  uint64
}

// Prefetcher is a Reader that can prefetch for a probe, so that the cache misses of probes of
// several filters overlap. The readers of Ribbon are Prefetchers, keyed or not.
type Prefetcher interface {
	Reader
	// Prefetch starts loading the memory that a probe for the hash reads first, into the CPU
	// cache, and does not wait. The hash is Key.Hash; for a KeyedReader it is Secret.Hash of the
	// key.
	Prefetch(hash uint64)
}

// NewKey hashes a key.
func NewKey(b []byte) Key {
	// Short keys are hashed inline: with a call, a probe of a Bloom filter in the cache takes 14 ns
	// instead of 8 (BenchmarkAbsent).
	if n := len(b); n > 8 && n <= 16 {
		return Key{Bytes: b, Hash: xxh3.Sum9to16(b)}
	}
	return Key{Bytes: b, Hash: Hash(b)}
}

// Hash is the 64-bit hash on which the filters of this package are based, except keyed
// ones and those of RocksDBBloom: XXH3, 64 bits, seed 0, default secret
// (github.com/Cyan4973/xxHash, doc/xxhash_spec.md). The hash of "a" is
// e6c632b61e964e1f. For keys of 16 to 128 bytes it takes half the time of XXH64. On
// disk; do not change.
func Hash(b []byte) uint64 { return xxh3.Sum64(b) }
