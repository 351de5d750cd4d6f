// Package queue compares stores on workloads that delete keys at one end: a queue,
// whose consumer takes the first key that an iterator finds, and a time series, whose
// oldest part is deleted repeatedly.
package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/measure"
)

// The workloads: a queue, and a time series whose oldest part is deleted in one of
// two ways.
const (
	Queue         = "queue"
	SeriesByRange = "series, DeleteRange"
	SeriesByKey   = "series, point deletes"
)

// Case describes a measurement.
type Case struct {
	Workload   string
	Window     int // live keys
	ValueBytes int
	Time       time.Duration
}

// Result is the result of a store in a Case. Times are in nanoseconds.
type Result struct {
	Fresh     float64 // mean time of a new iterator and its First, right after the fill
	PerSecond float64 // keys put per second; as many are deleted
	First     *measure.Latencies
	Pop       *measure.Latencies // of First and Delete; for a series, of the deletion of a part
	Live      int64              // maximum bytes of the live keys and values
	Dir       int64              // maximum bytes of the directory in the second half of the run
}

// config returns the configuration of all stores. A transaction holds one write of a
// queue, but up to 1,000 of a series.
func config(c Case, dir string) engine.Config {
	batch := 1
	if c.Workload != Queue {
		batch = 1000
	}
	return engine.Config{
		Dir: dir, BloomBits: 10, Keys: c.Window, CacheBytes: 8 << 20, WriteBufferBytes: 4 << 20,
		BlockBytes: 4 << 10, TxnBatch: batch,
	}
}

// Run measures a store in a new directory below parent for about c.Time. It fails if
// First finds a wrong key.
func Run(e *engine.Engine, c Case, parent string) (r *Result, err error) {
	dir, err := os.MkdirTemp(parent, "sift-bench-queue")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	db, err := e.Open(config(c, dir))
	if err != nil {
		return nil, err
	}
	w := &worker{db: db, c: c, dir: dir, rng: rand.New(rand.NewPCG(1, 2)), value: make([]byte, c.ValueBytes)}
	w.r.First, w.r.Pop = measure.NewLatencies(), measure.NewLatencies()
	err = w.run()
	if w.writer != nil {
		err = errors.Join(err, w.writer.Close())
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, fmt.Errorf("%s, %v: %w", e.Name, c, err)
	}
	return &w.r, nil
}

// Supports reports whether a store has the operations that a case needs.
func Supports(e *engine.Engine, c Case) bool {
	return c.Workload != SeriesByRange || e.DeletesRanges
}

type worker struct {
	db     engine.DB
	c      Case
	dir    string
	rng    *rand.Rand
	writer engine.Writer
	value  []byte
	key    [8]byte

	head, tail uint64 // the live keys are [head, tail)
	r          Result
}

func (w *worker) keyOf(i uint64) []byte {
	binary.BigEndian.PutUint64(w.key[:], i)
	return w.key[:]
}

func (w *worker) put() error {
	for i := range w.value[:len(w.value)/2] { // the other half is compressible
		w.value[i] = byte(w.rng.Uint32())
	}
	err := w.writer.Put(w.keyOf(w.tail), w.value)
	w.tail++
	return err
}

// commit makes the writes visible in stores that write in transactions.
func (w *worker) commit() (err error) {
	if w.writer != nil {
		err = w.writer.Close()
	}
	if err == nil {
		w.writer, err = w.db.NewWriter()
	}
	return err
}

// first finds the first key with a new iterator and checks that it is head.
func (w *worker) first() error {
	it, err := w.db.NewIter()
	if err != nil {
		return err
	}
	found := it.First()
	var key uint64
	if found {
		key = binary.BigEndian.Uint64(it.Key())
	}
	if err := it.Close(); err != nil {
		return err
	}
	if !found || key != w.head {
		return fmt.Errorf("the first key is %d (found: %v), want %d", key, found, w.head)
	}
	return nil
}

const freshTime = time.Second

func (w *worker) run() error {
	if err := w.fill(); err != nil {
		return err
	}
	n, begin := 0, time.Now()
	for ; n < 10 || n < 100_000 && time.Since(begin) < freshTime; n++ {
		if err := w.first(); err != nil {
			return err
		}
	}
	w.r.Fresh = float64(time.Since(begin)) / float64(n)
	w.r.Live = int64(w.c.Window) * int64(8+len(w.value))
	step := w.pop
	if w.c.Workload != Queue {
		step = w.retain
		w.r.Live += w.r.Live / parts
	}
	from := w.tail
	begin = time.Now()
	sampled := begin
	for time.Since(begin) < w.c.Time {
		if err := step(); err != nil {
			return err
		}
		if now := time.Now(); now.Sub(sampled) > w.c.Time/40 {
			if sampled = now; now.Sub(begin) > w.c.Time/2 {
				size, err := dirBytes(w.dir)
				if err != nil {
					return err
				}
				w.r.Dir = max(w.r.Dir, size)
			}
		}
	}
	w.r.PerSecond = float64(w.tail-from) / time.Since(begin).Seconds()
	return nil
}

func (w *worker) fill() error {
	for range w.c.Window {
		if w.tail%1000 == 0 {
			if err := w.commit(); err != nil {
				return err
			}
		}
		if err := w.put(); err != nil {
			return err
		}
	}
	if err := w.commit(); err != nil {
		return err
	}
	return w.db.Quiesce()
}

// pop puts a key at the tail and deletes the first one.
func (w *worker) pop() error {
	if err := w.put(); err != nil {
		return err
	}
	begin := time.Now()
	if err := w.first(); err != nil {
		return err
	}
	w.r.First.Add(time.Since(begin))
	if err := w.writer.Delete(w.keyOf(w.head)); err != nil {
		return err
	}
	w.r.Pop.Add(time.Since(begin))
	w.head++
	return nil
}

// parts is the number of parts of a series; one is deleted at a time.
const parts = 10

// retain appends a part to the series and deletes its first one.
func (w *worker) retain() error {
	for range w.c.Window / parts {
		if err := w.put(); err != nil {
			return err
		}
	}
	if err := w.commit(); err != nil {
		return err
	}
	to := w.head + uint64(w.c.Window/parts)
	begin := time.Now()
	if w.c.Workload == SeriesByRange {
		var from [8]byte
		copy(from[:], w.keyOf(w.head))
		if err := w.db.(engine.RangeDeleter).DeleteRange(from[:], w.keyOf(to)); err != nil {
			return err
		}
		w.head = to
	} else {
		for ; w.head < to; w.head++ {
			if err := w.writer.Delete(w.keyOf(w.head)); err != nil {
				return err
			}
		}
		if err := w.commit(); err != nil {
			return err
		}
	}
	w.r.Pop.Add(time.Since(begin))
	for range 10 {
		begin = time.Now()
		if err := w.first(); err != nil {
			return err
		}
		w.r.First.Add(time.Since(begin))
	}
	return nil
}

// dirBytes returns the total size of all files below dir.
func dirBytes(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed in the meantime
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			sum += measure.DiskBytes(info)
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	return sum, err
}
