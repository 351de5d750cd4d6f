package memdb_test

import (
	"fmt"
	"log"

	"github.com/syndtr/goleveldb/leveldb/comparer"
	"github.com/syndtr/goleveldb/leveldb/memdb"
	"github.com/syndtr/goleveldb/leveldb/util"
)

func Example() {
	db := memdb.New(comparer.DefaultComparer, 1<<20)
	for _, e := range [][2]string{{"fruit/lemon", "yellow"}, {"fruit/apple", "red"}, {"tree/oak", "green"}} {
		if err := db.Put([]byte(e[0]), []byte(e[1])); err != nil {
			log.Fatal(err)
		}
	}
	_, err := db.Get([]byte("fruit/pear"))
	fmt.Println(err == memdb.ErrNotFound)

	it := db.NewIterator(util.BytesPrefix([]byte("fruit/")))
	defer it.Release()
	for it.Next() {
		fmt.Printf("%s is %s\n", it.Key(), it.Value())
	}
	if err := it.Error(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// true
	// fruit/apple is red
	// fruit/lemon is yellow
}
