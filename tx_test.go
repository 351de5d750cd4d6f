package sift_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/testhook"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// txs is a database and helpers that run the steps of several transactions in a given order.
type txs struct {
	t  *testing.T
	db *sift.DB
}

// newTxs opens a database in memory.
func newTxs(t *testing.T, o *sift.Options) *txs {
	var in sift.Options
	if o != nil {
		in = *o
	}
	testhook.Apply(&in, testhook.Settings{FS: vfstest.NewMem()})
	db := mustOpen(t, "/db", &in)
	t.Cleanup(func() { db.Close() })
	return &txs{t, db}
}

func (x *txs) begin() *sift.Tx {
	x.t.Helper()
	tx, err := x.db.Begin(&sift.TxOptions{NoSync: true})
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(tx.Discard)
	return tx
}

func (x *txs) put(tx *sift.Tx, key, value string) {
	x.t.Helper()
	if err := tx.Put([]byte(key), []byte(value)); err != nil {
		x.t.Fatal(err)
	}
}

func (x *txs) set(key, value string) {
	x.t.Helper()
	if err := x.db.Put([]byte(key), []byte(value), sift.NoSync); err != nil {
		x.t.Fatal(err)
	}
}

// get returns a value, "" if there is none.
func (x *txs) get(r interface{ Get([]byte) ([]byte, error) }, key string) string {
	x.t.Helper()
	v, err := r.Get([]byte(key))
	if err != nil && !errors.Is(err, sift.ErrNotFound) {
		x.t.Fatal(err)
	}
	return string(v)
}

// scan returns the keys of a range.
func (x *txs) scan(tx *sift.Tx, lower, upper string) (keys []string) {
	x.t.Helper()
	for e, err := range tx.Scan(&sift.IterOptions{LowerBound: []byte(lower), UpperBound: []byte(upper)}) {
		if err != nil {
			x.t.Fatal(err)
		}
		keys = append(keys, string(e.Key))
	}
	return keys
}

// commit checks that Commit succeeds, or fails with ErrConflict.
func (x *txs) commit(tx *sift.Tx, conflict bool) {
	x.t.Helper()
	err := tx.Commit()
	if conflict && !errors.Is(err, sift.ErrConflict) || !conflict && err != nil {
		x.t.Errorf("commit: %v; want a conflict: %v", err, conflict)
	}
}

// The anomalies that snapshot isolation allows, or prevents only by checking writes: the check of
// reads must prevent each.

func TestTxLostUpdate(t *testing.T) {
	x := newTxs(t, nil)
	x.set("counter", "1")
	a, b := x.begin(), x.begin()
	x.put(a, "counter", x.get(a, "counter")+"a")
	x.put(b, "counter", x.get(b, "counter")+"b")
	x.commit(a, false)
	x.commit(b, true)
	if v := x.get(x.db, "counter"); v != "1a" {
		t.Errorf("counter is %q", v)
	}
}

func TestTxWriteSkew(t *testing.T) {
	x := newTxs(t, nil)
	x.set("alice", "on call")
	x.set("bob", "on call")
	a, b := x.begin(), x.begin()
	if x.get(a, "bob") == "on call" {
		x.put(a, "alice", "off")
	}
	if x.get(b, "alice") == "on call" {
		x.put(b, "bob", "off")
	}
	x.commit(a, false)
	x.commit(b, true)
}

// TestTxPhantom checks that only one of two transactions commits if each inserts a key into a range
// that both have found empty.
func TestTxPhantom(t *testing.T) {
	x := newTxs(t, nil)
	x.set("booking/09", "")
	a, b := x.begin(), x.begin()
	if keys := x.scan(a, "booking/10", "booking/12"); len(keys) == 0 {
		x.put(a, "booking/11a", "")
	}
	if keys := x.scan(b, "booking/10", "booking/12"); len(keys) == 0 {
		x.put(b, "booking/11b", "")
	}
	x.commit(a, false)
	x.commit(b, true)
}

// TestTxAbsentKey checks that only one of two transactions commits if each puts a key that both
// have found absent.
func TestTxAbsentKey(t *testing.T) {
	x := newTxs(t, nil)
	a, b := x.begin(), x.begin()
	if x.get(a, "name") == "" {
		x.put(a, "name", "a")
	}
	if ok, err := b.Has([]byte("name")); !ok && err == nil {
		x.put(b, "name", "b")
	}
	x.commit(a, false)
	x.commit(b, true)
}

