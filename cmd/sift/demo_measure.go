package main

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
)

// lookups is the cost of looking up absent keys. The counts of lookups, reads and bytes are
// differences of the database's Metrics before and after.
type lookups struct {
	name               string // filters on or off, cache cold or warm
	gets, reads, bytes uint64
	took               time.Duration
	filterBytes        uint64
	observed, expected float64 // false positive rate; NaN without filters
	present            int     // existing keys that were found
	dropped            bool    // no table was in the page cache when the database was opened
}

// perThousand scales a count to 1,000 lookups.
func (l lookups) perThousand(n uint64) float64 { return float64(n) * 1000 / float64(l.gets) }

// fromMemory reports whether the lookups read blocks so fast that hardly any came from a disk.
func (l lookups) fromMemory() bool {
	const most = 30 * time.Microsecond // for the page cache and decompression; an SSD takes longer
	return l.reads > 0 && l.took/time.Duration(l.reads) < most
}

// measure reopens the database with an empty block cache and, if the system allows it, with
// no table in the page cache, and looks up the absent keys twice.
func (d *demo) measure(name string, absent [][]byte, policy filter.Policy) (rows []lookups, err error) {
	dropped, err := dropTables(d.dir)
	if err != nil {
		return nil, err
	}
	err = d.withDB(d.dir, sift.Options{ReadOnly: true, Filter: policy}, func(db *sift.DB) error {
		for _, cache := range []string{"cold", "warm"} {
			row, err := d.lookUpAbsent(db, absent)
			if err != nil {
				return err
			}
			row.name, row.dropped = name+", "+cache, dropped
			rows = append(rows, row)
		}
		found, err := d.lookUpPresent(db)
		for i := range rows {
			rows[i].present = found
		}
		return err
	})
	return rows, err
}

// dropTables drops the tables of a closed database from the page cache. gone is false if the
// system keeps any of them in memory.
func dropTables(dir string) (gone bool, err error) {
	tables, err := filepath.Glob(filepath.Join(dir, "*.ldb"))
	gone = len(tables) > 0
	for _, path := range tables {
		dropped, err := dropPages(path)
		if err != nil {
			return false, err
		}
		gone = gone && dropped
	}
	return gone, err
}

// lookUpAbsent looks up each absent key once.
func (d *demo) lookUpAbsent(db *sift.DB, absent [][]byte) (l lookups, err error) {
	p := d.counting("looking up", len(absent))
	defer p.done()
	db.Tables() // loads the filters, which Open leaves to the background
	before, start := db.Metrics(), time.Now()
	for i, key := range absent {
		if i%1024 == 0 {
			p.set(int64(i))
			if d.ctx.Err() != nil {
				return l, d.ctx.Err()
			}
		}
		if _, err := db.Get(key); err == nil {
			return l, fmt.Errorf("%q was not stored, but is found", key)
		} else if !errors.Is(err, sift.ErrNotFound) {
			return l, err
		}
	}
	l.took = time.Since(start)
	after := db.Metrics()
	l.gets = after.Gets - before.Gets
	l.reads = after.BlockReads - before.BlockReads
	l.bytes = after.BlockReadBytes - before.BlockReadBytes
	l.filterBytes = after.Memory.Filters
	var probes, positives, expected float64
	for i := range after.Levels {
		a, b := after.Levels[i].Filter, before.Levels[i].Filter
		absent := float64(a.Useful - b.Useful + a.FalsePositive - b.FalsePositive)
		if absent == 0 {
			continue
		}
		probes += absent
		positives += float64(a.FalsePositive - b.FalsePositive)
		expected += absent * a.ExpectedFPR
	}
	l.observed, l.expected = math.NaN(), math.NaN()
	if probes > 0 {
		l.observed, l.expected = positives/probes, expected/probes
	}
	return l, nil
}

// lookUpPresent looks up some existing keys and returns how many it has found. A key that is not
// found is an error.
func (d *demo) lookUpPresent(db *sift.DB) (n int, err error) {
	for _, key := range d.keys.keys[:min(len(d.keys.keys), 10_000)] {
		if found, err := db.Has(key); err != nil {
			return n, err
		} else if !found {
			return n, fmt.Errorf("%q was stored, but is not found", key)
		}
		n++
	}
	return n, nil
}
