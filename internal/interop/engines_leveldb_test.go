//go:build leveldb

package interop

import (
	"github.com/siftdb/sift/internal/interop/cleveldb"
	"github.com/siftdb/sift/internal/interop/relay"
)

func init() {
	engines["leveldb"] = cleveldb.Scan
	relayEngines["leveldb"] = func(dir string) (relay.Store, error) { return cleveldb.Open(dir) }
}
