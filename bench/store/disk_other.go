//go:build !unix

package store

import "io/fs"

func syncDisks() {}

func diskBytes(info fs.FileInfo) int64 { return info.Size() }
