package memory

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/measure"
)

const (
	// timedEach: one operation in timedEach is timed. It has no factor in common with mixedEach,
	// so overwrites are as frequent among the timed operations as among all of them.
	timedEach = 7
	mixedEach = 20     // one operation in mixedEach of the workload Mixed is an overwrite
	rangeLen  = 100000 // entries of a scan

	// lookupBatch keys are chosen at a time. It divides FirstLookups.
	lookupBatch = 50
)

// worker is a goroutine that runs a workload.
type worker struct {
	task *task
	at   int // its number
	set  data.Set
	db   engine.DB
	rng  *rand.Rand

	ops  int64
	lat  *measure.Latencies
	done func() bool
}

// run opens the database and runs the workload.
func (t *task) run() (r Result, err error) {
	c := &t.Case
	r.Case = *c
	e, config, err := c.config()
	if err != nil {
		return r, err
	}
	kind := data.Random
	if c.Sorted {
		kind = data.Ascending
	}
	set, err := data.MadeUp(kind, c.Keys, c.Value, 0.5)
	if err != nil {
		return r, err
	}
	if c.Preread {
		if err := readFiles(c.Dir); err != nil {
			return r, err
		}
	}
	begin := time.Now()
	db, err := e.Open(config)
	if err != nil {
		return r, err
	}
	r.OpenMS = time.Since(begin).Seconds() * 1e3
	defer func() { err = errors.Join(err, db.Close()) }()
	switch c.Workload {
	case Open:
		c.Threads = 1
		err = t.measure(&r, set, db, func(w *worker) error {
			w.done = func() bool { return w.ops >= FirstLookups }
			return w.lookups()
		})
		return r, err
	case Fill:
		if c.Sorted {
			c.Threads = 1
		}
		err = t.measure(&r, set, db, func(w *worker) error { return w.fill() })
		if err == nil {
			err = db.Quiesce()
		}
		return r, err
	}
	if c.Warm > 0 {
		var unused Result
		if err := t.timed(&unused, set, db, c.Warm); err != nil {
			return r, err
		}
	}
	err = t.timed(&r, set, db, c.Time)
	return r, err
}

// timed runs the workload for the duration d.
func (t *task) timed(r *Result, set data.Set, db engine.DB, d time.Duration) error {
	var over atomic.Bool
	stop := time.AfterFunc(d, func() { over.Store(true) })
	defer stop.Stop()
	return t.measure(r, set, db, func(w *worker) error {
		w.done = over.Load
		return w.work()
	})
}

// measure runs work in all workers concurrently and fills in r.
func (t *task) measure(r *Result, set data.Set, db engine.DB, work func(*worker) error) error {
	workers := make([]*worker, t.Case.Threads)
	errs := make([]error, len(workers))
	before, reads := used(), t.Group.reads()
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range workers {
		w := &worker{task: t, at: i, set: set, db: db, rng: data.Rand(uint64(time.Now().UnixNano()) + uint64(i)), lat: measure.NewLatencies()}
		workers[i] = w
		wg.Go(func() { errs[i] = work(w) })
	}
	wg.Wait()
	r.Seconds = time.Since(begin).Seconds()
	after := used()
	r.Resident, r.Anonymous = footprint()
	lat := measure.NewLatencies()
	for _, w := range workers {
		r.Ops += w.ops
		lat.Merge(w.lat)
	}
	if r.Ops == 0 {
		return errors.Join(append(errs, errors.New("no operation was executed"))...)
	}
	ops := float64(r.Ops)
	r.CPU = float64(after.cpu-before.cpu) / 1e3 / ops
	r.P99 = float64(lat.Quantile(0.99)) / 1e3
	r.ReadBytes = float64(after.readBytes-before.readBytes) / ops
	r.Reads = -1
	if reads >= 0 {
		r.Reads = float64(t.Group.reads()-reads) / ops
	}
	r.Faults = after.faults - before.faults
	r.Peak = t.Group.peak()
	return errors.Join(errs...)
}

// work runs the case's workload until done returns true.
func (w *worker) work() error {
	switch w.task.Case.Workload {
	case Absent, Present:
		return w.lookups()
	case Scan:
		return w.scans()
	case Mixed:
		return w.mixed(mixedEach)
	case Overwrite:
		return w.mixed(1)
	case All:
		return w.all()
	}
	return fmt.Errorf("unknown workload %q", w.task.Case.Workload)
}

// reader returns a reader in the engine's best mode for the workload.
func (w *worker) reader() (engine.Reader, error) {
	mode, workload := "", w.task.Case.Workload
	switch e, _, _ := w.task.Case.config(); {
	case e.Name == "pebble" && workload == Absent:
		mode = "prefix"
	case e.Name == "badger" && (workload == Absent || workload == Present || workload == Open):
		mode = "txn"
	}
	return w.db.NewReader(mode)
}

