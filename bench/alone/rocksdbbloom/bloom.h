// The interface for Go. The names are this project's; RocksDB's code implements it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rbl_keys rbl_keys;
typedef struct rbl_filters rbl_filters;

// rbl_vector is 1 if the probe was compiled with AVX2.
int rbl_vector(void);

// rbl_keys_new copies n contiguous keys; ends[i] is the end of key i.
rbl_keys *rbl_keys_new(const char *bytes, const uint32_t *ends, size_t n);
void rbl_keys_free(rbl_keys *keys);

// rbl_filters_new builds a filter of `lines` lines of 64 bytes over keys, with RocksDB's
// number of probes for bits_per_key, and copies it until there are `copies`. Each begins
// on a cache line; huge requests huge pages. It returns NULL if there is no memory.
rbl_filters *rbl_filters_new(const rbl_keys *keys, size_t lines, double bits_per_key, size_t copies, int huge);
void rbl_filters_free(rbl_filters *filters);

// rbl_target is what a probe is for: the number of a filter, and that of a key.
typedef struct {
  uint16_t filter, key;
} rbl_target;

// rbl_probe probes n targets. It returns the number of positives.
size_t rbl_probe(const rbl_filters *filters, const rbl_keys *keys, const rbl_target *targets, size_t n);

// rbl_probe_all probes the first filter for all keys in order, and returns the number of
// positives.
size_t rbl_probe_all(const rbl_filters *filters, const rbl_keys *keys);

#ifdef __cplusplus
}
#endif
