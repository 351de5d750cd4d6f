package sift_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/sstable"
)

func tempDir() string {
	dir, err := os.MkdirTemp("", "sift")
	if err != nil {
		log.Fatal(err)
	}
	return dir
}

func Example() {
	dir := tempDir()
	defer os.RemoveAll(dir)

	db, err := sift.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	if err := db.Put([]byte("fruit"), []byte("apple"), sift.Sync); err != nil {
		log.Fatal(err)
	}
	value, err := db.Get([]byte("fruit"))
	fmt.Printf("%s %v\n", value, err)

	_, err = db.Get([]byte("vegetable"))
	fmt.Println(errors.Is(err, sift.ErrNotFound))
	// Output:
	// apple <nil>
	// true
}

func ExampleDB_Write() {
	dir := tempDir()
	defer os.RemoveAll(dir)
	db, err := sift.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	var b sift.Batch
	b.Put([]byte("from"), []byte("90"))
	b.Put([]byte("to"), []byte("10"))
	b.Delete([]byte("pending"))
	if err := db.Write(&b, sift.Sync); err != nil { // all three or none
		log.Fatal(err)
	}
	ok, err := db.Has([]byte("to"))
	fmt.Println(ok, err)
	// Output: true <nil>
}

func ExampleDB_Scan() {
	dir := tempDir()
	defer os.RemoveAll(dir)
	db, err := sift.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	for _, k := range []string{"user/2", "user/1", "group/1"} {
		if err := db.Put([]byte(k), []byte("x"), sift.NoSync); err != nil {
			log.Fatal(err)
		}
	}
	for e, err := range db.Scan(&sift.IterOptions{Prefix: []byte("user/")}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s=%s\n", e.Key, e.Value)
	}
	// Output:
	// user/1=x
	// user/2=x
}

// The keys are looked up together. A missing one has a nil value.
func ExampleDB_GetMany() {
	db, err := sift.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.Put([]byte("fruit"), []byte("apple"), nil); err != nil {
		log.Fatal(err)
	}
	keys := [][]byte{[]byte("fruit"), []byte("vegetable")}
	values, err := db.GetMany(keys)
	if err != nil {
		log.Fatal(err)
	}
	for i, value := range values {
		fmt.Printf("%s: %t %s\n", keys[i], value != nil, value)
	}
	// Output:
	// fruit: true apple
	// vegetable: false
}

// An iterator moves in both directions within its bounds.
func ExampleIter() {
	db, err := sift.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	for _, k := range []string{"a", "b", "c", "d", "e"} {
		if err := db.Put([]byte(k), nil, sift.NoSync); err != nil {
			log.Fatal(err)
		}
	}

	it, err := db.NewIter(&sift.IterOptions{LowerBound: []byte("b"), UpperBound: []byte("e")})
	if err != nil {
		log.Fatal(err)
	}
	defer it.Close()
	for ok := it.SeekGE([]byte("c")); ok; ok = it.Next() {
		fmt.Printf("%s ", it.Key())
	}
	for ok := it.Last(); ok; ok = it.Prev() {
		fmt.Printf("%s ", it.Key())
	}
	if err := it.Err(); err != nil {
		log.Fatal(err)
	}
	// Output: c d d c b
}

// One iterator serves many ranges, at less cost than a new one for each.
func ExampleIter_Reset() {
	db, err := sift.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	for _, k := range []string{"user/ann/mail", "user/ann/name", "user/cid/name"} {
		if err := db.Put([]byte(k), nil, sift.NoSync); err != nil {
			log.Fatal(err)
		}
	}

	it, err := db.NewIter(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer it.Close()
	for _, user := range []string{"ann", "bob", "cid"} {
		if err := it.Reset(&sift.IterOptions{Prefix: []byte("user/" + user + "/")}); err != nil {
			log.Fatal(err)
		}
		keys := 0
		for it.Next() {
			keys++
		}
		if err := it.Err(); err != nil {
			log.Fatal(err)
		}
		fmt.Println(user, keys)
	}
	// Output:
	// ann 2
	// bob 0
	// cid 1
}

// The log entries of a year are deleted. The upper bound is exclusive.
func ExampleDB_DeleteRange() {
	db, err := sift.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	for _, k := range []string{"log/2024-12-31", "log/2025-01-01", "log/2025-12-31", "log/2026-01-01"} {
		if err := db.Put([]byte(k), nil, sift.NoSync); err != nil {
			log.Fatal(err)
		}
	}
	if err := db.DeleteRange(context.Background(), []byte("log/2025"), []byte("log/2026")); err != nil {
		log.Fatal(err)
	}
	for e, err := range db.Scan(nil) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", e.Key)
	}
	// Output:
	// log/2024-12-31
	// log/2026-01-01
}

// Sorted keys, from a file perhaps, go straight into tables: all of them or none.
func ExampleDB_Ingest() {
	db, err := sift.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	ops := func(yield func(sift.Op, error) bool) {
		for i := range 1000 {
			if !yield(sift.Op{Key: fmt.Appendf(nil, "user/%06d", i), Value: []byte("x")}, nil) {
				return
			}
		}
	}
	if err := db.Ingest(context.Background(), ops); err != nil {
		log.Fatal(err)
	}
	ok, err := db.Has([]byte("user/000999"))
	fmt.Println(ok, err)
	// Output: true <nil>
}

