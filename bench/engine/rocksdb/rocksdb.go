//go:build cgo && rocksdb

package rocksdb

// #cgo CXXFLAGS: -std=c++20 -O2
// #cgo LDFLAGS: -lrocksdb
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"unsafe"

	"github.com/siftdb/sift/bench/data"
)

// Version returns the version of the library.
func Version() string { return C.GoString(C.rdb_version()) }

// Options are the settings of a database.
type Options struct {
	BloomBits                                int // 0: no filter
	Ribbon                                   bool
	CacheBytes, WriteBufferBytes, BlockBytes int64
	PrefixBytes                              int // length of the prefixes that filters also hold; 0: none
	NoCompression, Sync                      bool
	AllInCache                               bool // indexes and filters are in the block cache, too
	Partitioned                              bool // indexes and filters are in partitions
	MmapReads                                bool // tables are read through memory maps
}

// DB is an open database.
type DB struct {
	db   *C.rdb
	sync C.int
}

func failure(message *C.char) error {
	if message == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(message))
	return errors.New("rocksdb: " + C.GoString(message))
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// pointer returns the address of the first byte; nil if b is nil.
func pointer(b []byte) *C.char { return (*C.char)(unsafe.Pointer(unsafe.SliceData(b))) }

func stringsOf(k *data.Keys) C.rdb_strings {
	return C.rdb_strings{
		bytes: pointer(k.Bytes),
		ends:  (*C.uint32_t)(unsafe.Pointer(unsafe.SliceData(k.Ends))),
	}
}

// grow extends lat by the times of n operations and returns it with the address of the
// first new element; C++ fills them in.
func grow(lat []int64, n, every int) ([]int64, *C.int64_t) {
	if every == 0 {
		return lat, nil
	}
	from := len(lat)
	lat = append(lat, make([]int64, n/every+1)...)
	return lat[:from+n/every], (*C.int64_t)(unsafe.Pointer(&lat[from]))
}

// Open opens or creates a database.
func Open(dir string, o Options) (*DB, error) {
	path := C.CString(dir)
	defer C.free(unsafe.Pointer(path))
	d := &DB{sync: flag(o.Sync)}
	return d, failure(C.rdb_open(path, C.int(o.BloomBits), flag(o.Ribbon), C.uint64_t(o.CacheBytes),
		C.uint64_t(o.WriteBufferBytes), C.uint64_t(o.BlockBytes), flag(o.NoCompression), C.int(o.PrefixBytes), flag(o.AllInCache), flag(o.Partitioned), flag(o.MmapReads), &d.db))
}

// Close closes the database.
func (d *DB) Close() { C.rdb_close(d.db) }

// Put sets key to value.
func (d *DB) Put(key, value []byte) error {
	return failure(C.rdb_put(d.db, pointer(key), C.size_t(len(key)), pointer(value), C.size_t(len(value)), d.sync))
}

// Delete removes a key.
func (d *DB) Delete(key []byte) error {
	return failure(C.rdb_delete(d.db, pointer(key), C.size_t(len(key)), d.sync))
}

// DeleteRange removes the keys in [from, to).
func (d *DB) DeleteRange(from, to []byte) error {
	return failure(C.rdb_delete_range(d.db, pointer(from), C.size_t(len(from)), pointer(to), C.size_t(len(to)), d.sync))
}

// CountRanges returns how many ranges hold a key. It creates an iterator with an upper
// bound for each, which probes the filters with the prefix.
func (d *DB) CountRanges(from, to *data.Keys) (int, error) {
	var found C.int
	err := failure(C.rdb_count_ranges(d.db, stringsOf(from), stringsOf(to), C.int(from.Len()), &found))
	return int(found), err
}

// Get appends the value of key to dst.
func (d *DB) Get(dst, key []byte) (value []byte, found bool, err error) {
	var v *C.char
	var n C.size_t
	var ok C.int
	if err := failure(C.rdb_get(d.db, pointer(key), C.size_t(len(key)), &v, &n, &ok)); err != nil || ok == 0 {
		return dst, false, err
	}
	defer C.free(unsafe.Pointer(v))
	return append(dst, C.GoBytes(unsafe.Pointer(v), C.int(n))...), true, nil
}

