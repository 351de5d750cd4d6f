package wal

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/record"
	"github.com/siftdb/sift/internal/vfs"
)

// Config is the configuration of a database's logs.
type Config struct {
	FS     vfs.FS
	Dir    string
	Logger *slog.Logger

	NextNum func() uint64     // assigns a file number
	NextSeq func() uint64     // returns a sequence number above all visible ones
	Later   func(task func()) // runs a task in the background; tasks run in order
}

func (c *Config) path(num uint64) string {
	return filepath.Join(c.Dir, manifest.MakeName(manifest.KindLog, num))
}

// Log is a log that is open for writing.
type Log struct {
	config   *Config
	num      uint64
	file     vfs.File
	writer   *record.Writer
	unsynced bool // records were written since the last sync
	wantSync bool // there was a write with sync

	before uint64 // last sequence number of the previous log; 0: unknown, or markers have proved that it is on disk
}

// Create creates a log whose first entry will have a sequence number of at least nextSeq. The
// log is durable when Create returns. After an error Create removes the file; if the removal fails,
// too, recovery skips the file.
func Create(c *Config, nextSeq uint64) (*Log, error) {
	num := c.NextNum()
	path := c.path(num)
	f, err := vfs.CreateLog(c.FS, path)
	if err != nil {
		return nil, err
	}
	l := &Log{config: c, num: num, file: f, writer: record.NewWriter(f)}
	err = l.writer.Append(AppendBatchHeader(nil, nextSeq, 0))
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = c.FS.SyncDir(c.Dir)
	}
	if err != nil {
		err = errors.Join(err, f.Close())
		if rerr := c.FS.Remove(path); rerr != nil {
			c.Logger.Warn("removing an unfinished log failed", "path", path, "err", rerr)
		}
		return nil, err
	}
	return l, nil
}

// Num returns the log's file number.
func (l *Log) Num() uint64 { return l.num }

// Close closes the log.
func (l *Log) Close() error { return l.file.Close() }

// Discard closes and removes a log to which nothing was written, in the background.
func (l *Log) Discard() {
	c := l.config
	c.Later(func() {
		l.closeUnused()
		path := c.path(l.num)
		if err := c.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.Logger.Warn("removing an obsolete file failed", "path", path, "err", err)
		}
	})
}

// closeLater closes a log to which nothing more will be written, in the background.
func (l *Log) closeLater() { l.config.Later(l.closeUnused) }

// closeUnused closes a log to which nothing more will be written. It only logs errors: the log is
// synced or not needed.
func (l *Log) closeUnused() {
	if err := l.file.Close(); err != nil {
		l.config.Logger.Warn("closing a log failed", "log", l.num, "err", err)
	}
}

// append writes a record, which is the concatenation of parts.
func (l *Log) append(parts [][]byte) error {
	l.unsynced = true
	return l.writer.AppendParts(parts...)
}

// sync makes all records durable.
func (l *Log) sync() error {
	if !l.unsynced {
		return nil
	}
	if err := l.file.Sync(); err != nil {
		return err
	}
	l.unsynced = false
	return nil
}

// addMarker adds a durability marker, unless earlier markers prove as much. It is written together
// with the next record. REQUIRES: the previous log is finished.
func (l *Log) addMarker(nextSeq uint64) error {
	switch {
	case !l.unsynced:
		l.before = 0
		return l.writer.AddParts(AppendBatchHeader(nil, nextSeq, 0))
	case l.before != 0:
		seq := l.before
		l.before = 0
		return l.writer.AddParts(AppendBatchHeader(nil, seq, 0))
	}
	return nil
}
