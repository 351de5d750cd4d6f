//go:build !(linux && cgo && (rocksdb || leveldb))

package measure

import "runtime/debug"

// FreeMemory returns unused memory of Go's heap to the system.
func FreeMemory() { debug.FreeOSMemory() }
