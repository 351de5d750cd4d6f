package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/testhook"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// stress runs everything concurrently in one process: clients that write, read and keep
// snapshots and iterators open, manual compactions, flushes, checkpoints and so on, on a
// disk that is sometimes slow or failing, with Close at any moment. Each client is the only
// writer of its keys, so it knows what it must read. A watchdog monitors every call.
type stress struct {
	stressPlan
	mem     *vfstest.Mem
	fs      *vfstest.Faulty
	rng     *rand.Rand
	watch   *watchdog
	clients []*client
	rivals  *rivals
	numOps  atomic.Int64

	// The state of one life of the database.
	db      *sift.DB
	closing atomic.Bool // Close has been called, or is about to be

	mu  sync.Mutex
	err error // the first violated guarantee
}

// errStress is the error of injected failures.
var errStress = errors.New("stress: the disk fails")

const stressClients = 3

// stressPlan says how long a stress run takes.
type stressPlan struct {
	lives int           // how often the database is opened
	life  time.Duration // how long it is open at most
	limit time.Duration // how long a call may take

	// With slow, time is that of a synctest bubble: pauses between calls and after failures are
	// long, and cost nothing. The disk is not slow then, since locks are held while it works, and
	// time stands still while a goroutine waits for a lock.
	slow bool
}

// runStressOnce opens and closes a database a few times, each time with other options and
// faults. It returns the number of calls.
func runStressOnce(seed uint64, p stressPlan) (calls int64, err error) {
	mem := vfstest.NewMem()
	s := &stress{stressPlan: p, mem: mem, fs: vfstest.Inject(mem), rng: rand.New(rand.NewPCG(seed, 77)), watch: newWatchdog(p.limit)}
	for i := range stressClients {
		s.clients = append(s.clients, newClient(s, i, rand.New(rand.NewPCG(seed, uint64(i)))))
	}
	s.rivals = &rivals{s: s}
	defer s.watch.stop()
	done := make(chan error, 1)
	go func() {
		for i := 0; i < p.lives && s.broken() == nil; i++ {
			s.live(i)
			s.liveBriefly()
		}
		done <- s.broken()
	}()
	select {
	case err = <-done:
	case err = <-s.watch.hung:
	}
	return s.numOps.Load(), err
}

func (s *stress) broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *stress) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// call makes a call under the watchdog, and reports whether it succeeded. An error must be
// explained by a fault or by Close; own is an error that the caller expects.
func (s *stress) call(what string, own error, fn func() error) (err error) {
	s.numOps.Add(1)
	s.watch.during(what, func() { err = fn() })
	switch {
	case err == nil, errors.Is(err, errStress), own != nil && errors.Is(err, own):
	case s.closing.Load() && errors.Is(err, sift.ErrClosed):
	default:
		s.fail("%s: %w", what, err)
	}
	if errors.Is(err, sift.ErrCorruption) {
		s.fail("%s: a failing disk is reported as damage: %w", what, err)
	}
	return err
}

// live opens the database, runs everything for a while, and closes it.
func (s *stress) live(n int) {
	o := s.options()
	s.closing.Store(false)
	if s.call("Open", nil, func() (err error) { s.db, err = sift.Open(dbDir, o); return err }) != nil {
		return
	}
	for _, c := range s.clients {
		c.adopt()
	}
	s.rivals.adopt()
	fails := s.misbehave(n)
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, c := range s.clients {
		wg.Go(func() { c.run(ctx) })
	}
	works := []func(context.Context, *rand.Rand) error{s.compact, s.disturb}
	for range numRivals {
		works = append(works, s.rivals.increment)
	}
	for _, work := range works {
		rng := rand.New(rand.NewPCG(s.rng.Uint64(), 5))
		wg.Go(func() {
			for ctx.Err() == nil && s.broken() == nil && !errors.Is(work(ctx, rng), sift.ErrClosed) {
				s.rest(rng)
			}
		})
	}
	time.Sleep(time.Duration(s.rng.Int64N(int64(s.life))))
	busy := s.rng.IntN(3) > 0 && !s.slow
	if !busy {
		stop()
		wg.Wait()
		s.dropTables()
		if s.slow {
			s.outage()
		}
		if s.slow || s.rng.IntN(2) == 0 {
			s.fs.SetHook(nil)
			s.retryFlush()
		}
		if !fails {
			s.quiesce(o.L0Tables)
		}
	}
	s.closing.Store(true)
	s.call("Close", nil, s.db.Close)
	stop()
	wg.Wait()
	s.fs.SetHook(nil)
	for _, c := range s.clients {
		c.letGo()
	}
}

