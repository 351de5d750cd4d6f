// Command crash writes batches to a goleveldb database until it is killed, and prints the
// number of each acknowledged batch. Batch n sets the keys n/0 to n/3 and deletes those
// of batch n-100. So the keys that are found after a crash show whether all batches up to
// some number are there, each as a whole.
//
//	crash DIR write     continue after the last batch
//	crash DIR check     print the number of the last batch, or an error
//	crash DIR synced    like check, but unsynced batches may be missing
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
)

const (
	perBatch = 4
	kept     = 100 // batches
	syncs    = 16  // batches whose number is a multiple of it are synced
)

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func key(n, i int) []byte { return []byte(fmt.Sprintf("%08d/%d", n, i)) }

// value returns a value. Most batches fill a block or two of the log, one in seven many.
func value(n, i int) []byte {
	size := 100 + n*37%900
	if n%7 == 0 {
		size += n * 131 % 20000
	}
	return bytes.Repeat([]byte(fmt.Sprintf("%d.%d ", n, i)), size/8)
}

// last checks everything that it finds, and returns the number of the last batch.
func last(db *leveldb.DB, gaps bool) (last int) {
	found := map[int]int{}
	it := db.NewIterator(nil, nil)
	defer it.Release()
	for it.Next() {
		var n, i int
		if _, err := fmt.Sscanf(string(it.Key()), "%d/%d", &n, &i); err != nil {
			check(fmt.Errorf("key %q", it.Key()))
		}
		if !bytes.Equal(it.Value(), value(n, i)) {
			check(fmt.Errorf("value of %q: %.20q", it.Key(), it.Value()))
		}
		found[n]++
		if n > last {
			last = n
		}
	}
	check(it.Error())
	for n, keys := range found {
		if keys != perBatch {
			check(fmt.Errorf("%d keys of batch %d", keys, n))
		}
		if n <= last-kept && !gaps {
			check(fmt.Errorf("batch %d is there, although batch %d has deleted it", n, n+kept))
		}
	}
	for n := last; n > last-kept && n > 0; n-- {
		if found[n] == 0 && (!gaps || n%syncs == 0) {
			check(fmt.Errorf("batch %d is missing before batch %d", n, last))
		}
	}
	return last
}

func main() {
	db, err := leveldb.OpenFile(os.Args[1], &opt.Options{WriteBuffer: 256 << 10, CompactionTableSize: 64 << 10, CompactionTotalSize: 256 << 10, Filter: filter.NewBloomFilter(10)})
	check(err)
	n := last(db, os.Args[2] == "synced")
	if os.Args[2] != "write" {
		check(db.Close())
		fmt.Println(n)
		return
	}
	for {
		n++
		b := new(leveldb.Batch)
		for i := 0; i < perBatch; i++ {
			b.Put(key(n, i), value(n, i))
			b.Delete(key(n-kept, i))
		}
		check(db.Write(b, &opt.WriteOptions{Sync: n%syncs == 0}))
		fmt.Println(n)
	}
}
