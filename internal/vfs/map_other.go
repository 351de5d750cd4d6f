//go:build !(linux || darwin)

package vfs

// Mappings are mapped files; here there are none.
type Mappings struct{}

// Wait does nothing.
func (*Mappings) Wait() {}