// TestTxReadOnlyAnomaly is from Fekete, O'Neil and O'Neil, A Read-Only Transaction Anomaly Under
// Snapshot Isolation (SIGMOD Record 2004): the report sees the deposit and not the withdrawal,
// whose penalty is only right if it came first.
func TestTxReadOnlyAnomaly(t *testing.T) {
	x := newTxs(t, nil)
	x.set("x", "0")
	x.set("y", "0")
	withdraw := x.begin()
	if x.get(withdraw, "x") != "0" || x.get(withdraw, "y") != "0" {
		t.Fatal("the balances are not 0")
	}
	deposit := x.begin()
	x.get(deposit, "y")
	x.put(deposit, "y", "20")
	x.commit(deposit, false)
	report := x.begin()
	if got := x.get(report, "x") + " " + x.get(report, "y"); got != "0 20" {
		t.Errorf("the report says %s", got)
	}
	x.commit(report, false)
	x.put(withdraw, "x", "-11") // with the penalty
	x.commit(withdraw, true)
}

func TestTxBlindWritesAndReadersDoNotConflict(t *testing.T) {
	x := newTxs(t, nil)
	a, b, r := x.begin(), x.begin(), x.begin()
	x.get(r, "k")
	x.scan(r, "", "z")
	x.put(a, "k", "a")
	x.put(b, "k", "b")
	if x.get(b, "k") != "b" { // its own
		t.Error("a transaction does not read its own write")
	}
	x.commit(b, false)
	x.commit(a, false)
	x.commit(r, false)
	if v := x.get(x.db, "k"); v != "a" {
		t.Errorf("k is %q", v)
	}
}

// TestTxRanges checks which writes of others conflict with what a transaction has read by
// iterators.
func TestTxRanges(t *testing.T) {
	first := func(it *sift.Iter) { it.First() }
	for _, c := range []struct {
		desc   string
		o      sift.IterOptions
		read   func(*sift.Iter)
		write  string
		expect bool
	}{
		{"before the first key", sift.IterOptions{}, first, "a", true},
		{"the first key", sift.IterOptions{}, first, "b", true},
		{"after the first key", sift.IterOptions{}, first, "b0", false},
		{"between two keys", sift.IterOptions{}, func(it *sift.Iter) { it.First(); it.Next() }, "c", true},
		{"after the second", sift.IterOptions{}, func(it *sift.Iter) { it.First(); it.Next() }, "e", false},
		{"after the end", sift.IterOptions{}, func(it *sift.Iter) { it.SeekGE([]byte("x")) }, "y", true},
		{"after the bound", sift.IterOptions{UpperBound: []byte("y")}, func(it *sift.Iter) { it.SeekGE([]byte("x")) }, "y", false},
		{"before the bound", sift.IterOptions{UpperBound: []byte("y")}, func(it *sift.Iter) { it.SeekGE([]byte("x")) }, "x", true},
		{"before the lower bound", sift.IterOptions{LowerBound: []byte("c")}, first, "b", false},
		{"at the lower bound", sift.IterOptions{LowerBound: []byte("c")}, first, "c", true},
		{"a prefix that no key has", sift.IterOptions{Prefix: []byte("e")}, first, "e1", true},
		{"another prefix", sift.IterOptions{Prefix: []byte("e")}, first, "f1", false},
		{"after the last key", sift.IterOptions{}, func(it *sift.Iter) { it.Last() }, "z", true},
		{"the last key", sift.IterOptions{}, func(it *sift.Iter) { it.Last() }, "n", true},
		{"before the last key", sift.IterOptions{}, func(it *sift.Iter) { it.Last() }, "m", false},
		{"before the last key, from a bound", sift.IterOptions{UpperBound: []byte("o")}, func(it *sift.Iter) { it.Last() }, "m", false},
		{"at the upper bound", sift.IterOptions{UpperBound: []byte("o")}, func(it *sift.Iter) { it.Last() }, "o", false},
		{"between the last two", sift.IterOptions{}, func(it *sift.Iter) { it.Last(); it.Prev() }, "m", true},
		{"backward to the beginning", sift.IterOptions{}, func(it *sift.Iter) { it.SeekLT([]byte("b")) }, "", true},
		{"backward, after it", sift.IterOptions{}, func(it *sift.Iter) { it.SeekLT([]byte("b")) }, "b", false},
		{"back and forth", sift.IterOptions{}, func(it *sift.Iter) { it.SeekGE([]byte("d")); it.Prev(); it.Next() }, "c", true},
		{"forth and back", sift.IterOptions{}, func(it *sift.Iter) { it.SeekLT([]byte("c")); it.Next(); it.Prev() }, "c", true},
		{"two places, the first", sift.IterOptions{}, func(it *sift.Iter) { it.First(); it.Last() }, "b", true},
		{"two places, between", sift.IterOptions{}, func(it *sift.Iter) { it.First(); it.Last() }, "e", false},
		{"created and never moved", sift.IterOptions{}, func(it *sift.Iter) {}, "b", false},
	} {
		for _, open := range []bool{false, true} {
			for _, where := range []string{"memtable", "tables", "both"} {
				x := newTxs(t, &sift.Options{MemtableBytes: 4 << 10})
				for _, k := range []string{"b", "d", "n"} {
					x.set(k, "1")
					if where == "tables" || where == "both" && k == "d" {
						if err := x.db.Flush(); err != nil {
							t.Fatal(err)
						}
					}
				}
				tx := x.begin()
				it, err := tx.NewIter(&c.o)
				if err != nil {
					t.Fatal(err)
				}
				c.read(it)
				if err := it.Err(); err != nil {
					t.Fatal(err)
				}
				if !open {
					mustClose(t, it)
				}
				x.put(tx, "written", "")
				x.set(c.write, "2")
				err = tx.Commit()
				if got := errors.Is(err, sift.ErrConflict); got != c.expect || !got && err != nil {
					t.Errorf("%s, keys in %s, iterator open %v: %v", c.desc, where, open, err)
				}
				if open {
					if it.First() || it.Next() || it.Prev() || !errors.Is(it.Err(), sift.ErrClosed) {
						t.Errorf("%s: the iterator still moves after the commit: %v", c.desc, it.Err())
					}
					it.Close()
				}
			}
		}
	}
}

