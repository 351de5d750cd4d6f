// Package rocksdbbloom measures RocksDB's Bloom filter as its AVX2 code asks it,
// beside this project's. Distributions build RocksDB for processors without AVX2,
// so the probe is compiled from RocksDB's source, which is not part of this tree:
//
//	apt-get source rocksdb
//	export CGO_CXXFLAGS="-I$PWD/rocksdb-7.8.3 -I$PWD/rocksdb-7.8.3/include"
//	go test -C bench -tags rocksdbbloom -bench . -benchtime 40x ./alone/rocksdbbloom
//
// Its loop over the keys is in C++, and so are its filters and its copy of the keys: no
// call between the languages is timed for a key. Both sides are asked through an
// interface, and hash each key with XXH3.
package rocksdbbloom
