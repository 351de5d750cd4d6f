package memtable_test

import (
	"fmt"
	"math"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/memtable"
	"github.com/siftdb/sift/sstable"
)

func Example() {
	m := memtable.New(1 << 20)
	for i, e := range [][2]string{{"apple", "green"}, {"pear", "yellow"}, {"apple", "red"}} {
		key, value := []byte(e[0]), []byte(e[1])
		if !m.Reserve(memtable.EntrySize(len(key), len(value))) {
			fmt.Println("full: flush it and use another memtable")
			return
		}
		if err := m.Add(filter.Hash(key), uint64(i+1), sstable.KindSet, key, value); err != nil {
			fmt.Println(err)
			return
		}
	}

	newest, _, _, _ := m.Get([]byte("apple"), math.MaxUint64)
	before, _, seq, _ := m.Get([]byte("apple"), 2)
	fmt.Printf("apple is %s, and at sequence 2 was %s, set at %d\n", newest, before, seq)
	fmt.Println("plum:", m.MayContain(filter.Hash([]byte("plum"))))

	it := m.NewIter()
	for ok := it.First(); ok; ok = it.Next() {
		userKey := it.Key()[:len(it.Key())-8] // an internal key, as in package sstable
		fmt.Printf("%s=%s ", userKey, it.Value())
	}
	// Output:
	// apple is red, and at sequence 2 was green, set at 1
	// plum: false
	// apple=red apple=green pear=yellow
}