// TestTxFindsNewerEntriesInTables checks that a commit finds a newer entry wherever it is by then,
// in a full memtable or a table of any level, even if it is a tombstone and the key has no other
// entry.
func TestTxFindsNewerEntriesInTables(t *testing.T) {
	for _, wait := range []string{"memtable", "flush", "compact"} {
		for _, del := range []bool{false, true} {
			for _, ranged := range []bool{false, true} {
				for _, touch := range []bool{false, true} {
					x := newTxs(t, &sift.Options{MemtableBytes: 4 << 10, DisableAutoCompaction: true})
					fill(t, x.db, 50, "key%03d")
					if wait == "compact" {
						if err := x.db.Compact(context.Background(), nil, nil); err != nil {
							t.Fatal(err)
						}
					}
					tx := x.begin()
					if ranged {
						x.scan(tx, "key020", "key030")
					} else {
						x.get(tx, "key025")
					}
					x.put(tx, "result", "")
					key := "key035"
					if touch {
						key = "key025"
					}
					if del {
						if err := x.db.Delete([]byte(key), sift.NoSync); err != nil {
							t.Fatal(err)
						}
					} else {
						x.set(key, "new")
						if err := x.db.Delete([]byte(key), sift.NoSync); err != nil {
							t.Fatal(err)
						}
						x.set(key, "newer")
					}
					switch wait {
					case "flush":
						for i := range 3 { // memtables are filled and flushed
							x.set(fmt.Sprintf("other%d", i), strings.Repeat("x", 3000))
						}
						if err := x.db.Flush(); err != nil {
							t.Fatal(err)
						}
					case "compact":
						if err := x.db.Compact(context.Background(), nil, nil); err != nil {
							t.Fatal(err)
						}
					}
					err := tx.Commit()
					if got := errors.Is(err, sift.ErrConflict); got != touch || !got && err != nil {
						t.Errorf("%s, delete %v, range %v, touched %v: %v", wait, del, ranged, touch, err)
					}
				}
			}
		}
	}
}

