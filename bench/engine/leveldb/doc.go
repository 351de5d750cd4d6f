// Package leveldb binds LevelDB's C++ interface for the benchmarks. It needs
// the build tag leveldb, cgo and Debian's libleveldb-dev; without the tag it is
// empty. Loops over many keys run in C++, so that the store is measured and not
// the cgo calls.
package leveldb
