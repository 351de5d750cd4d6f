//go:build !cgo || !rocksdb

package engine

func init() {
	const how = "not built in: apt-get install librocksdb-dev, then use go run -tags rocksdb"
	absent["rocksdb"], absent["rocksdb-mmap"] = how, how
}
