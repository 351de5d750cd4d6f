//go:build !linux

package offheap

// Available reports whether Alloc can return memory.
const Available = false

// Alloc returns nil: there is no memory outside the heap.
func Alloc(int) []byte { return nil }

// Free is never called.
func Free([]byte) {}
