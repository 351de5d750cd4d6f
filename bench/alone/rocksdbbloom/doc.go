// Package rocksdbbloom measures RocksDB's Bloom filter, probed by its AVX2 code, next to this
// project's. Distributions build RocksDB for CPUs without AVX2, so the probe is compiled from
// RocksDB's source, which is not part of this tree:
//
//	apt-get source rocksdb
//	export CGO_CXXFLAGS="-I$PWD/rocksdb-7.8.3 -I$PWD/rocksdb-7.8.3/include"
//	go test -C bench -tags rocksdbbloom -bench . -benchtime 40x ./alone/rocksdbbloom
//
// The loop over RocksDB's filters is in C++, with the filters and a copy of the keys, so no
// call between the languages is timed per key. Both sides are probed through an interface,
// and hash each key with XXH3.
package rocksdbbloom
