package sstable

import (
	"os"
	"syscall"
	"testing"
)

// TestSnappyStaysInside checks that the decoder does not access memory outside its input and
// output, which are next to inaccessible pages.
func TestSnappyStaysInside(t *testing.T) {
	page := os.Getpagesize()
	const areaPages = 32
	guarded := func() []byte {
		m, err := syscall.Mmap(-1, 0, (areaPages+2)*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			t.Skipf("cannot map memory: %v", err)
		}
		t.Cleanup(func() { _ = syscall.Munmap(m) })
		for _, edge := range [][]byte{m[:page], m[(areaPages+1)*page:]} {
			if err := syscall.Mprotect(edge, syscall.PROT_NONE); err != nil {
				t.Fatal(err)
			}
		}
		return m[page : (areaPages+1)*page]
	}
	areas := [2][]byte{guarded(), guarded()}
	for _, atEnd := range []bool{false, true} {
		which, cases := 0, 0
		snappyCases(func(block []byte) {
			if len(block) > areaPages*page || len(block) == 0 {
				return
			}
			cases++
			err := againstSnappy(block, func(n int) []byte {
				area := areas[which%2]
				which++
				if n > len(area) {
					return make([]byte, n)
				}
				if atEnd {
					area = area[len(area)-n:]
				}
				return area[:n:n]
			})
			if err != nil {
				t.Fatalf("%x: %v", block, err)
			}
		})
		if cases < 5000 {
			t.Errorf("only %d cases", cases)
		}
	}
}
