//go:build cgo && rocksdbbloom

#include "bloom.h"

#include <cstring>
#include <memory>
#include <vector>

#include <sys/mman.h>

#include "reader.h"

using ROCKSDB_NAMESPACE::Slice;

struct rbl_keys {
  std::vector<char> bytes;
  std::vector<Slice> list;
};

struct rbl_filters {
  char *memory = nullptr;
  size_t size = 0;
  std::vector<std::unique_ptr<Reader>> list;
};

rbl_keys *rbl_keys_new(const char *bytes, const uint32_t *ends, size_t n) {
  auto *k = new rbl_keys;
  k->bytes.assign(bytes, bytes + (n == 0 ? 0 : ends[n - 1]));
  size_t from = 0;
  for (size_t i = 0; i < n; i++) {
    k->list.emplace_back(k->bytes.data() + from, ends[i] - from);
    from = ends[i];
  }
  return k;
}

void rbl_keys_free(rbl_keys *keys) { delete keys; }

rbl_filters *rbl_filters_new(const rbl_keys *keys, size_t lines, double bits_per_key, size_t copies, int huge) {
  const size_t len = 64 * lines;
  auto f = std::make_unique<rbl_filters>();
  f->size = len * copies;
  void *memory = mmap(nullptr, f->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, f->size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  f->memory = static_cast<char *>(memory);
  const int probes = ProbesFor(bits_per_key);
  AddKeys(f->memory, static_cast<uint32_t>(len), probes, keys->list);
  for (size_t i = 0; i < copies; i++) {
    char *data = f->memory + i * len;
    if (i > 0) memcpy(data, f->memory, len);
    f->list.push_back(NewReader(data, static_cast<uint32_t>(len), probes));
  }
  return f.release();
}

void rbl_filters_free(rbl_filters *filters) {
  munmap(filters->memory, filters->size);
  delete filters;
}

size_t rbl_probe(const rbl_filters *filters, const rbl_keys *keys, const rbl_target *targets, size_t n) {
  const std::unique_ptr<Reader> *readers = filters->list.data();
  const Slice *list = keys->list.data();
  size_t positive = 0;
  for (size_t i = 0; i < n; i++) positive += readers[targets[i].filter]->MayMatch(list[targets[i].key]);
  return positive;
}

size_t rbl_probe_all(const rbl_filters *filters, const rbl_keys *keys) {
  size_t positive = 0;
  for (const Slice &key : keys->list) positive += filters->list[0]->MayMatch(key);
  return positive;
}
