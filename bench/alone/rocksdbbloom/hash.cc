//go:build cgo && rocksdbbloom

// RocksDB's hashes.
#include "util/hash.cc"
