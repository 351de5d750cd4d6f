package engine

import (
	"context"
	"runtime"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/siftdb/sift/bench/measure"
)

var background = context.Background()

// oneTxn is the mode that looks up all keys in one read transaction.
const oneTxn = "txn"

func init() {
	register(&Engine{
		Name:    "badger",
		Version: measure.ModuleVersion("github.com/dgraph-io/badger/v4"),
		Modes: []Mode{
			{"", "a transaction for each Get"},
			{oneTxn, "one read transaction for all Gets"},
		},
		Terms:      "Writes in transactions of --txn_batch; no conflict detection; values are stored with the keys, as they are small. Filters with a false positive rate of 1%; two compactors, one per processor (its default is four). Tables are memory-mapped, with filters and indexes, so block reads are misses of its block cache, and their bytes are not counted.",
		PageWrites: true,
		Open:       openBadger,
	})
}

type badgerDB struct {
	db    *badger.DB
	batch int
}

func openBadger(c Config) (DB, error) {
	o := badger.DefaultOptions(c.Dir).
		WithLogger(nil).
		WithSyncWrites(c.Sync).
		WithBlockCacheSize(c.CacheBytes).
		WithMemTableSize(int64(c.WriteBufferBytes)).
		WithBlockSize(c.BlockBytes).
		WithValueThreshold(min(1<<20, int64(c.WriteBufferBytes)/16)).
		WithDetectConflicts(false).
		WithNumCompactors(2).
		WithCompression(options.Snappy)
	if c.Memory > 0 {
		// Its documentation advises fewer and smaller memtables, and a limit for cached blocks.
		memtable := c.share(int64(c.WriteBufferBytes), 16, 1<<20, 64<<20)
		o = o.WithMemTableSize(memtable).WithNumMemtables(2).WithValueThreshold(min(1<<20, memtable/16)).
			WithBlockCacheSize(c.share(c.CacheBytes, 8, 1<<20, 1<<40)).
			WithBaseTableSize(min(2<<20, memtable)).WithValueLogFileSize(64 << 20)
	}
	if c.NoCompression {
		o = o.WithCompression(options.None)
	}
	db, err := badger.Open(o)
	if err != nil {
		return nil, err
	}
	batch := max(1, c.TxnBatch)
	if c.Sync {
		batch = 1
	}
	return &badgerDB{db, batch}, nil
}

func (d *badgerDB) NewReader(mode string) (Reader, error) {
	if mode == oneTxn {
		return badgerTxnReader{d.db.NewTransaction(false)}, nil
	}
	return badgerReader{d.db}, nil
}

func (d *badgerDB) NewWriter() (Writer, error) { return &badgerWriter{d: d}, nil }

func (d *badgerDB) NewIter() (Iter, error) {
	return &badgerIter{txn: d.db.NewTransaction(false)}, nil
}

func (d *badgerDB) Quiesce() error {
	return waitQuiesced(func() (int64, bool) {
		var sum int64
		for _, l := range d.db.Levels() {
			sum = sum*31 + int64(l.NumTables) + l.Size
		}
		return sum, false
	})
}

func (d *badgerDB) Flush() error { return ErrUnsupported }

func (d *badgerDB) Compact() error { return d.db.Flatten(runtime.NumCPU()) }

func (d *badgerDB) Counters() Counters {
	c := Unknown
	if m := d.db.BlockCacheMetrics(); m != nil {
		c.BlockReads = int64(m.Misses())
	}
	return c
}

func (d *badgerDB) FilterBytes() int64 {
	var sum int64
	for _, t := range d.db.Tables() {
		sum += int64(t.BloomFilterSize)
	}
	return sum
}

func (d *badgerDB) Close() error { return d.db.Close() }

type badgerReader struct{ db *badger.DB }

func (r badgerReader) Get(key []byte) (n int, found bool, err error) {
	txn := r.db.NewTransaction(false)
	n, found, err = badgerGet(txn, key)
	txn.Discard()
	return n, found, err
}

