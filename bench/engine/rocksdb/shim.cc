//go:build cgo && rocksdb

#include "shim.h"

#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/perf_context.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>
#include <rocksdb/version.h>

using rocksdb::Slice;
using rocksdb::Status;

struct rdb {
  rocksdb::DB* db = nullptr;
  std::atomic<int64_t> block_reads{0}, read_bytes{0}, filter_no{0}, filter_positive{0};
};

struct rdb_iter {
  rdb* owner;
  rocksdb::Iterator* it;
};

namespace {

char* Message(const Status& s) { return s.ok() ? nullptr : strdup(s.ToString().c_str()); }

Slice At(const rdb_strings& s, int i) {
  uint32_t from = i > 0 ? s.ends[i - 1] : 0;
  return Slice(s.bytes + from, s.ends[i] - from);
}

// Timer times one operation in every.
class Timer {
 public:
  Timer(int every, int64_t* lat) : every_(every), lat_(lat), left_(every) {}
  template <class F>
  void Run(F op) {
    if (every_ == 0 || --left_ > 0) {
      op();
      return;
    }
    left_ = every_;
    auto t = std::chrono::steady_clock::now();
    op();
    *lat_++ = std::chrono::duration_cast<std::chrono::nanoseconds>(
                  std::chrono::steady_clock::now() - t)
                  .count();
  }

 private:
  int every_;
  int64_t* lat_;
  int left_;
};

// Counting adds what the thread's perf context counts while it is in scope to the
// database's sums. RocksDB counts by default.
class Counting {
 public:
  explicit Counting(rdb* db) : db_(db) { rocksdb::get_perf_context()->Reset(); }
  ~Counting() {
    rocksdb::PerfContext* c = rocksdb::get_perf_context();
    db_->block_reads += c->block_read_count;
    db_->read_bytes += c->block_read_byte;
    db_->filter_no += c->bloom_sst_miss_count;
    db_->filter_positive += c->bloom_sst_hit_count;
  }

 private:
  rdb* db_;
};

rocksdb::WriteOptions Write(int sync) {
  rocksdb::WriteOptions o;
  o.sync = sync != 0;
  return o;
}

// OpenDB opens a database. DB::Open takes a pointer in old versions of RocksDB and a
// unique_ptr in new ones.
template <class DB>
auto OpenDB(const rocksdb::Options& o, const char* dir, DB** out, int)
    -> decltype(DB::Open(o, dir, static_cast<std::unique_ptr<DB>*>(nullptr))) {
  std::unique_ptr<DB> db;
  Status s = DB::Open(o, dir, &db);
  *out = db.release();
  return s;
}

template <class DB>
Status OpenDB(const rocksdb::Options& o, const char* dir, DB** out, long) {
  return DB::Open(o, dir, out);
}

}  // namespace

char* rdb_open(const char* dir, int bloom_bits, int ribbon, uint64_t cache_bytes,
               uint64_t write_buffer_bytes, uint64_t block_bytes, int no_compression,
               int prefix_bytes, int all_in_cache, int partitioned, int mmap_reads, rdb** out) {
  rocksdb::BlockBasedTableOptions t;
  t.block_cache = rocksdb::NewLRUCache(cache_bytes);
  t.block_size = block_bytes;
  t.format_version = 5;
  if (all_in_cache) {
    t.cache_index_and_filter_blocks = true;
    t.cache_index_and_filter_blocks_with_high_priority = true;
    t.pin_l0_filter_and_index_blocks_in_cache = true;
  }
  if (partitioned) {
    t.index_type = rocksdb::BlockBasedTableOptions::kTwoLevelIndexSearch;
    t.partition_filters = true;
  }
  if (bloom_bits > 0) {
    t.filter_policy.reset(ribbon ? rocksdb::NewRibbonFilterPolicy(bloom_bits)
                                 : rocksdb::NewBloomFilterPolicy(bloom_bits));
  }
  rocksdb::Options o;
  o.create_if_missing = true;
  o.write_buffer_size = write_buffer_bytes;
  o.compression = no_compression ? rocksdb::kNoCompression : rocksdb::kSnappyCompression;
  o.max_background_jobs = 2;
  o.max_write_buffer_number = 3;  // as many memtables as sift; the default is 2
  // As "Setup Options and Basic Tuning" advises; the first is the default from 8.4 on.
  o.level_compaction_dynamic_level_bytes = true;
  o.bytes_per_sync = 1 << 20;
  o.allow_mmap_reads = mmap_reads != 0;
  if (prefix_bytes > 0) o.prefix_extractor.reset(rocksdb::NewFixedPrefixTransform(prefix_bytes));
  o.table_factory.reset(rocksdb::NewBlockBasedTableFactory(t));
  rdb* db = new rdb;
  Status s = OpenDB<rocksdb::DB>(o, dir, &db->db, 0);
  if (!s.ok()) {
    delete db;
    return Message(s);
  }
  *out = db;
  return nullptr;
}

