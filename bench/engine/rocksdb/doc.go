// Package rocksdb reaches RocksDB's C++ interface for the benchmarks. It is
// built with the tag rocksdb, cgo and Debian's librocksdb-dev; without the tag
// it is empty. Loops over many keys run in C++, so that what is measured is the
// store and not the crossing between the languages.
package rocksdb
