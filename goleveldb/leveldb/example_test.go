package leveldb_test

import (
	"fmt"
	"os"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/util"
)

func Example() {
	dir, err := os.MkdirTemp("", "leveldb")
	check(err)
	defer os.RemoveAll(dir)
	db, err := leveldb.OpenFile(dir, nil)
	check(err)
	defer db.Close()

	b := new(leveldb.Batch)
	b.Put([]byte("fruit/apple"), []byte("red"))
	b.Put([]byte("fruit/lemon"), []byte("yellow"))
	check(db.Write(b, nil))
	_, err = db.Get([]byte("fruit/pear"), nil)
	fmt.Println(err == leveldb.ErrNotFound)

	it := db.NewIterator(util.BytesPrefix([]byte("fruit/")), nil)
	defer it.Release()
	for it.Next() {
		fmt.Printf("%s is %s\n", it.Key(), it.Value())
	}
	check(it.Error())
	// Output:
	// true
	// fruit/apple is red
	// fruit/lemon is yellow
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
