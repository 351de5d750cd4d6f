package filter_test

import (
	"fmt"

	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// For a database, set Options.Filter instead.
func ExampleNewBloomFilter() {
	bloom := filter.NewBloomFilter(10)
	g := bloom.NewGenerator()
	for _, fruit := range []string{"apple", "banana"} {
		g.Add([]byte(fruit))
	}
	var block util.Buffer
	g.Generate(&block)
	for _, fruit := range []string{"banana", "lemon"} {
		fmt.Println(fruit, bloom.Contains(block.Bytes(), []byte(fruit)))
	}
	// Output:
	// banana true
	// lemon false
}