void rdb_close(rdb* db) {
  delete db->db;
  delete db;
}

char* rdb_put(rdb* db, const char* k, size_t klen, const char* v, size_t vlen, int sync) {
  return Message(db->db->Put(Write(sync), Slice(k, klen), Slice(v, vlen)));
}

char* rdb_delete(rdb* db, const char* k, size_t klen, int sync) {
  return Message(db->db->Delete(Write(sync), Slice(k, klen)));
}

char* rdb_delete_range(rdb* db, const char* from, size_t flen, const char* to, size_t tlen, int sync) {
  return Message(db->db->DeleteRange(Write(sync), db->db->DefaultColumnFamily(), Slice(from, flen), Slice(to, tlen)));
}

char* rdb_count_ranges(rdb* db, rdb_strings from, rdb_strings to, int n, int* found) {
  Counting counting(db);
  rocksdb::ReadOptions o;
  o.auto_prefix_mode = true;
  for (int i = 0; i < n; i++) {
    Slice upper = At(to, i);
    o.iterate_upper_bound = &upper;
    std::unique_ptr<rocksdb::Iterator> it(db->db->NewIterator(o));
    it->Seek(At(from, i));
    if (it->Valid()) ++*found;
    if (!it->status().ok()) return Message(it->status());
  }
  return nullptr;
}

char* rdb_get(rdb* db, const char* k, size_t klen, char** v, size_t* vlen, int* found) {
  Counting counting(db);
  std::string value;
  Status s = db->db->Get(rocksdb::ReadOptions(), Slice(k, klen), &value);
  *found = s.ok();
  if (s.IsNotFound()) return nullptr;
  if (!s.ok()) return Message(s);
  *v = static_cast<char*>(malloc(value.size() + 1));
  memcpy(*v, value.data(), value.size());
  *vlen = value.size();
  return nullptr;
}

char* rdb_get_each(rdb* db, rdb_strings keys, int from, int to, int every, int64_t* lat,
                   int* found) {
  Counting counting(db);
  Timer timer(every, lat);
  rocksdb::ReadOptions o;
  rocksdb::ColumnFamilyHandle* family = db->db->DefaultColumnFamily();
  rocksdb::PinnableSlice value;
  Status s;
  *found = 0;
  for (int i = from; i < to; i++) {
    timer.Run([&] {
      value.Reset();
      s = db->db->Get(o, family, At(keys, i), &value);
    });
    if (s.ok()) {
      ++*found;
    } else if (!s.IsNotFound()) {
      return Message(s);
    }
  }
  return nullptr;
}

char* rdb_multi_get(rdb* db, rdb_strings keys, int n, int* found) {
  Counting counting(db);
  std::vector<Slice> slices(n);
  for (int i = 0; i < n; i++) slices[i] = At(keys, i);
  std::vector<rocksdb::PinnableSlice> values(n);
  std::vector<Status> statuses(n);
  db->db->MultiGet(rocksdb::ReadOptions(), db->db->DefaultColumnFamily(), n, slices.data(),
                   values.data(), statuses.data());
  *found = 0;
  for (const Status& s : statuses) {
    if (s.ok()) {
      ++*found;
    } else if (!s.IsNotFound()) {
      return Message(s);
    }
  }
  return nullptr;
}