// TestTxModel compares transactions with a map: reads of all kinds see the snapshot and the
// transaction's own writes, iterators see what was written before their creation, and discarded
// transactions write nothing.
func TestTxModel(t *testing.T) {
	for name, o := range optionSets() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTxs(t, o)
			rng := rand.New(rand.NewPCG(*modelSeed, 18))
			want := map[string]string{}
			for i := range *modelOps / 200 {
				x.model(rng, want)
				if t.Failed() {
					t.Fatalf("seed %d, transaction %d", *modelSeed, i)
				}
				if rng.IntN(30) == 0 {
					if err := x.db.Compact(context.Background(), nil, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			compareDB(t, x.db, want)
			if m := x.db.Metrics(); m.Transactions != 0 || m.Snapshots != 0 || m.Memory.Transactions > 256<<10 {
				t.Errorf("left: %d transactions, %d snapshots, %d bytes", m.Transactions, m.Snapshots, m.Memory.Transactions)
			}
		})
	}
}

func (x *txs) model(rng *rand.Rand, want map[string]string) {
	t := x.t
	tx, err := x.db.Begin(&sift.TxOptions{NoSync: rng.IntN(4) > 0})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Discard()
	mine := maps.Clone(want)
	key := func() string {
		if rng.IntN(100) == 0 {
			return ""
		}
		return fmt.Sprintf("key%03d", rng.IntN(200))
	}
	type walk struct {
		it   *sift.Iter
		want map[string]string
	}
	var walks []walk
	for range rng.IntN(120) {
		k := key()
		switch rng.IntN(8) {
		case 0, 1, 2:
			v := fmt.Sprint(rng.Uint64(), strings.Repeat("v", rng.IntN(60)))
			x.put(tx, k, v)
			mine[k] = v
		case 3:
			if err := tx.Delete([]byte(k)); err != nil {
				t.Fatal(err)
			}
			delete(mine, k)
		case 4:
			w, there := mine[k]
			v, err := tx.Get([]byte(k))
			has, herr := tx.Has([]byte(k))
			if there && (err != nil || string(v) != w) || !there && !errors.Is(err, sift.ErrNotFound) || has != there || herr != nil {
				t.Errorf("Get(%q) = %q, %v; Has = %v, %v; want %q, %v", k, v, err, has, herr, w, there)
			}
		case 5:
			keys := [][]byte{[]byte(k), []byte(key()), []byte(key())}
			values, err := tx.GetMany(keys)
			if err != nil {
				t.Fatal(err)
			}
			for i, k := range keys {
				if w, there := mine[string(k)]; there != (values[i] != nil) || string(values[i]) != w {
					t.Errorf("GetMany: %q = %q, want %q, %v", k, values[i], w, there)
				}
			}
		case 6:
			o := &sift.IterOptions{}
			within := maps.Clone(mine)
			if rng.IntN(2) == 0 {
				o.LowerBound = []byte(key())
				maps.DeleteFunc(within, func(k, _ string) bool { return k < string(o.LowerBound) })
			}
			if rng.IntN(2) == 0 {
				o.UpperBound = []byte(key())
				maps.DeleteFunc(within, func(k, _ string) bool { return k >= string(o.UpperBound) })
			}
			it, err := tx.NewIter(o)
			if err != nil {
				t.Fatal(err)
			}
			walks = append(walks, walk{it, within})
		case 7:
			if len(walks) > 0 {
				w := walks[rng.IntN(len(walks))]
				x.walk(rng, w.it, w.want, []byte(key()))
			}
		}
	}
	for _, w := range walks {
		x.walk(rng, w.it, w.want, []byte(key()))
		mustClose(t, w.it)
	}
	switch rng.IntN(4) {
	case 0:
		tx.Discard()
	default:
		if err := tx.Commit(); err != nil {
			t.Errorf("commit: %v", err)
		}
		clear(want)
		maps.Copy(want, mine)
	}
}

// walk moves an iterator some steps from a random position.
func (x *txs) walk(rng *rand.Rand, it *sift.Iter, want map[string]string, from []byte) {
	x.t.Helper()
	keys := slices.Sorted(maps.Keys(want))
	at, _ := slices.BinarySearch(keys, string(from))
	switch rng.IntN(4) {
	case 0:
		it.First()
		at = 0
	case 1:
		it.Last()
		at = len(keys) - 1
	case 2:
		it.SeekGE(from)
	case 3:
		it.SeekLT(from)
		at--
	}
	for range 20 {
		if valid := at >= 0 && at < len(keys); valid != it.Valid() || it.Err() != nil {
			x.t.Errorf("at key %d of %d the iterator is valid: %v, %v", at, len(keys), it.Valid(), it.Err())
			return
		} else if !valid {
			return
		}
		if string(it.Key()) != keys[at] || string(it.Value()) != want[keys[at]] {
			x.t.Errorf("at %q = %q, want %q = %q", it.Key(), it.Value(), keys[at], want[keys[at]])
			return
		}
		if rng.IntN(3) == 0 {
			it.Prev()
			at--
		} else {
			it.Next()
			at++
		}
	}
}

