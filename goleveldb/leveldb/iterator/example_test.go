package iterator_test

import (
	"fmt"
	"log"
	"sort"

	"github.com/syndtr/goleveldb/leveldb/comparer"
	"github.com/syndtr/goleveldb/leveldb/iterator"
)

// pairs are keys and values, sorted by key.
type pairs [][2]string

func (p pairs) Len() int { return len(p) }

func (p pairs) Search(key []byte) int {
	return sort.Search(len(p), func(i int) bool { return p[i][0] >= string(key) })
}

func (p pairs) Index(i int) (key, value []byte) { return []byte(p[i][0]), []byte(p[i][1]) }

// Two sorted arrays are read as one.
func ExampleNewMergedIterator() {
	it := iterator.NewMergedIterator([]iterator.Iterator{
		iterator.NewArrayIterator(pairs{{"apple", "green"}, {"cherry", "red"}}),
		iterator.NewArrayIterator(pairs{{"banana", "yellow"}}),
	}, comparer.DefaultComparer, true)
	defer it.Release()
	for it.Next() {
		fmt.Printf("%s is %s\n", it.Key(), it.Value())
	}
	if err := it.Error(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// apple is green
	// banana is yellow
	// cherry is red
}
