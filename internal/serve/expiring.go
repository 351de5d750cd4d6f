package serve

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/siftdb/sift"
)

// expiring is a set of keys that may have an entry in the expiry index, as one bit for
// each hash. Only a key in it has to be read before it is overwritten, to remove its
// entry in the same batch. Bits are never cleared while the server runs.
type expiring struct {
	any  atomic.Bool // set before a bit is
	bits [expiringBits / 64]atomic.Uint64
}

const (
	expiringBits = 1 << 20
	// With more entries than that at the start, all keys may have one.
	maxExpiring = expiringBits
)

func (e *expiring) at(hash uint64) (*atomic.Uint64, uint64) {
	bit := hash >> 32 % expiringBits
	return &e.bits[bit/64], 1 << (bit % 64)
}

func (e *expiring) add(hash uint64) {
	if word, bit := e.at(hash); word.Load()&bit == 0 {
		e.any.Store(true)
		word.Or(bit)
	}
}

func (e *expiring) has(hash uint64) bool {
	word, bit := e.at(hash)
	return word.Load()&bit != 0
}

// findExpiring fills the set with the keys of the index.
func (s *Server) findExpiring() error {
	const beforeKey = 1 + 4 + 8
	n := 0
	for e, err := range s.db.Scan(&sift.IterOptions{Prefix: []byte{spaceExpiry}, DontFillCache: true}) {
		if err != nil {
			return err
		}
		if len(e.Key) < beforeKey {
			return errHead
		}
		if n++; n > maxExpiring {
			for i := range s.expiring.bits {
				s.expiring.bits[i].Store(1<<64 - 1)
			}
			return nil
		}
		s.expiring.add(maphash.Bytes(s.seed, e.Key[beforeKey:]))
	}
	return nil
}

// dropExpiry adds to a batch what removes the index entry of a key, if it has one,
// before its head changes. The key's stripe is locked.
func (w *writes) dropExpiry(b *sift.Batch, key []byte) error {
	if !w.srv.expiring.has(maphash.Bytes(w.srv.seed, key)) {
		return nil
	}
	return w.view(key, func(v []byte) error {
		h, err := decodeHead(v)
		if err == nil && h.expiry != 0 {
			b.Delete(w.expiryKey(nil, h.expiry, key))
		}
		return err
	})
}