// TestTxWritesWhileIterating checks that a loop may write to the range that it iterates over, and
// does not see its own writes.
func TestTxWritesWhileIterating(t *testing.T) {
	x := newTxs(t, nil)
	fill(t, x.db, 100, "key%03d")
	tx := x.begin()
	x.put(tx, "key", "of the transaction")
	n := 0
	for e, err := range tx.Scan(nil) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		x.put(tx, string(e.Key)+"+", "new")
		if v, err := tx.Get([]byte(string(e.Key) + "+")); string(v) != "new" { // a read builds the index of the writes
			t.Fatalf("Get of a key that was just written: %q, %v", v, err)
		}
		if err := tx.Delete(e.Key); err != nil {
			t.Fatal(err)
		}
	}
	if n != 101 {
		t.Errorf("the loop saw %d keys", n)
	}
	if keys := x.scan(tx, "", "z"); len(keys) != 101 || keys[0] != "key+" {
		t.Errorf("a later scan finds %d keys: %q", len(keys), keys)
	}
	x.commit(tx, false)
}

func TestTxLimits(t *testing.T) {
	x := newTxs(t, &sift.Options{TxBytes: 64 << 10})
	value := strings.Repeat("v", 1000)
	limited := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, sift.ErrTxLimit) {
			t.Errorf("%s: %v", what, err)
		}
	}
	tx := x.begin()
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		err = tx.Put(fmt.Appendf(nil, "key%d", i), []byte(value))
	}
	limited("writes", err)
	limited("commit", tx.Commit())
	if x.get(x.db, "key0") != "" {
		t.Error("a transaction that exceeded the limit was written")
	}

	// A transaction that only reads can continue, in bounded memory.
	tx = x.begin()
	for i := range 5000 {
		x.get(tx, fmt.Sprintf("key%d", i))
	}
	if m := x.db.Metrics(); m.Transactions != 1 || m.Memory.Transactions == 0 || m.Memory.Transactions > 80<<10 {
		t.Errorf("%d transactions hold %d bytes", m.Transactions, m.Memory.Transactions)
	}
	limited("write after many reads", tx.Put([]byte("k"), nil))
	x.commit(tx, false)

	tx = x.begin()
	x.put(tx, "k", "")
	err = nil
	for i := 0; err == nil && i < 5000; i++ {
		_, err = tx.Has(fmt.Appendf(nil, "key%d", i))
	}
	limited("reads after a write", err)
	limited("commit", tx.Commit())

	tx = x.begin()
	x.put(tx, "k", "")
	it, err := tx.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5000 {
		it.SeekGE(fmt.Appendf(nil, "%04d", 2*i))
	}
	if !it.Valid() || it.Err() != nil { // overlapping ranges are merged
		t.Errorf("the iterator is not at the transaction's own key: valid %v, %v", it.Valid(), it.Err())
	}
	mustClose(t, it)
	x.commit(tx, false)
	if m := x.db.Metrics(); m.Transactions != 0 || m.Memory.Transactions > 16<<10 {
		t.Errorf("%d transactions hold %d bytes", m.Transactions, m.Memory.Transactions)
	}
}

