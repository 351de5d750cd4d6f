package memory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/measure"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == ChildArg {
		if err := Child(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestRun runs each workload in a control group, if this machine lets us create one.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	const keys = 30_000
	for _, w := range Workloads {
		c := Case{Engine: "sift", Workload: w, Limit: 64 << 20, Keys: keys, Value: 100, Threads: 4, Time: 100 * time.Millisecond, Preread: true, Dir: filepath.Join(dir, "db")}
		r, err := Run(c, true)
		if errors.Is(err, errNoGroups) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.Killed || r.Ops == 0 || w == Fill && r.Ops != keys || w == Open && r.Ops != FirstLookups || r.CPU <= 0 || r.Anonymous <= 0 || r.Resident > c.Limit+32<<20 {
			t.Errorf("%s: %+v", w, r)
		}
	}
	if DirBytes(filepath.Join(dir, "db")) < keys*50 {
		t.Error("the files are smaller than 50 bytes per key")
	}
}

// TestKnown checks that unknown engines and settings are rejected.
func TestKnown(t *testing.T) {
	for name, known := range map[string]bool{"sift": true, "sift/nomap": true, "sift/none": false, "pebble/nomap": false, "none": false, "rocksdb/nomap": false} {
		if err := Known(name); (err == nil) != known {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTimedShare checks that overwrites are as frequent among timed operations as among all.
func TestTimedShare(t *testing.T) {
	timed, overwrites := 0, 0
	for op := range timedEach * mixedEach {
		if op%timedEach == 0 {
			timed++
			if op%mixedEach == 0 {
				overwrites++
			}
		}
	}
	if overwrites*mixedEach != timed {
		t.Errorf("%d of %d timed operations are overwrites, want one in %d", overwrites, timed, mixedEach)
	}
}

// nativeDB is a store whose readers loop over keys in C++.
type nativeDB struct {
	engine.DB
	t     *testing.T
	looks int
}

func (d *nativeDB) NewReader(string) (engine.Reader, error) { return nativeReader{d}, nil }

type nativeReader struct{ *nativeDB }

func (r nativeReader) Get([]byte) (int, bool, error) {
	r.t.Error("Get copies the value to Go")
	return 0, true, nil
}
func (r nativeReader) Value(dst, _ []byte) ([]byte, bool, error) { return dst, true, nil }
func (r nativeReader) Close() error                              { return nil }
func (r nativeReader) GetEach(_ *data.Keys, from, to, _ int, lat []int64) (int, []int64, error) {
	r.looks += to - from
	return to - from, append(lat, 1000), nil
}

// TestLookupsAreNative checks that a store in C++ loops over the keys there, and that each lookup
// counts.
func TestLookupsAreNative(t *testing.T) {
	set, err := data.MadeUp(data.Random, 1000, 8, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	db := &nativeDB{t: t}
	w := &worker{task: &task{Case: Case{Engine: "sift", Workload: Open}}, set: set, db: db, rng: data.Rand(1), lat: measure.NewLatencies()}
	w.done = func() bool { return w.ops >= FirstLookups }
	if err := w.lookups(); err != nil || db.looks != FirstLookups || w.ops != FirstLookups || w.lat.Count() == 0 {
		t.Errorf("%v, %d native lookups, %d operations, %d timed", err, db.looks, w.ops, w.lat.Count())
	}
}
