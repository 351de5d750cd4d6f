//go:build linux && cgo && (rocksdb || leveldb)

package measure

// #include <stdlib.h>
// #ifdef __GLIBC__
// #include <malloc.h>
// #endif
//
// static void trim(void) {
// #ifdef __GLIBC__
// 	malloc_trim(0);
// #endif
// }
import "C"

import "runtime/debug"

// FreeMemory returns unused memory to the system: that of Go's heap, and that of malloc, which the
// stores in C++ use.
func FreeMemory() {
	debug.FreeOSMemory()
	C.trim()
}
