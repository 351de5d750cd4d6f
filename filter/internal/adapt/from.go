package adapt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/siftdb/sift/filter"
)

// Foreign is the filter policy of another engine: pebble's FilterPolicy, with type parameters for
// the kind of filter and the writer.
type Foreign[Kind any, W ForeignWriter] interface {
	Name() string
	MayContain(kind Kind, block, key []byte) bool
	NewWriter(kind Kind) W
}

// ForeignWriter is the filter writer of another engine: pebble's FilterWriter.
type ForeignWriter interface {
	AddKey(key []byte)
	Finish(buf []byte) []byte
}

// The sealed block, family "sealed." followed by the name of the foreign policy: the foreign block,
// then its XXH64 with seed 0, 8 bytes, little-endian. Around the foreign block "a" that is
//
//	61 5b 6e 8c a9 f1 c4 4e d2
//
// A block with another checksum is rejected. Blocks of a policy whose name is a family of package
// filter, above all "rocksdb.BuiltinBloomFilter", are not sealed, so that the engine can read them.
//
// All of this is on disk; do not change.
const (
	sealedPrefix = "sealed."
	sealSize     = 8
)

var errSeal = errors.New("checksum mismatch in a sealed block")

// From returns a policy that writes and probes filters of p, each in one unit: a sealed block, or a
// block of a family of package filter if p has the name of one. kind is passed to p. The policy's
// Name is "foreign(NAME)", which filter.Parse does not accept.
func From[Kind any, W ForeignWriter](p Foreign[Kind, W], kind Kind) filter.Policy {
	f := &foreign[Kind, W]{policy: p, kind: kind, family: sealedPrefix + p.Name(), sealed: true}
	for _, known := range filter.Families() {
		if known == p.Name() {
			f.family, f.sealed = known, false
		}
	}
	return f
}

type foreign[Kind any, W ForeignWriter] struct {
	policy Foreign[Kind, W]
	kind   Kind
	family string
	sealed bool
}

func (f *foreign[Kind, W]) Name() string   { return fmt.Sprintf("foreign(%s)", f.policy.Name()) }
func (f *foreign[Kind, W]) Family() string { return f.family }
func (f *foreign[Kind, W]) NewWriter() filter.Writer {
	return &foreignWriter[Kind, W]{f: f, w: f.policy.NewWriter(f.kind)}
}

// Open verifies the checksum; its errors match filter.ErrDamaged. The Reader aliases the unit. A
// block of a family of package filter is opened by that package, which gives the same answers as
// the engine and detects damage.
func (f *foreign[Kind, W]) Open(units [][]byte) (filter.Reader, error) {
	if !f.sealed {
		return filter.Open(f.family, units)
	}
	if len(units) != 1 || len(units[0]) < sealSize {
		return nil, fmt.Errorf("%w: %w", filter.ErrDamaged, errSeal)
	}
	end := len(units[0]) - sealSize
	block := units[0][:end:end]
	if xxhash.Sum64(block) != binary.LittleEndian.Uint64(units[0][end:]) {
		return nil, fmt.Errorf("%w: %w", filter.ErrDamaged, errSeal)
	}
	return &foreignReader[Kind, W]{f: f, block: block, size: len(units[0])}, nil
}

type foreignWriter[Kind any, W ForeignWriter] struct {
	f *foreign[Kind, W]
	w W
	n int
}

func (w *foreignWriter[Kind, W]) Add(key filter.Key) {
	w.w.AddKey(key.Bytes)
	w.n++
}

func (w *foreignWriter[Kind, W]) NumKeys() int { return w.n }

func (w *foreignWriter[Kind, W]) Finish() ([][]byte, error) {
	block := w.w.Finish(nil)
	w.w, w.n = w.f.policy.NewWriter(w.f.kind), 0
	if w.f.sealed {
		block = binary.LittleEndian.AppendUint64(block, xxhash.Sum64(block))
	}
	return [][]byte{block}, nil
}

type foreignReader[Kind any, W ForeignWriter] struct {
	f     *foreign[Kind, W]
	block []byte
	size  int
	fpr   atomic.Uint64 // bits of the FPR plus 1, or 0 until it is measured
}

func (r *foreignReader[Kind, W]) MayContain(key filter.Key) bool {
	return r.f.policy.MayContain(r.f.kind, r.block, key.Bytes)
}

func (r *foreignReader[Kind, W]) MayContainMany(keys []filter.Key, positive []bool) {
	positive = positive[:len(keys)]
	for i := range keys {
		positive[i] = r.MayContain(keys[i])
	}
}

// FPR measures the false positive rate at the first call, with 131,072 keys that are unlikely to be
// in the filter: they begin with "\xff absent".
func (r *foreignReader[Kind, W]) FPR() float64 {
	if b := r.fpr.Load(); b != 0 {
		return math.Float64frombits(b - 1)
	}
	const probed = 1 << 17
	var key [16]byte
	copy(key[:8], "\xff absent")
	found := 0
	for i := range uint64(probed) {
		binary.LittleEndian.PutUint64(key[8:], i*0x9e3779b97f4a7c15)
		if r.MayContain(filter.Key{Bytes: key[:]}) {
			found++
		}
	}
	p := float64(found) / probed
	r.fpr.Store(math.Float64bits(p) + 1)
	return p
}

func (r *foreignReader[Kind, W]) SizeBytes() int { return r.size }
