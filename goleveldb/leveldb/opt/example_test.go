package opt_test

import (
	"fmt"
	"log"
	"os"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
)

func ExampleOptions() {
	o := &opt.Options{
		BlockCacher:    opt.NewLRU(64 * opt.MiB), // shared by all databases with these options
		Filter:         filter.NewBloomFilter(12),
		ErrorIfMissing: true,
	}
	stor := storage.NewMemStorage()
	_, err := leveldb.Open(stor, o)
	fmt.Println("missing:", err == os.ErrNotExist)

	o.ErrorIfMissing = false
	db, err := leveldb.Open(stor, o)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.Put([]byte("fruit"), []byte("apple"), &opt.WriteOptions{Sync: true}); err != nil {
		log.Fatal(err)
	}
	value, err := db.Get([]byte("fruit"), nil)
	fmt.Printf("%s %v\n", value, err)
	// Output:
	// missing: true
	// apple <nil>
}
