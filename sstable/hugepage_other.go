//go:build !linux

package sstable

// adviseHuge does nothing where memory has no such advice.
func adviseHuge([]byte) {}
