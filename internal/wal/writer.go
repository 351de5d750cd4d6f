package wal

import (
	"sync"
	"sync/atomic"
)

// Writer writes one log after another. It must not be used concurrently. After an error of Write,
// Sync, SyncSealed or Check, nothing more may be written: what is on disk is unknown until it is
// read again (I5).
type Writer struct {
	live   *Log
	sealed []*Sealed // earlier logs that are not known to be finished, oldest first
	spare  *spare    // the next log, if it is being created ahead
}

// Sealed is a full log. It is finished once: by a sync, or when its memtable is in a table.
// That closes the file.
type Sealed struct {
	log      *Log
	once     sync.Once
	finished atomic.Bool // err is set
	err      error       // of the sync
}

// spare is a log created ahead.
type spare struct {
	done chan struct{} // closed when it exists; log is nil if that failed
	log  *Log
}

// NewWriter returns a writer for a new log and those that come after it. Close closes them.
func NewWriter(live *Log) *Writer { return &Writer{live: live} }

// Num returns the file number of the current log.
func (w *Writer) Num() uint64 { return w.live.num }

// Write writes a record that consists of parts, a batch whose entries come after lastSeq. If sync
// is set, it returns when all records are durable. It returns the number of bytes written.
// REQUIRES: Check has just returned nil.
func (w *Writer) Write(lastSeq uint64, parts [][]byte, sync bool) (n int64, err error) {
	l := w.live
	start := l.writer.Offset()
	if len(w.sealed) == 0 {
		if err := l.mark(lastSeq + 1); err != nil {
			return 0, err
		}
	}
	if err := l.append(parts); err != nil {
		return 0, err
	}
	if sync {
		l.asked = true
		if err := l.sync(); err != nil {
			return 0, err
		}
		// Without the ends of the earlier logs, recovery would not reach this one.
		if err := w.SyncSealed(); err != nil {
			return 0, err
		}
	}
	return l.writer.Offset() - start, nil
}

// Sync makes the records of the current log durable. SyncSealed does the same for earlier ones.
func (w *Writer) Sync() error { return w.live.sync() }

// Check forgets the earlier logs that are finished, and returns an error if the sync of one failed.
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

// SyncSealed syncs the earlier logs that are not finished.
func (w *Writer) SyncSealed() error {
	for _, s := range w.sealed {
		s.sync()
	}
	return w.Check()
}

// Rotate seals the current log, whose last entry is lastSeq, and continues in a new one. ahead
// means that the new log will soon be full as well, so that its successor should be created ahead.
// Without ahead, the current log and all earlier ones must be on disk. After an error the current
// log is unchanged.
func (w *Writer) Rotate(lastSeq uint64, ahead bool) (*Sealed, error) {
	if !ahead {
		// The new log needs a higher number than the spare one.
		w.dropSpare()
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
		s.sync() // everything is on disk already
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

// Close finishes the earlier logs and closes all logs. It returns the error of the current log.
func (w *Writer) Close() error {
	w.SyncSealed() // it closes the logs; its error ends only further writes
	w.dropSpare()
	return w.live.Close()
}

// createAhead creates the next log in the background. Before that it syncs the sealed one, if a
// write to it has asked for a sync.
func (w *Writer) createAhead(sealed *Sealed) {
	w.spare = &spare{done: make(chan struct{})}
	go func(spare *spare) {
		defer close(spare.done)
		if sealed.log.asked && sealed.sync() != nil {
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

// takeSpare returns the log created ahead, or nil.
func (w *Writer) takeSpare() *Log {
	s := w.spare
	if s == nil {
		return nil
	}
	<-s.done // always closed by the goroutine that creates the log
	w.spare = nil
	return s.log
}

// dropSpare removes the log created ahead.
func (w *Writer) dropSpare() {
	if log := w.takeSpare(); log != nil {
		log.Discard()
	}
}

// sync finishes the log by a sync, unless it is finished already, and returns the error of the sync.
func (s *Sealed) sync() error {
	s.finish(s.log.sync)
	return s.err
}

// Flushed finishes the log, whose memtable is in a table that the MANIFEST names.
func (s *Sealed) Flushed() { s.finish(func() error { return nil }) }

func (s *Sealed) finish(how func() error) {
	s.once.Do(func() {
		s.err = how()
		s.log.closeLater()
		s.finished.Store(true)
	})
}
