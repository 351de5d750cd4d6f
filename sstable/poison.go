//go:build !race

package sstable

// poison does nothing without the race detector.
func poison([]byte) {}
