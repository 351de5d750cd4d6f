package filter

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"
)

// TestHugePageFlag: the heap's addresses are not marked for huge pages, since the mark would
// remain when the heap reuses a filter's memory.
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
