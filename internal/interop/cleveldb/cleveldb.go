//go:build leveldb

// Package cleveldb reads and writes databases with Google's LevelDB, through its C
// interface. It needs libleveldb-dev.
package cleveldb

/*
#cgo LDFLAGS: -lleveldb
#include <stdlib.h>
#include <leveldb/c.h>
*/
import "C"

import (
	"errors"
	"unsafe"
)

// Scan opens the database with paranoid checks and a Bloom filter policy, calls
// fn for each entry, looks each key up, and compacts everything if compact is
// set.
func Scan(dir string, compact bool, fn func(key, value []byte)) error {
	opts := C.leveldb_options_create()
	defer C.leveldb_options_destroy(opts)
	C.leveldb_options_set_paranoid_checks(opts, 1)
	policy := C.leveldb_filterpolicy_create_bloom(10)
	defer C.leveldb_filterpolicy_destroy(policy)
	C.leveldb_options_set_filter_policy(opts, policy)
	name := C.CString(dir)
	defer C.free(unsafe.Pointer(name))
	var errText *C.char
	db := C.leveldb_open(opts, name, &errText)
	if errText != nil {
		return take(errText)
	}
	defer C.leveldb_close(db)
	if compact {
		C.leveldb_compact_range(db, nil, 0, nil, 0)
	}
	read := C.leveldb_readoptions_create()
	defer C.leveldb_readoptions_destroy(read)
	C.leveldb_readoptions_set_verify_checksums(read, 1)
	it := C.leveldb_create_iterator(db, read)
	defer C.leveldb_iter_destroy(it)
	for C.leveldb_iter_seek_to_first(it); C.leveldb_iter_valid(it) != 0; C.leveldb_iter_next(it) {
		var keyLen, valueLen, gotLen C.size_t
		k := C.leveldb_iter_key(it, &keyLen)
		v := C.leveldb_iter_value(it, &valueLen)
		key, value := C.GoBytes(unsafe.Pointer(k), C.int(keyLen)), C.GoBytes(unsafe.Pointer(v), C.int(valueLen))
		got := C.leveldb_get(db, read, k, keyLen, &gotLen, &errText)
		if errText != nil {
			return take(errText)
		}
		if got == nil || string(C.GoBytes(unsafe.Pointer(got), C.int(gotLen))) != string(value) {
			return errors.New("Get differs from the iterator")
		}
		C.leveldb_free(unsafe.Pointer(got))
		fn(key, value)
	}
	C.leveldb_iter_get_error(it, &errText)
	return take(errText)
}

func take(text *C.char) error {
	if text == nil {
		return nil
	}
	defer C.leveldb_free(unsafe.Pointer(text))
	return errors.New(C.GoString(text))
}
