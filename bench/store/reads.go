package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/measure"
	"github.com/siftdb/sift/bench/result"
)

// warmOps returns the number of unmeasured operations before n measured ones.
func warmOps(n int) int { return min(max(n/4, 1_000), 50_000) }

// modes returns the modes in which a benchmark looks up keys.
func (s *session) modes(b *benchmark) []engine.Mode {
	if !b.modes {
		return s.spec.Modes[:1]
	}
	return s.spec.Modes
}

func runGets(s *session, b *benchmark) error {
	keys, want := b.keys(s.work(b, s.o.Reads, 0))
	warm, _ := b.keys(s.work(b, warmOps(s.o.Reads), 1))
	for _, mode := range s.modes(b) {
		if err := s.gets(b, mode.Name, keys, warm, want); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) gets(b *benchmark, mode string, keys, warm *data.Keys, want int) error {
	lookup := func(keys *data.Keys, every int, c *collected) error {
		return parallel(s.o.Threads, keys.Len(), func(_, from, to int) error {
			r, err := s.db.NewReader(mode)
			if err != nil {
				return err
			}
			return errors.Join(getEach(r, keys, from, to, every, c), r.Close())
		})
	}
	if err := lookup(warm, 0, newCollected()); err != nil {
		return err
	}
	c := newCollected()
	g := s.gauge(keys, warm)
	if err := lookup(keys, s.o.TimeEvery, c); err != nil {
		return err
	}
	g.record(s.key(b, mode), keys.Len(), c)
	if s.whole() && c.found != want {
		return fmt.Errorf("%s found %d of %d keys, want %d", b.name, c.found, keys.Len(), want)
	}
	return nil
}

func runMany(s *session, b *benchmark) error {
	keys, want := b.keys(s.work(b, s.o.Reads, 0))
	warm, _ := b.keys(s.work(b, warmOps(s.o.Reads), 1))
	for _, mode := range s.modes(b) {
		if err := s.many(b, mode.Name, keys, warm, want); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) many(b *benchmark, mode string, keys, warm *data.Keys, want int) error {
	lookup := func(keys *data.Keys, c *collected) error {
		return parallel(s.o.Threads, keys.Len(), func(_, from, to int) error {
			r, err := s.db.NewReader(mode)
			if err != nil {
				return err
			}
			return errors.Join(getMany(r, keys, from, to, s.o.BatchSize, c), r.Close())
		})
	}
	if err := lookup(warm, newCollected()); err != nil {
		return err
	}
	c := newCollected()
	g := s.gauge(keys, warm)
	if err := lookup(keys, c); err != nil {
		return err
	}
	g.record(s.key(b, mode), keys.Len(), c)
	if s.whole() && c.found != want {
		return fmt.Errorf("%s found %d of %d keys, want %d", b.name, c.found, keys.Len(), want)
	}
	return nil
}

func runScan(s *session, b *benchmark) error {
	scan := func(limit int, c *collected) error {
		it, err := s.db.NewIter()
		if err != nil {
			return err
		}
		return errors.Join(scanAll(it, b.name == "readreverse", limit, c), it.Close())
	}
	if err := scan(warmOps(s.num), newCollected()); err != nil {
		return err
	}
	c := newCollected()
	g := s.gauge()
	if err := scan(s.num, c); err != nil {
		return err
	}
	g.record(s.key(b, ""), max(1, c.entries), c)
	if s.whole() && c.entries != s.num {
		return fmt.Errorf("%s read %d entries of %d", b.name, c.entries, s.num)
	}
	return nil
}

func runSeek(s *session, b *benchmark) error {
	keys, _ := b.keys(s.work(b, (s.o.Reads+1)/2, 0))
	warm, _ := b.keys(s.work(b, warmOps(s.o.Reads/2), 1))
	seek := func(keys *data.Keys, every int, c *collected) error {
		return parallel(s.o.Threads, keys.Len(), func(_, from, to int) error {
			it, err := s.db.NewIter()
			if err != nil {
				return err
			}
			return errors.Join(seekEach(it, keys, from, to, s.o.SeekNexts, every, c), it.Close())
		})
	}
	if err := seek(warm, 0, newCollected()); err != nil {
		return err
	}
	c := newCollected()
	g := s.gauge(keys, warm)
	if err := seek(keys, s.o.TimeEvery, c); err != nil {
		return err
	}
	g.record(s.key(b, ""), keys.Len(), c)
	return nil
}

// runReadWhileWriting measures lookups while another goroutine overwrites keys
// at a fixed rate.
func runReadWhileWriting(s *session, b *benchmark) error {
	o := s.o
	if err := s.prepare(); err != nil {
		return err
	}
	keys, want := b.keys(s.work(b, o.Reads, 0))
	warm, _ := b.keys(s.work(b, warmOps(o.Reads), 1))
	lookup := func(keys *data.Keys, every int, c *collected) error {
		return parallel(o.Threads, keys.Len(), func(_, from, to int) error {
			r, err := s.db.NewReader("")
			if err != nil {
				return err
			}
			return errors.Join(getEach(r, keys, from, to, every, c), r.Close())
		})
	}
	if err := lookup(warm, 0, newCollected()); err != nil {
		return err
	}
	c := newCollected()
	g := s.gauge(keys, warm)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.writeAtRate(stop) }()
	err := lookup(keys, o.TimeEvery, c)
	cost := g.from.Since()
	close(stop)
	if err := errors.Join(err, <-done); err != nil {
		return err
	}
	g.note(s.key(b, ""), keys.Len(), cost, cost, c)
	if s.whole() && c.found != want {
		return fmt.Errorf("%s found %d of %d keys, want %d", b.name, c.found, keys.Len(), want)
	}
	return nil
}

// writeAtRate overwrites random keys at Options.WriteRate until stop is closed.
func (s *session) writeAtRate(stop <-chan struct{}) error {
	w, err := s.db.NewWriter()
	if err != nil {
		return err
	}
	set, r := s.o.Set, data.Rand(s.o.Seed+99)
	var key []byte
	written, start := 0, time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return w.Close()
		case <-tick.C:
		}
		for due := int(time.Since(start).Seconds() * float64(s.o.WriteRate)); written < due; {
			i := r.IntN(s.num)
			key = set.Key(key[:0], i)
			if err := w.Put(key, set.Value(i)); err != nil {
				return err
			}
			written += len(key) + len(set.Value(i))
		}
	}
}

// runOpen opens and closes the store several times.
func runOpen(s *session, b *benchmark) error {
	const times = 5
	if err := warmFiles(s.dir()); err != nil {
		return err
	}
	var took time.Duration
	var db engine.DB
	from := measure.Now()
	for range times {
		var err error
		start := time.Now()
		if db, err = s.spec.Open(s.config()); err != nil {
			return err
		}
		took += time.Since(start)
		if err := db.Close(); err != nil {
			return err
		}
	}
	cost := from.Since()
	row := s.file.Row(s.key(b, ""))
	ms := took.Seconds() * 1e3 / times
	row.Add(result.OpenTime, ms)
	row.Add(result.CPU, cost.CPU.Seconds()*1e6/times)
	s.o.line(row.Key, s.round, s.pass, fmt.Sprintf("%.2f milliseconds to open", ms))
	return nil
}
