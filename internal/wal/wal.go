// Package wal implements the write-ahead log, a sequence of files. It writes, syncs, rotates and
// replays them. It decides when a log must be synced, and whether a bad end of a log is torn or
// damaged.
package wal

// Each record of a log is a batch; see DecodeBatch. A log begins with an empty batch, its header,
// which is synced before anything follows. Each further empty batch is a durability marker, a WAL
// durability marker. Its sequence number means that all entries before that number, in this log or
// older ones, were on disk when the marker was written. This lets recovery distinguish a torn tail,
// which may be cut off, from damage, which may not (I8). After each sync, the next record is
// preceded by a marker with the next sequence number. LevelDB and goleveldb skip all empty batches.
// The header is no marker, because logs are created ahead:
//
// When a memtable is full, writes continue in the next log, which was created ahead. The old log
// is synced in the background if a write to it had Sync set. Otherwise the next write with Sync
// syncs it; usually its memtable is in a table before that, and the end of the log is never written
// to the disk at all. A crash may keep a new log and lose the end of an old one. Recovery detects
// the missing sequence numbers and ends there, so it still recovers a prefix of the writes (I4). A
// log is finished when it is on disk or no longer needed. Therefore
//   - no marker is written to a log, and no sync of it is acknowledged, before all older logs are
//     finished, and
//   - the next write then adds a marker with the sequence number of the previous log's last entry,
//     unless the log has itself been synced.
//
// The header of a log that was created ahead has the next sequence number at that time; the
// sequence number of the log's first record may be higher.
