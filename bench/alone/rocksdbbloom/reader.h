// A Bloom filter of RocksDB's, asked as RocksDB asks it: by a virtual function, in a
// file of its own so that the loop does not see through it, of a hash that is in
// another file, as it is there.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rocksdb/slice.h"

class Reader {
 public:
  virtual ~Reader() = default;
  virtual bool MayMatch(const ROCKSDB_NAMESPACE::Slice &key) const = 0;
};

int ProbesFor(double bits_per_key);
void AddKeys(char *data, uint32_t len, int probes, const std::vector<ROCKSDB_NAMESPACE::Slice> &keys);
std::unique_ptr<Reader> NewReader(const char *data, uint32_t len, int probes);
