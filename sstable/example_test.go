package sstable_test

import (
	"bytes"
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
