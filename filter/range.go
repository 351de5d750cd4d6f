package filter

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// RangePolicy is what a user configures for range filters, which answer "is there any key
// from lo to hi?". A key consists of a prefix and a number; both ends of a range have the
// same prefix. A RangePolicy makes writers, and opens filters that any policy of its family
// has written. It is immutable and safe for concurrent use.
type RangePolicy interface {
	// Name is the configuration, "range(12)" for example. For every policy of this package
	// that is not keyed, ParseRange(Name()) returns an equal policy.
	Name() string
	// Family identifies the format of the block. Any policy of the family can open it. On
	// disk; do not change.
	Family() string
	// NewWriter returns an empty writer.
	NewWriter() RangeWriter
	// Open checks a block that a writer of the family has written and returns a reader over it,
	// which aliases it. Its error matches ErrDamaged if the block is damaged, and ErrUnknownFamily
	// if it belongs to another secret; the caller then proceeds as if there were no filter.
	Open(block []byte) (RangeReader, error)
}

// RangeWriter collects keys and builds a range filter over them. It is not safe for
// concurrent use. It can be used again after Finish.
type RangeWriter interface {
	// Add adds a key. Adding a key more than once is allowed, and costs nothing if it was
	// the last one added. Add does not retain the prefix.
	Add(prefix []byte, x uint64)
	// NumKeys returns the number of keys added since the last Finish. Duplicates may or
	// may not count.
	NumKeys() int
	// Finish returns the filter over the keys added since the last Finish, and empties the
	// writer. The caller owns the block. Finish fails if there are too many keys, for Range more
	// than 2^30; the writer is then empty, too.
	Finish() ([]byte, error)
}

// RangeReader probes one range filter. It is immutable and safe for concurrent use. Its
// methods cannot fail and do not allocate.
type RangeReader interface {
	// MayContainRange reports false only if no key was added that has the prefix and a
	// number from lo to hi, both inclusive. REQUIRES: lo <= hi.
	MayContainRange(prefix []byte, lo, hi uint64) bool
	// FPR is an upper bound on the expected share of empty ranges of length numbers for
	// which MayContainRange is true. REQUIRES: length > 0.
	FPR(length uint64) float64
	// SizeBytes is the memory that the filter takes.
	SizeBytes() int
}

// Bounds of Range's bits per key, and of the bits that it drops from a number.
const (
	minRangeBits  = 4
	maxRangeBits  = 32
	maxRangeShift = 56
)

// Range returns the policy for range filters with bitsPerKey bits per key, 4 to 32. Their false
// positive rate for ranges of up to L numbers is at most L/2^(bitsPerKey-2), for any keys and any
// ranges, even right next to a key. Building a filter takes 24 bytes of memory per key.
//
// The filters ignore the lowest dropBits bits, 0 to 56, of each number. L then counts units
// of 2^dropBits numbers, those at both ends included, and a range that shares a unit with a
// key counts as containing the key. With timestamps in nanoseconds and dropBits 30, a range
// of a minute has a length of up to 57. Values out of bounds are clamped.
//
// The filter is Grafite (Costa, Ferragina, Vinciguerra: Grafite: Taming Adversarial
// Queries with Optimal Range Filters, SIGMOD 2024): a hash that preserves the order of the
// numbers within a block. The hash values are stored in Elias-Fano coding.
func Range(bitsPerKey, dropBits int) RangePolicy {
	return rangePolicy{bits: min(max(bitsPerKey, minRangeBits), maxRangeBits), drop: min(max(dropBits, 0), maxRangeShift)}
}

// RangeFPR is the upper bound on the false positive rate of Range for ranges of the given
// length, in units if Range drops bits.
func RangeFPR(bitsPerKey int, length uint64) float64 {
	return min(1, math.Ldexp(float64(length), 2-bitsPerKey))
}

// RangeBits returns the fewest bits per key with which the false positive rate of Range
// is at most fpr for ranges of the given length. ok is false if no number of bits
// suffices.
func RangeBits(fpr float64, length uint64) (bitsPerKey int, ok bool) {
	for b := minRangeBits; b <= maxRangeBits; b++ {
		if RangeFPR(b, length) <= fpr {
			return b, true
		}
	}
	return 0, false
}

// ParseRange returns the policy that has the name: range(12), or range(12,30) for Range(12, 30).
// Values that Range would clamp are an error.
func ParseRange(name string) (RangePolicy, error) {
	args, ok := strings.CutPrefix(strings.TrimSpace(name), "range(")
	args, closed := strings.CutSuffix(args, ")")
	if !ok || !closed {
		return nil, fmt.Errorf("filter: %q is not a range filter policy, such as range(12)", name)
	}
	b, d, both := strings.Cut(args, ",")
	bitsPerKey, err := strconv.Atoi(strings.TrimSpace(b))
	dropBits := 0
	if err == nil && both {
		dropBits, err = strconv.Atoi(strings.TrimSpace(d))
	}
	if p := (rangePolicy{bitsPerKey, dropBits}); err == nil && p == Range(bitsPerKey, dropBits) {
		return p, nil
	}
	return nil, fmt.Errorf("filter: range filter policy %q: want %d to %d bits per key and 0 to %d dropped bits", name, minRangeBits, maxRangeBits, maxRangeShift)
}

