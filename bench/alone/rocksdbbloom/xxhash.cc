//go:build cgo && rocksdbbloom

// Needed by RocksDB's 128-bit hashes, which are in the same file as the 64-bit one.
#include "util/xxhash.cc"
