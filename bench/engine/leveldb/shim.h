#ifndef SIFT_BENCH_LEVELDB_SHIM_H_
#define SIFT_BENCH_LEVELDB_SHIM_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ldb ldb;
typedef struct ldb_iter ldb_iter;

// A list of strings: string i is bytes[ends[i-1], ends[i]).
typedef struct {
  const char* bytes;
  const uint32_t* ends;
} ldb_strings;

typedef struct {
  int64_t block_reads, read_bytes, written_bytes;
} ldb_counters;

// Functions that return char* return NULL, or an error message that the caller frees.
char* ldb_open(const char* dir, int bloom_bits, uint64_t cache_bytes,
               uint64_t write_buffer_bytes, uint64_t block_bytes, int no_compression,
               ldb** out);
void ldb_close(ldb* db);
char* ldb_put(ldb* db, const char* k, size_t klen, const char* v, size_t vlen, int sync);
char* ldb_delete(ldb* db, const char* k, size_t klen, int sync);
char* ldb_get(ldb* db, const char* k, size_t klen, char** v, size_t* vlen, int* found);

// If every > 0, these loops time one operation in every, into lat.
char* ldb_get_each(ldb* db, ldb_strings keys, int from, int to, int every, int64_t* lat,
                   int* found);
char* ldb_put_each(ldb* db, ldb_strings keys, ldb_strings values, int from, int to, int every,
                   int64_t* lat, int sync);

// Writes the memtable to a table.
void ldb_flush(ldb* db);
void ldb_compact(ldb* db);
ldb_counters ldb_count(ldb* db);

ldb_iter* ldb_iter_new(ldb* db);
// Returns the error, or NULL, and frees the iterator.
char* ldb_iter_close(ldb_iter* it);
void ldb_iter_first(ldb_iter* it);
void ldb_iter_last(ldb_iter* it);
void ldb_iter_seek(ldb_iter* it, const char* k, size_t klen);
void ldb_iter_next(ldb_iter* it);
void ldb_iter_prev(ldb_iter* it);
int ldb_iter_valid(ldb_iter* it);
const char* ldb_iter_key(ldb_iter* it, size_t* len);
const char* ldb_iter_value(ldb_iter* it, size_t* len);
int64_t ldb_seek_each(ldb_iter* it, ldb_strings keys, int from, int to, int nexts, int every,
                      int64_t* lat);
int64_t ldb_scan(ldb_iter* it, int backward, int64_t limit);

const char* ldb_version(void);

#ifdef __cplusplus
}
#endif
#endif