char* rdb_put_each(rdb* db, rdb_strings keys, rdb_strings values, int from, int to, int every,
                   int64_t* lat, int sync) {
  Timer timer(every, lat);
  rocksdb::WriteOptions o = Write(sync);
  Status s;
  for (int i = from; i < to && s.ok(); i++) {
    timer.Run([&] { s = db->db->Put(o, At(keys, i), At(values, i)); });
  }
  return Message(s);
}

char* rdb_flush(rdb* db) { return Message(db->db->Flush(rocksdb::FlushOptions())); }

char* rdb_compact(rdb* db) {
  rocksdb::CompactRangeOptions o;
  o.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForceOptimized;
  return Message(db->db->CompactRange(o, nullptr, nullptr));
}

int rdb_busy(rdb* db) {
  for (const char* name :
       {"rocksdb.num-running-compactions", "rocksdb.compaction-pending",
        "rocksdb.num-running-flushes", "rocksdb.mem-table-flush-pending"}) {
    uint64_t n = 0;
    if (db->db->GetIntProperty(name, &n) && n > 0) return 1;
  }
  return 0;
}

int64_t rdb_filter_bytes(rdb* db) {
  rocksdb::TablePropertiesCollection tables;
  if (!db->db->GetPropertiesOfAllTables(&tables).ok()) return -1;
  int64_t sum = 0;
  for (auto& t : tables) sum += t.second->filter_size;
  return sum;
}

rdb_counters rdb_count(rdb* db) {
  return {db->block_reads, db->read_bytes, db->filter_no, db->filter_positive};
}

rdb_iter* rdb_iter_new(rdb* db) {
  return new rdb_iter{db, db->db->NewIterator(rocksdb::ReadOptions())};
}

char* rdb_iter_close(rdb_iter* it) {
  char* message = Message(it->it->status());
  delete it->it;
  delete it;
  return message;
}

void rdb_iter_first(rdb_iter* it) { it->it->SeekToFirst(); }
void rdb_iter_last(rdb_iter* it) { it->it->SeekToLast(); }
void rdb_iter_seek(rdb_iter* it, const char* k, size_t klen) { it->it->Seek(Slice(k, klen)); }
void rdb_iter_next(rdb_iter* it) { it->it->Next(); }
void rdb_iter_prev(rdb_iter* it) { it->it->Prev(); }
int rdb_iter_valid(rdb_iter* it) { return it->it->Valid(); }

const char* rdb_iter_key(rdb_iter* it, size_t* len) {
  Slice s = it->it->key();
  *len = s.size();
  return s.data();
}

const char* rdb_iter_value(rdb_iter* it, size_t* len) {
  Slice s = it->it->value();
  *len = s.size();
  return s.data();
}

// sink keeps reads of keys and values from being optimized away.
static volatile size_t sink;

int64_t rdb_seek_each(rdb_iter* it, rdb_strings keys, int from, int to, int nexts, int every,
                      int64_t* lat) {
  Counting counting(it->owner);
  Timer timer(every, lat);
  int64_t entries = 0;
  size_t bytes = 0;
  for (int i = from; i < to; i++) {
    timer.Run([&] {
      it->it->Seek(At(keys, i));
      for (int n = 0; it->it->Valid(); n++) {
        bytes += it->it->key().size() + it->it->value().size();
        entries++;
        if (n == nexts) break;
        it->it->Next();
      }
    });
  }
  sink = bytes;
  return entries;
}

int64_t rdb_scan(rdb_iter* it, int backward, int64_t limit) {
  Counting counting(it->owner);
  int64_t entries = 0;
  size_t bytes = 0;
  backward ? it->it->SeekToLast() : it->it->SeekToFirst();
  while (it->it->Valid() && entries < limit) {
    bytes += it->it->key().size() + it->it->value().size();
    entries++;
    backward ? it->it->Prev() : it->it->Next();
  }
  sink = bytes;
  return entries;
}

const char* rdb_version(void) {
  static const std::string version = std::to_string(ROCKSDB_MAJOR) + "." +
                                     std::to_string(ROCKSDB_MINOR) + "." +
                                     std::to_string(ROCKSDB_PATCH);
  return version.c_str();
}
