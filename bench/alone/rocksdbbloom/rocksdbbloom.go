//go:build cgo && rocksdbbloom

package rocksdbbloom

// #cgo CXXFLAGS: -std=c++17 -O2 -march=haswell -DHAVE_AVX2 -DHAVE_BMI -DROCKSDB_PLATFORM_POSIX -DROCKSDB_LIB_IO_POSIX -DOS_LINUX -DNDEBUG
// #include "bloom.h"
import "C"

import (
	"errors"
	"runtime"
	"unsafe"

	"github.com/siftdb/sift/bench/data"
)

// Vector reports whether the probe was compiled with AVX2.
func Vector() bool { return C.rbl_vector() == 1 }

// Keys is a copy of keys in C++ memory.
type Keys struct{ c *C.rbl_keys }

// NewKeys copies keys. There must be at least one.
func NewKeys(keys *data.Keys) *Keys {
	k := &Keys{C.rbl_keys_new((*C.char)(unsafe.Pointer(unsafe.SliceData(keys.Bytes))),
		(*C.uint32_t)(unsafe.Pointer(unsafe.SliceData(keys.Ends))), C.size_t(keys.Len()))}
	runtime.AddCleanup(k, func(c *C.rbl_keys) { C.rbl_keys_free(c) }, k.c)
	return k
}

// Filters is a number of copies of one filter.
type Filters struct{ c *C.rbl_filters }

// NewFilters builds a filter of the given number of 64-byte lines, and returns it in the given
// number of copies. huge puts them in huge pages.
func NewFilters(keys *Keys, lines int, bitsPerKey float64, copies int, huge bool) (*Filters, error) {
	h := C.int(0)
	if huge {
		h = 1
	}
	f := &Filters{C.rbl_filters_new(keys.c, C.size_t(lines), C.double(bitsPerKey), C.size_t(copies), h)}
	runtime.KeepAlive(keys)
	if f.c == nil {
		return nil, errors.New("rocksdbbloom: no memory for the filters")
	}
	runtime.AddCleanup(f, func(c *C.rbl_filters) { C.rbl_filters_free(c) }, f.c)
	return f, nil
}

// Target is what a probe is for: the number of a filter, and that of a key.
type Target struct{ Filter, Key uint16 }

// Probe probes all targets, which must be of these filters and keys. It returns the number of
// positives.
func (f *Filters) Probe(keys *Keys, targets []Target) (positive int) {
	defer runtime.KeepAlive(f)
	defer runtime.KeepAlive(keys)
	return int(C.rbl_probe(f.c, keys.c, (*C.rbl_target)(unsafe.Pointer(unsafe.SliceData(targets))), C.size_t(len(targets))))
}

// ProbeAll probes the first filter for all keys in order, and returns the number of positives.
func (f *Filters) ProbeAll(keys *Keys) (positive int) {
	defer runtime.KeepAlive(f)
	defer runtime.KeepAlive(keys)
	return int(C.rbl_probe_all(f.c, keys.c))
}
