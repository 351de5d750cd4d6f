package filter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/siftdb/sift/filter/internal/siphash"
)

// Secret is the secret under which keyed filters hash keys. Fill it from crypto/rand.
// Anyone who learns it can predict false positives.
type Secret [16]byte

// Hash is the 64-bit hash on which keyed filters are based: SipHash-1-3 under the
// secret. Under the secret 00 01 .. 0f the empty key's hash is abac0158050fc4dc.
// On disk; do not change.
func (s *Secret) Hash(b []byte) uint64 {
	return siphash.Sum13(binary.LittleEndian.Uint64(s[:]), binary.LittleEndian.Uint64(s[8:]), b)
}

// ErrSecret is matched by the error that a keyed policy's Open returns for a filter
// that was written with another secret. Open returns the same error if the 16 bytes
// that identify the secret are damaged, since it cannot tell the two apart. ErrSecret
// matches ErrUnknownFamily: the caller proceeds as if there were no filter.
var ErrSecret = fmt.Errorf("%w: keyed with another secret", ErrUnknownFamily)

// A keyed filter is a filter of another family, the inner filter, over hashes that
// depend on a secret. Its family is keyedPrefix and the inner family's name. Unit 0
// is that of the inner filter, followed by
//
//	offset from the end  size  field
//	16                   8     salt, random for each filter
//	8                    8     check: identifies the secret
//
// both little-endian. The other units are those of the inner filter. The inner
// filter's hash of a key is x, from the key's hash h under the secret:
//
//	x = h ^ salt;  x *= ff51afd7ed558ccd;  x ^= x >> 32;  x *= c4ceb9fe1a85ec53;  x ^= x >> 29
//
// check is the hash, under the secret, of the 4 bytes "salt" and the salt. It prevents
// probes with another secret, which would be false negatives. The salts make the false
// positives of different filters independent.
//
// Under the secret 00 01 .. 0f a filter of salt 1 ends in
//
//	01 00 00 00 00 00 00 00  8b f6 8f 01 f7 b2 a5 9d
//
// All of this is on disk; do not change.
const (
	keyedPrefix      = "sift.keyed."
	keyedTrailerSize = 16
)

// saltCheck returns the check of a filter with the given secret and salt.
func saltCheck(s *Secret, salt uint64) uint64 {
	var b [12]byte
	copy(b[:], "salt")
	binary.LittleEndian.PutUint64(b[4:], salt)
	return s.Hash(b[:])
}

// salted mixes a hash with a salt. It is a bijection for each salt.
func salted(h, salt uint64) uint64 {
	x := h ^ salt
	x *= 0xff51afd7ed558ccd
	x ^= x >> 32
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>29
}

var errNotKeyed = errors.New("filter: only Bloom, Fuse and Ribbon can be keyed")

// Keyed returns a policy like p whose filters are keyed by a secret, and by a random salt per
// filter. Someone who chooses keys but does not know the secret cannot predict false positives, and
// so cannot raise the false positive rate. p must be Bloom, Fuse, Ribbon or RibbonFPR; nil and None
// are returned unchanged. Other policies are an error. Filters have the false positive rate of p,
// and take 16 bytes more.
//
// The policy's Name is p's Name wrapped in "keyed()", as in keyed(ribbon(10)). Parse rejects it,
// since it does not contain the secret.
func Keyed(p Policy, s Secret) (Policy, error) {
	if IsNone(p) {
		return p, nil
	}
	switch p.(type) {
	case bloomPolicy, fusePolicy, ribbonPolicy:
		return &keyedPolicy{inner: p, secret: s}, nil
	}
	return nil, fmt.Errorf("%w, not %s", errNotKeyed, p.Name())
}

// KeyedReaders returns policies that together open every keyed filter that was written with
// the secret, except range filters; KeyedRange returns a policy for those.
func KeyedReaders(s Secret) []Policy {
	var list []Policy
	for _, p := range []Policy{Bloom(defaultBloomBits), Fuse(8), Ribbon(defaultRibbonBits)} {
		list = append(list, &keyedPolicy{inner: p, secret: s})
	}
	return list
}

// IsKeyedFamily reports whether family is a family of keyed filters.
func IsKeyedFamily(family string) bool { return strings.HasPrefix(family, keyedPrefix) }

type keyedPolicy struct {
	inner  Policy
	secret Secret
}

func (p *keyedPolicy) Name() string { return "keyed(" + p.inner.Name() + ")" }

func (p *keyedPolicy) Family() string { return keyedPrefix + p.inner.Family() }

func (p *keyedPolicy) NewWriter() Writer {
	return &keyedWriter{inner: p.inner.NewWriter(), secret: &p.secret, salt: rand.Uint64()}
}