func (w *worker) lookups() error {
	r, err := w.reader()
	if err != nil {
		return err
	}
	present, key := w.task.Case.Workload != Absent, w.set.Key
	if !present {
		key = w.set.Absent
	}
	keys := data.NewKeys(lookupBatch, 16)
	for err == nil && !w.done() {
		keys.Reset()
		for range lookupBatch {
			keys.Grow(func(dst []byte) []byte { return key(dst, w.rng.IntN(w.set.Len())) })
		}
		err = w.lookEach(r, keys, present)
	}
	return errors.Join(err, r.Close())
}

// lookEach looks up keys one by one. A store in C++ loops over them there.
func (w *worker) lookEach(r engine.Reader, keys *data.Keys, present bool) error {
	n, ok := r.(engine.NativeReader)
	if !ok {
		for i := range keys.Len() {
			if err := w.time(func() error { return look(r, keys, i, present) }); err != nil {
				return err
			}
			w.ops++
		}
		return nil
	}
	found, lat, err := n.GetEach(keys, 0, keys.Len(), timedEach, nil)
	for _, ns := range lat {
		w.lat.Add(time.Duration(ns))
	}
	w.ops += int64(keys.Len())
	want := 0
	if present {
		want = keys.Len()
	}
	if err == nil && found != want {
		err = fmt.Errorf("found %d of %d keys, want %d", found, keys.Len(), want)
	}
	return err
}

// look looks up key i, without copying its value to Go if the store is in C++.
func look(r engine.Reader, keys *data.Keys, i int, present bool) error {
	var found bool
	var err error
	if n, ok := r.(engine.NativeReader); ok {
		var hits int
		hits, _, err = n.GetEach(keys, i, i+1, 0, nil)
		found = hits == 1
	} else {
		_, found, err = r.Get(keys.At(i))
	}
	if err == nil && found != present {
		err = fmt.Errorf("key %x: found is %t", keys.At(i), found)
	}
	return err
}

func (w *worker) time(f func() error) error {
	if w.ops%timedEach != 0 {
		return f()
	}
	begin := time.Now()
	err := f()
	w.lat.Add(time.Since(begin))
	return err
}

func (w *worker) scans() error {
	start, bytes := data.NewKeys(1, 16), 0
	defer func() { runtime.KeepAlive(bytes) }()
	for !w.done() {
		begin := time.Now()
		it, err := w.db.NewIter()
		if err != nil {
			return err
		}
		start.Reset()
		start.Grow(func(dst []byte) []byte { return w.set.Key(dst, w.rng.IntN(w.set.Len())) })
		n := 0
		if native, ok := it.(engine.NativeIter); ok {
			n, _, err = native.SeekEach(start, 0, 1, rangeLen-1, 0, nil)
		} else {
			for ok := it.SeekGE(start.At(0)); ok && n < rangeLen && (n%1000 != 0 || !w.done()); ok = it.Next() {
				bytes += len(it.Key()) + len(it.Value())
				n++
			}
		}
		if err := errors.Join(err, it.Close()); err != nil {
			return err
		}
		w.ops += int64(n)
		w.lat.Add(time.Since(begin))
	}
	return nil
}

// all gives each worker a role by its number: the first overwrites, the second scans, the third
// compacts, the others look up and overwrite.
func (w *worker) all() error {
	switch w.at {
	case 0:
		return w.mixed(1)
	case 1:
		return w.scans()
	case 2:
		for !w.done() {
			if err := w.db.Compact(); err != nil {
				return err
			}
			w.ops++
		}
		return nil
	}
	return w.mixed(mixedEach)
}

// mixed looks up present keys; one operation in each is an overwrite instead.
func (w *worker) mixed(each int64) error {
	r, err := w.reader()
	if err != nil {
		return err
	}
	p, err := w.db.NewWriter()
	if err != nil {
		return errors.Join(err, r.Close())
	}
	key := data.NewKeys(1, 16)
	for ; err == nil && !w.done(); w.ops++ {
		key.Reset()
		key.Grow(func(dst []byte) []byte { return w.set.Key(dst, w.rng.IntN(w.set.Len())) })
		err = w.time(func() error {
			if w.ops%each == 0 {
				return p.Put(key.At(0), w.set.Value(w.rng.IntN(w.set.Len())))
			}
			return look(r, key, 0, true)
		})
	}
	return errors.Join(err, r.Close(), p.Close())
}

// fill writes its share of the set's keys.
func (w *worker) fill() error {
	if loader, ok := w.db.(engine.Loader); ok && w.task.Case.Sorted {
		return loader.Load(w.entries)
	}
	p, err := w.db.NewWriter()
	if err != nil {
		return err
	}
	keys, threads := w.set.Len(), w.task.Case.Threads
	var key []byte
	for i := w.at; err == nil && i < keys; i += threads {
		key = w.set.Key(key[:0], i)
		err = w.time(func() error { return p.Put(key, w.set.Value(i)) })
		w.ops++
	}
	return errors.Join(err, p.Close())
}

// entries yields the whole set.
func (w *worker) entries(yield func(key, value []byte) bool) {
	var key []byte
	for i := range w.set.Len() {
		key = w.set.Key(key[:0], i)
		if w.ops++; !yield(key, w.set.Value(i)) {
			return
		}
	}
}
