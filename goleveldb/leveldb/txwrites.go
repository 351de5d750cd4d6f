package leveldb

import (
	"bytes"
	"encoding/binary"
	"io"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/siftdb/sift"

	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/memdb"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/table"
)

// write is an operation of a transaction.
type write struct {
	deleted bool
	value   []byte
}

// txWrites holds the writes of a transaction: the latest in memory, older ones in runs, which are
// sorted temporary files. It is guarded by Transaction.mu. A view needs no lock.
type txWrites struct {
	view
	db  *DB
	seq uint64 // the number of the last write
}

// view is a set of writes. The key of an entry is the user key and the write's number,
// inverted, in 8 bytes, big-endian, so that the newest write of a key comes first. Its value
// begins with 1 for a deletion, otherwise with 0.
type view struct {
	mem  *memdb.DB
	runs []*run // oldest first
}

// run is a sorted temporary file.
type run struct {
	*table.Reader
	stor storage.Storage
	fd   storage.FileDesc
	tier int // how often its entries have been merged
	refs atomic.Int32
}

const (
	numberLen = 8
	// runsPerTier is how many runs of a tier are merged into one of the next.
	runsPerTier = 8
)

// txOrder is the order of the entries.
type txOrder struct{}

// Compare implements comparer.Comparer.
func (txOrder) Compare(a, b []byte) int {
	if c := bytes.Compare(userKey(a), userKey(b)); c != 0 {
		return c
	}
	return bytes.Compare(a[len(a)-numberLen:], b[len(b)-numberLen:])
}

// Name implements comparer.Comparer.
func (txOrder) Name() string { return "sift.Transaction" }

// Separator implements comparer.Comparer.
func (txOrder) Separator(dst, a, b []byte) []byte { return nil }

// Successor implements comparer.Comparer.
func (txOrder) Successor(dst, b []byte) []byte { return nil }

// txKeys is a filter over the keys of entries, without their numbers.
type txKeys struct{ filter.Filter }

// Contains implements filter.Filter.
func (f txKeys) Contains(data, entry []byte) bool { return f.Filter.Contains(data, userKey(entry)) }

// NewGenerator implements filter.Filter.
func (f txKeys) NewGenerator() filter.FilterGenerator {
	return txKeysGenerator{f.Filter.NewGenerator()}
}

type txKeysGenerator struct{ filter.FilterGenerator }

// Add implements filter.FilterGenerator.
func (g txKeysGenerator) Add(entry []byte) { g.FilterGenerator.Add(userKey(entry)) }

// runOptions are the options of the files.
var runOptions = &opt.Options{Comparer: txOrder{}, Filter: txKeys{filter.NewBloomFilter(10)}}

func newTxWrites(db *DB) *txWrites {
	return &txWrites{view: view{mem: memdb.New(txOrder{}, 0)}, db: db}
}

func userKey(entry []byte) []byte { return entry[:len(entry)-numberLen] }

func number(entry []byte) uint64 { return ^binary.BigEndian.Uint64(entry[len(entry)-numberLen:]) }

func appendEntry(dst, key []byte, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, key...), ^seq)
}

func decodeWrite(value []byte) write { return write{deleted: value[0] == 1, value: value[1:]} }

// add adds a write. After an error it has not been added.
func (o *txWrites) add(key []byte, w write) error {
	if err := o.makeRoom(); err != nil {
		return err
	}
	o.seq++
	value := make([]byte, 1, 1+len(w.value))
	if w.deleted {
		value[0] = 1
	}
	return o.mem.Put(appendEntry(nil, key, o.seq), append(value, w.value...))
}

// get returns the newest write of a key.
func (o *txWrites) get(key []byte) (write, bool, error) {
	want := appendEntry(nil, key, o.seq)
	entry, value, err := o.mem.Find(want)
	for i := len(o.runs) - 1; ; i-- {
		switch {
		case err == nil && bytes.Equal(userKey(entry), key):
			return decodeWrite(value), true, nil
		case err != nil && err != ErrNotFound:
			return write{}, false, err
		case i < 0:
			return write{}, false, nil
		}
		entry, value, err = o.runs[i].Find(want, true, nil)
	}
}

