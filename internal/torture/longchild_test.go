package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/testhook"
	"github.com/siftdb/sift/internal/vfs"
)

// The child of TestLong.
const (
	longDirEnv     = "SIFT_TORTURE_LONG_DIR"
	longAckedEnv   = "SIFT_TORTURE_LONG_ACKED"
	longTroubleEnv = "SIFT_TORTURE_LONG_TROUBLE"

	longKeys     = 150000
	longClients  = 4
	longInterval = 5 * time.Second
)

// longOptions make compactions frequent, and keep the database small over hours.
var longOptions = sift.Options{MemtableBytes: 2 << 20, TableBytes: 1 << 20, LevelBaseBytes: 8 << 20, CacheBytes: 4 << 20}

// longChild is the process under load. On standard output it prints measurements ("sample"),
// acknowledged entries of the ledger ("acked"), disk troubles and reopenings ("event"), and
// failures ("error").
func longChild(dir string) {
	fail := func(err error) {
		fmt.Printf("error %v\n", err)
		os.Exit(2)
	}
	acked, err := strconv.Atoi(os.Getenv(longAckedEnv))
	if err != nil {
		fail(err)
	}
	l := &longLoad{dir: dir, acked: acked}
	if os.Getenv(longTroubleEnv) == "true" {
		l.disk = newLongDisk(vfs.OS)
		go l.disk.changeStates(rand.New(rand.NewPCG(uint64(os.Getpid()), 99)))
	}
	go func() {
		for range time.Tick(longInterval) {
			line, err := l.sample()
			if err != nil {
				fail(err)
			}
			fmt.Println("sample " + line)
		}
	}()
	for {
		if err := l.session(); err != nil {
			fail(err)
		}
		fmt.Println("event reopen")
	}
}

// longLoad is the load on a database.
type longLoad struct {
	dir          string
	disk         *longDisk // nil: the host's file system
	acked        int       // entries of the ledger whose Put has returned
	gets, writes histogram

	calls [2 + longClients]calls // of the ledger, of housekeeping and of the clients
	outer calls                  // of session itself: Open and Close

	mu sync.Mutex
	db *sift.DB // nil while it is closed
}

// calls counts the calls of a goroutine, two each, to show when one does not end. It is odd during
// a call.
type calls struct {
	n     atomic.Int64
	seen  int64 // n when it was last looked at
	still int   // how often it was looked at since then
}

func (c *calls) begin() { c.n.Add(1) }
func (c *calls) end()   { c.n.Add(1) }
func (c *calls) next()  { c.n.Add(2) } // ends a call and begins another

// duration returns for how long the current call has taken, if it is asked every longInterval.
func (c *calls) duration() time.Duration {
	if n := c.n.Load(); n != c.seen || n%2 == 0 {
		c.seen, c.still = n, 0
	} else {
		c.still++
	}
	return time.Duration(c.still) * longInterval
}

// session opens the database, checks the ledger and puts load on the database until an error of
// the disk requires another session.
func (l *longLoad) session() error {
	l.outer.begin()
	db, err := l.open()
	l.outer.end()
	if err != nil {
		return err
	}
	l.set(db)
	var wg sync.WaitGroup
	ctx, end := context.WithCancel(context.Background())
	defer end()
	loads := []func() error{
		func() error { return l.ledger(ctx, db) },
		func() error { return l.housekeeping(ctx, db) },
	}
	for c := range longClients {
		rng := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(time.Now().UnixNano())+uint64(c)))
		loads = append(loads, func() error { return l.client(ctx, db, rng, &l.calls[2+c]) })
	}
	errs := make([]error, len(loads))
	for i, load := range loads {
		wg.Go(func() {
			defer end() // the first one to end ends all
			errs[i] = l.excuse(load())
		})
	}
	wg.Wait()
	l.set(nil)
	l.outer.begin()
	defer l.outer.end()
	return errors.Join(errors.Join(errs...), l.excuse(db.Close()))
}

// excuse returns nil if the disk caused the error, and err otherwise.
func (l *longLoad) excuse(err error) error {
	if l.disk != nil && errors.Is(err, errLongDisk) && !errors.Is(err, sift.ErrCorruption) {
		return nil
	}
	return err
}

func (l *longLoad) set(db *sift.DB) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.db = db
}

// open opens the database as soon as the disk permits, and checks that it holds everything
// acknowledged.
func (l *longLoad) open() (*sift.DB, error) {
	for {
		o := longOptions
		if l.disk != nil {
			testhook.Apply(&o, testhook.Settings{FS: l.disk.fs})
		}
		db, err := sift.Open(l.dir, &o)
		if err == nil {
			if err = l.look(db); err == nil {
				return db, nil
			}
			err = errors.Join(err, l.excuse(db.Close()))
		}
		if err := l.excuse(err); err != nil {
			return nil, err
		}
		fmt.Println("event failed open")
		l.outer.next()
		time.Sleep(100 * time.Millisecond)
	}
}