func (p *keyedPolicy) Open(units [][]byte) (Reader, error) {
	units, salt, err := unkey(units, &p.secret)
	if err != nil {
		return nil, err
	}
	inner, err := p.inner.Open(units)
	if err != nil {
		return nil, err
	}
	return &KeyedReader{inner: inner, secret: &p.secret, salt: salt}, nil
}

// unkey removes the trailer from unit 0. It does not modify units.
func unkey(units [][]byte, s *Secret) (inner [][]byte, salt uint64, err error) {
	if len(units) == 0 || len(units[0]) < keyedTrailerSize {
		return nil, 0, damaged("keyed filter without a trailer")
	}
	n := len(units[0]) - keyedTrailerSize
	t := units[0][n:]
	salt = binary.LittleEndian.Uint64(t)
	if binary.LittleEndian.Uint64(t[8:]) != saltCheck(s, salt) {
		return nil, 0, ErrSecret
	}
	inner = append([][]byte{units[0][:n:n]}, units[1:]...)
	return inner, salt, nil
}

// keyedWriter is the Writer of Keyed.
type keyedWriter struct {
	inner  Writer
	secret *Secret
	salt   uint64
}

func (w *keyedWriter) Add(key Key) {
	w.inner.Add(Key{Bytes: key.Bytes, Hash: salted(w.secret.Hash(key.Bytes), w.salt)})
}

func (w *keyedWriter) NumKeys() int { return w.inner.NumKeys() }

func (w *keyedWriter) Finish() ([][]byte, error) {
	units, err := w.inner.Finish()
	if err != nil || len(units) == 0 {
		return units, err
	}
	n := len(units[0])
	first := AlignedBytes(n + keyedTrailerSize)
	copy(first, units[0])
	binary.LittleEndian.PutUint64(first[n:], w.salt)
	binary.LittleEndian.PutUint64(first[n+8:], saltCheck(w.secret, w.salt))
	units[0] = first
	w.salt = rand.Uint64()
	return units, nil
}

// KeyedReader is the Reader of a keyed filter. MayContain hashes the key under the secret.
// A caller that probes several filters with one secret can hash the key once with
// Secret.Hash, and call MayContainHash.
type KeyedReader struct {
	inner  Reader
	secret *Secret
	salt   uint64
}

// MayContain reports false only if the key was not added. It uses the key's bytes, not
// its Hash.
func (r *KeyedReader) MayContain(key Key) bool { return r.MayContainHash(r.secret.Hash(key.Bytes)) }

// MayContainBytes is MayContain for the key's bytes.
func (r *KeyedReader) MayContainBytes(key []byte) bool {
	return r.MayContainHash(r.secret.Hash(key))
}

// HasSecret reports whether s is the filter's secret.
func (r *KeyedReader) HasSecret(s Secret) bool { return *r.secret == s }

// MayContainHash is MayContain for a key whose hash under the filter's secret is known.
func (r *KeyedReader) MayContainHash(hash uint64) bool {
	return r.inner.MayContain(Key{Hash: salted(hash, r.salt)})
}

// Prefetch implements Prefetcher. It does nothing if the inner reader is not a Prefetcher.
func (r *KeyedReader) Prefetch(hash uint64) {
	if p, ok := r.inner.(Prefetcher); ok {
		p.Prefetch(salted(hash, r.salt))
	}
}

// keyBatch is the number of keys that MayContainMany passes to the inner reader at a time.
const keyBatch = 64

var keyBatches = sync.Pool{New: func() any { return new([keyBatch]Key) }}

// MayContainMany sets positive[i] to MayContain(keys[i]) for each i.
func (r *KeyedReader) MayContainMany(keys []Key, positive []bool) {
	batch := keyBatches.Get().(*[keyBatch]Key)
	for len(keys) > 0 {
		n := min(len(keys), keyBatch)
		for i := range keys[:n] {
			batch[i].Hash = salted(r.secret.Hash(keys[i].Bytes), r.salt)
		}
		r.inner.MayContainMany(batch[:n], positive[:n])
		keys, positive = keys[n:], positive[n:]
	}
	keyBatches.Put(batch)
}

// FPR is the expected share of absent keys for which MayContain is true.
func (r *KeyedReader) FPR() float64 { return r.inner.FPR() }

// SizeBytes is the size of the units.
func (r *KeyedReader) SizeBytes() int { return r.inner.SizeBytes() + keyedTrailerSize }

// Resize implements Resizer. It fails if the inner reader is not a Resizer.
func (r *KeyedReader) Resize(units [][]byte) (Reader, error) {
	inner, ok := r.inner.(Resizer)
	if !ok {
		return nil, damaged("filters of this family cannot be resized")
	}
	units, salt, err := unkey(units, r.secret)
	if err != nil {
		return nil, err
	}
	if salt != r.salt {
		return nil, damaged("units of another filter")
	}
	resized, err := inner.Resize(units)
	if err != nil {
		return nil, err
	}
	return &KeyedReader{inner: resized, secret: r.secret, salt: salt}, nil
}
