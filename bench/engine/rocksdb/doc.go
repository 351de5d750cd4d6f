// Package rocksdb binds RocksDB's C++ interface for the benchmarks. It needs
// the build tag rocksdb, cgo and Debian's librocksdb-dev; without the tag it is
// empty. Loops over many keys run in C++, so that the store is measured and not
// the cgo calls.
package rocksdb
