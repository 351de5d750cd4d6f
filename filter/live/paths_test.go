package live_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/siftdb/sift/filter/live"
)

// Migrating from Guava's BloomFilter<Long>. The file was written by Guava 31.1:
//
//	BloomFilter.create(funnel, n, p)  NewBloom, with Scheme: Guava for the same file
//	put, mightContain                 Add, MayContain
//	putAll, isCompatible              Merge, Compatible
//	expectedFpp                       FPR
//	approximateElementCount           ApproxCount
//	writeTo, readFrom                 WriteGuava, ReadGuava
func Example_fromGuava() {
	file, err := os.Open("testdata/guava/long_n10000_p0.001.bin")
	if err != nil {
		panic(err)
	}
	defer file.Close()
	ids, err := live.ReadGuava(file, live.ReadOptions[int64]{})
	if err != nil {
		panic(err)
	}
	fmt.Println(ids.Hashes(), ids.ApproxCount())

	more, _ := live.NewBloom(live.BloomOptions[int64]{Items: 10_000, FPR: 0.001, Scheme: live.Guava})
	fmt.Println(more.Add(1<<60), more.Add(1<<60), ids.MayContain(1<<60))
	fmt.Println(ids.Merge(more), ids.MayContain(1<<60))

	var out bytes.Buffer // for BloomFilter.readFrom(in, Funnels.longFunnel())
	n, err := ids.WriteGuava(&out)
	fmt.Println(n, err)
	// Output:
	// 10 10014
	// true false false
	// <nil> true
	// 17982 <nil>
}

// Migrating from github.com/bits-and-blooms/bloom:
//
//	NewWithEstimates(n, p)            New(n, p)
//	AddString, TestString             Add, MayContain, of a filter of strings
//	TestAndAdd, TestOrAdd             !Add, so false for a new element
//	Merge, Copy, Equal, ClearAll      Merge, Clone, Equal, Reset
//	ApproximatedSize                  ApproxCount
//	WriteTo, ReadFrom, gob, JSON      WriteTo, ReadFrom, gob; WriteFile, ReadFile
//	a mutex around it                 none: it is safe for concurrent use
//
// The formats are not compatible: add the elements to a new filter.
func Example_fromBitsAndBlooms() {
	seen, err := live.New[string](1_000_000, 0.01)
	if err != nil {
		panic(err)
	}
	seen.Add("Love")
	if !seen.Add("Love") {
		fmt.Println("seen before")
	}
	fmt.Println(seen.MayContain("Love"), seen.MayContain("Hate"), seen.ApproxCount())

	other := seen.Clone()
	other.Add("Peace")
	fmt.Println(seen.Merge(other), seen.Equal(other))

	dir, _ := os.MkdirTemp("", "seen")
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "seen.filter")
	again := new(live.Bloom[string])
	fmt.Println(live.WriteFile(name, seen), live.ReadFile(name, again), again.MayContain("Peace"))
	// Output:
	// seen before
	// true false 1
	// <nil> true
	// <nil> <nil> true
}

// A filter from a configuration file.
func ExampleBuild() {
	config, err := live.Parse("sharded(shards=16,of=cuckoo(items=7e4,fpr=0.001))")
	if err != nil {
		panic(err)
	}
	seen, err := live.Build(config, live.BuildOptions[string]{})
	if err != nil {
		panic(err)
	}
	isNew, err := live.TryAdd(seen, "alice")
	fmt.Println(isNew, err, seen.MayContain("alice"), config.String())
	// Output: true <nil> true sharded(shards=16,of=cuckoo(items=70000,fpr=0.001))
}

// A stream continues after a restart: the first process has saved the Dedup in a file.
func ExampleWriteFile() {
	dir, _ := os.MkdirTemp("", "stream")
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "dedup")

	before, _ := live.NewDedup(live.DedupOptions[string]{Items: 1_000_000, FPR: 0.001})
	before.Add("a")
	if err := live.WriteFile(name, before); err != nil {
		panic(err)
	}

	after := new(live.Dedup[string]) // the parameters are in the file
	if err := live.ReadFile(name, after); err != nil {
		panic(err)
	}
	fmt.Println(after.Add("a"), after.Add("b"), after.Seen(), after.Dropped())
	// Output: false true 3 1
}
