package serve

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"sync/atomic"

	"github.com/siftdb/sift"
)

// expiring summarizes the expiry index in memory: when the next key is due, and which keys may have
// an entry, as one bit per hash. Only such a key must be read before it is overwritten, so that its
// entry can be removed in the same batch.
type expiring struct {
	// next is a time in ms since 1970 before which no entry is due; never: there is none.
	next atomic.Int64
	ones atomic.Int64 // bits that are set
	bits [expiringBits / 64]atomic.Uint64
}

const (
	never        = math.MaxInt64
	expiringBits = 1 << 20
	// With more entries than maxExpiring at the start, every key counts as having one.
	maxExpiring = expiringBits
	// fewBits bits may stay set when no entry is left: one plain write in 64 then looks up its key.
	fewBits = expiringBits / 64
)

func (e *expiring) at(hash uint64) (*atomic.Uint64, uint64) {
	bit := hash >> 32 % expiringBits
	return &e.bits[bit/64], 1 << (bit % 64)
}

func (e *expiring) add(hash uint64) {
	if word, bit := e.at(hash); word.Load()&bit == 0 && word.Or(bit)&bit == 0 {
		e.ones.Add(1)
	}
}

// due records when an entry of the index is due. It is called after the entry has been written: if
// the sweeper has reset next and then does not find the entry, this call comes later and lowers
// next again.
func (e *expiring) due(at int64) {
	for next := e.next.Load(); at < next; next = e.next.Load() {
		if e.next.CompareAndSwap(next, at) {
			return
		}
	}
}

// clear empties the set. World is held exclusively, and the index is empty.
func (e *expiring) clear() {
	for i := range e.bits {
		e.bits[i].Store(0)
	}
	e.ones.Store(0)
}

func (e *expiring) has(hash uint64) bool {
	word, bit := e.at(hash)
	return word.Load()&bit != 0
}

// findExpiring reads next and the set from the index.
func (s *Server) findExpiring() error {
	const beforeKey = genLen + 8
	s.expiring.next.Store(never)
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
			s.expiring.ones.Store(expiringBits)
			s.expiring.due(0)
			return nil
		}
		s.expiring.due(int64(binary.BigEndian.Uint64(e.Key[genLen:])))
		s.expiring.add(maphash.Bytes(s.seed, e.Key[beforeKey:]))
	}
	return nil
}

// dropExpiry adds to a batch the removal of a key's index entry, if it has one, before its head
// changes. The key's stripe is locked.
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
