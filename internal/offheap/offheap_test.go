package offheap

import (
	"bytes"
	"math"
	"os"
	"runtime"
	"testing"
)

func TestAlloc(t *testing.T) {
	if runtime.GOOS != "linux" {
		if b := Alloc(1); b != nil {
			t.Error("memory outside the heap on ", runtime.GOOS)
		}
		return
	}
	const n = 5<<20 + 1
	b := Alloc(n)
	if len(b) != n || bytes.Count(b, []byte{0}) != n {
		t.Fatalf("%d bytes, %d are zero", len(b), bytes.Count(b, []byte{0}))
	}
	for i := range b {
		b[i] = byte(i)
	}
	runtime.GC()
	for i := range b {
		if b[i] != byte(i) {
			t.Fatalf("byte %d has become %d", i, b[i])
		}
	}
	before := mappings(t)
	if Free(b); mappings(t) >= before {
		t.Error("nothing was unmapped")
	}
	const most = 3 // on 32-bit systems one of this size may fit, but not three
	blocks := 0
	for range most {
		if b := Alloc(math.MaxInt); b != nil {
			blocks++
			defer Free(b)
		}
	}
	if blocks == most {
		t.Error("more memory than there are addresses")
	}
}

// mappings returns the size of the process's address space in pages.
func mappings(t *testing.T) (pages int) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	for _, c := range bytes.Fields(data)[0] {
		pages = 10*pages + int(c-'0')
	}
	return pages
}
