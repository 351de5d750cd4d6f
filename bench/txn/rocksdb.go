//go:build cgo && rocksdb

package txn

// #cgo LDFLAGS: -lrocksdb
// #include <stdlib.h>
// #include <rocksdb/c.h>
import "C"

import (
	"errors"
	"strings"
	"unsafe"
)

func init() { Kinds = append(Kinds, Kind{"rocksdb optimistic", openRocks}) }

// rocksStore is RocksDB's OptimisticTransactionDB through its C interface. Each call
// costs a few tenths of a microsecond for cgo.
type rocksStore struct {
	db    *C.rocksdb_optimistictransactiondb_t
	write *C.rocksdb_writeoptions_t
	read  *C.rocksdb_readoptions_t
	txn   *C.rocksdb_optimistictransaction_options_t
}

func failure(message *C.char) error {
	if message == nil {
		return nil
	}
	defer C.rocksdb_free(unsafe.Pointer(message))
	return errors.New("rocksdb: " + C.GoString(message))
}

func openRocks(dir string, sync bool) (Store, error) {
	o := C.rocksdb_options_create()
	defer C.rocksdb_options_destroy(o)
	C.rocksdb_options_set_create_if_missing(o, 1)
	C.rocksdb_options_set_write_buffer_size(o, memtableBytes)
	C.rocksdb_options_set_max_background_jobs(o, 2)
	path := C.CString(dir)
	defer C.free(unsafe.Pointer(path))
	var message *C.char
	s := &rocksStore{write: C.rocksdb_writeoptions_create(), read: C.rocksdb_readoptions_create(), txn: C.rocksdb_optimistictransaction_options_create()}
	s.db = C.rocksdb_optimistictransactiondb_open(o, path, &message)
	if sync {
		C.rocksdb_writeoptions_set_sync(s.write, 1)
	}
	C.rocksdb_optimistictransaction_options_set_set_snapshot(s.txn, 1)
	return s, failure(message)
}

func (s *rocksStore) Transact(fn func(Txn) error) (conflicts int, err error) {
	for {
		t := rocksTxn{s: s, txn: C.rocksdb_optimistictransaction_begin(s.db, s.write, s.txn, nil)}
		if err = fn(&t); err == nil {
			var message *C.char
			C.rocksdb_transaction_commit(t.txn, &message)
			err = failure(message)
		}
		t.end()
		if err == nil || !strings.Contains(err.Error(), "Resource busy") && !strings.Contains(err.Error(), "Try again") {
			return conflicts, err
		}
		conflicts++
	}
}

func (s *rocksStore) Close() error {
	C.rocksdb_optimistictransactiondb_close(s.db)
	C.rocksdb_writeoptions_destroy(s.write)
	C.rocksdb_readoptions_destroy(s.read)
	C.rocksdb_optimistictransaction_options_destroy(s.txn)
	return nil
}

type rocksTxn struct {
	s      *rocksStore
	txn    *C.rocksdb_transaction_t
	values []unsafe.Pointer
}

func pointer(b []byte) *C.char { return (*C.char)(unsafe.Pointer(unsafe.SliceData(b))) }

func (t *rocksTxn) Get(key []byte) ([]byte, error) {
	var n C.size_t
	var message *C.char
	v := C.rocksdb_transaction_get_for_update(t.txn, t.s.read, pointer(key), C.size_t(len(key)), &n, 1, &message)
	if err := failure(message); err != nil {
		return nil, err
	}
	if v == nil {
		return nil, errors.New("rocksdb: not found")
	}
	t.values = append(t.values, unsafe.Pointer(v))
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), int(n)), nil
}

func (t *rocksTxn) Put(key, value []byte) error {
	var message *C.char
	C.rocksdb_transaction_put(t.txn, pointer(key), C.size_t(len(key)), pointer(value), C.size_t(len(value)), &message)
	return failure(message)
}

func (t *rocksTxn) end() {
	for _, v := range t.values {
		C.rocksdb_free(v)
	}
	C.rocksdb_transaction_destroy(t.txn)
}
