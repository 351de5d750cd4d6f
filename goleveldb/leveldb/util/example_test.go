package util_test

import (
	"fmt"

	"github.com/syndtr/goleveldb/leveldb/util"
)

// The range of all keys that begin with "user/".
func ExampleBytesPrefix() {
	r := util.BytesPrefix([]byte("user/"))
	fmt.Printf("from %s to %s\n", r.Start, r.Limit)
	// Output: from user/ to user0
}
