package store

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/measure"
)

// parallel calls f in the given number of goroutines, each with a part of the
// range [0, n).
func parallel(threads, n int, f func(thread, from, to int) error) error {
	if threads <= 1 {
		return f(0, 0, n)
	}
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for t := range threads {
		wg.Go(func() { errs[t] = f(t, n*t/threads, n*(t+1)/threads) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// timer times one operation in every.
type timer struct {
	every, left int
	lat         []int64
}

func newTimer(every int) *timer { return &timer{every: every, left: every} }

// due reports whether to time the next operation. It must be called once per
// operation.
func (t *timer) due() bool {
	if t.left--; t.left != 0 {
		return false
	}
	t.left = t.every
	return true
}

func (t *timer) note(start time.Time) { t.lat = append(t.lat, int64(time.Since(start))) }

// collected holds the results of the goroutines of a benchmark.
type collected struct {
	mu      sync.Mutex
	lat     *measure.Latencies
	found   int
	entries int
}

func newCollected() *collected { return &collected{lat: measure.NewLatencies()} }

func (c *collected) add(lat []int64, found, entries int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ns := range lat {
		c.lat.Add(time.Duration(ns))
	}
	c.found += found
	c.entries += entries
}

// getEach looks up keys[from:to].
func getEach(r engine.Reader, keys *data.Keys, from, to, every int, c *collected) error {
	if n, ok := r.(engine.NativeReader); ok {
		found, lat, err := n.GetEach(keys, from, to, every, nil)
		c.add(lat, found, 0)
		return err
	}
	t, hits := newTimer(every), 0
	for i := from; i < to; i++ {
		key := keys.At(i)
		var found bool
		var err error
		if t.due() {
			start := time.Now()
			_, found, err = r.Get(key)
			t.note(start)
		} else {
			_, found, err = r.Get(key)
		}
		if err != nil {
			return err
		}
		if found {
			hits++
		}
	}
	c.add(t.lat, hits, 0)
	return nil
}

// getMany looks up keys[from:to] in batches of the given size, or one by one in
// stores without such a call.
func getMany(r engine.Reader, keys *data.Keys, from, to, size int, c *collected) error {
	many, ok := r.(engine.ManyReader)
	if !ok {
		return getEach(r, keys, from, to, 0, c)
	}
	batch := make([][]byte, 0, size)
	hits := 0
	for i := from; i < to; {
		batch = batch[:0]
		for ; len(batch) < size && i < to; i++ {
			batch = append(batch, keys.At(i))
		}
		found, err := many.GetMany(batch)
		if err != nil {
			return err
		}
		hits += found
	}
	c.add(nil, hits, 0)
	return nil
}

// putEach writes keys[from:to].
func putEach(w engine.Writer, keys, values *data.Keys, from, to, every int, c *collected) error {
	if n, ok := w.(engine.NativeWriter); ok {
		lat, err := n.PutEach(keys, values, from, to, every, nil)
		c.add(lat, 0, 0)
		return err
	}
	t := newTimer(every)
	for i := from; i < to; i++ {
		key, value := keys.At(i), values.At(i)
		var err error
		if t.due() {
			start := time.Now()
			err = w.Put(key, value)
			t.note(start)
		} else {
			err = w.Put(key, value)
		}
		if err != nil {
			return err
		}
	}
	c.add(t.lat, 0, 0)
	return nil
}

// seekEach seeks keys[from:to] and reads the entry there and nexts more.
func seekEach(it engine.Iter, keys *data.Keys, from, to, nexts, every int, c *collected) error {
	if n, ok := it.(engine.NativeIter); ok {
		entries, lat, err := n.SeekEach(keys, from, to, nexts, every, nil)
		c.add(lat, 0, entries)
		return err
	}
	t := newTimer(every)
	entries, bytes := 0, 0
	for i := from; i < to; i++ {
		key := keys.At(i)
		due := t.due()
		var start time.Time
		if due {
			start = time.Now()
		}
		ok := it.SeekGE(key)
		for n := 0; ok; n++ {
			bytes += len(it.Key()) + len(it.Value())
			entries++
			if n == nexts {
				break
			}
			ok = it.Next()
		}
		if due {
			t.note(start)
		}
	}
	runtime.KeepAlive(bytes)
	c.add(t.lat, 0, entries)
	return nil
}

// scanAll reads up to limit entries from the first or, if backward, the last.
func scanAll(it engine.Iter, backward bool, limit int, c *collected) error {
	if n, ok := it.(engine.NativeIter); ok {
		entries, err := n.ScanAll(backward, limit)
		c.add(nil, 0, entries)
		return err
	}
	entries, bytes := 0, 0
	move, ok := it.Next, false
	if backward {
		move, ok = it.Prev, it.Last()
	} else {
		ok = it.First()
	}
	for ok && entries < limit {
		bytes += len(it.Key()) + len(it.Value())
		entries++
		ok = move()
	}
	runtime.KeepAlive(bytes)
	c.add(nil, 0, entries)
	return nil
}
