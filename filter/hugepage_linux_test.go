package filter

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// resident returns how many pages of b are in memory. b begins at a page.
func resident(t *testing.T, b []byte) int {
	t.Helper()
	pages := make([]byte, (len(b)+os.Getpagesize()-1)/os.Getpagesize())
	_, _, errno := syscall.Syscall(syscall.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		t.Skip("mincore:", errno)
	}
	n := 0
	for _, p := range pages {
		n += int(p & 1)
	}
	return n
}

// TestHugePages checks that collapse fills whole huge pages and touches nothing else, if the kernel
// supports MADV_COLLAPSE.
func TestHugePages(t *testing.T) {
	const size, huge = 8 << 20, 2 << 20
	page := os.Getpagesize()
	region := func() (whole []byte) {
		t.Helper()
		b, err := syscall.Mmap(-1, 0, 2*size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			t.Skip("mmap:", err)
		}
		t.Cleanup(func() {
			if err := syscall.Munmap(b); err != nil {
				t.Error(err)
			}
		})
		skip := int(-uintptr(unsafe.Pointer(&b[0])) % huge)
		return b[skip : skip+size]
	}
	// Huge pages may run out: the test fails only after three failures in a row, each just after
	// the kernel has provided a huge page.
	for range 3 {
		probe := region()
		probe[0] = 0
		if resident(t, probe) != 1 {
			t.Skip("the kernel uses huge pages without being asked, or mincore is not exact")
		}
		if err := syscall.Madvise(probe[:huge], 25 /* MADV_COLLAPSE */); err != nil || resident(t, probe) != huge/page {
			t.Skip("no huge pages:", err)
		}
		b := region()
		collapse(b[page : len(b)-page])
		if resident(t, b) == (size-2*huge)/page {
			return
		}
	}
	t.Error("collapse gets no huge pages, although the kernel has some")
}

// TestHugePageFlag checks that the heap's addresses are not marked for huge pages, since the mark
// would remain when the heap reuses a filter's memory.
func TestHugePageFlag(t *testing.T) {
	b := AlignedBytes(16 << 20)
	at := uintptr(unsafe.Pointer(&b[len(b)/2]))
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	within, found := false, false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		var from, to uintptr
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			within = from <= at && at < to
		}
		if within && strings.HasPrefix(line, "AnonHugePages:") {
			t.Log(line)
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); within && ok {
			found = true
			if strings.Contains(flags+" ", " hg ") {
				t.Errorf("the memory is marked:%s", flags)
			}
		}
	}
	if !found {
		t.Skip("the kernel does not list the flags of mappings")
	}
	b[0] = 1 // keeps b alive until here
}
