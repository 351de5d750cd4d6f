package sift_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/siftdb/sift"
)

// A checkpoint is a database of its own. Usually it is on disk; here both databases are in memory.
func ExampleDB_Checkpoint() {
	o := &sift.Options{FS: sift.NewMemFS()}
	db, err := sift.Open("db", o)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.Put([]byte("fruit"), []byte("apple"), nil); err != nil {
		log.Fatal(err)
	}
	if err := db.Checkpoint("copy"); err != nil {
		log.Fatal(err)
	}
	if err := db.Put([]byte("fruit"), []byte("lemon"), nil); err != nil {
		log.Fatal(err)
	}

	copied, err := sift.Open("copy", o)
	if err != nil {
		log.Fatal(err)
	}
	defer copied.Close()
	value, err := copied.Get([]byte("fruit"))
	fmt.Printf("%s %v\n", value, err)
	// Output: apple <nil>
}

// Check reads the whole database while it is closed.
func ExampleCheck() {
	o := &sift.Options{FS: sift.NewMemFS()}
	db, err := sift.Open("db", o)
	if err != nil {
		log.Fatal(err)
	}
	for _, fruit := range []string{"apple", "lemon"} {
		if err := db.Put([]byte(fruit), []byte("ripe"), nil); err != nil {
			log.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}

	report, err := sift.Check(context.Background(), "db", o, func(fault error) { fmt.Println(fault) })
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("tables:", report.Tables, "keys:", report.Keys, "faults:", report.Faults)
	// Output: tables: 1 keys: 2 faults: 0
}

// A database that has lost its file CURRENT is rebuilt from its tables and logs.
func ExampleRepair() {
	o := &sift.Options{FS: sift.NewMemFS(), Logger: slog.New(slog.DiscardHandler)}
	db, err := sift.Open("db", o)
	if err != nil {
		log.Fatal(err)
	}
	if err := db.Put([]byte("fruit"), []byte("apple"), nil); err != nil {
		log.Fatal(err)
	}
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}
	if err := o.FS.Remove(filepath.Join("db", "CURRENT")); err != nil {
		log.Fatal(err)
	}

	_, err = sift.Open("db", o)
	fmt.Println("damaged:", errors.Is(err, sift.ErrCorruption))
	report, err := sift.Repair("db", o)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("keys:", report.Entries)
	db, err = sift.Open("db", o)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	value, err := db.Get([]byte("fruit"))
	fmt.Printf("%s %v\n", value, err)
	// Output:
	// damaged: true
	// keys: 1
	// apple <nil>
}

// A lock that outlives a database keeps others out while files are replaced, for instance.
func ExampleLockDirectory() {
	dir, err := os.MkdirTemp("", "sift")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	lock, err := sift.LockDirectory(dir, true)
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Close()

	_, err = sift.Open(dir, nil)
	fmt.Println("locked:", errors.Is(err, sift.ErrLocked))

	db, err := sift.Open(dir, &sift.Options{Lock: lock})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close() // does not release the lock
	fmt.Println(db.Put([]byte("fruit"), []byte("apple"), nil))
	// Output:
	// locked: true
	// <nil>
}
