package cluster

import (
	"math"
	"os"

	"github.com/hashicorp/go-hclog"
	wal "github.com/hashicorp/raft-wal"

	"github.com/siftdb/sift/internal/vfs"
)

// keptLog is how large a log may become for nodes that are catching up, besides the size of
// the snapshot that they have got: by then another snapshot is no more than the log.
const keptLog = 1 << 30

// log is a raft.LogStore that keeps what others are about to get: Raft alone drops entries
// after each snapshot, also those after the one that a new node is just receiving. That
// node would need another snapshot then, and again another, as long as clients write.
type log struct {
	*wal.WAL
	dir    string
	needed func(most uint64) (index uint64, size int64)
}

func openLog(dir string, segmentBytes int, logger hclog.Logger, needed func(uint64) (uint64, int64)) (*log, error) {
	if err := vfs.OS.MkdirAll(dir); err != nil {
		return nil, err
	}
	if segmentBytes == 0 {
		segmentBytes = wal.DefaultSegmentSize
	}
	w, err := wal.Open(dir, wal.WithSegmentSize(segmentBytes), wal.WithLogger(logger))
	if err != nil {
		return nil, err
	}
	return &log{w, dir, needed}, nil
}

// DeleteRange is raft.LogStore.
func (l *log) DeleteRange(from, to uint64) error {
	last, err := l.LastIndex()
	if err != nil {
		return err
	}
	if to < last { // the beginning
		index, size := l.needed(to + 1)
		if index <= to && l.size() < keptLog+size {
			to = index - 1 // the entry itself shows that the next one fits
		}
	}
	if to < from {
		return nil
	}
	return l.WAL.DeleteRange(from, to)
}

// size returns how large the log is, roughly: a segment is allocated as a whole. A log that
// cannot be looked at counts as too large to be kept.
func (l *log) size() (total int64) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return math.MaxInt64
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			total += info.Size()
		}
	}
	return total
}
