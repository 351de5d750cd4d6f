package filter

import (
	"bytes"
	"runtime"
	"testing"
	"unsafe"
)

// TestAlignedBytes checks that the bytes are zero and aligned to a cache line at any size, even if
// the heap reuses memory that was written to.
func TestAlignedBytes(t *testing.T) {
	const most = 16 << 20
	zeros := make([]byte, most)
	for round := range 3 {
		for _, n := range []int{0, 1, 64, 4 << 10, 2 << 20, 4<<20 + 1, most} {
			b := AlignedBytes(n)
			if len(b) != n || cap(b) != n || n > 0 && uintptr(unsafe.Pointer(&b[0]))%lineAlign != 0 {
				t.Fatalf("%d bytes at %p of capacity %d, want %d", len(b), b, cap(b), n)
			}
			if !bytes.Equal(b, zeros[:n]) {
				t.Fatalf("round %d: %d bytes are not zero", round, n)
			}
			for i := range b {
				b[i] = 0xff
			}
		}
		runtime.GC()
	}
}

// TestReaderSize checks that the most used readers fit in the size classes of 64 and 128 bytes,
// which are aligned to cache lines, so that all that a probe needs is in the first line.
func TestReaderSize(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("pointers do not have 8 bytes")
	}
	if n := unsafe.Sizeof(bloomReader{}); n > 64 {
		t.Errorf("a reader of Bloom takes %d bytes", n)
	}
	if n := unsafe.Sizeof(ribbonReader{}); n > 128 {
		t.Errorf("a reader of Ribbon takes %d bytes", n)
	}
}
