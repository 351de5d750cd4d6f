// RocksDB's Bloom filter, probed as RocksDB does: through a virtual function. It is in a
// separate file so that the compiler cannot inline it into the loop, and so is the hash,
// as in RocksDB.
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
