//go:build cgo && leveldb

#include "shim.h"

#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/env.h>
#include <leveldb/filter_policy.h>

using leveldb::Slice;
using leveldb::Status;

// CountingEnv counts the reads of tables and the bytes written.
class CountingEnv : public leveldb::EnvWrapper {
 public:
  CountingEnv() : EnvWrapper(leveldb::Env::Default()) {}

  Status NewRandomAccessFile(const std::string& name, leveldb::RandomAccessFile** out) override {
    Status s = target()->NewRandomAccessFile(name, out);
    if (s.ok()) *out = new Table(*out, this);
    return s;
  }

  Status NewWritableFile(const std::string& name, leveldb::WritableFile** out) override {
    Status s = target()->NewWritableFile(name, out);
    if (s.ok()) *out = new Output(*out, this);
    return s;
  }

  std::atomic<int64_t> reads{0}, read_bytes{0}, written_bytes{0};

 private:
  class Table : public leveldb::RandomAccessFile {
   public:
    Table(leveldb::RandomAccessFile* file, CountingEnv* env) : file_(file), env_(env) {}
    Status Read(uint64_t offset, size_t n, Slice* result, char* scratch) const override {
      env_->reads.fetch_add(1, std::memory_order_relaxed);
      env_->read_bytes.fetch_add(n, std::memory_order_relaxed);
      return file_->Read(offset, n, result, scratch);
    }

   private:
    std::unique_ptr<leveldb::RandomAccessFile> file_;
    CountingEnv* env_;
  };

  class Output : public leveldb::WritableFile {
   public:
    Output(leveldb::WritableFile* file, CountingEnv* env) : file_(file), env_(env) {}
    Status Append(const Slice& data) override {
      env_->written_bytes.fetch_add(data.size(), std::memory_order_relaxed);
      return file_->Append(data);
    }
    Status Close() override { return file_->Close(); }
    Status Flush() override { return file_->Flush(); }
    Status Sync() override { return file_->Sync(); }

   private:
    std::unique_ptr<leveldb::WritableFile> file_;
    CountingEnv* env_;
  };
};

struct ldb {
  CountingEnv env;
  std::unique_ptr<leveldb::Cache> cache;
  std::unique_ptr<const leveldb::FilterPolicy> policy;
  leveldb::DB* db = nullptr;
};

struct ldb_iter {
  leveldb::Iterator* it;
};

namespace {

char* Message(const Status& s) { return s.ok() ? nullptr : strdup(s.ToString().c_str()); }

Slice At(const ldb_strings& s, int i) {
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

leveldb::WriteOptions Write(int sync) {
  leveldb::WriteOptions o;
  o.sync = sync != 0;
  return o;
}

}  // namespace

char* ldb_open(const char* dir, int bloom_bits, uint64_t cache_bytes,
               uint64_t write_buffer_bytes, uint64_t block_bytes, int no_compression,
               ldb** out) {
  std::unique_ptr<ldb> db(new ldb);
  db->cache.reset(leveldb::NewLRUCache(cache_bytes));
  leveldb::Options o;
  o.create_if_missing = true;
  o.env = &db->env;
  o.block_cache = db->cache.get();
  o.write_buffer_size = write_buffer_bytes;
  o.block_size = block_bytes;
  o.compression = no_compression ? leveldb::kNoCompression : leveldb::kSnappyCompression;
  if (bloom_bits > 0) {
    db->policy.reset(leveldb::NewBloomFilterPolicy(bloom_bits));
    o.filter_policy = db->policy.get();
  }
  Status s = leveldb::DB::Open(o, dir, &db->db);
  if (s.ok()) *out = db.release();
  return Message(s);
}

void ldb_close(ldb* db) {
  delete db->db;
  delete db;
}

char* ldb_put(ldb* db, const char* k, size_t klen, const char* v, size_t vlen, int sync) {
  return Message(db->db->Put(Write(sync), Slice(k, klen), Slice(v, vlen)));
}

char* ldb_delete(ldb* db, const char* k, size_t klen, int sync) {
  return Message(db->db->Delete(Write(sync), Slice(k, klen)));
}

char* ldb_get(ldb* db, const char* k, size_t klen, char** v, size_t* vlen, int* found) {
  std::string value;
  Status s = db->db->Get(leveldb::ReadOptions(), Slice(k, klen), &value);
  *found = s.ok();
  if (s.IsNotFound()) return nullptr;
  if (!s.ok()) return Message(s);
  *v = static_cast<char*>(malloc(value.size() + 1));
  memcpy(*v, value.data(), value.size());
  *vlen = value.size();
  return nullptr;
}

char* ldb_get_each(ldb* db, ldb_strings keys, int from, int to, int every, int64_t* lat,
                   int* found) {
  Timer timer(every, lat);
  leveldb::ReadOptions o;
  std::string value;
  Status s;
  *found = 0;
  for (int i = from; i < to; i++) {
    timer.Run([&] { s = db->db->Get(o, At(keys, i), &value); });
    if (s.ok()) {
      ++*found;
    } else if (!s.IsNotFound()) {
      return Message(s);
    }
  }
  return nullptr;
}

char* ldb_put_each(ldb* db, ldb_strings keys, ldb_strings values, int from, int to, int every,
                   int64_t* lat, int sync) {
  Timer timer(every, lat);
  leveldb::WriteOptions o = Write(sync);
  Status s;
  for (int i = from; i < to && s.ok(); i++) {
    timer.Run([&] { s = db->db->Put(o, At(keys, i), At(values, i)); });
  }
  return Message(s);
}

void ldb_flush(ldb* db) {
  // CompactRange flushes the memtable first; no table holds keys after this one.
  const std::string past(64, '\xff');
  const Slice key(past);
  db->db->CompactRange(&key, &key);
}

void ldb_compact(ldb* db) { db->db->CompactRange(nullptr, nullptr); }

ldb_counters ldb_count(ldb* db) {
  return {db->env.reads, db->env.read_bytes, db->env.written_bytes};
}

ldb_iter* ldb_iter_new(ldb* db) {
  return new ldb_iter{db->db->NewIterator(leveldb::ReadOptions())};
}

char* ldb_iter_close(ldb_iter* it) {
  char* message = Message(it->it->status());
  delete it->it;
  delete it;
  return message;
}

void ldb_iter_first(ldb_iter* it) { it->it->SeekToFirst(); }
void ldb_iter_last(ldb_iter* it) { it->it->SeekToLast(); }
void ldb_iter_seek(ldb_iter* it, const char* k, size_t klen) { it->it->Seek(Slice(k, klen)); }
void ldb_iter_next(ldb_iter* it) { it->it->Next(); }
void ldb_iter_prev(ldb_iter* it) { it->it->Prev(); }
int ldb_iter_valid(ldb_iter* it) { return it->it->Valid(); }

const char* ldb_iter_key(ldb_iter* it, size_t* len) {
  Slice s = it->it->key();
  *len = s.size();
  return s.data();
}

const char* ldb_iter_value(ldb_iter* it, size_t* len) {
  Slice s = it->it->value();
  *len = s.size();
  return s.data();
}

// sink keeps reads of keys and values from being optimized away.
static volatile size_t sink;

int64_t ldb_seek_each(ldb_iter* it, ldb_strings keys, int from, int to, int nexts, int every,
                      int64_t* lat) {
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

int64_t ldb_scan(ldb_iter* it, int backward, int64_t limit) {
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

const char* ldb_version(void) {
  static const std::string version =
      std::to_string(leveldb::kMajorVersion) + "." + std::to_string(leveldb::kMinorVersion);
  return version.c_str();
}
