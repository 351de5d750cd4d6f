// Package leveldb reaches LevelDB's C++ interface for the benchmarks. It is
// built with the tag leveldb, cgo and Debian's libleveldb-dev; without the tag
// it is empty. Loops over many keys run in C++, so that what is measured is the
// store and not the crossing between the languages.
package leveldb
