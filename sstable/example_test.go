package sstable_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"math"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/sstable"
)

func Example() {
	var file bytes.Buffer
	w := sstable.NewWriter(&file, &sstable.WriterOptions{Filter: filter.Bloom(10)})
	for i, fruit := range []string{"apple", "banana", "cherry"} {
		if err := w.Add([]byte(fruit), uint64(i+1), sstable.KindSet, fmt.Appendf(nil, "fruit %d", i)); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := w.Finish(); err != nil {
		log.Fatal(err)
	}

	r, err := sstable.NewReader(bytes.NewReader(file.Bytes()), int64(file.Len()), &sstable.ReaderOptions{
		Path:  "fruits.ldb",
		Cache: sstable.NewBlockCache(1 << 20),
	})
	if err != nil {
		log.Fatal(err)
	}
	const newest = math.MaxUint64
	for _, fruit := range []string{"banana", "durian"} {
		if !r.MayContain(filter.NewKey([]byte(fruit))) {
			fmt.Println(fruit, "is absent")
			continue
		}
		value, _, seq, found, err := r.Get([]byte(fruit), newest)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %v, %q at sequence %d\n", fruit, found, value, seq)
	}

	it := r.NewIter(nil)
	defer it.Close()
	for ok := it.Last(); ok; ok = it.Prev() {
		fmt.Printf("%q\n", it.Value())
	}
	// Output:
	// banana: true, "fruit 1" at sequence 2
	// durian is absent
	// "fruit 2"
	// "fruit 1"
	// "fruit 0"
}

// Verify reads a whole table and reports each fault.
func ExampleReader_Verify() {
	var file bytes.Buffer
	w := sstable.NewWriter(&file, nil)
	if err := w.Add([]byte("apple"), 1, sstable.KindSet, []byte("green")); err != nil {
		log.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		log.Fatal(err)
	}
	table := file.Bytes()
	table[3] ^= 1 // damage to the first data block

	r, err := sstable.NewReader(bytes.NewReader(table), int64(len(table)), &sstable.ReaderOptions{Path: "fruits.ldb"})
	if err != nil {
		log.Fatal(err)
	}
	if err := r.Verify(context.Background(), func(fault error) { fmt.Println(fault) }); err != nil {
		log.Fatal(err)
	}
	// Output: fruits.ldb: corrupt data block at offset 0: checksum mismatch: computed e0e2e637, stored bda231fa
}

// A Prefixer determines which parts of a key its table's filter contains besides the key.
func ExamplePrefixer() {
	key := []byte("user/17/name")
	for _, p := range []sstable.Prefixer{sstable.FixedPrefix(4), sstable.PrefixUpTo('/', 2)} {
		fmt.Printf("%s: %s\n", p.Name(), key[:p.PrefixLen(key)])
	}

	var file bytes.Buffer
	w := sstable.NewWriter(&file, &sstable.WriterOptions{Filter: filter.Ribbon(10), Prefix: sstable.PrefixUpTo('/', 2)})
	if err := w.Add(key, 1, sstable.KindSet, nil); err != nil {
		log.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		log.Fatal(err)
	}
	r, err := sstable.NewReader(bytes.NewReader(file.Bytes()), int64(file.Len()), nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, prefix := range []string{"user/17/", "user/18/"} {
		fmt.Println(prefix, r.MayContain(filter.NewKey([]byte(prefix))))
	}
	// Output:
	// fixed(4): user
	// upto(0x2f,2): user/17/
	// user/17/ true
	// user/18/ false
}
