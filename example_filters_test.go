package sift_test

import (
	"context"
	"fmt"
	"log"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
)

// With Options.Prefix the filters contain the users, too. HasPrefix skips the tables whose filters
// exclude a user.
func ExampleDB_HasPrefix() {
	db, err := sift.OpenMemory(&sift.Options{Prefix: sift.PrefixUpTo('/', 2)}) // "user/ann/"
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	for _, k := range []string{"user/ann/mail", "user/ann/name", "user/cid/name"} {
		if err := db.Put([]byte(k), nil, sift.NoSync); err != nil {
			log.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		log.Fatal(err)
	}
	for _, prefix := range []string{"user/ann/", "user/bob/"} {
		has, err := db.HasPrefix([]byte(prefix))
		fmt.Println(prefix, has, err)
	}
	// Output:
	// user/ann/ true <nil>
	// user/bob/ false <nil>
}

// With Options.RangeFilter each table has a filter of the times of each device. HasRange skips the
// tables whose filters exclude a span of time.
func ExampleDB_HasRange() {
	db, err := sift.OpenMemory(&sift.Options{
		Prefix:      sift.PrefixUpTo('/', 2), // "device/7/"; a time follows
		RangeFilter: filter.Range(16, 0),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	event := func(device, second int) []byte { return fmt.Appendf(nil, "device/%d/%010d", device, second) }
	for _, second := range []int{100, 250, 9000} {
		if err := db.Put(event(7, second), nil, sift.NoSync); err != nil {
			log.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(db.HasRange(event(7, 200), event(7, 300)))
	fmt.Println(db.HasRange(event(7, 300), event(7, 400)))
	// Output:
	// true <nil>
	// false <nil>
}

// Many ranges are looked up together, in one state of the database.
func ExampleDB_HasRanges() {
	db, err := sift.OpenMemory(&sift.Options{RangeFilter: filter.Range(16, 0)})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	for _, date := range []string{"2025-01-31", "2025-03-01", "2025-03-02"} {
		if err := db.Put([]byte(date), nil, sift.NoSync); err != nil {
			log.Fatal(err)
		}
	}
	has, err := db.HasRanges([]sift.KeyRange{
		{From: []byte("2025-01"), To: []byte("2025-02")},
		{From: []byte("2025-02"), To: []byte("2025-03")},
		{From: []byte("2025-03"), To: nil},
	})
	fmt.Println(has, err)
	// Output: [true false true] <nil>
}

// An existing database gets keyed filters: with Options.KeyedFilters new tables have them, and
// BuildFilters rewrites the old tables.
func ExampleDB_BuildFilters() {
	o := &sift.Options{FS: sift.NewMemFS(), Filter: filter.Ribbon(10)}
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

	o.KeyedFilters = true
	db, err = sift.Open("db", o)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	printPolicies := func() {
		for _, table := range db.Tables() {
			fmt.Println(table.FilterPolicy)
		}
	}
	printPolicies()
	if _, err := db.BuildFilters(context.Background()); err != nil {
		log.Fatal(err)
	}
	printPolicies()
	// Output:
	// ribbon(10)
	// keyed(ribbon(10))
}

// PlanFilters tells how much memory suffices for filters; Options.FilterMemory then sets it.
func ExampleDB_PlanFilters() {
	o := &sift.Options{FS: sift.NewMemFS(), Filter: filter.Ribbon(12)}
	db, err := sift.Open("db", o)
	if err != nil {
		log.Fatal(err)
	}
	users := func(yield func(sift.Op, error) bool) {
		for i := range 10_000 {
			if !yield(sift.Op{Key: fmt.Appendf(nil, "user/%06d", i)}, nil) {
				return
			}
		}
	}
	if err := db.Ingest(context.Background(), users); err != nil {
		log.Fatal(err)
	}

	for budget := int64(4 << 10); o.FilterMemory == 0; budget *= 2 {
		plan, err := db.PlanFilters(budget)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d KiB: %.3f block reads per lookup of an absent key\n", budget>>10, plan.WastedReads)
		if plan.WastedReads < 0.001 {
			o.FilterMemory = budget
		}
	}
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}

	db, err = sift.Open("db", o)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	fmt.Println(db.Has([]byte("user/000001")))
	// Output:
	// 4 KiB: 0.112 block reads per lookup of an absent key
	// 8 KiB: 0.015 block reads per lookup of an absent key
	// 16 KiB: 0.000 block reads per lookup of an absent key
	// true <nil>
}