// TestTxLifetime checks that a transaction that has lived too long fails, so that compactions may
// drop the entries that it saw.
func TestTxLifetime(t *testing.T) {
	x := newTxs(t, &sift.Options{TxLifetime: time.Nanosecond, DisableAutoCompaction: true}) // only the flush below ends it
	x.set("a", "1")
	tx := x.begin()
	if x.get(tx, "a") != "1" || x.db.Metrics().Transactions != 1 {
		t.Error("the transaction does not read, or is not counted")
	}
	it, err := tx.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	x.set("a", "2")
	if err := x.db.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := x.db.Metrics().Transactions; n != 0 {
		t.Errorf("%d transactions are open, want 0", n)
	}
	if _, err := tx.Get([]byte("a")); !errors.Is(err, sift.ErrTxLimit) {
		t.Errorf("Get: %v", err)
	}
	if _, err := tx.NewIter(nil); !errors.Is(err, sift.ErrTxLimit) {
		t.Errorf("NewIter: %v", err)
	}
	if _, err := tx.GetMany([][]byte{[]byte("a")}); !errors.Is(err, sift.ErrTxLimit) {
		t.Errorf("GetMany: %v", err)
	}
	if err := tx.Put([]byte("a"), nil); !errors.Is(err, sift.ErrTxLimit) {
		t.Errorf("Put: %v", err)
	}
	if !it.First() || string(it.Value()) != "1" { // the iterator holds the version that it reads
		t.Errorf("iterator: %v, %q", it.Err(), it.Value())
	}
	mustClose(t, it)
	tx.Discard()

	tx = x.begin()
	x.put(tx, "b", "")
	time.Sleep(time.Microsecond)
	if err := tx.Commit(); !errors.Is(err, sift.ErrTxLimit) {
		t.Errorf("Commit: %v", err)
	}
	if m := x.db.Metrics(); m.Transactions != 0 || m.Snapshots != 0 {
		t.Errorf("left: %d transactions, %d snapshots", m.Transactions, m.Snapshots)
	}
}

