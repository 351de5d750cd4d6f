package cache_test

import (
	"fmt"

	"github.com/syndtr/goleveldb/leveldb/cache"
)

// A cache of two pages, which loads them when they are missing.
func Example() {
	c := cache.NewCache(cache.NewLRU(2))
	defer c.Close(false)
	for _, page := range []uint64{1, 2, 1, 3, 2} {
		h := c.Get(0, page, func() (size int, value cache.Value) {
			fmt.Print("load ")
			return 1, fmt.Sprint("page ", page)
		})
		fmt.Println(h.Value())
		h.Release()
	}
	// Output:
	// load page 1
	// load page 2
	// page 1
	// load page 3
	// load page 2
}
