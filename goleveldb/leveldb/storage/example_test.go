package storage_test

import (
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/syndtr/goleveldb/leveldb/storage"
)

// OpenFile returns a Storage in a directory instead.
func ExampleNewMemStorage() {
	stor := storage.NewMemStorage()
	defer stor.Close()
	fd := storage.FileDesc{Type: storage.TypeJournal, Num: 7}
	w, err := stor.Create(fd)
	if err != nil {
		log.Fatal(err)
	}
	_, err = io.WriteString(w, "contents")
	if err := errors.Join(err, w.Sync(), w.Close()); err != nil {
		log.Fatal(err)
	}

	fds, err := stor.List(storage.TypeAll)
	if err != nil {
		log.Fatal(err)
	}
	for _, fd := range fds {
		r, err := stor.Open(fd)
		if err != nil {
			log.Fatal(err)
		}
		defer r.Close()
		contents, err := io.ReadAll(r)
		fmt.Printf("%v: %s %v\n", fd, contents, err)
	}
	// Output: 000007.log: contents <nil>
}
