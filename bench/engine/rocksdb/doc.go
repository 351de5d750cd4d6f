// Package rocksdb binds RocksDB's C++ interface for the benchmarks. It needs the build tag rocksdb,
// cgo, a compiler for C++20, and Debian's librocksdb-dev or another RocksDB from 7.8 on; without
// the tag it is empty. Loops over many keys run in C++, so that the store is measured and not the
// cgo calls.
package rocksdb
