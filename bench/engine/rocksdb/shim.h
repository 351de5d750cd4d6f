#ifndef SIFT_BENCH_ROCKSDB_SHIM_H_
#define SIFT_BENCH_ROCKSDB_SHIM_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rdb rdb;
typedef struct rdb_iter rdb_iter;

// A list of strings: string i is bytes[ends[i-1], ends[i]).
typedef struct {
  const char* bytes;
  const uint32_t* ends;
} rdb_strings;

typedef struct {
  int64_t block_reads, read_bytes, filter_no, filter_positive;
} rdb_counters;

// Functions that return char* return NULL, or an error message that the caller frees.
char* rdb_open(const char* dir, int bloom_bits, int ribbon, uint64_t cache_bytes,
               uint64_t write_buffer_bytes, uint64_t block_bytes, int no_compression,
               int prefix_bytes, int all_in_cache, int partitioned, int mmap_reads, rdb** out);
void rdb_close(rdb* db);
char* rdb_put(rdb* db, const char* k, size_t klen, const char* v, size_t vlen, int sync);
char* rdb_delete(rdb* db, const char* k, size_t klen, int sync);
char* rdb_delete_range(rdb* db, const char* from, size_t flen, const char* to, size_t tlen, int sync);
// Counts the ranges that hold a key; creates an iterator for each.
char* rdb_count_ranges(rdb* db, rdb_strings from, rdb_strings to, int n, int* found);
char* rdb_get(rdb* db, const char* k, size_t klen, char** v, size_t* vlen, int* found);

// If every > 0, these loops time one operation in every, into lat.
char* rdb_get_each(rdb* db, rdb_strings keys, int from, int to, int every, int64_t* lat,
                   int* found);
char* rdb_multi_get(rdb* db, rdb_strings keys, int n, int* found);
char* rdb_put_each(rdb* db, rdb_strings keys, rdb_strings values, int from, int to, int every,
                   int64_t* lat, int sync);

char* rdb_flush(rdb* db);
char* rdb_compact(rdb* db);
// Reports whether background work is running or due.
int rdb_busy(rdb* db);
int64_t rdb_filter_bytes(rdb* db);
rdb_counters rdb_count(rdb* db);

rdb_iter* rdb_iter_new(rdb* db);
// Returns the error, or NULL, and frees the iterator.
char* rdb_iter_close(rdb_iter* it);
void rdb_iter_first(rdb_iter* it);
void rdb_iter_last(rdb_iter* it);
void rdb_iter_seek(rdb_iter* it, const char* k, size_t klen);
void rdb_iter_next(rdb_iter* it);
void rdb_iter_prev(rdb_iter* it);
int rdb_iter_valid(rdb_iter* it);
const char* rdb_iter_key(rdb_iter* it, size_t* len);
const char* rdb_iter_value(rdb_iter* it, size_t* len);
int64_t rdb_seek_each(rdb_iter* it, rdb_strings keys, int from, int to, int nexts, int every,
                      int64_t* lat);
int64_t rdb_scan(rdb_iter* it, int backward, int64_t limit);

const char* rdb_version(void);

#ifdef __cplusplus
}
#endif
#endif