// makeRoom writes the writes in memory to a run if they fill the write buffer.
func (o *txWrites) makeRoom() error {
	if o.mem.Size() < o.db.writeBuffer {
		return nil
	}
	it := o.mem.NewIterator(nil)
	r, err := o.writeRun(it, 0)
	if err != nil {
		return err
	}
	o.mem = memdb.New(txOrder{}, 0)
	o.runs = append(slices.Clip(o.runs), r)
	for from := len(o.runs) - runsPerTier; from >= 0 && o.runs[from].tier == r.tier; from = len(o.runs) - runsPerTier {
		merged := view{runs: o.runs[from:]}
		if r, err = o.writeRun(newestOf(merged.iter()), r.tier+1); err != nil {
			return err // the transaction remains usable with the unmerged runs
		}
		merged.unref()
		o.runs = append(slices.Clone(o.runs[:from]), r)
	}
	return nil
}

// writeRun writes the entries of an iterator, which it releases, to a run.
func (o *txWrites) writeRun(it iterator.Iterator, tier int) (r *run, err error) {
	defer it.Release()
	stor := o.db.stor
	fd := storage.FileDesc{Type: storage.TypeTemp, Num: o.db.temps.Add(1)}
	f, err := stor.Create(fd)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = stor.Remove(fd) // otherwise the next Open removes it
		}
	}()
	w := table.NewWriter(f, runOptions, nil, 0)
	for it.Next() && err == nil {
		err = w.Append(it.Key(), it.Value())
	}
	if err == nil {
		err = it.Error()
	}
	if err == nil {
		err = w.Close()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	in, err := stor.Open(fd)
	if err != nil {
		return nil, err
	}
	size, err := in.Seek(0, io.SeekEnd)
	var reader *table.Reader
	if err == nil {
		reader, err = table.NewReader(in, size, fd, nil, nil, runOptions)
	}
	if err == nil {
		// NewReader reports damage only later, when what was written here is no longer elsewhere.
		_, err = reader.OffsetOf(appendEntry(nil, nil, 0))
	}
	if err != nil {
		in.Close()
		return nil, err
	}
	r = &run{Reader: reader, stor: stor, fd: fd, tier: tier}
	r.refs.Store(1)
	return r, nil
}

// ref takes a reference on the files.
func (v view) ref() view {
	for _, r := range v.runs {
		r.refs.Add(1)
	}
	return v
}

// unref drops references, and removes the files that are no longer used.
func (v view) unref() {
	for _, r := range v.runs {
		if r.refs.Add(-1) == 0 {
			r.Release()             // and closes the file
			_ = r.stor.Remove(r.fd) // otherwise the next Open removes it
		}
	}
}

// iter returns an iterator over the entries.
func (v view) iter() iterator.Iterator {
	var all []iterator.Iterator
	if v.mem != nil {
		all = append(all, v.mem.NewIterator(nil))
	}
	for _, r := range v.runs {
		all = append(all, r.NewIterator(nil, nil))
	}
	return iterator.NewMergedIterator(all, txOrder{}, true)
}

// newest is an iterator over the newest entry of each key. It only moves forward.
type newest struct {
	iterator.Iterator
	key  []byte
	have bool
}

func newestOf(it iterator.Iterator) *newest { return &newest{Iterator: it} }

// Next implements iterator.Iterator.
func (n *newest) Next() bool {
	for n.Iterator.Next() {
		key := userKey(n.Iterator.Key())
		if !n.have || !bytes.Equal(key, n.key) {
			n.key, n.have = append(n.key[:0], key...), true
			return true
		}
	}
	return false
}

// ops returns the newest write of each key, in the order of keys.
func (v view) ops() iter.Seq2[sift.Op, error] {
	return func(yield func(sift.Op, error) bool) {
		it := newestOf(v.iter())
		defer it.Release()
		for it.Next() {
			w := decodeWrite(it.Value())
			if !yield(sift.Op{Delete: w.deleted, Key: it.key, Value: w.value}, nil) {
				return
			}
		}
		if err := it.Error(); err != nil {
			yield(sift.Op{}, err)
		}
	}
}

// maxTemps exceeds the numbers of transactions' temporary files. Others have larger ones:
// os.CreateTemp(dir, "*.tmp"), for example, makes names with ten digits.
const maxTemps = 1e6

// removeTemps removes the temporary files of transactions that were open when a program ended.
func removeTemps(stor storage.Storage) error {
	fds, err := stor.List(storage.TypeTemp)
	if err != nil {
		return err
	}
	for _, fd := range fds {
		if fd.Num >= maxTemps {
			continue
		}
		if err := stor.Remove(fd); err != nil {
			return err
		}
	}
	return nil
}
