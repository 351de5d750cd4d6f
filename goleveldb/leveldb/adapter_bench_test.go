package leveldb

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/siftdb/sift"

	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
)

const (
	benchKeys = 200000
	benchWalk = 1000 * (32 + 110) // bytes
)

// benchKey writes a key for a number to buf. Keys are not in the order of their numbers.
func benchKey(buf []byte, i int) []byte {
	binary.BigEndian.PutUint64(buf, uint64(i)*0x9e3779b97f4a7c15)
	return buf
}

func benchDB(b *testing.B) *DB {
	db, err := OpenFile(b.TempDir(), &opt.Options{Filter: filter.NewBloomFilter(10)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	var batch Batch
	key, value := make([]byte, 32), make([]byte, 110)
	for i := range benchKeys {
		batch.Put(benchKey(key, i), value)
		if i%1000 == 999 {
			if err := db.Write(&batch, nil); err != nil {
				b.Fatal(err)
			}
			batch.Reset()
		}
	}
	if err := db.CompactRange(util.Range{}); err != nil {
		b.Fatal(err)
	}
	return db
}

// BenchmarkAdapter compares calls of this package with the same calls of the store, on one
// database.
func BenchmarkAdapter(b *testing.B) {
	db := benchDB(b)
	key := make([]byte, 32)
	storeBatch := new(sift.Batch)
	batch := new(Batch)
	ops := func(n int, put func(key, value []byte)) {
		value := make([]byte, 110)
		for i := range n {
			put(benchKey(make([]byte, 32), i), value)
		}
	}
	ops(700, storeBatch.Put)
	ops(700, batch.Put)
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	for _, bm := range []struct {
		name          string
		adapter, sift func(i int)
	}{
		{"Get/present", func(i int) {
			_, err := db.Get(benchKey(key, i%benchKeys), nil)
			must(err)
		}, func(i int) {
			_, err := db.s.Get(benchKey(key, i%benchKeys))
			must(err)
		}},
		{"Get/absent", func(i int) {
			if _, err := db.Get(benchKey(key, benchKeys+i), nil); err != ErrNotFound {
				b.Fatal(err)
			}
		}, func(i int) {
			if _, err := db.s.Get(benchKey(key, benchKeys+i)); err != sift.ErrNotFound {
				b.Fatal(err)
			}
		}},
		{"Has/absent", func(i int) {
			_, err := db.Has(benchKey(key, benchKeys+i), nil)
			must(err)
		}, func(i int) {
			_, err := db.s.Has(benchKey(key, benchKeys+i))
			must(err)
		}},
		{"Prefix", func(i int) {
			it := db.NewIterator(util.BytesPrefix(benchKey(key, i%benchKeys)[:8]), nil)
			if !it.Next() || it.Next() || it.Error() != nil {
				b.Fatal("not one key")
			}
			it.Release()
		}, func(i int) {
			r := util.BytesPrefix(benchKey(key, i%benchKeys)[:8])
			it, err := db.s.NewIter(&sift.IterOptions{LowerBound: r.Start, UpperBound: r.Limit})
			must(err)
			if !it.Next() || it.Next() {
				b.Fatal("not one key")
			}
			must(it.Close())
		}},
		{"Walk", func(i int) {
			it := db.NewIterator(nil, nil)
			n := 0
			for ok := it.Seek(benchKey(key, i%benchKeys)); ok && n < benchWalk; ok = it.Next() {
				n += len(it.Key()) + len(it.Value())
			}
			it.Release()
			must(it.Error())
		}, func(i int) {
			it, err := db.s.NewIter(nil)
			must(err)
			n := 0
			for ok := it.SeekGE(benchKey(key, i%benchKeys)); ok && n < benchWalk; ok = it.Next() {
				n += len(it.Key()) + len(it.Value())
			}
			must(it.Close())
		}},
		{"Batch", func(int) {
			batch.Reset()
			ops(700, batch.Put)
		}, func(int) {
			storeBatch.Reset()
			ops(700, storeBatch.Put)
		}},
		{"Write", func(int) { must(db.Write(batch, nil)) }, func(int) { must(db.s.Write(storeBatch, sift.NoSync)) }},
		{"Put", func(i int) { must(db.Put(benchKey(key, i), key, nil)) }, func(i int) { must(db.s.Put(benchKey(key, i), key, sift.NoSync)) }},
	} {
		b.Run(bm.name, func(b *testing.B) { compare(b, bm.adapter, bm.sift) })
	}
}

// compare runs two functions b.N times each, in short alternating turns, so that both meet
// the same noise, and with different arguments, so that neither profits from what the other
// has cached. It reports the median of each one's turns, and the median of how much longer
// adapter took than store in neighboring turns.
func compare(b *testing.B, adapter, store func(i int)) {
	const turn = 500 * time.Microsecond
	took := func(f func(int), from, n int) time.Duration {
		start := time.Now()
		for i := range n {
			f(from + i)
		}
		return time.Since(start)
	}
	n := 1 // calls per turn
	for n < b.N && took(store, 0, n) < turn {
		n *= 2
	}
	var ours, theirs, over []float64
	for i := 0; i < b.N; i += n {
		var t [2]time.Duration
		for j := range 2 { // in alternating order
			if (i/n+j)%2 == 0 {
				t[0] = took(adapter, 2*i, n)
			} else {
				t[1] = took(store, 2*i+n, n)
			}
		}
		ours = append(ours, float64(t[0])/float64(n))
		theirs = append(theirs, float64(t[1])/float64(n))
		over = append(over, 100*(float64(t[0])/float64(t[1])-1))
	}
	median := func(v []float64) float64 {
		slices.Sort(v)
		return v[len(v)/2]
	}
	b.ReportMetric(0, "ns/op") // of both together
	b.ReportMetric(median(ours), "adapter-ns/op")
	b.ReportMetric(median(theirs), "sift-ns/op")
	b.ReportMetric(median(over), "%over")
}