func TestTxEnds(t *testing.T) {
	x := newTxs(t, nil)
	closed := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, sift.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	all := func(tx *sift.Tx) {
		t.Helper()
		_, err := tx.Get(nil)
		closed("Get", err)
		_, err = tx.Has(nil)
		closed("Has", err)
		_, err = tx.GetMany(nil)
		closed("GetMany", err)
		_, err = tx.NewIter(nil)
		closed("NewIter", err)
		closed("View", tx.View(nil, func([]byte) error { return nil }))
		closed("Commit", tx.Commit())
	}
	tx := x.begin()
	x.put(tx, "a", "1")
	x.commit(tx, false)
	all(tx)
	closed("Put", tx.Put(nil, nil))
	closed("Delete", tx.Delete(nil))
	tx.Discard() // does nothing
	tx = x.begin()
	x.put(tx, "a", "2")
	tx.Discard()
	all(tx)
	if v := x.get(x.db, "a"); v != "1" {
		t.Errorf("a is %q", v)
	}

	ro, err := x.db.Begin(&sift.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	x.set("a", "3")
	if x.get(ro, "a") != "1" || len(x.scan(ro, "", "z")) != 1 || !errors.Is(ro.Put(nil, nil), sift.ErrReadOnly) || !errors.Is(ro.Delete(nil), sift.ErrReadOnly) {
		t.Error("a read-only transaction is not read-only")
	}
	x.commit(ro, false)

	// The database is closed during a transaction.
	tx = x.begin()
	x.get(tx, "a")
	x.put(tx, "a", "4")
	mustClose(t, x.db)
	_, err = tx.Get([]byte("other"))
	closed("Get", err)
	closed("Commit", tx.Commit())
	_, err = x.db.Begin(nil)
	closed("Begin", err)
	closed("Transact", x.db.Transact(context.Background(), func(*sift.Tx) error { return nil }))
}

// TestTxOfReadOnlyDatabase checks that transactions on a database that was opened read-only are
// read-only.
func TestTxOfReadOnlyDatabase(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, nil)
	fill(t, db, 3, "k%d")
	mustClose(t, db)
	db = mustOpen(t, dir, &sift.Options{ReadOnly: true})
	defer mustClose(t, db)
	tx, err := db.Begin(nil)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := tx.Get([]byte("k1")); string(v) != "value 1" || err != nil {
		t.Errorf("Get: %q, %v", v, err)
	}
	if err := tx.Put([]byte("k1"), nil); !errors.Is(err, sift.ErrReadOnly) {
		t.Errorf("Put: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Errorf("Commit: %v", err)
	}
	err = db.Transact(context.Background(), func(tx *sift.Tx) error { return tx.Delete([]byte("k1")) })
	if !errors.Is(err, sift.ErrReadOnly) {
		t.Errorf("Transact: %v", err)
	}
}

func TestTransact(t *testing.T) {
	x := newTxs(t, nil)
	ctx := context.Background()

	// A conflict is retried.
	tries := 0
	err := x.db.Transact(ctx, func(tx *sift.Tx) error {
		tries++
		v := x.get(tx, "a")
		if tries < 8 {
			x.set("a", fmt.Sprint(tries))
		}
		return tx.Put([]byte("a"), []byte(v+"!"))
	})
	if v := x.get(x.db, "a"); err != nil || tries != 8 || v != "7!" {
		t.Errorf("Transact: %v after %d tries, a is %q", err, tries, v)
	}
	if m := x.db.Metrics(); m.TxCommits != 1 || m.TxConflicts != 7 {
		t.Errorf("%d commits, %d conflicts", m.TxCommits, m.TxConflicts)
	}

	// Conflicts are not retried forever.
	tries = 0
	always := func(tx *sift.Tx) error {
		tries++
		x.get(tx, "a")
		x.set("a", "")
		return tx.Put([]byte("b"), nil)
	}
	err = x.db.TransactWith(ctx, &sift.TxOptions{Tries: 6, NoSync: true}, always)
	if !errors.Is(err, sift.ErrConflict) || tries != 6 {
		t.Errorf("Transact with a conflict in every try: %v after %d tries", err, tries)
	}

	// Conflicts are not retried after ctx is canceled.
	canceled, cancel := context.WithCancel(ctx)
	tries = 0
	err = x.db.Transact(canceled, func(tx *sift.Tx) error {
		if tries == 5 {
			cancel()
		}
		return always(tx)
	})
	if !errors.Is(err, context.Canceled) || tries != 6 {
		t.Errorf("Transact with a canceled context: %v after %d tries", err, tries)
	}
	if err := x.db.Transact(canceled, func(*sift.Tx) error { t.Error("the function runs although the context is canceled"); return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}

	// A function that fails, panics, or discards the transaction writes nothing.
	own := errors.New("own")
	err = x.db.Transact(ctx, func(tx *sift.Tx) error {
		x.put(tx, "c", "")
		return own
	})
	if err != own {
		t.Error(err)
	}
	func() {
		defer func() {
			if recover() != "stop" {
				t.Error("the panic is lost")
			}
		}()
		_ = x.db.Transact(ctx, func(tx *sift.Tx) error {
			x.put(tx, "c", "")
			panic("stop")
		})
	}()
	var kept *sift.Tx
	err = x.db.Transact(ctx, func(tx *sift.Tx) error {
		kept = tx
		x.put(tx, "c", "")
		tx.Discard()
		return nil
	})
	if !errors.Is(err, sift.ErrClosed) || !errors.Is(kept.Put(nil, nil), sift.ErrClosed) {
		t.Error(err)
	}
	if ok, err := x.db.Has([]byte("c")); ok || err != nil {
		t.Error("a failed transaction was written")
	}
	if m := x.db.Metrics(); m.Transactions != 0 || m.Snapshots != 0 || m.Memory.Transactions > 16<<10 {
		t.Errorf("left: %d transactions, %d snapshots, %d bytes", m.Transactions, m.Snapshots, m.Memory.Transactions)
	}
}

// TestTxCounters adds to counters in concurrent transactions, with concurrent plain writes of other
// keys, some in large batches: no update may be lost, and all transactions must commit.
func TestTxCounters(t *testing.T) {
	x := newTxs(t, &sift.Options{MemtableBytes: 64 << 10})
	const workers, each = 8, 60
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range each {
				if w == 0 { // plain writes
					var b sift.Batch
					n := 1 + rng.IntN(3)
					if i%20 == 19 {
						n = 60_000
					}
					for j := range n {
						b.Put(fmt.Appendf(nil, "other%d/%d", j%1000, j), make([]byte, 10+rng.IntN(40)))
					}
					if err := x.db.Write(&b, sift.NoSync); err != nil {
						t.Error(err)
					}
					continue
				}
				key := fmt.Appendf(nil, "counter%d", rng.IntN(2))
				err := x.db.TransactWith(context.Background(), &sift.TxOptions{NoSync: i%2 == 0, Tries: 10000}, func(tx *sift.Tx) error {
					n := 0
					if v, err := tx.Get(key); err == nil {
						fmt.Sscan(string(v), &n)
					} else if !errors.Is(err, sift.ErrNotFound) {
						return err
					}
					if i%10 == 0 {
						for _, err := range tx.Scan(&sift.IterOptions{Prefix: []byte("counter")}) {
							if err != nil {
								return err
							}
						}
					}
					return tx.Put(key, fmt.Append(nil, n+1))
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for i := range 2 {
		n := 0
		fmt.Sscan(x.get(x.db, fmt.Sprintf("counter%d", i)), &n)
		sum += n
	}
	if sum != (workers-1)*each {
		t.Errorf("the counters add up to %d, want %d", sum, (workers-1)*each)
	}
}