// Table files that other programs have written, on this or another machine, are ingested together.
func ExampleTableOps() {
	dir := tempDir()
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "fruits.ldb")
	file, err := os.Create(path)
	if err != nil {
		log.Fatal(err)
	}
	w := sstable.NewWriter(file, nil)
	for _, fruit := range []string{"apple", "banana"} {
		if err := w.Add([]byte(fruit), 0, sstable.KindSet, []byte("ripe")); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := w.Finish(); err != nil {
		log.Fatal(err)
	}
	if err := file.Close(); err != nil {
		log.Fatal(err)
	}

	db, err := sift.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.Ingest(context.Background(), sift.TableOps(path)); err != nil {
		log.Fatal(err)
	}
	value, err := db.Get([]byte("banana"))
	fmt.Printf("%s %v\n", value, err)
	// Output: ripe <nil>
}

func ExampleDB_Snapshot() {
	dir := tempDir()
	defer os.RemoveAll(dir)
	db, err := sift.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	db.Put([]byte("k"), []byte("old"), sift.NoSync)
	snap := db.Snapshot()
	defer snap.Close()
	db.Put([]byte("k"), []byte("new"), sift.NoSync)

	then, _ := snap.Get([]byte("k"))
	now, _ := db.Get([]byte("k"))
	fmt.Printf("%s %s\n", then, now)
	// Output: old new
}

func ExampleOptions() {
	dir := tempDir()
	defer os.RemoveAll(dir)
	db, err := sift.Open(dir, &sift.Options{
		Filter:       filter.Bloom(12),                 // 12 bits per key everywhere,
		LevelFilters: []filter.Policy{filter.Bloom(8)}, // but 8 in level 0
		BlockCache:   sift.NewBlockCache(64 << 20),     // may be shared
	})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	fmt.Println(db.Metrics().Memory.Filters)
	// Output: 0
}

func ExampleOpenMemory() {
	db, err := sift.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.Put([]byte("fruit"), []byte("apple"), nil); err != nil {
		log.Fatal(err)
	}
	value, err := db.Get([]byte("fruit"))
	fmt.Printf("%s %v\n", value, err)
	// Output: apple <nil>
}

func ExampleBatch_Ops() {
	var b sift.Batch
	b.Put([]byte("from"), []byte("90"))
	b.Delete([]byte("pending"))

	var loaded sift.Batch // on another machine, perhaps
	if err := loaded.Load(b.Dump()); err != nil {
		log.Fatal(err)
	}
	for op := range loaded.Ops() {
		fmt.Printf("%s=%s deleted: %t\n", op.Key, op.Value, op.Delete)
	}
	// Output:
	// from=90 deleted: false
	// pending= deleted: true
}

func ExampleEvents() {
	o := &sift.Options{Events: sift.Events{
		Flushed: func(e sift.FlushEvent) { fmt.Println("flushed entries:", e.Entries) },
	}}
	db, err := sift.OpenMemory(o)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.Put([]byte("fruit"), []byte("apple"), nil); err != nil {
		log.Fatal(err)
	}
	if err := db.Flush(); err != nil {
		log.Fatal(err)
	}
	// Output: flushed entries: 1
}

func ExampleDB_Transact() {
	dir := tempDir()
	defer os.RemoveAll(dir)
	db, err := sift.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.Put([]byte("stock/apple"), []byte("1"), sift.Sync); err != nil {
		log.Fatal(err)
	}

	sold := errors.New("sold out")
	sell := func(key string) error {
		return db.Transact(context.Background(), func(tx *sift.Tx) error {
			stock, err := tx.Get([]byte(key))
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(string(stock))
			if err != nil {
				return err
			}
			if n == 0 {
				return sold // nothing is written
			}
			return tx.Put([]byte(key), []byte(strconv.Itoa(n-1)))
		})
	}
	fmt.Println(sell("stock/apple"))
	fmt.Println(sell("stock/apple"))
	// Output:
	// <nil>
	// sold out
}

func ExampleDB_Begin() {
	dir := tempDir()
	defer os.RemoveAll(dir)
	db, err := sift.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	tx, err := db.Begin(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Discard() // does nothing after Commit

	// A room is booked if nobody else has it between ten and twelve.
	free := true
	for _, err := range tx.Scan(&sift.IterOptions{LowerBound: []byte("room/10:00"), UpperBound: []byte("room/12:00")}) {
		if err != nil {
			log.Fatal(err)
		}
		free = false
	}
	if free {
		if err := tx.Put([]byte("room/10:30"), []byte("ann")); err != nil {
			log.Fatal(err)
		}
	}

	// Meanwhile somebody else writes into the range that was read.
	if err := db.Put([]byte("room/11:00"), []byte("bob"), sift.Sync); err != nil {
		log.Fatal(err)
	}
	fmt.Println(tx.Commit())
	// Output:
	// sift: transaction conflict
}
