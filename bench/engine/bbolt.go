package engine

import (
	"os"
	"path/filepath"

	"github.com/siftdb/sift/bench/measure"
	bolt "go.etcd.io/bbolt"
)

var boltBucket = []byte("b")

func init() {
	register(&Engine{
		Name:    "bbolt",
		Version: measure.ModuleVersion("go.etcd.io/bbolt"),
		Modes: []Mode{
			{"", "a transaction for each Get"},
			{oneTxn, "one read transaction for all Gets"},
		},
		Terms:      "A B+tree in one memory-mapped file: no log, no compression, no filter, no cache besides the page cache, no background work. Writes in transactions of --txn_batch; NoSync and NoFreelistSync unless --sync. Each commit writes every changed page; the dirtied pages of the page cache are counted as written, a page once until it reaches the disk. It has no compaction: compacted is the same state as quiesced.",
		PageWrites: true,
		Open:       openBolt,
	})
}

type boltDB struct {
	db    *bolt.DB
	batch int
}

func openBolt(c Config) (DB, error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, err
	}
	db, err := bolt.Open(filepath.Join(c.Dir, "bolt.db"), 0o644, &bolt.Options{
		NoSync: !c.Sync, NoFreelistSync: !c.Sync, FreelistType: bolt.FreelistMapType,
	})
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(boltBucket)
		return err
	})
	if err != nil {
		db.Close()
		return nil, err
	}
	batch := max(1, c.TxnBatch)
	if c.Sync {
		batch = 1
	}
	return &boltDB{db: db, batch: batch}, nil
}

func (d *boltDB) NewReader(mode string) (Reader, error) {
	if mode != oneTxn {
		return boltReader{d.db}, nil
	}
	tx, err := d.db.Begin(false)
	if err != nil {
		return nil, err
	}
	return boltTxReader{tx, tx.Bucket(boltBucket)}, nil
}

func (d *boltDB) NewWriter() (Writer, error) { return &boltWriter{d: d}, nil }

func (d *boltDB) NewIter() (Iter, error) {
	tx, err := d.db.Begin(false)
	if err != nil {
		return nil, err
	}
	return &boltIter{tx: tx, c: tx.Bucket(boltBucket).Cursor()}, nil
}

func (d *boltDB) Quiesce() error { return nil }

func (d *boltDB) Flush() error { return nil }

func (d *boltDB) Compact() error { return ErrUnsupported }

func (d *boltDB) Counters() Counters { return Unknown }

func (d *boltDB) FilterBytes() int64 { return 0 }

func (d *boltDB) Close() error { return d.db.Close() }

type boltReader struct{ db *bolt.DB }

func (r boltReader) Get(key []byte) (n int, found bool, err error) {
	err = r.db.View(func(tx *bolt.Tx) error {
		v := tx.Bucket(boltBucket).Get(key)
		n, found = len(v), v != nil
		return nil
	})
	return n, found, err
}

func (r boltReader) Value(dst, key []byte) (value []byte, found bool, err error) {
	err = r.db.View(func(tx *bolt.Tx) error {
		v := tx.Bucket(boltBucket).Get(key)
		value, found = append(dst, v...), v != nil
		return nil
	})
	return value, found, err
}

func (r boltReader) Close() error { return nil }

type boltTxReader struct {
	tx *bolt.Tx
	b  *bolt.Bucket
}

func (r boltTxReader) Get(key []byte) (int, bool, error) {
	v := r.b.Get(key)
	return len(v), v != nil, nil
}

func (r boltTxReader) Value(dst, key []byte) ([]byte, bool, error) {
	v := r.b.Get(key)
	return append(dst, v...), v != nil, nil
}

func (r boltTxReader) Close() error { return r.tx.Rollback() }

// boltWriter commits after every boltDB.batch writes.
type boltWriter struct {
	d  *boltDB
	tx *bolt.Tx
	b  *bolt.Bucket
	n  int
}

func (w *boltWriter) Put(key, value []byte) error {
	if err := w.begin(); err != nil {
		return err
	}
	// The transaction references the value until it is committed.
	return w.done(w.b.Put(key, clone(value)))
}

func (w *boltWriter) Delete(key []byte) error {
	if err := w.begin(); err != nil {
		return err
	}
	return w.done(w.b.Delete(key))
}

func (w *boltWriter) begin() (err error) {
	if w.tx != nil {
		return nil
	}
	if w.tx, err = w.d.db.Begin(true); err == nil {
		w.b = w.tx.Bucket(boltBucket)
	}
	return err
}

func (w *boltWriter) done(err error) error {
	if err != nil {
		return err
	}
	if w.n++; w.n < w.d.batch {
		return nil
	}
	return w.Close()
}

func (w *boltWriter) Close() error {
	if w.tx == nil {
		return nil
	}
	err := w.tx.Commit()
	w.tx, w.n = nil, 0
	return err
}

type boltIter struct {
	tx         *bolt.Tx
	c          *bolt.Cursor
	key, value []byte
}

func (i *boltIter) set(k, v []byte) bool {
	i.key, i.value = k, v
	return k != nil
}

func (i *boltIter) SeekGE(key []byte) bool { return i.set(i.c.Seek(key)) }
func (i *boltIter) First() bool            { return i.set(i.c.First()) }
func (i *boltIter) Last() bool             { return i.set(i.c.Last()) }
func (i *boltIter) Next() bool             { return i.set(i.c.Next()) }
func (i *boltIter) Prev() bool             { return i.set(i.c.Prev()) }
func (i *boltIter) Key() []byte            { return i.key }
func (i *boltIter) Value() []byte          { return i.value }
func (i *boltIter) Close() error           { return i.tx.Rollback() }
