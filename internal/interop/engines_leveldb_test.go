//go:build leveldb

package interop

import "github.com/siftdb/sift/internal/interop/cleveldb"

func init() { engines["leveldb"] = cleveldb.Scan }
