package ranges

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/measure"
)

// Scans is the cost of scans of empty ranges.
type Scans struct {
	Way        string
	NsPerScan  float64 // the median of rounds
	BlockReads float64 // per 1,000 scans
}

// Terms are the terms of the comparison. Stores without range filters get RangeBits for
// their Bloom filters, which also hold prefixes in stores that have prefix filters.
type Terms struct {
	Keys, ValueBytes int
	FilterBits       int // of sift's filter
	RangeBits        int
	Length           uint64 // of the ranges
	Rounds           int
}

const scans = 20_000

// EmptyScans fills a store with the keys of EntityTime and scans empty ranges.
func EmptyScans(e *engine.Engine, t Terms, parent string) (all []Scans, err error) {
	set := EntityTime(t.Keys)
	rng := rand.New(rand.NewPCG(5, 5))
	dir, err := os.MkdirTemp(parent, "sift-bench-scans")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	c := engine.Config{
		Dir: dir, BloomBits: t.FilterBits + t.RangeBits, PrefixBytes: len("device/00000/"), Keys: t.Keys,
		CacheBytes: 8 << 20, WriteBufferBytes: 4 << 20, BlockBytes: 4 << 10, TxnBatch: 1000,
	}
	if e.RangeFilters {
		c.BloomBits, c.RangeBits = t.FilterBits, t.RangeBits
	}
	db, err := e.Open(c)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := db.Close(); err == nil {
			err = cerr
		}
	}()
	if err := fill(db, set, t.ValueBytes, rng); err != nil {
		return nil, err
	}
	for _, way := range e.RangeWays {
		s := Scans{Way: way}
		before := db.Counters()
		var times []float64
		for range t.Rounds {
			from, to := empty(set, rng, t.Length) // others each time: no cache holds what they read
			begin := time.Now()
			found, err := db.(engine.RangeReader).CountRanges(way, from, to)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", e.Name, way, err)
			}
			if found != 0 {
				return nil, fmt.Errorf("%s, %s: %d of the empty ranges hold a key", e.Name, way, found)
			}
			times = append(times, float64(time.Since(begin))/scans)
		}
		s.NsPerScan = measure.Median(times)
		s.BlockReads = float64(db.Counters().Sub(before).BlockReads) * 1000 / scans / float64(t.Rounds)
		all = append(all, s)
	}
	return all, nil
}

// empty returns the bounds of ranges without a key.
func empty(set *Set, rng *rand.Rand, length uint64) (from, to *data.Keys) {
	from, to = data.NewKeys(scans, 32), data.NewKeys(scans, 32)
	for from.Len() < scans {
		if a, b := set.Range(rng, length); !set.has(a, b) {
			from.Add(a)
			to.Add(b)
		}
	}
	return from, to
}

func fill(db engine.DB, set *Set, valueBytes int, rng *rand.Rand) error {
	w, err := db.NewWriter()
	if err != nil {
		return err
	}
	value := make([]byte, valueBytes)
	for _, i := range rng.Perm(len(set.Keys)) {
		for j := range value[:len(value)/2] { // the other half is compressible
			value[j] = byte(rng.Uint32())
		}
		if err := w.Put(set.Keys[i], value); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return db.Quiesce()
}
