package store

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/engine"
)

// ycsbOp is an operation of the Yahoo! Cloud Serving Benchmark (Cooper et al.,
// SoCC 2010).
type ycsbOp byte

const (
	ycsbRead ycsbOp = iota
	ycsbUpdate
	ycsbInsert
	ycsbScan
	ycsbModify // read, then write
)

// ycsbMix is a workload: percent of the operations are of kind first, the others of kind second. If
// latest is set, the latest keys are the most frequent.
type ycsbMix struct {
	first   ycsbOp
	percent int
	second  ycsbOp
	latest  bool
}

var ycsbMixes = map[string]ycsbMix{
	"ycsb-a": {ycsbRead, 50, ycsbUpdate, false},
	"ycsb-b": {ycsbRead, 95, ycsbUpdate, false},
	"ycsb-c": {ycsbRead, 100, ycsbRead, false},
	"ycsb-d": {ycsbRead, 95, ycsbInsert, true},
	"ycsb-e": {ycsbScan, 95, ycsbInsert, false},
	"ycsb-f": {ycsbRead, 50, ycsbModify, false},
}

const ycsbMaxScan = 100

// ycsbPlan is a list of operations, the same for every store.
type ycsbPlan struct {
	ops   []ycsbOp
	keys  *data.Keys
	num   []uint32 // the numbers of the keys
	scans []byte   // entries to read
}

func (s *session) ycsbPlan(b *benchmark, n int, salt uint64) *ycsbPlan {
	mix := ycsbMixes[b.name]
	w := s.work(b, n, salt)
	zipf := data.NewZipf(w.rand, s.num, zipfSkew)
	p := &ycsbPlan{ops: make([]ycsbOp, n), num: make([]uint32, n), scans: make([]byte, n)}
	stored := s.num + s.inserted
	p.keys = data.Collect(n, func(dst []byte, i int) []byte {
		op := mix.first
		if w.rand.IntN(100) >= mix.percent {
			op = mix.second
		}
		if op == ycsbInsert && stored-s.num >= w.set.Spare() {
			op = ycsbUpdate
		}
		var k int
		switch {
		case op == ycsbInsert:
			k = stored
			stored++
		case mix.latest:
			k = max(0, stored-1-zipf.Rank())
		default:
			k = zipf.Next()
		}
		p.ops[i], p.num[i], p.scans[i] = op, uint32(k), byte(1+w.rand.IntN(ycsbMaxScan))
		return w.set.Key(dst, k)
	})
	s.inserted = stored - s.num
	return p
}

func runYCSB(s *session, b *benchmark) error {
	if err := s.prepare(); err != nil {
		return err
	}
	n := max(1, s.o.Reads/2)
	if b.name == "ycsb-e" {
		n = max(1, n/10) // a scan does the work of many lookups
	}
	warm := s.ycsbPlan(b, warmOps(n), 1)
	plan := s.ycsbPlan(b, n, 0)
	if err := s.ycsb(warm, 0, newCollected()); err != nil {
		return err
	}
	c := newCollected()
	g := s.gauge(warm.keys, plan.keys)
	if err := s.ycsb(plan, s.o.TimeEvery, c); err != nil {
		return err
	}
	// The measurement does not wait for the background work that the workload causes.
	k := s.key(b, "")
	k.State = ""
	g.record(k, len(plan.ops), c)
	return s.close()
}

func (s *session) ycsb(p *ycsbPlan, every int, c *collected) error {
	var failed atomic.Bool
	return parallel(s.o.Threads, len(p.ops), func(_, from, to int) error {
		r, err := s.db.NewReader("")
		if err != nil {
			return err
		}
		w, err := s.db.NewWriter()
		if err != nil {
			return err
		}
		one := newCollected()
		t := newTimer(every)
		for i := from; i < to && !failed.Load(); i++ {
			due := t.due()
			var start time.Time
			if due {
				start = time.Now()
			}
			if err := s.ycsbOne(p, i, r, w, one); err != nil {
				failed.Store(true)
				return errors.Join(err, w.Close(), r.Close())
			}
			if due {
				t.note(start)
			}
		}
		c.add(t.lat, 0, one.entries)
		return errors.Join(w.Close(), r.Close())
	})
}

func (s *session) ycsbOne(p *ycsbPlan, i int, r engine.Reader, w engine.Writer, c *collected) error {
	switch p.ops[i] {
	case ycsbRead:
		return getOne(r, p.keys, i)
	case ycsbUpdate, ycsbInsert:
		return w.Put(p.keys.At(i), s.o.Set.Value(int(p.num[i])))
	case ycsbModify:
		if err := getOne(r, p.keys, i); err != nil {
			return err
		}
		return w.Put(p.keys.At(i), s.o.Set.Value(int(p.num[i])))
	}
	it, err := s.db.NewIter()
	if err != nil {
		return err
	}
	return errors.Join(seekEach(it, p.keys, i, i+1, int(p.scans[i])-1, 0, c), it.Close())
}

// getOne looks up key i. A store in C++ is called through GetEach, which does
// not copy the value to Go.
func getOne(r engine.Reader, keys *data.Keys, i int) error {
	if n, ok := r.(engine.NativeReader); ok {
		_, _, err := n.GetEach(keys, i, i+1, 0, nil)
		return err
	}
	_, _, err := r.Get(keys.At(i))
	return err
}
