//go:build cgo && rocksdbbloom

#include "reader.h"

#include "bloom.h"
#include "util/bloom_impl.h"

using ROCKSDB_NAMESPACE::FastLocalBloomImpl;
using ROCKSDB_NAMESPACE::GetSliceHash64;
using ROCKSDB_NAMESPACE::Lower32of64;
using ROCKSDB_NAMESPACE::Slice;
using ROCKSDB_NAMESPACE::Upper32of64;

namespace {

class BloomReader final : public Reader {
 public:
  BloomReader(const char *data, uint32_t len, int probes) : data_(data), len_(len), probes_(probes) {}

  bool MayMatch(const Slice &key) const override {
    const uint64_t h = GetSliceHash64(key);
    uint32_t at;
    FastLocalBloomImpl::PrepareHash(Lower32of64(h), len_, data_, &at);
    return FastLocalBloomImpl::HashMayMatchPrepared(Upper32of64(h), probes_, data_ + at);
  }

 private:
  const char *data_;
  uint32_t len_;
  int probes_;
};

}  // namespace

int ProbesFor(double bits_per_key) {
  return FastLocalBloomImpl::ChooseNumProbes(static_cast<int>(bits_per_key * 1000));
}

void AddKeys(char *data, uint32_t len, int probes, const std::vector<Slice> &keys) {
  for (const Slice &key : keys) {
    const uint64_t h = GetSliceHash64(key);
    FastLocalBloomImpl::AddHash(Lower32of64(h), Upper32of64(h), len, probes, data);
  }
}

std::unique_ptr<Reader> NewReader(const char *data, uint32_t len, int probes) {
  return std::make_unique<BloomReader>(data, len, probes);
}

int rbl_vector(void) {
#ifdef HAVE_AVX2
  return 1;
#else
  return 0;
#endif
}
