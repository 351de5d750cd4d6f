package table_test

import (
	"bytes"
	"fmt"
	"log"

	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/table"
	"github.com/syndtr/goleveldb/leveldb/util"
)

func Example() {
	var file bytes.Buffer
	w := table.NewWriter(&file, nil, nil, 0)
	for _, e := range [][2]string{{"apple", "red"}, {"banana", "yellow"}, {"lemon", "yellow"}} {
		if err := w.Append([]byte(e[0]), []byte(e[1])); err != nil {
			log.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}

	r, err := table.NewReader(bytes.NewReader(file.Bytes()), int64(file.Len()), storage.FileDesc{}, nil, nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Release()
	value, err := r.Get([]byte("apple"), nil)
	fmt.Printf("apple: %s %v\n", value, err)
	_, err = r.Get([]byte("cherry"), nil)
	fmt.Println("cherry:", err == table.ErrNotFound)

	it := r.NewIterator(&util.Range{Start: []byte("b")}, nil)
	defer it.Release()
	for it.Next() {
		fmt.Printf("%s is %s\n", it.Key(), it.Value())
	}
	if err := it.Error(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// apple: red <nil>
	// cherry: true
	// banana is yellow
	// lemon is yellow
}
