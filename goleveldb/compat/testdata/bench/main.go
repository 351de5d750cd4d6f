// Command bench measures a goleveldb database as go-ethereum uses it and prints a row for
// each measurement: name, value, unit.
//
//	bench DIR
package main

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
)

const (
	keys       = 300000
	valueBytes = 110
	lookups    = 50000
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func key(i uint64) []byte {
	// 32 bytes without order, as hashes are, all of one prefix byte in 256.
	r := rand.New(rand.NewSource(int64(i)))
	b := make([]byte, 32)
	r.Read(b)
	return b
}

func row(name string, n int, start time.Time) {
	fmt.Printf("%s\t%.3f\tµs\n", name, float64(time.Since(start).Nanoseconds())/1e3/float64(n))
}

func main() {
	dir := os.Args[1]
	o := &opt.Options{Filter: filter.NewBloomFilter(10), DisableSeeksCompaction: true}
	db, err := leveldb.OpenFile(dir, o)
	check(err)

	all := make([][]byte, keys+lookups) // the last are absent
	for i := range all {
		all[i] = key(uint64(i))
	}
	value := make([]byte, valueBytes)
	start := time.Now()
	var b leveldb.Batch
	bytes := 0
	for i := 0; i < keys; i++ {
		rand.New(rand.NewSource(int64(i))).Read(value[:valueBytes/2])
		b.Put(all[i], value)
		if bytes += len(all[i]) + valueBytes; bytes >= 100<<10 {
			check(db.Write(&b, nil))
			b.Reset()
			bytes = 0
		}
	}
	check(db.Write(&b, nil))
	row("batch writes of 100 KB, a key", keys, start)

	start = time.Now()
	check(db.CompactRange(util.Range{}))
	fmt.Printf("CompactRange of all\t%.3f\ts\n", time.Since(start).Seconds())

	r := rand.New(rand.NewSource(1))
	get := func(name string, from, n int) {
		start := time.Now()
		for i := 0; i < lookups; i++ {
			_, err := db.Get(all[from+r.Intn(n)], nil)
			if err != nil && err != leveldb.ErrNotFound {
				check(err)
			}
		}
		row(name, lookups, start)
	}
	get("Get of an absent key", keys, lookups)
	get("Get of a present key", 0, keys)
	get("Get of a present key, a hundredth of them", 0, keys/100)

	start = time.Now()
	n := 0
	for i := 0; i < 5000; i++ {
		it := db.NewIterator(util.BytesPrefix(all[r.Intn(keys)][:3]), nil)
		for it.Next() {
			n++
		}
		it.Release()
		check(it.Error())
	}
	row("iterator with a prefix of 3 bytes", 5000, start)

	start = time.Now()
	it := db.NewIterator(nil, nil)
	for n = 0; it.Next(); n++ {
	}
	it.Release()
	row("iterator over all, a key", n, start)

	runtime.GC()
	fds, err := filepath.Glob("/proc/self/fd/*")
	check(err)
	fmt.Printf("file descriptors\t%d\t\n", len(fds))
	status, err := os.ReadFile("/proc/self/status")
	check(err)
	for _, line := range strings.Split(string(status), "\n") {
		var kb int
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kb); err == nil {
			fmt.Printf("resident memory, at most\t%.0f\tMB\n", float64(kb)/1024)
		}
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &kb); err == nil {
			fmt.Printf("memory besides files, at the end\t%.0f\tMB\n", float64(kb)/1024)
		}
	}
	check(db.Close())
}
