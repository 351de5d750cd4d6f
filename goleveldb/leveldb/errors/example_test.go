package errors_test

import (
	"fmt"
	"log"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/errors"
	"github.com/syndtr/goleveldb/leveldb/storage"
)

// A damaged database is recovered.
func ExampleIsCorrupted() {
	stor := storage.NewMemStorage()
	db, err := leveldb.Open(stor, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := db.Put([]byte("fruit"), []byte("apple"), nil); err != nil {
		log.Fatal(err)
	}
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}
	manifest, err := stor.GetMeta()
	if err != nil {
		log.Fatal(err)
	}
	if err := stor.Remove(manifest); err != nil {
		log.Fatal(err)
	}

	db, err = leveldb.Open(stor, nil)
	if errors.IsCorrupted(err) {
		fmt.Println("recovering")
		db, err = leveldb.Recover(stor, nil)
	}
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	value, err := db.Get([]byte("fruit"), nil)
	fmt.Printf("%s %v\n", value, err)
	// Output:
	// recovering
	// apple <nil>
}
