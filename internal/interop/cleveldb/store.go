//go:build leveldb

package cleveldb

/*
#include <stdlib.h>
#include <leveldb/c.h>
*/
import "C"

import (
	"unsafe"

	"github.com/siftdb/sift/internal/interop/relay"
)

// Store is a database that LevelDB has open.
type Store struct {
	db    *C.leveldb_t
	read  *C.leveldb_readoptions_t
	write [2]*C.leveldb_writeoptions_t // without sync and with it
}

// Open opens a database with small write buffers and tables, and verifies the checksums of all that
// it reads. It creates the database if it is missing. Options and filter policy are never freed.
func Open(dir string) (*Store, error) {
	opts := C.leveldb_options_create()
	C.leveldb_options_set_create_if_missing(opts, 1)
	C.leveldb_options_set_paranoid_checks(opts, 1)
	C.leveldb_options_set_write_buffer_size(opts, 32<<10)
	C.leveldb_options_set_max_file_size(opts, 1<<20) // the minimum
	C.leveldb_options_set_filter_policy(opts, C.leveldb_filterpolicy_create_bloom(10))
	name := C.CString(dir)
	defer C.free(unsafe.Pointer(name))
	var errText *C.char
	s := &Store{db: C.leveldb_open(opts, name, &errText), read: C.leveldb_readoptions_create()}
	C.leveldb_readoptions_set_verify_checksums(s.read, 1)
	for sync := range s.write {
		s.write[sync] = C.leveldb_writeoptions_create()
		C.leveldb_writeoptions_set_sync(s.write[sync], C.uchar(sync))
	}
	return s, take(errText)
}

// chars returns bytes as arguments of a call, which does not keep them.
func chars(b []byte) (*C.char, C.size_t) {
	return (*C.char)(unsafe.Pointer(unsafe.SliceData(b))), C.size_t(len(b))
}

// Write implements relay.Store.
func (s *Store) Write(batch []relay.Op, sync bool) error {
	b := C.leveldb_writebatch_create()
	defer C.leveldb_writebatch_destroy(b)
	for _, op := range batch {
		k, n := chars(op.Key)
		if op.Delete {
			C.leveldb_writebatch_delete(b, k, n)
			continue
		}
		v, m := chars(op.Value)
		C.leveldb_writebatch_put(b, k, n, v, m)
	}
	o := s.write[0]
	if sync {
		o = s.write[1]
	}
	var errText *C.char
	C.leveldb_write(s.db, o, b, &errText)
	return take(errText)
}

// Get implements relay.Store.
func (s *Store) Get(key []byte) (value []byte, found bool, err error) {
	var errText *C.char
	var n C.size_t
	k, m := chars(key)
	v := C.leveldb_get(s.db, s.read, k, m, &n, &errText)
	if v == nil {
		return nil, false, take(errText)
	}
	defer C.leveldb_free(unsafe.Pointer(v))
	return C.GoBytes(unsafe.Pointer(v), C.int(n)), true, take(errText)
}

// Scan implements relay.Store.
func (s *Store) Scan(fn func(key, value []byte)) error {
	it := C.leveldb_create_iterator(s.db, s.read)
	defer C.leveldb_iter_destroy(it)
	if err := relay.Walk(cursor{it}, fn); err != nil {
		return err
	}
	var errText *C.char
	C.leveldb_iter_get_error(it, &errText)
	return take(errText)
}

// Compact implements relay.Store.
func (s *Store) Compact() error {
	C.leveldb_compact_range(s.db, nil, 0, nil, 0)
	return nil
}

// Close implements relay.Store.
func (s *Store) Close() error {
	C.leveldb_close(s.db)
	return nil
}

// cursor is a relay.Cursor.
type cursor struct{ it *C.leveldb_iterator_t }

func (c cursor) valid() bool { return C.leveldb_iter_valid(c.it) != 0 }

func (c cursor) First() bool {
	C.leveldb_iter_seek_to_first(c.it)
	return c.valid()
}

func (c cursor) Last() bool {
	C.leveldb_iter_seek_to_last(c.it)
	return c.valid()
}

func (c cursor) Next() bool {
	C.leveldb_iter_next(c.it)
	return c.valid()
}

func (c cursor) Prev() bool {
	C.leveldb_iter_prev(c.it)
	return c.valid()
}

func (c cursor) Key() []byte {
	var n C.size_t
	b := C.leveldb_iter_key(c.it, &n)
	return C.GoBytes(unsafe.Pointer(b), C.int(n))
}

func (c cursor) Value() []byte {
	var n C.size_t
	b := C.leveldb_iter_value(c.it, &n)
	return C.GoBytes(unsafe.Pointer(b), C.int(n))
}
