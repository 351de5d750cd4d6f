package sift

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// recorder records events.
type recorder struct {
	mu          sync.Mutex
	flushes     []FlushEvent
	compactions []CompactionEvent
	failed      []error
}

func (r *recorder) events() Events {
	note := func(f func()) {
		r.mu.Lock()
		defer r.mu.Unlock()
		f()
	}
	return Events{
		Flushed:   func(e FlushEvent) { note(func() { r.flushes = append(r.flushes, e) }) },
		Compacted: func(e CompactionEvent) { note(func() { r.compactions = append(r.compactions, e) }) },
		Failed:    func(err error) { note(func() { r.failed = append(r.failed, err) }) },
	}
}

// TestEvents checks that each flush and compaction is reported, with what it wrote.
func TestEvents(t *testing.T) {
	var r recorder
	db, err := OpenMemory(&Options{Events: r.events(), DisableAutoCompaction: true})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		for i := range 100 {
			if err := db.Put(fmt.Appendf(nil, "key%03d", i), fmt.Appendf(nil, "%d", round), NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	m := db.Metrics()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if len(r.flushes) != 2 || r.flushes[0].Entries != 100 || r.flushes[0].Bytes+r.flushes[1].Bytes != m.FlushBytes {
		t.Errorf("flushes %+v, and %d bytes were flushed", r.flushes, m.FlushBytes)
	}
	if len(r.compactions) != 1 || r.compactions[0].Inputs != 2 || r.compactions[0].Outputs != 1 || r.compactions[0].From != 0 || r.compactions[0].To != 1 ||
		r.compactions[0].Written != m.CompactWriteBytes || r.compactions[0].Read != m.CompactReadBytes {
		t.Errorf("compactions %+v, and %d bytes were read, %d written", r.compactions, m.CompactReadBytes, m.CompactWriteBytes)
	}
	if len(r.failed) != 0 {
		t.Errorf("failures: %v", r.failed)
	}
}

// TestEventsMoved checks that a table that is moved to the next level unchanged is reported and
// counts as a move.
func TestEventsMoved(t *testing.T) {
	var r recorder
	// The filter is the same in both levels.
	db, err := OpenMemory(&Options{Events: r.events(), DisableAutoCompaction: true, Filter: filter.Bloom(10)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := db.Put(fmt.Appendf(nil, "key%03d", i), nil, NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	m := db.Metrics()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	want := CompactionEvent{From: 0, To: 1, Moved: true, Inputs: 1, Outputs: 1}
	if len(r.compactions) != 1 || r.compactions[0] != want || m.Moves != 1 || m.Compactions != 0 || m.Levels[1].Tables != 1 {
		t.Errorf("events %+v; metrics: %d moves, %d compactions, %d tables in level 1", r.compactions, m.Moves, m.Compactions, m.Levels[1].Tables)
	}
}

// onMessage calls a function when a text is logged.
type onMessage struct {
	text string
	fn   func()
}

func (o onMessage) Write(p []byte) (int, error) {
	if strings.Contains(string(p), o.text) {
		o.fn()
	}
	return len(p), nil
}

// TestEventsStalled checks that a write that waits until level 0 has been compacted is reported and
// counted, with the time it took.
func TestEventsStalled(t *testing.T) {
	var stalls []StallEvent
	waits, entered, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	o := uncached(vfstest.NewMem())
	o.L0Tables, o.DisableAutoCompaction = 1, false
	o.Events.Stalled = func(e StallEvent) { stalls = append(stalls, e) }
	o.Logger = slog.New(slog.NewTextHandler(onMessage{"writes wait", sync.OnceFunc(func() { close(waits) })}, nil))
	db := mustOpen(t, "db", o)
	hold := inBackground(func() error {
		return db.do(context.Background(), func(context.Context) (bool, error) {
			close(entered)
			<-release
			return true, nil
		})
	})
	<-entered // nothing is compacted until release
	for range stopFactor {
		if err := errors.Join(db.Put([]byte("k"), nil, NoSync), db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	waiting := inBackground(func() error { return db.Put([]byte("k"), nil, NoSync) })
	<-waits
	close(release)
	if err := ended(t, "Put", waiting); err != nil {
		t.Error(err)
	}
	if err := ended(t, "the job", hold); err != nil {
		t.Error(err)
	}
	m := db.Metrics()
	mustClose(t, db)
	if len(stalls) != 1 || !stalls[0].Stopped || m.Stalls != 1 || m.StallTime != stalls[0].Took || m.Slowdowns != 0 {
		t.Errorf("events %+v; metrics: %d writes waited for %v, %d were delayed", stalls, m.Stalls, m.StallTime, m.Slowdowns)
	}
}

// TestEventsDamage checks that a table found damaged after Open is reported.
func TestEventsDamage(t *testing.T) {
	dir := t.TempDir()
	db, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Put([]byte("key"), []byte("value"), nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.ldb"))
	if err != nil || len(tables) != 1 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	data, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tables[0], data[:len(data)-1], 0o644); err != nil {
		t.Fatal(err)
	}
	var r recorder
	db, err = Open(dir, &Options{Events: r.events()})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	<-db.loader.done
	if len(r.failed) != 1 || !errors.Is(r.failed[0], ErrCorruption) {
		t.Errorf("failures: %v", r.failed)
	}
}

// TestEventsWithoutLocks checks that Events.Failed is called without locks when the MANIFEST cannot
// be written: it may ask for metrics and take a snapshot, even while DeleteRange keeps new
// snapshots out.
func TestEventsWithoutLocks(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	var db *DB
	failed := 0
	o := uncached(faulty)
	o.Events.Failed = func(error) {
		failed++
		db.Metrics()
		db.Snapshot().Close()
	}
	db = mustOpen(t, "db", o)
	loadKeys(t, db, 100)
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool {
		return op.Kind == vfstest.OpSync && strings.HasPrefix(filepath.Base(op.Name), "MANIFEST-")
	}})
	deleted := inBackground(func() error { return db.DeleteRange(context.Background(), nil, nil) })
	if err := ended(t, "DeleteRange", deleted); !errors.Is(err, ErrReopen) || failed != 1 {
		t.Errorf("DeleteRange: %v, with %d events", err, failed)
	}
	faulty.SetFaults()
	db.Close()
}

type failingPolicy struct{ filter.Policy }

func (p failingPolicy) NewWriter() filter.Writer { return failingWriter{p.Policy.NewWriter()} }

type failingWriter struct{ filter.Writer }

var errNoFilter = errors.New("no filter")

func (failingWriter) Finish() ([][]byte, error) { return nil, errNoFilter }

// TestFilterNotBuilt checks that a table whose filter cannot be built is reported.
func TestFilterNotBuilt(t *testing.T) {
	var r recorder
	db := mustOpen(t, t.TempDir(), &Options{
		Filter: failingPolicy{filter.Bloom(10)}, Events: r.events(), Logger: slog.New(slog.DiscardHandler),
	})
	defer mustClose(t, db)
	if err := errors.Join(db.Put([]byte("k"), nil, NoSync), db.Flush()); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failed) != 1 || !errors.Is(r.failed[0], errNoFilter) {
		t.Errorf("reported: %v", r.failed)
	}
}
