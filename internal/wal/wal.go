// Package wal is the write-ahead log: files that are written, synced, replaced and replayed in
// order. It decides when a log must be on disk, and what a torn one proves.
package wal

// Each record of a log is a batch; see DecodeBatch. A log begins with an empty batch, its header,
// which is synced before anything follows. Each further empty batch is a sync mark, a WAL
// durability marker. It carries a sequence number: all entries before that number, in this log or
// older ones, were on disk when the mark was written. That lets recovery tell a torn tail, which
// may be cut off, from damage, which may not (I8). After each sync, the next record is preceded by
// a mark with the next sequence number. LevelDB and goleveldb skip all of these. The header is no
// mark, because logs are created ahead:
//
// When a memtable is full, writes continue in the next log, which was created ahead. The old log
// is synced in the background if a write to it has asked for a sync. Otherwise it is synced when
// a later write asks for one; usually its memtable is in a table before that, and its end is never
// written to the disk at all. A crash may keep a new log and lose the end of an old one.
// Recovery detects the gap in the sequence numbers and ends there, so what survives is still a
// prefix of the writes (I4). A log is finished when it is on disk or no longer needed. Therefore
//   - no mark is written to a log, and no sync of it is acknowledged, before all older logs are
//     finished, and
//   - the next write then adds a mark with the number of the previous log's last entry, unless
//     the log has itself been synced.
//
// The header of a log that was created ahead has the sequence number that was next at that
// time; the log's first record has a higher one.