func ledgerKey(n int) []byte   { return fmt.Appendf(nil, "ledger%010d", n) }
func ledgerValue(n int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%d;", n), 1+n%20) }

// look reads the ledger: it must hold all that was acknowledged, and nothing after a gap.
func (l *longLoad) look(db *sift.DB) error {
	n := 0
	for e, err := range db.Scan(&sift.IterOptions{Prefix: []byte("ledger")}) {
		if err != nil {
			return err
		}
		if !bytes.Equal(e.Key, ledgerKey(n)) || !bytes.Equal(e.Value, ledgerValue(n)) {
			return fmt.Errorf("entry %d of the ledger is %q, %.20q", n, e.Key, e.Value)
		}
		n++
	}
	if n < l.acked {
		return fmt.Errorf("the ledger has %d entries, and %d were acknowledged", n, l.acked)
	}
	for ; l.acked < n; l.acked++ { // the last Put may have failed, or its line been lost
		fmt.Println("acked", l.acked+1)
	}
	return nil
}

// ledger writes synced entries, one after the other.
func (l *longLoad) ledger(ctx context.Context, db *sift.DB) error {
	calls := &l.calls[0]
	for ctx.Err() == nil {
		calls.begin()
		err := db.Put(ledgerKey(l.acked), ledgerValue(l.acked), nil)
		calls.end()
		if err != nil {
			return err
		}
		l.acked++
		fmt.Println("acked", l.acked)
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func longKey(n int) []byte { return fmt.Appendf(nil, "user%08d", n*2) }

// client reads and writes until ctx ends, with iterators and snapshots that stay open for a
// while.
func (l *longLoad) client(ctx context.Context, db *sift.DB, rng *rand.Rand, calls *calls) (err error) {
	type held struct {
		it    *sift.Iter
		snap  *sift.Snapshot
		until time.Time
	}
	var open []held
	calls.begin()
	defer calls.end()
	defer func() {
		for _, h := range open {
			err = errors.Join(err, h.it.Close(), h.snap.Close())
		}
	}()
	for ctx.Err() == nil {
		calls.next()
		n := int(math.Abs(rng.NormFloat64()) * longKeys / 4)
		start := time.Now()
		switch k := rng.IntN(1000); {
		case k < 550:
			key := longKey(n)
			if k < 250 {
				key[len(key)-1]++ // absent: only even numbers are written
			}
			v, err := db.Get(key)
			if err != nil && !errors.Is(err, sift.ErrNotFound) || err == nil && (k < 250 || !bytes.HasPrefix(v, key)) {
				return fmt.Errorf("Get(%s) = %.20q, %w", key, v, err)
			}
			l.gets.add(time.Since(start))
		case k < 900:
			key := longKey(n)
			if err := db.Put(key, append(key, make([]byte, rng.IntN(300))...), &sift.WriteOptions{NoSync: k < 890}); err != nil {
				return err
			}
			l.writes.add(time.Since(start))
		case k < 950:
			if err := db.Delete(longKey(n), sift.NoSync); err != nil {
				return err
			}
			l.writes.add(time.Since(start))
		case k < 990:
			it, err := db.NewIter(&sift.IterOptions{LowerBound: longKey(n)})
			if err != nil {
				return err
			}
			i := 0
			for ok := it.First(); ok && i < 50; ok = it.Next() {
				if !bytes.HasPrefix(it.Value(), it.Key()) {
					return fmt.Errorf("%s has the value %.20q", it.Key(), it.Value())
				}
				i++
			}
			if err := it.Err(); err != nil {
				return errors.Join(err, it.Close())
			}
			if k < 985 || len(open) > 8 {
				if err := it.Close(); err != nil {
					return err
				}
				continue
			}
			open = append(open, held{it, db.Snapshot(), time.Now().Add(time.Duration(rng.IntN(8000)) * time.Millisecond)})
		default:
			for len(open) > 0 && time.Now().After(open[0].until) {
				h := open[0]
				open = open[1:]
				if _, err := h.snap.Get(longKey(n)); err != nil && !errors.Is(err, sift.ErrNotFound) {
					return err
				}
				if err := errors.Join(h.it.Close(), h.snap.Close()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// housekeeping compacts, and makes checkpoints and removes them.
func (l *longLoad) housekeeping(ctx context.Context, db *sift.DB) error {
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(20 * time.Second):
		}
		if err := l.keepHouse(ctx, db, i%4 == 3); err != nil {
			return err
		}
	}
}

func (l *longLoad) keepHouse(ctx context.Context, db *sift.DB, compact bool) error {
	calls := &l.calls[1]
	calls.begin()
	defer calls.end()
	if compact {
		if err := db.Compact(ctx, nil, nil); err != nil && ctx.Err() == nil {
			return err
		}
		calls.next()
	}
	copied := l.dir + "-copy"
	if err := os.RemoveAll(copied); err != nil {
		return err
	}
	return db.Checkpoint(copied)
}

// sample returns all fields but the first, separated by commas.
func (l *longLoad) sample() (string, error) {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	names, err := os.ReadDir(l.dir)
	if err != nil {
		return "", err
	}
	var bytes int64
	for _, n := range names {
		if info, err := n.Info(); err == nil {
			bytes += info.Size()
		}
	}
	tables := 0
	l.mu.Lock()
	if l.db != nil {
		for _, level := range l.db.Metrics().Levels {
			tables += level.Tables
		}
	}
	l.mu.Unlock()
	longest := l.outer.duration()
	for i := range l.calls {
		longest = max(longest, l.calls[i].duration())
	}
	g, w := l.gets.take(), l.writes.take()
	fields := []float64{
		float64(residentBytes()), float64(mem.HeapAlloc), float64(descriptors()), float64(runtime.NumGoroutine()),
		float64(tables), float64(len(names)), float64(bytes), float64(g.count), float64(w.count),
		g.quantile(0.5), g.quantile(0.99), w.quantile(0.5), w.quantile(0.99),
		longest.Seconds(),
	}
	text := make([]string, len(fields))
	for i, f := range fields {
		text[i] = strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strings.Join(text, ","), nil
}