// KeyedRange returns a policy like p whose filters are keyed by a secret, and by a random
// salt per filter. Someone who chooses keys but does not know the secret cannot predict
// which ranges are false positives. p must be a policy of Range; others are an error.
func KeyedRange(p RangePolicy, s Secret) (RangePolicy, error) {
	if p, ok := p.(rangePolicy); ok {
		return keyedRangePolicy{p, &s}, nil
	}
	return nil, fmt.Errorf("filter: %s cannot be keyed", p.Name())
}

const (
	rangeFamily      = "sift.Grafite1" // on disk; do not change
	keyedRangeFamily = keyedPrefix + rangeFamily
)

type rangePolicy struct{ bits, drop int }

func (p rangePolicy) Name() string {
	if p.drop == 0 {
		return fmt.Sprintf("range(%d)", p.bits)
	}
	return fmt.Sprintf("range(%d,%d)", p.bits, p.drop)
}

func (p rangePolicy) Family() string         { return rangeFamily }
func (p rangePolicy) NewWriter() RangeWriter { return &rangeWriter{policy: p} }
func (p rangePolicy) Open(block []byte) (RangeReader, error) {
	return openRange(block, nil)
}

type keyedRangePolicy struct {
	rangePolicy
	secret *Secret
}

func (p keyedRangePolicy) Name() string   { return "keyed(" + p.rangePolicy.Name() + ")" }
func (p keyedRangePolicy) Family() string { return keyedRangeFamily }
func (p keyedRangePolicy) NewWriter() RangeWriter {
	return &rangeWriter{policy: p.rangePolicy, hash: rangeHash{secret: p.secret}}
}

func (p keyedRangePolicy) Open(block []byte) (RangeReader, error) { return openRange(block, p.secret) }

// rangeHash maps keys to places in a universe. The numbers of a prefix are divided into
// blocks as large as the universe. The numbers of a block have consecutive places, which
// wrap around; the prefix and the block determine the place of the first one.
type rangeHash struct {
	universe uint64
	salt     uint64
	secret   *Secret // nil: not keyed
}

// prefix returns the hash of a prefix.
func (h *rangeHash) prefix(p []byte) uint64 {
	if h.secret != nil {
		return h.secret.Hash(p)
	}
	return Hash(p)
}

// start returns the place of the first number of a block, for a prefix with the given hash.
func (h *rangeHash) start(prefix, block uint64) uint64 {
	var v uint64
	if h.secret != nil {
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:], prefix)
		binary.LittleEndian.PutUint64(b[8:], block)
		v = salted(h.secret.Hash(b[:]), h.salt)
	} else {
		v = salted(prefix+block*0x9e3779b97f4a7c15, h.salt)
	}
	hi, _ := bits.Mul64(v, h.universe)
	return hi
}

// place returns the place of a number after a prefix with the given hash.
func (h *rangeHash) place(prefix, x uint64) uint64 {
	block := x / h.universe
	return h.add(h.start(prefix, block), x-block*h.universe)
}

// add returns (a + b) mod universe. REQUIRES: a, b < universe.
func (h *rangeHash) add(a, b uint64) uint64 {
	if a >= h.universe-b {
		return a - (h.universe - b)
	}
	return a + b
}

// rangeKey is a key: the hash of its prefix, and its number without the dropped bits.
type rangeKey struct{ prefix, x uint64 }

// rangeWriter is the RangeWriter of Range.
type rangeWriter struct {
	policy rangePolicy
	hash   rangeHash
	keys   []rangeKey
	last   []byte // the last prefix
	lastH  uint64 // its hash
}

func (w *rangeWriter) Add(prefix []byte, x uint64) {
	if len(w.keys) == 0 || string(prefix) != string(w.last) {
		w.last, w.lastH = append(w.last[:0], prefix...), w.hash.prefix(prefix)
	}
	k := rangeKey{w.lastH, x >> w.policy.drop}
	if n := len(w.keys); n == 0 || w.keys[n-1] != k {
		w.keys = append(w.keys, k)
	}
}

func (w *rangeWriter) NumKeys() int { return len(w.keys) }

func (w *rangeWriter) Finish() ([]byte, error) {
	defer func() { w.keys = w.keys[:0] }()
	if uint64(len(w.keys)) > maxRangeCodes {
		return nil, errTooManyKeys
	}
	h := w.hash
	h.universe = uint64(len(w.keys)) << (w.policy.bits - 2)
	if h.secret != nil {
		h.salt = rand.Uint64()
	}
	places := make([]uint64, len(w.keys))
	for i, k := range w.keys {
		places[i] = h.place(k.prefix, k.x)
	}
	slices.Sort(places)
	return appendRange(places, &h, w.policy), nil
}
