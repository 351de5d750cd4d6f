// Package txn compares transactions: increments of counters and transfers between
// accounts, on few contended keys or on many, by one or more goroutines.
package txn

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/bench/measure"
)

// Store is a database with serializable transactions, or its strongest isolation
// level.
type Store interface {
	// Transact runs fn in a transaction and commits it, retries after conflicts, and
	// returns the number of conflicts.
	Transact(fn func(Txn) error) (conflicts int, err error)
	Close() error
}

// Txn is a transaction.
type Txn interface {
	// Get returns the value of a present key, valid until the transaction ends.
	Get(key []byte) ([]byte, error)
	// Put sets a key. It does not keep the slices.
	Put(key, value []byte) error
}

// Kind is a kind of store.
type Kind struct {
	Name string
	Open func(dir string, sync bool) (Store, error)
}

// Kinds are the kinds that are built in.
var Kinds = []Kind{{"sift", openSift}, {"badger", openBadger}, {"bbolt", openBolt(false)}, {"bbolt Batch", openBolt(true)}}

// memtableBytes is the memtable size of all stores that have memtables.
const memtableBytes = 16 << 20

// Case describes a measurement.
type Case struct {
	Workload   string // counter or transfer
	Keys       int
	Sync       bool
	Goroutines int
}

func (c Case) String() string {
	sync := "not synced"
	if c.Sync {
		sync = "synced"
	}
	return fmt.Sprintf("%s, %d keys, %s, %d goroutines", c.Workload, c.Keys, sync, c.Goroutines)
}

// Result is the result of a store in a Case.
type Result struct {
	PerSecond float64 // committed transactions per second
	CPU       float64 // microseconds of CPU time per transaction
	Conflicts float64 // per transaction
}

// Median returns the median of each value.
func Median(all []Result) (m Result) {
	pick := func(value func(*Result) float64) float64 {
		var list []float64
		for i := range all {
			list = append(list, value(&all[i]))
		}
		return measure.Median(list)
	}
	return Result{
		pick(func(r *Result) float64 { return r.PerSecond }),
		pick(func(r *Result) float64 { return r.CPU }),
		pick(func(r *Result) float64 { return r.Conflicts }),
	}
}

const balance = 1000

func keyOf(dst []byte, i int) []byte { return fmt.Appendf(dst[:0], "account/%09d", i) }

// Run measures a store in a new directory for about the given time. It fails if the
// store's content afterwards does not match the committed transactions.
func Run(k Kind, c Case, length time.Duration) (r Result, err error) {
	dir, err := os.MkdirTemp("", "sift-bench-txn")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	s, err := k.Open(dir, c.Sync)
	if err != nil {
		return r, err
	}
	defer func() {
		if cerr := s.Close(); err == nil {
			err = cerr
		}
	}()
	if err := load(s, c.Keys); err != nil {
		return r, err
	}
	var done, conflicts atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, c.Goroutines)
	cpu, begin := measure.CPUTime(), time.Now()
	for g := range c.Goroutines {
		wg.Go(func() {
			w := worker{s: s, c: c, rng: rand.New(rand.NewPCG(uint64(g), 1))}
			for errs[g] == nil && time.Since(begin) < length {
				var n int
				n, errs[g] = w.one()
				conflicts.Add(int64(n))
				done.Add(1)
			}
		})
	}
	wg.Wait()
	took, used := time.Since(begin), measure.CPUTime()-cpu
	for _, err := range errs {
		if err != nil {
			return r, err
		}
	}
	n := float64(done.Load())
	want := int64(c.Keys) * balance
	if c.Workload == "counter" {
		want += done.Load()
	}
	sum, err := sumOf(s, c.Keys)
	if err == nil && sum != want {
		err = fmt.Errorf("%s, %v: the sum is %d, want %d", k.Name, c, sum, want)
	}
	return Result{n / took.Seconds(), float64(used.Microseconds()) / n, float64(conflicts.Load()) / n}, err
}

const loadBatch = 1000

func load(s Store, keys int) error {
	for from := 0; from < keys; from += loadBatch {
		_, err := s.Transact(func(t Txn) error {
			for i := from; i < min(from+loadBatch, keys); i++ {
				if err := t.Put(keyOf(nil, i), binary.LittleEndian.AppendUint64(nil, balance)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func sumOf(s Store, keys int) (sum int64, err error) {
	for from := 0; from < keys; from += loadBatch {
		part := int64(0)
		_, err := s.Transact(func(t Txn) error {
			part = 0
			for i := from; i < min(from+loadBatch, keys); i++ {
				v, err := t.Get(keyOf(nil, i))
				if err != nil {
					return err
				}
				part += int64(binary.LittleEndian.Uint64(v))
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		sum += part
	}
	return sum, nil
}

// worker is the state of one goroutine.
type worker struct {
	s        Store
	c        Case
	rng      *rand.Rand
	from, to []byte
}

// one runs one transaction.
func (w *worker) one() (conflicts int, err error) {
	a := w.rng.IntN(w.c.Keys)
	w.from = keyOf(w.from, a)
	if w.c.Workload == "counter" {
		return w.s.Transact(func(t Txn) error { return change(t, w.from, 1) })
	}
	w.to = keyOf(w.to, (a+1+w.rng.IntN(w.c.Keys-1))%w.c.Keys)
	amount := w.rng.Int64N(10)
	return w.s.Transact(func(t Txn) error {
		if err := change(t, w.from, -amount); err != nil {
			return err
		}
		return change(t, w.to, amount)
	})
}

// change adds by to a counter or an account.
func change(t Txn, key []byte, by int64) error {
	v, err := t.Get(key)
	if err != nil {
		return err
	}
	var buf [8]byte
	return t.Put(key, binary.LittleEndian.AppendUint64(buf[:0], binary.LittleEndian.Uint64(v)+uint64(by)))
}
