package pebblefilter_test

import (
	"fmt"
	"log"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/filter/pebblefilter"
)

// A database whose tables get Bloom filters of package filter. The filters of older
// tables, written with pebble's own policy, are used until these are compacted.
func ExampleNew() {
	ours := pebblefilter.New(filter.Bloom(10))
	opts := &pebble.Options{FS: vfs.NewMem(), Logger: quiet{}}
	opts.Levels[0].FilterPolicy = ours // and those below it
	opts.Filters = pebblefilter.Filters(ours, bloom.FilterPolicy(10))

	db, err := pebble.Open("db", opts)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	for i := range 1000 {
		if err := db.Set(fmt.Appendf(nil, "key%04d", i), nil, pebble.NoSync); err != nil {
			log.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		log.Fatal(err)
	}
	for i := range 1000 {
		if _, _, err := db.Get(fmt.Appendf(nil, "key%04d-absent", i)); err != pebble.ErrNotFound {
			log.Fatal(err)
		}
	}
	fmt.Println("saved most block reads:", db.Metrics().Filter.Hits > 900)
	// Output: saved most block reads: true
}

// A policy of pebble as a policy of package filter.
func ExampleFrom() {
	p := pebblefilter.From(bloom.FilterPolicy(10))
	w := p.NewWriter()
	w.Add(filter.NewKey([]byte("apple")))
	units, err := w.Finish()
	if err != nil {
		log.Fatal(err)
	}
	r, err := p.Open(units)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Family(), r.MayContain(filter.NewKey([]byte("apple"))), r.MayContain(filter.NewKey([]byte("pear"))))
	// Output: rocksdb.BuiltinBloomFilter true false
}

// quiet discards pebble's log.
type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, a ...any) { log.Fatalf(f, a...) }
