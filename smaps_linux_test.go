package sift_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
)

// inChild reports whether this process runs only this test. If not, it runs the test in a process
// of its own.
func inChild(t *testing.T) bool {
	const env = "SIFT_TEST_MEMORY"
	if os.Getenv(env) != "" {
		return true
	}
	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), env+"=1")
	out, err := child.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
	return false
}

// anonymous returns the anonymous memory of the process in bytes.
func anonymous(t *testing.T) uint64 {
	content, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(content)) {
		if rest, ok := strings.CutPrefix(line, "Anonymous:"); ok {
			kb, err := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Skip("smaps_rollup has no figure of anonymous memory")
	return 0
}

// TestMemoryMetrics checks that Metrics.Memory is within a tenth of the process's memory, in a
// process that does nothing else, has filled its cache and a memtable, and has compacted before.
func TestMemoryMetrics(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector, which the short tests run under, takes memory of its own")
	}
	if !inChild(t) {
		return
	}
	dir := t.TempDir()
	debug.FreeOSMemory()
	before := anonymous(t)
	check := func(when string, db *sift.DB) {
		t.Helper()
		for range 3 { // pools release their memory in the second round
			debug.FreeOSMemory()
		}
		has := anonymous(t) - before
		m := db.Metrics().Memory
		t.Logf("%s: the process has %.1f MiB more than at first, and Metrics says %.1f: %+v", when, float64(has)/(1<<20), float64(m.Total())/(1<<20), m)
		if total := m.Total(); total < has-has/10 || total > has+has/10 {
			t.Errorf("%s: the process has %d bytes more, and Metrics says %d", when, has, total)
		}
	}
	o := &sift.Options{CacheBytes: 48 << 20, MemtableBytes: 8 << 20}
	db := mustOpen(t, dir, o)
	const keys = 800_000
	put := func(n int) {
		value := []byte(strings.Repeat("value", 8))
		for i := range n {
			key := fmt.Appendf(nil, "%016x", uint64(i)*0x9e3779b97f4a7c15)
			if err := db.Put(key, append(value, key...), sift.NoSync); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(keys)
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	look := func(n int) {
		for i := range n {
			key := fmt.Appendf(nil, "%016x", uint64(i*7%keys)*0x9e3779b97f4a7c15)
			if ok, err := db.Has(key); err != nil || !ok {
				t.Fatal(ok, err)
			}
		}
	}
	mustClose(t, db)
	db = mustOpen(t, dir, o)
	put(70_000)
	look(500_000)
	check("after writes and lookups", db)
	mustClose(t, db)
}

// TestLargeValuesMemory checks that memory for large values is returned to the system soon after
// they are flushed.
func TestLargeValuesMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector, which the short tests run under, takes memory of its own")
	}
	if !inChild(t) {
		return
	}
	value := make([]byte, 64<<20)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range value {
		value[i] = byte(r.Uint32())
	}
	db := mustOpen(t, t.TempDir(), nil)
	debug.FreeOSMemory()
	before := anonymous(t)
	put := func(key string, n int) {
		if err := db.Put([]byte(key), value[:n], sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 40 {
		put(fmt.Sprintf("key%d", i), 1<<20+r.IntN(15<<20))
	}
	for i := range 3 {
		put(fmt.Sprintf("large%d", i), len(value))
	}
	peak := anonymous(t) - before
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	const most = 160 << 20
	has := uint64(math.MaxUint64)
	for range 600 { // running compactions may leave garbage, too
		if has = max(anonymous(t), before) - before; has <= most {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d MiB more than at first after all writes, %d after the flush", peak>>20, has>>20)
	if has > most {
		t.Errorf("the process keeps %d bytes more than at first", has)
	}
	mustClose(t, db)
}

// TestFilterMemoryMetrics is TestMemoryMetrics for large filters, most of which lie outside Go's
// heap: as they were loaded, and with half of them dropped.
func TestFilterMemoryMetrics(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector, which the short tests run under, takes memory of its own")
	}
	if !inChild(t) {
		return
	}
	const keys = 12_000_000
	o := &sift.Options{Filter: filter.Ribbon(30), TableBytes: 1 << 20, MapBytes: -1, CacheBytes: -1, MemtableBytes: 64 << 10}
	dir := t.TempDir()
	db := mustOpen(t, dir, o)
	var all iter.Seq2[sift.Op, error] = func(yield func(sift.Op, error) bool) {
		for i := range uint64(keys) {
			if !yield(sift.Op{Key: binary.BigEndian.AppendUint64(nil, i)}, nil) {
				return
			}
		}
	}
	if err := db.Ingest(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	for _, limit := range []int64{0, 24 << 20} {
		for range 3 {
			debug.FreeOSMemory()
		}
		before := anonymous(t)
		o.FilterMemory = limit
		db := mustOpen(t, dir, o)
		for i := range uint64(1000) { // every table is opened
			if found, err := db.Has(binary.BigEndian.AppendUint64(nil, i*keys/1000)); !found || err != nil {
				t.Fatal(found, err)
			}
		}
		var has, total uint64
		within := func() bool { return total >= has-has/10 && total <= has+has/10 }
		for range 100 { // filters are loaded in the background, and slabs freed
			for range 3 {
				debug.FreeOSMemory()
			}
			m := db.Metrics().Memory
			has, total = anonymous(t)-before, m.Total()
			if within() && m.Filters > 20<<20 {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Logf("limit %d MiB: the process has %.1f MiB more than at first, Metrics says %.1f: %+v", limit>>20, float64(has)/(1<<20), float64(total)/(1<<20), db.Metrics().Memory)
		if !within() {
			t.Errorf("limit %d: the process has %d bytes more, and Metrics says %d", limit, has, total)
		}
		mustClose(t, db)
	}
}

// TestManyDatabases checks that a process can have hundreds of databases with default options.
func TestManyDatabases(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector, which the short tests run under, takes memory of its own")
	}
	if !inChild(t) {
		return
	}
	const databases, most = 200, 100 << 10 // bytes of each
	dir := t.TempDir()
	debug.FreeOSMemory()
	before := anonymous(t)
	var dbs []*sift.DB
	for i := range databases {
		db := mustOpen(t, filepath.Join(dir, strconv.Itoa(i)), nil)
		if err := db.Put([]byte("key"), []byte("value"), sift.NoSync); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Get([]byte("key")); err != nil {
			t.Fatal(err)
		}
		dbs = append(dbs, db)
	}
	has := anonymous(t) - before
	t.Logf("%d databases take %.1f MiB", databases, float64(has)/(1<<20))
	if has > databases*most {
		t.Errorf("a database takes %d bytes", has/databases)
	}
	for _, db := range dbs {
		mustClose(t, db)
	}
}
