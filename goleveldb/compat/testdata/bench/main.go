// Command bench measures a goleveldb database as go-ethereum uses it and prints a row for
// each measurement: name, value, unit.
//
//	bench [FLAGS] DIR
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
)

var (
	numKeys    = flag.Int("keys", 2000000, "the number of keys")
	keyLen     = flag.Int("key", 32, "the length of a key in bytes, a multiple of 8")
	valueLen   = flag.Int("value", 110, "the length of a value in bytes")
	writesOnly = flag.Bool("writes", false, "only write")
	profile    = flag.String("profile", "", "write the CPU profile of -row to this file")
	row        = flag.String("row", "", "a prefix of the name of a row")
)

// The values of the flags.
var keys, keyBytes, valueBytes int

const (
	batchBytes = 100 << 10
	lookups    = 100000
	prefixes   = 20000
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func say(name string, value float64, unit string) { fmt.Printf("%s\t%.3f\t%s\n", name, value, unit) }

// measure prints how long f takes, divided by the n that it returns.
func measure(name string, unit time.Duration, f func() (n int)) {
	profiled := *profile != "" && strings.HasPrefix(name, *row)
	if profiled {
		file, err := os.Create(*profile)
		check(err)
		check(pprof.StartCPUProfile(file))
	}
	start := time.Now()
	n := f()
	took := time.Since(start)
	if profiled {
		pprof.StopCPUProfile()
	}
	say(name, float64(took)/float64(unit)/float64(n), map[time.Duration]string{time.Microsecond: "µs", time.Second: "s"}[unit])
}

type bench struct {
	db   *leveldb.DB
	r    *rand.Rand
	buf  []byte // the key that key has returned
	data []byte // values are parts of this; half of it is random
}

// key returns the key for a number, a hash of it. It is valid until the next call.
// Numbers from keys on give absent keys.
func (b *bench) key(i int) []byte {
	for j := 0; j < keyBytes; j += 8 {
		// splitmix64
		z := (uint64(i)*uint64(keyBytes) + uint64(j)) * 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(b.buf[j:], z^z>>31)
	}
	return b.buf
}

func (b *bench) value(i int) []byte {
	at := i * 7 % (len(b.data) - valueBytes)
	return b.data[at : at+valueBytes]
}

func (b *bench) write() int {
	batch, bytes := new(leveldb.Batch), 0
	for i := 0; i < keys; i++ {
		batch.Put(b.key(i), b.value(i))
		if bytes += keyBytes + valueBytes; bytes >= batchBytes || i == keys-1 {
			check(b.db.Write(batch, nil))
			batch.Reset()
			bytes = 0
		}
	}
	return keys
}

func (b *bench) get(from, n int, want error) func() int {
	return func() int {
		for i := 0; i < lookups; i++ {
			if _, err := b.db.Get(b.key(from+b.r.Intn(n)), nil); err != want {
				check(fmt.Errorf("Get: %v", err))
			}
		}
		return lookups
	}
}

func (b *bench) prefixed() int {
	for i := 0; i < prefixes; i++ {
		it := b.db.NewIterator(util.BytesPrefix(b.key(b.r.Intn(keys))[:3]), nil)
		found := 0
		for it.Next() {
			found++
		}
		it.Release()
		check(it.Error())
		if found == 0 || found > 10+keys/200000 {
			check(fmt.Errorf("a prefix of %d keys", found))
		}
	}
	return prefixes
}

func (b *bench) walk() int {
	it := b.db.NewIterator(nil, nil)
	n := 0
	for it.Next() {
		n++
	}
	it.Release()
	check(it.Error())
	if n != keys {
		check(fmt.Errorf("%d keys", n))
	}
	return n
}

// memory prints the peak resident memory of the process, and its present anonymous memory.
func memory(when string) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return // not Linux
	}
	for _, line := range strings.Split(string(status), "\n") {
		var kb int
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kb); err == nil {
			say("resident memory, at most, "+when, float64(kb)/1024, "MB")
		}
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &kb); err == nil {
			say("memory besides files, "+when, float64(kb)/1024, "MB")
		}
	}
}

func main() {
	flag.Parse()
	keys, keyBytes, valueBytes = *numKeys, *keyLen, *valueLen
	b := &bench{buf: make([]byte, keyBytes), r: rand.New(rand.NewSource(1)), data: make([]byte, 1<<20)}
	for i := 0; i < len(b.data); i += 64 {
		b.r.Read(b.data[i : i+32])
	}
	var err error
	b.db, err = leveldb.OpenFile(flag.Arg(0), &opt.Options{Filter: filter.NewBloomFilter(10), DisableSeeksCompaction: true})
	check(err)

	measure("batch writes of 100 KB, a key", time.Microsecond, b.write)
	memory("after the writes")
	if *writesOnly {
		measure("Close", time.Second, func() int { check(b.db.Close()); return 1 })
		return
	}
	measure("Get of a present key, as written", time.Microsecond, b.get(0, keys, nil))
	measure("Get of an absent key, as written", time.Microsecond, b.get(keys, lookups, leveldb.ErrNotFound))
	measure("CompactRange of all", time.Second, func() int { check(b.db.CompactRange(util.Range{})); return 1 })
	measure("Get of a present key", time.Microsecond, b.get(0, keys, nil))
	measure("Get of an absent key", time.Microsecond, b.get(keys, lookups, leveldb.ErrNotFound))
	measure("Get of a present key, of 4,000", time.Microsecond, b.get(0, 4000, nil))
	measure("iterator with a prefix of 3 bytes", time.Microsecond, b.prefixed)
	measure("iterator over all, a key", time.Microsecond, b.walk)
	memory("at the end")
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	say("Go's heap, after a collection", float64(m.HeapAlloc)/(1<<20), "MB")
	fds, err := filepath.Glob("/proc/self/fd/*")
	check(err)
	say("file descriptors", float64(len(fds)), "")
	measure("Close", time.Second, func() int { check(b.db.Close()); return 1 })
}