// rest pauses between two calls, if that costs nothing.
func (s *stress) rest(rng *rand.Rand) {
	if s.slow {
		time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Second))))
	}
}

// dropTables deletes a range with tables of its own. No reader uses them, so DeleteRange waits
// until their files are removed.
func (s *stress) dropTables() {
	var b sift.Batch
	for i := range 1000 {
		b.Put(fmt.Appendf(nil, "dropped/%d", i), nil)
	}
	for _, do := range []func() error{
		func() error { return s.db.Write(&b, nil) },
		func() error { return s.db.Flush() },
		func() error { return s.db.DeleteRange(context.Background(), []byte("dropped/"), []byte("dropped0")) },
	} {
		if s.call("DeleteRange of tables", nil, do) != nil {
			return
		}
	}
}

// outage makes flushes fail until the pauses between them are long.
func (s *stress) outage() {
	s.fs.SetHook(func(op vfstest.Op) error {
		if strings.HasSuffix(op.Name, ".ldb") {
			return errStress
		}
		return nil
	})
	s.call("Put", nil, func() error { return s.db.Put([]byte("outage"), nil, nil) })
	s.call("Flush", nil, s.db.Flush)
	time.Sleep(100 * s.retryDelay())
}

// retryFlush calls Flush until it succeeds. In virtual time it must not take as long as the pauses
// after several failures do when no caller waits.
func (s *stress) retryFlush() {
	begun := time.Now()
	defer func() {
		if took := time.Since(begun); s.slow && took > 2*s.retryDelay() {
			s.fail("Flush on a disk that works again took %v, with a retry delay of %v", took, s.retryDelay())
		}
	}()
	s.watch.during("Flush on a disk that works again", func() {
		for {
			if err := s.call("Flush", nil, s.db.Flush); err == nil || errors.Is(err, sift.ErrReopen) || s.broken() != nil {
				return
			}
			time.Sleep(s.retryDelay() / 1000)
		}
	})
}

// liveBriefly closes the database right after Open, while the tables are being loaded. Once Close
// has been called, opening a table takes so long that Close exceeds its limit unless loading stops.
// In virtual time the disk may be slow here, because nobody waits for the lock of a table.
func (s *stress) liveBriefly() {
	o := s.options()
	o.DisableAutoCompaction = true
	o.MaxOpenFiles = 0 // the default: a table is opened once
	s.fs.SetHook(func(op vfstest.Op) error {
		switch {
		case op.Kind != vfstest.OpOpen || !strings.HasSuffix(op.Name, ".ldb"):
		case s.closing.Load():
			time.Sleep(s.limit / 8)
		default:
			time.Sleep(100 * time.Microsecond)
		}
		return nil
	})
	defer s.fs.SetHook(nil)
	s.closing.Store(false)
	if s.call("Open", nil, func() (err error) { s.db, err = sift.Open(dbDir, o); return err }) != nil {
		return
	}
	s.closing.Store(true)
	s.call("Close", nil, s.db.Close)
}

// options returns random small options.
func (s *stress) options() *sift.Options {
	r := s.rng
	o := tiny()
	o.MemtableBytes = 1 << (10 + r.IntN(6))
	o.TableBytes = 1 << (10 + r.IntN(4))
	o.L0Tables = 1 + r.IntN(3)
	o.LevelBaseBytes = 1 << (11 + r.IntN(5))
	o.LevelMultiplier = 2 + r.IntN(4)
	if r.IntN(3) == 0 {
		o.CacheBytes = -1
	}
	if r.IntN(3) == 0 {
		o.MaxOpenFiles = 1 + r.IntN(20)
	}
	if r.IntN(3) == 0 {
		o.FilterMemory = 1 << (8 + r.IntN(8))
		o.Filter = filter.Ribbon(10)
	}
	o.KeyedFilters = r.IntN(3) == 0
	if r.IntN(3) == 0 {
		o.RangeFilter = filter.Range(8, 0)
	}
	testhook.Apply(&o, testhook.Settings{FS: s.fs, ManifestBytes: manifestBytes, RetryDelay: s.retryDelay()})
	return &o
}

func (s *stress) retryDelay() time.Duration {
	if s.slow {
		return 10 * time.Second
	}
	return time.Millisecond
}

