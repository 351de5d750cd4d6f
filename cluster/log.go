package cluster

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"

	"github.com/siftdb/sift/cluster/internal/durable"
)

// keptLog bounds a log that is kept for nodes that are catching up: it may exceed their snapshot by
// this much. Beyond that, sending another snapshot costs no more than sending the log.
const keptLog = 1 << 30

// log is a raft.LogStore that keeps the entries that other nodes are about to need. Raft itself
// drops entries after each snapshot, including the entries that a node needs next while it receives
// an earlier snapshot. That node would then need one snapshot after another, as long as clients
// write.
//
// After a failure it rejects all writes: raft-wal may overwrite part of what it had written before,
// and may treat as sealed a file that it could not seal.
type log struct {
	*wal.WAL
	dir    string
	needed func(most uint64) (index uint64, size int64)
	failed func(error) // called once, with the reason

	storing atomic.Pointer[time.Time] // when the StoreLogs in progress began; nil if there is none

	mu       sync.Mutex
	err      error
	unstable error // set by tests: what Set and SetUint64 return
}

func openLog(dir string, segmentBytes int, logger hclog.Logger, needed func(uint64) (uint64, int64), failed func(error)) (*log, error) {
	if runtime.GOOS == "windows" {
		return nil, errors.New("cluster: Windows is not supported: raft-wal cannot sync directories there")
	}
	if err := durable.MkdirAll(dir); err != nil {
		return nil, err
	}
	if segmentBytes == 0 {
		segmentBytes = wal.DefaultSegmentSize
	}
	meta := &metadb.BoltMetaDB{}
	w, err := wal.Open(dir, wal.WithSegmentSize(segmentBytes), wal.WithLogger(logger), wal.WithMetaStore(meta), wal.WithSegmentFiler(segment.NewFiler(dir, tailFS{fs.New()})))
	if err != nil {
		return nil, errors.Join(err, meta.Close()) // raft-wal leaves it locked
	}
	return &log{WAL: w, dir: dir, needed: needed, failed: failed}, nil
}

// write changes the log, unless it has failed.
func (l *log) write(change func() error) error {
	l.mu.Lock()
	err := l.err
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.check(change())
}

// check records an error as a failure of the log.
func (l *log) check(err error) error {
	if err == nil || errors.Is(err, wal.ErrClosed) {
		return err
	}
	err = fmt.Errorf("cluster: the log in %s: %w", l.dir, err)
	l.mu.Lock()
	first := l.err == nil
	if first {
		l.err = err
	}
	l.mu.Unlock()
	if first {
		l.failed(err)
	}
	return err
}

// GetLog implements raft.LogStore. Some of Raft's goroutines panic if an entry cannot be read. So a
// failure ends the goroutine, as in SetUint64; see also pipeline.end.
func (l *log) GetLog(index uint64, entry *raft.Log) error {
	err := l.WAL.GetLog(index, entry)
	if errors.Is(err, os.ErrClosed) { // raft-wal may close a file that it removes while it is read
		err = l.WAL.GetLog(index, entry)
	}
	if errors.Is(err, wal.ErrNotFound) {
		return err
	}
	if err = l.check(err); err != nil && !errors.Is(err, wal.ErrClosed) {
		runtime.Goexit()
	}
	return err
}

// StoreLog implements raft.LogStore.
func (l *log) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore.
func (l *log) StoreLogs(entries []*raft.Log) error {
	began := time.Now()
	l.storing.Store(&began)
	defer l.storing.Store(nil)
	return l.write(func() error { return l.WAL.StoreLogs(entries) })
}

// storingFor returns how long the StoreLogs in progress has taken, 0 if there is none.
func (l *log) storingFor() time.Duration {
	if began := l.storing.Load(); began != nil {
		return time.Since(*began)
	}
	return 0
}

// DeleteRange implements raft.LogStore.
func (l *log) DeleteRange(from, to uint64) error {
	last, err := l.LastIndex()
	if err != nil {
		return err
	}
	if to < last { // entries at the start of the log
		// The last entry stays. A snapshot that will be sent may end with it, and Raft needs its
		// term for the entries that follow, if there is a newer snapshot by then.
		if index, size := l.needed(to); l.size() < keptLog+size {
			to = index
		}
		to--
	}
	if to < from {
		return nil
	}
	return l.write(func() error { return l.WAL.DeleteRange(from, to) })
}

// Set implements raft.StableStore.
func (l *log) Set(key, value []byte) error {
	return l.set(func() error { return l.WAL.Set(key, value) })
}

// SetUint64 implements raft.StableStore. Raft panics if a term cannot be written. So a failure ends
// the goroutine instead of returning. The goroutine is one of Raft or of the node, that of
// Node.startRaft, or that of a connection that has received a heartbeat. The node stops as after
// any other failure of the log.
//
// Raft writes the term of a vote first, and then the candidate. If it is killed in between, it must
// not mistake the candidate of an earlier vote for that of the new one: it would vote for that
// candidate without comparing the logs.
func (l *log) SetUint64(key []byte, value uint64) error {
	err := l.set(func() error {
		if string(key) == voteTermKey {
			if err := l.WAL.Set([]byte(voteKey), nil); err != nil {
				return err
			}
		}
		return l.WAL.SetUint64(key, value)
	})
	if err != nil {
		runtime.Goexit()
	}
	return nil
}

// The keys of hashicorp/raft for the term and the candidate of its last vote.
const (
	voteTermKey = "LastVoteTerm"
	voteKey     = "LastVoteCand"
)

func (l *log) set(change func() error) error {
	return l.write(func() error {
		l.mu.Lock()
		err := l.unstable
		l.mu.Unlock()
		if err != nil {
			return err
		}
		return change()
	})
}

// size returns the approximate size of the log in bytes: segments are preallocated. If the
// directory cannot be listed, the log counts as too large to be kept.
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
