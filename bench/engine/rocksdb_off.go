//go:build !cgo || !rocksdb

package engine

func init() {
	absent["rocksdb"] = "not built in: apt-get install librocksdb-dev, then use go run -tags rocksdb"
}
