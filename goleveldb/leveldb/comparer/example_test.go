package comparer_test

import (
	"fmt"

	"github.com/syndtr/goleveldb/leveldb/comparer"
)

// Indexes hold short keys between blocks instead of whole ones.
func Example() {
	order := comparer.DefaultComparer
	a, b := []byte("banana"), []byte("blueberry")
	fmt.Println(order.Name(), order.Compare(a, b))
	fmt.Printf("%s <= %s < %s\n", a, order.Separator(nil, a, b), b)
	fmt.Printf("%s <= %s\n", b, order.Successor(nil, b))
	// Output:
	// leveldb.BytewiseComparator -1
	// banana <= bb < blueberry
	// blueberry <= c
}