// GetEach looks up keys[from:to] one by one and times one lookup in every.
func (d *DB) GetEach(keys *data.Keys, from, to, every int, lat []int64) (int, []int64, error) {
	lat, at := grow(lat, to-from, every)
	var found C.int
	err := failure(C.rdb_get_each(d.db, stringsOf(keys), C.int(from), C.int(to), C.int(every), at, &found))
	return int(found), lat, err
}

// GetMany looks up keys in one call.
func (d *DB) GetMany(keys *data.Keys) (int, error) {
	var found C.int
	err := failure(C.rdb_multi_get(d.db, stringsOf(keys), C.int(keys.Len()), &found))
	return int(found), err
}

// PutEach writes keys[from:to] one by one and times one write in every.
func (d *DB) PutEach(keys, values *data.Keys, from, to, every int, lat []int64) ([]int64, error) {
	lat, at := grow(lat, to-from, every)
	return lat, failure(C.rdb_put_each(d.db, stringsOf(keys), stringsOf(values), C.int(from), C.int(to), C.int(every), at, d.sync))
}

// Flush writes the memtable to a table.
func (d *DB) Flush() error { return failure(C.rdb_flush(d.db)) }

// Compact compacts everything.
func (d *DB) Compact() error { return failure(C.rdb_compact(d.db)) }

// Busy reports whether background work is running or due.
func (d *DB) Busy() bool { return C.rdb_busy(d.db) != 0 }

// FilterBytes returns the size of all filters, -1 if unknown.
func (d *DB) FilterBytes() int64 { return int64(C.rdb_filter_bytes(d.db)) }

// Count returns the block reads of lookups and their bytes, and the negative and positive
// filter probes.
func (d *DB) Count() (blockReads, readBytes, filterNo, filterPositive int64) {
	c := C.rdb_count(d.db)
	return int64(c.block_reads), int64(c.read_bytes), int64(c.filter_no), int64(c.filter_positive)
}

// Iter is an iterator over all keys.
type Iter struct{ it *C.rdb_iter }

// NewIter returns an iterator.
func (d *DB) NewIter() *Iter { return &Iter{C.rdb_iter_new(d.db)} }

// Close closes the iterator and returns the error that stopped it, if any.
func (i *Iter) Close() error { return failure(C.rdb_iter_close(i.it)) }

func (i *Iter) valid() bool { return C.rdb_iter_valid(i.it) != 0 }

// SeekGE moves to the first key at or after key.
func (i *Iter) SeekGE(key []byte) bool {
	C.rdb_iter_seek(i.it, pointer(key), C.size_t(len(key)))
	return i.valid()
}

// First moves to the first key.
func (i *Iter) First() bool {
	C.rdb_iter_first(i.it)
	return i.valid()
}

// Last moves to the last key.
func (i *Iter) Last() bool {
	C.rdb_iter_last(i.it)
	return i.valid()
}

// Next moves to the next key.
func (i *Iter) Next() bool {
	C.rdb_iter_next(i.it)
	return i.valid()
}

// Prev moves to the previous key.
func (i *Iter) Prev() bool {
	C.rdb_iter_prev(i.it)
	return i.valid()
}

// Key returns the key, valid until the next move.
func (i *Iter) Key() []byte {
	var n C.size_t
	p := C.rdb_iter_key(i.it, &n)
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), n)
}

// Value returns the value, valid until the next move.
func (i *Iter) Value() []byte {
	var n C.size_t
	p := C.rdb_iter_value(i.it, &n)
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), n)
}

// SeekEach seeks each key, reads the entry there and nexts more, and returns the number of
// entries read.
func (i *Iter) SeekEach(keys *data.Keys, from, to, nexts, every int, lat []int64) (int, []int64, error) {
	lat, at := grow(lat, to-from, every)
	n := C.rdb_seek_each(i.it, stringsOf(keys), C.int(from), C.int(to), C.int(nexts), C.int(every), at)
	return int(n), lat, nil
}

// ScanAll reads all entries, up to limit, and returns their number.
func (i *Iter) ScanAll(backward bool, limit int) (int, error) {
	return int(C.rdb_scan(i.it, flag(backward), C.int64_t(limit))), nil
}
