//go:build !linux

package filter

// adviseHuge does nothing where memory has no such advice.
func adviseHuge([]byte) {}
