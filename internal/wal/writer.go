package wal

import (
	"errors"
	"sync"
	"sync/atomic"
)

// Writer writes one log after another. It is not safe for concurrent use. After an error of Write,
// Sync, SyncSealed or Check, nothing more may be written: the state on disk is unknown until it is
// read again (I5).
type Writer struct {
	live   *Log
	sealed []*Sealed // earlier logs that are not known to be finished, oldest first
	spare  *spare    // the next log, if it is being created ahead
}

// Sealed is a log that Rotate has replaced. It is finished once, by a sync or when its memtable is
// in a table; its file is then closed.
type Sealed struct {
	log      *Log
	once     sync.Once
	finished atomic.Bool // err is valid
	err      error       // of the sync
}

// spare is a log created ahead.
type spare struct {
	done chan struct{} // closed when log is valid
	log  *Log          // nil if the log could not be created
}

// NewWriter returns a writer that begins with live, a new log. Close closes all its logs.
func NewWriter(live *Log) *Writer { return &Writer{live: live} }

// Num returns the file number of the current log.
func (w *Writer) Num() uint64 { return w.live.num }

// Write writes a record, the concatenation of parts: a batch that begins after sequence number
// lastSeq. If sync is set, all records are durable when it returns. It returns the number of bytes
// written. REQUIRES: Check has just returned nil.
func (w *Writer) Write(lastSeq uint64, parts [][]byte, sync bool) (n int64, err error) {
	l := w.live
	start := l.writer.Offset()
	if len(w.sealed) == 0 {
		if err := l.addMarker(lastSeq + 1); err != nil {
			return 0, err
		}
	}
	if err := l.append(parts); err != nil {
		return 0, err
	}
	if sync {
		l.wantSync = true
		if err := l.sync(); err != nil {
			return 0, err
		}
		// If the end of an earlier log were lost, recovery would not replay this one.
		if err := w.SyncSealed(); err != nil {
			return 0, err
		}
	}
	return l.writer.Offset() - start, nil
}

// Sync makes the records of the current log durable. SyncSealed does so for earlier logs.
func (w *Writer) Sync() error { return w.live.sync() }

// Check drops the oldest logs from sealed if they are finished, and returns an error if the sync of
// one has failed.
func (w *Writer) Check() error {
	for len(w.sealed) > 0 && w.sealed[0].finished.Load() {
		s := w.sealed[0]
		if s.err != nil {
			return s.err
		}
		w.sealed = w.sealed[1:]
	}
	return nil
}

// SyncSealed makes the records of earlier logs durable, unless they are in tables.
func (w *Writer) SyncSealed() error {
	for _, s := range w.sealed {
		s.sync()
	}
	return w.Check()
}

// Rotate seals the current log, whose last entry has sequence number lastSeq, and continues in a
// new one. ahead means that the new log will soon be full, too, so that its successor should be
// created ahead. After an error the current log is unchanged. REQUIRES: without ahead, the current
// log is synced and all earlier ones are finished.
func (w *Writer) Rotate(lastSeq uint64, ahead bool) (*Sealed, error) {
	if !ahead {
		w.dropSpare() // Create gives the new log a higher number, so the spare one could not follow it
	}
	next := w.takeSpare()
	if next == nil {
		var err error
		if next, err = Create(w.live.config, lastSeq+1); err != nil {
			return nil, err
		}
	}
	s := &Sealed{log: w.live}
	w.sealed = append(w.sealed, s)
	w.live = next
	w.live.before = lastSeq
	if ahead {
		w.createAhead(s)
	} else {
		s.sync() // only finishes it: everything is on disk
	}
	return s, nil
}

// Replace continues in the log next and closes the current one. REQUIRES: the entries of the
// current log and all earlier ones are in tables.
func (w *Writer) Replace(next *Log) {
	w.dropSpare() // its number is lower
	w.live.closeLater()
	w.live = next
}

// Close finishes the earlier logs and closes all logs. It returns the error of closing the current
// log.
func (w *Writer) Close() error {
	w.SyncSealed() // closes the logs; the error matters only for further writes
	w.dropSpare()
	return w.live.Close()
}

// createAhead creates the next log in the background. Before that it syncs the sealed log if any
// write to it had sync set.
func (w *Writer) createAhead(sealed *Sealed) {
	w.spare = &spare{done: make(chan struct{})}
	go func(spare *spare) {
		defer close(spare.done)
		if sealed.log.wantSync && sealed.sync() != nil {
			return
		}
		spare.make(sealed.log.config)
	}(w.spare)
}

// make creates the log, if possible.
func (s *spare) make(c *Config) {
	var err error
	if s.log, err = Create(c, c.NextSeq()); err != nil {
		c.Logger.Warn("a log could not be created ahead", "err", err)
	}
}

// takeSpare returns the log created ahead, or nil. It waits until the log exists.
func (w *Writer) takeSpare() *Log {
	s := w.spare
	if s == nil {
		return nil
	}
	<-s.done // createAhead's goroutine always closes it
	w.spare = nil
	return s.log
}

// dropSpare discards the log created ahead, if there is one.
func (w *Writer) dropSpare() {
	if log := w.takeSpare(); log != nil {
		log.Discard()
	}
}

// sync finishes the log by a sync, unless it is finished already. It returns the error of the sync.
func (s *Sealed) sync() error {
	s.finish(s.log.sync)
	return s.err
}

// Flushed finishes the log, whose memtable is in a table that the MANIFEST names.
func (s *Sealed) Flushed() { s.finish(func() error { return nil }) }

var errSyncUnwound = errors.New("the file system panicked")

// finish calls how and closes the log, unless the log is finished already.
func (s *Sealed) finish(how func() error) {
	s.once.Do(func() {
		s.err = errSyncUnwound // unless how returns: a file system may panic
		defer s.finished.Store(true)
		s.err = how()
		s.log.closeLater()
	})
}