// misbehave makes the disk slow, or failing at times, or both, or neither. In some runs
// the log and the MANIFEST do not fail.
func (s *stress) misbehave(life int) (fails bool) {
	slow, failing := s.rng.IntN(3), s.rng.IntN(3)
	if life == 0 {
		failing = 0
	}
	seed := s.rng.Uint64()
	var ops atomic.Uint64
	s.fs.SetHook(func(op vfstest.Op) error {
		x := splitmix(seed + ops.Add(1))
		if !s.slow && slow > 0 && x%64 == 0 {
			time.Sleep(time.Duration(x>>32%uint64(slow*1000)) * time.Microsecond)
		}
		table := strings.HasSuffix(op.Name, ".ldb")
		// Failures come in bursts, so that there is time to recover.
		if x = splitmix(x); failing > 0 && ops.Load()>>8%4 == 0 && (table && x%16 == 0 || failing == 2 && x%512 == 0) {
			return errStress
		}
		return nil
	})
	return failing > 0
}

func splitmix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// compact compacts a range, sometimes with a deadline.
func (s *stress) compact(ctx context.Context, rng *rand.Rand) error {
	var own error
	if rng.IntN(3) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), time.Duration(rng.IntN(3000))*time.Microsecond)
		defer cancel()
		own = context.DeadlineExceeded
	} else {
		ctx = context.Background()
	}
	var from, to []byte
	if rng.IntN(2) == 0 {
		from, to = stressKey(rng.IntN(stressClients), 0), stressKey(rng.IntN(stressClients), rng.IntN(stressKeys))
	}
	return s.call("Compact", own, func() error { return s.db.Compact(ctx, from, to) })
}

// disturb makes one of the calls that affect the whole database.
func (s *stress) disturb(_ context.Context, rng *rand.Rand) error {
	db := s.db
	switch n := rng.IntN(40); {
	case n == 0:
		dir := filepath.Join(filepath.Dir(dbDir), fmt.Sprintf("checkpoint%d", rng.Uint64()))
		err := s.call("Checkpoint", nil, func() error { return db.Checkpoint(dir) })
		if err == nil {
			o := tiny()
			testhook.Apply(&o, testhook.Settings{FS: s.mem})
			s.call("Check", nil, func() error {
				_, err := sift.Check(context.Background(), dir, &o, func(err error) { s.fail("a checkpoint is damaged: %w", err) })
				return err
			})
		}
		return err
	case n < 4:
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(5000))*time.Microsecond)
		defer cancel()
		return s.call("BuildFilters", context.DeadlineExceeded, func() error { _, err := db.BuildFilters(ctx); return err })
	case n < 6:
		return s.call("PlanFilters", nil, func() error { _, err := db.PlanFilters(1 << 10); return err })
	case n < 8:
		return s.call("Metrics", nil, func() error { db.Metrics(); db.Tables(); return nil })
	case n < 20:
		return s.call("Flush", nil, db.Flush)
	}
	time.Sleep(time.Duration(rng.IntN(500)) * time.Microsecond)
	return nil
}

// quiesce waits until nothing has been flushed or compacted for a while, and level 0 needs no
// compaction: a database that stopped compacting too early never reaches that state.
func (s *stress) quiesce(l0Tables int) {
	s.watch.during("the end of all background work", func() {
		for last, same := uint64(0), 0; same < 10; same++ {
			time.Sleep(20 * time.Millisecond)
			m := s.db.Metrics()
			if now := m.Flushes + m.Compactions + m.Moves; now != last || m.Levels[0].Tables >= l0Tables {
				last, same = now, 0
			}
		}
	})
}

// watchdog reports calls that do not return.
type watchdog struct {
	limit time.Duration
	hung  chan error // gets one
	quit  chan struct{}

	mu    sync.Mutex
	calls map[*watched]bool
}

type watched struct {
	what  string
	begin time.Time
}

func newWatchdog(limit time.Duration) *watchdog {
	w := &watchdog{limit: limit, hung: make(chan error, 1), quit: make(chan struct{}), calls: map[*watched]bool{}}
	go w.run()
	return w
}

func (w *watchdog) stop() { close(w.quit) }

func (w *watchdog) during(what string, fn func()) {
	c := &watched{what, time.Now()}
	w.mu.Lock()
	w.calls[c] = true
	w.mu.Unlock()
	fn()
	w.mu.Lock()
	delete(w.calls, c)
	w.mu.Unlock()
}

func (w *watchdog) run() {
	for {
		select {
		case <-w.quit:
			return
		case <-time.After(w.limit / 20):
		}
		w.mu.Lock()
		for c := range w.calls {
			if took := time.Since(c.begin); took > w.limit {
				stacks := make([]byte, 1<<20)
				stacks = stacks[:runtime.Stack(stacks, true)]
				w.hung <- fmt.Errorf("%s has not ended after %v:\n%s", c.what, took.Round(time.Second), stacks)
				w.mu.Unlock()
				return
			}
		}
		w.mu.Unlock()
	}
}
