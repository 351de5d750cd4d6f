//go:build !cgo || !leveldb

package engine

func init() {
	absent["leveldb"] = "not built in: apt-get install libleveldb-dev libsnappy-dev, then use go run -tags leveldb"
}
