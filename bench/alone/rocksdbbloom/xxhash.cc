//go:build cgo && rocksdbbloom

// What RocksDB's hashes of 128 bits, in the same file as that of 64, ask for.
#include "util/xxhash.cc"
