// Package data provides the keys and values of the benchmarks: made-up ones as in LevelDB's
// db_bench, and real ones from Go's source tree or a file.
package data

import (
	"unsafe"

	"github.com/siftdb/sift/internal/offheap"
)

// Keys is a list of byte strings in contiguous memory, so that benchmarks read it without chasing
// pointers, and C++ can use it as it is.
type Keys struct {
	Bytes []byte
	Ends  []uint32 // Ends[i] is where string i ends and string i+1 begins
}

// NewKeys returns an empty list with capacity for n strings of about size bytes.
func NewKeys(n, size int) *Keys {
	return &Keys{Bytes: make([]byte, 0, n*size), Ends: make([]uint32, 0, n)}
}

// Len returns the number of strings.
func (k *Keys) Len() int { return len(k.Ends) }

// At returns string i. It must not be changed.
func (k *Keys) At(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = k.Ends[i-1]
	}
	to := k.Ends[i]
	return k.Bytes[from:to:to]
}

// OffHeap moves the strings out of Go's heap, where the system permits that: on the heap, they
// would let as much garbage pile up before it is collected. The list must not be used after free.
func (k *Keys) OffHeap() (free func()) {
	n := (len(k.Bytes) + 3) &^ 3
	b := offheap.Alloc(n + 4*len(k.Ends))
	if b == nil {
		return func() {}
	}
	copy(b, k.Bytes)
	k.Bytes = b[:len(k.Bytes):n]
	if len(k.Ends) > 0 {
		ends := unsafe.Slice((*uint32)(unsafe.Pointer(&b[n])), len(k.Ends))
		copy(ends, k.Ends)
		k.Ends = ends
	}
	return func() {
		k.Bytes, k.Ends = nil, nil
		offheap.Free(b)
	}
}

// Reset removes all strings.
func (k *Keys) Reset() { k.Bytes, k.Ends = k.Bytes[:0], k.Ends[:0] }

// Add appends a string.
func (k *Keys) Add(b []byte) {
	k.Bytes = append(k.Bytes, b...)
	k.Ends = append(k.Ends, uint32(len(k.Bytes)))
}

// Grow appends the string that f appends to dst.
func (k *Keys) Grow(f func(dst []byte) []byte) {
	k.Bytes = f(k.Bytes)
	k.Ends = append(k.Ends, uint32(len(k.Bytes)))
}

// Collect returns the n strings that f appends for 0 to n-1.
func Collect(n int, f func(dst []byte, i int) []byte) *Keys {
	k := &Keys{Ends: make([]uint32, 0, n)}
	for i := range n {
		k.Bytes = f(k.Bytes, i)
		k.Ends = append(k.Ends, uint32(len(k.Bytes)))
		if i == 0 {
			k.Bytes = append(make([]byte, 0, (len(k.Bytes)+1)*n), k.Bytes...)
		}
	}
	return k
}