func (r badgerReader) Value(dst, key []byte) ([]byte, bool, error) {
	txn := r.db.NewTransaction(false)
	defer txn.Discard()
	return badgerTxnReader{txn}.Value(dst, key)
}

func (r badgerReader) Close() error { return nil }

type badgerTxnReader struct{ txn *badger.Txn }

func (r badgerTxnReader) Get(key []byte) (int, bool, error) { return badgerGet(r.txn, key) }

func badgerGet(txn *badger.Txn, key []byte) (n int, found bool, err error) {
	item, err := txn.Get(key)
	if err == badger.ErrKeyNotFound {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	err = item.Value(func(v []byte) error {
		n = len(v)
		return nil
	})
	return n, err == nil, err
}

func (r badgerTxnReader) Value(dst, key []byte) ([]byte, bool, error) {
	item, err := r.txn.Get(key)
	if err == badger.ErrKeyNotFound {
		return dst, false, nil
	}
	if err != nil {
		return dst, false, err
	}
	err = item.Value(func(v []byte) error {
		dst = append(dst, v...)
		return nil
	})
	return dst, err == nil, err
}

func (r badgerTxnReader) Close() error {
	r.txn.Discard()
	return nil
}

// badgerWriter commits after every badgerDB.batch writes.
type badgerWriter struct {
	d   *badgerDB
	txn *badger.Txn
	n   int
}

func (w *badgerWriter) Put(key, value []byte) error {
	w.begin()
	// The transaction references its arguments until it is committed.
	return w.done(w.txn.Set(clone(key), clone(value)))
}

func (w *badgerWriter) Delete(key []byte) error {
	w.begin()
	return w.done(w.txn.Delete(clone(key)))
}

func clone(b []byte) []byte { return append(make([]byte, 0, len(b)), b...) }

func (w *badgerWriter) begin() {
	if w.txn == nil {
		w.txn = w.d.db.NewTransaction(true)
	}
}

func (w *badgerWriter) done(err error) error {
	if err != nil {
		return err
	}
	if w.n++; w.n < w.d.batch {
		return nil
	}
	return w.Close()
}

func (w *badgerWriter) Close() error {
	if w.txn == nil {
		return nil
	}
	err := w.txn.Commit()
	w.txn, w.n = nil, 0
	return err
}

// badgerIter holds two iterators, because badger's iterators move in one direction
// only.
type badgerIter struct {
	txn      *badger.Txn
	forward  *badger.Iterator
	backward *badger.Iterator
	at       *badger.Iterator
	value    []byte
	err      error
}

func (i *badgerIter) use(it **badger.Iterator, reverse bool) *badger.Iterator {
	if *it == nil {
		o := badger.DefaultIteratorOptions
		o.Reverse = reverse
		o.PrefetchValues = false
		*it = i.txn.NewIterator(o)
	}
	i.at = *it
	return i.at
}

func (i *badgerIter) SeekGE(key []byte) bool {
	it := i.use(&i.forward, false)
	it.Seek(key)
	return it.Valid()
}

func (i *badgerIter) First() bool {
	it := i.use(&i.forward, false)
	it.Rewind()
	return it.Valid()
}

func (i *badgerIter) Last() bool {
	it := i.use(&i.backward, true)
	it.Rewind()
	return it.Valid()
}

func (i *badgerIter) Next() bool {
	i.at.Next()
	return i.at.Valid()
}

func (i *badgerIter) Prev() bool { return i.Next() }

func (i *badgerIter) Key() []byte { return i.at.Item().Key() }

func (i *badgerIter) Value() []byte {
	err := i.at.Item().Value(func(v []byte) error {
		i.value = v
		return nil
	})
	if err != nil {
		i.err, i.value = err, nil
	}
	return i.value
}

func (i *badgerIter) Close() error {
	for _, it := range []*badger.Iterator{i.forward, i.backward} {
		if it != nil {
			it.Close()
		}
	}
	i.txn.Discard()
	return i.err
}
