package store

import (
	"errors"
	"math"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/measure"
	"github.com/siftdb/sift/bench/result"
)

// runFill fills an empty store.
func runFill(s *session, b *benchmark) error {
	if err := s.fresh(); err != nil {
		return err
	}
	c := s.config()
	n := s.o.Set.Len()
	if b.name == "fillsync" {
		c.Sync = true
		n = min(n, max(n/1000, 200), 1000)
	}
	s.num = n
	var order []uint32
	if b.name != "fillseq" {
		order = data.Permutation(data.Rand(s.o.Seed+uint64(s.round)), n)
	}
	if err := s.open(c); err != nil { // after order, whose memory is not the store's
		return err
	}
	return s.write(b, n, order)
}

func runOverwrite(s *session, b *benchmark) error {
	return s.rewrite(b, data.Permutation(data.Rand(s.o.Seed+uint64(s.round)+1000), s.num))
}

// runFreshen overwrites one key in fifty.
func runFreshen(s *session, b *benchmark) error {
	p := data.Permutation(data.Rand(s.o.Seed+uint64(s.round)+2000), s.num)
	return s.rewrite(b, p[:(len(p)+49)/50])
}

func (s *session) rewrite(b *benchmark, order []uint32) error {
	if err := s.open(s.config()); err != nil {
		return err
	}
	return s.write(b, len(order), order)
}

// sustainedTimes is the number of times that runSustained writes each key.
const sustainedTimes = 5

// runSustained writes without a pause, so that background work falls behind, and
// times every write.
func runSustained(s *session, b *benchmark) error {
	set, o := s.o.Set, s.o
	order := data.Permutation(data.Rand(o.Seed+uint64(s.round)+3000), s.num)
	if err := s.open(s.config()); err != nil {
		return err
	}
	order = order[:min(len(order), maxSlab/(len(set.Key(nil, 0))+len(set.Value(0))+8))]
	keys := data.Collect(len(order), func(dst []byte, i int) []byte { return set.Key(dst, int(order[i])) })
	values := data.Collect(len(order), func(dst []byte, i int) []byte { return append(dst, set.Value(int(order[i]))...) })
	defer keys.OffHeap()()
	defer values.OffHeap()()
	measure.FreeMemory() // their copies on the heap
	c := newCollected()
	g := s.gauge(keys, values)
	start := measure.Now()
	for range sustainedTimes {
		err := parallel(o.Threads, len(order), func(_, from, to int) error {
			w, err := s.db.NewWriter()
			if err != nil {
				return err
			}
			return errors.Join(putEach(w, keys, values, from, to, 1, c), w.Close())
		})
		if err != nil {
			return err
		}
	}
	cost := start.Since()
	if err := s.db.Quiesce(); err != nil {
		return err
	}
	g.note(s.key(b, ""), sustainedTimes*len(order), cost, g.from.Since(), c)
	return s.close()
}

// maxSlab limits the bytes of keys and values that are generated before they are
// written.
const maxSlab = 1 << 30

// write writes n keys in the given order, by ascending number if it is nil, and
// measures this with the background work that follows.
func (s *session) write(b *benchmark, n int, order []uint32) error {
	set, o := s.o.Set, s.o
	number := func(i int) int {
		if order == nil {
			return i
		}
		return int(order[i])
	}
	perKey := len(set.Key(nil, 0)) + len(set.Value(0)) + 8
	chunk := max(1, min(n, maxSlab/perKey))
	c := newCollected()
	mapped := func() int64 {
		if m, ok := s.db.(engine.MapWriter); ok {
			return m.MappedBytes()
		}
		return 0
	}
	mappedBefore := mapped()
	var cost measure.Cost // of the writes alone
	var user float64
	var g *gauge
	for from := 0; from < n; from += chunk {
		to := min(n, from+chunk)
		keys := data.Collect(to-from, func(dst []byte, i int) []byte { return set.Key(dst, number(from+i)) })
		values := data.Collect(to-from, func(dst []byte, i int) []byte { return append(dst, set.Value(number(from+i))...) })
		if len(keys.Bytes) > math.MaxUint32 || len(values.Bytes) > math.MaxUint32 {
			return errors.New("keys or values are too long on average")
		}
		user += float64(len(keys.Bytes) + len(values.Bytes))
		freeKeys, freeValues := keys.OffHeap(), values.OffHeap()
		if g == nil {
			if to == n { // it is garbage now, so it is no longer part of the base
				s.base -= int64(4 * cap(order))
				order = nil
			}
			measure.FreeMemory() // their copies on the heap
			g = s.gauge(keys, values)
		}
		start := measure.Now()
		err := parallel(o.Threads, to-from, func(_, from, to int) error {
			w, err := s.db.NewWriter()
			if err != nil {
				return err
			}
			return errors.Join(putEach(w, keys, values, from, to, o.TimeEvery, c), w.Close())
		})
		if err != nil {
			return err
		}
		cost.Elapsed += start.Since().Elapsed
		freeKeys() // each store has copied what it keeps
		freeValues()
	}
	if err := s.db.Quiesce(); err != nil {
		return err
	}
	total := g.from.Since()
	k := s.key(b, "")
	g.note(k, n, cost, total, c)
	row := s.file.Row(k)
	row.Add(result.QuiescedPerS, float64(n)/total.Elapsed.Seconds())
	if total.IO.Known {
		written := total.IO.WriteBytes + mapped() - mappedBefore
		if s.spec.PageWrites && total.IO.DirtyBytes > 0 {
			written = total.IO.DirtyBytes
		}
		row.Add(result.WriteAmp, float64(written)/user)
	}
	row.Add(result.Space, float64(allocated(s.dir()))/float64(s.num))
	return s.close()
}

func runDelete(s *session, b *benchmark) error {
	if err := s.open(s.config()); err != nil {
		return err
	}
	gone := deleted(s.o)
	keys := data.Collect(len(gone), func(dst []byte, i int) []byte { return s.o.Set.Key(dst, int(gone[i])) })
	s.changed = true
	g := s.gauge(keys)
	start := measure.Now()
	err := parallel(s.o.Threads, keys.Len(), func(_, from, to int) error {
		w, err := s.db.NewWriter()
		if err != nil {
			return err
		}
		for i := from; i < to; i++ {
			if err := w.Delete(keys.At(i)); err != nil {
				return err
			}
		}
		return w.Close()
	})
	cost := start.Since()
	if err != nil {
		return err
	}
	if err := s.db.Quiesce(); err != nil {
		return err
	}
	g.note(s.key(b, ""), keys.Len(), cost, g.from.Since(), nil)
	return s.close()
}

// runCompact compacts the whole store. It counts each key as an operation.
func runCompact(s *session, b *benchmark) error {
	if err := s.open(s.config()); err != nil {
		return err
	}
	g := s.gauge()
	start := measure.Now()
	err := s.db.Compact()
	if errors.Is(err, engine.ErrUnsupported) {
		return s.close()
	}
	if err != nil {
		return err
	}
	cost := start.Since()
	if err := s.db.Quiesce(); err != nil {
		return err
	}
	k := s.key(b, "")
	k.State = ""
	g.note(k, s.num, cost, g.from.Since(), nil)
	s.file.Row(k).Add(result.Space, float64(allocated(s.dir()))/float64(s.num))
	return s.close()
}
