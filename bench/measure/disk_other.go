//go:build !unix

package measure

import "io/fs"

// DiskBytes returns the size of a file.
func DiskBytes(info fs.FileInfo) int64 { return info.Size() }
