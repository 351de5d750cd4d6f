package wal

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/record"
)

// Find returns the numbers of the logs to replay, ascending, given the names in the
// directory. missing is not nil if the log that the MANIFEST names is not among them.
func (c *Config) Find(state *manifest.State, names []string) (logs []uint64, missing *base.CorruptionError, err error) {
	for _, name := range names {
		kind, num, ok := manifest.ParseName(name)
		if ok && kind == manifest.KindLog && (num >= state.LogNumber || num == state.PrevLogNum && num != 0) {
			logs = append(logs, num)
		}
	}
	slices.Sort(logs)
	if state.LogNumber == 0 || slices.Contains(logs, state.LogNumber) {
		return logs, nil, nil
	}
	path := c.path(state.LogNumber)
	missing = &base.CorruptionError{Path: path, Offset: -1, What: "log", Err: errors.New("named by the MANIFEST, but missing")}
	// A log is created before it is named, and removed after another is named. The exception is
	// goleveldb, which silently drops an empty log for a newer one. The replay checks whether
	// the newer one begins where it should.
	if len(logs) == 0 || logs[len(logs)-1] < state.LogNumber {
		return nil, nil, missing
	}
	return logs, missing, nil
}

// Recovery replays logs, oldest first. The caller sets the fields up to Apply, and may set Torn.
type Recovery struct {
	Config
	ManifestSeq uint64 // the MANIFEST's last sequence number
	LastSeq     uint64 // the largest sequence number seen, first in tables, then in logs
	Missing     error  // set if the log that the MANIFEST names is missing

	// Apply is called for each batch that has operations; see DecodeBatch.
	Apply func(payload []byte) error

	Logs    int     // number of logs replayed
	Batches int     // number of batches applied
	Torn    []error // the ends of logs that were cut off

	prevBySift bool   // sift wrote the previous log
	torn       error  // how the previous log ended, if not cleanly
	nextSeq    uint64 // the next sequence number according to the previous log; 0: unknown
}

// Replay replays a log. It returns an error if the log is damaged; a torn end is not damage.
func (r *Recovery) Replay(num uint64) (err error) {
	path := r.path(num)
	size, err := r.FS.Size(path)
	if err != nil {
		return err
	}
	f, err := r.FS.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	l := logReplay{Recovery: r, in: record.NewReader(f, size, path), path: path}
	r.Logs++
	if size <= unusedLogBytes {
		return r.passUnused(l.in, path)
	}
	for {
		payload, offset, err := l.in.Next()
		if err == io.EOF {
			return l.end()
		}
		if err != nil {
			return err
		}
		if done, err := l.next(payload, offset); done || err != nil {
			return err
		}
	}
}

// logReplay is the replay of one log.
type logReplay struct {
	*Recovery
	in      *record.Reader
	path    string
	bySift  bool // sift wrote this log: it begins with an empty batch
	records int  // replayed so far
}

// next replays a record. done means that the rest of the log is not replayed.
func (l *logReplay) next(payload []byte, offset int64) (done bool, err error) {
	first, count, err := DecodeBatch(payload, nil)
	if l.records == 0 {
		l.bySift = err == nil && count == 0
	}
	if begins := l.records == 0 || l.records == 1 && l.bySift; begins && err == nil {
		if gap := l.gapBefore(l.path, offset, l.bySift, first); gap != nil {
			return true, l.passLost(l.in, l.records > 0 && count == 0, gap)
		}
		if l.torn != nil && !(l.records == 0 && l.bySift && l.prevBySift) {
			// Nothing is missing before this log, or there is no way to know.
			return true, l.torn
		}
	} else if l.torn != nil {
		return true, l.torn
	}
	if err == nil {
		err = l.checkOrder(l.bySift, first, count, l.records == 0)
	}
	if err != nil {
		return true, &base.CorruptionError{Path: l.path, Offset: offset, What: "log record", Err: err}
	}
	if count > 0 {
		l.Batches++
		if err := l.Apply(payload); err != nil {
			return true, err
		}
		l.LastSeq = max(l.LastSeq, first+uint64(count)-1)
	}
	if !l.bySift {
		l.nextSeq = 0
	} else if l.records > 0 {
		l.nextSeq = max(l.nextSeq, first+uint64(count))
	}
	l.records++
	return false, nil
}

// end handles the end of the log, once all its records have been replayed.
func (l *logReplay) end() error {
	if lost := l.lostBefore(l.bySift); lost != nil {
		return lost
	}
	if l.bySift && l.nextSeq == 0 {
		l.nextSeq = l.LastSeq + 1
	}
	l.prevBySift = l.bySift
	return l.judgeTail(l.in, l.bySift)
}

// lostBefore returns an error if the log that the MANIFEST names is missing and the first one that
// is there, which has been replayed, is sift's own and has no entries. Entries that begin where the
// MANIFEST ends show that the missing log was empty. A log without any, such as one that was
// created ahead, shows nothing, and sift removes no log that the MANIFEST names.
func (r *Recovery) lostBefore(bySift bool) error {
	if bySift && r.Logs == 1 && r.Batches == 0 {
		return r.Missing
	}
	return nil
}

// gapBefore returns an error that describes what is missing between the previous log and this one,
// which begins at sequence number first. It returns nil if nothing is missing, or if sift did not
// write both logs.
func (r *Recovery) gapBefore(path string, offset int64, bySift bool, first uint64) error {
	switch {
	case !bySift || !r.prevBySift || r.nextSeq == 0 || first <= r.nextSeq:
		return nil
	case r.torn != nil:
		return r.torn
	}
	return &base.CorruptionError{Path: path, Offset: offset, What: "log record", Err: fmt.Errorf("batch begins at sequence %d, and %d is next", first, r.nextSeq)}
}

// passLost skips a log whose writes are lost because earlier ones are: a crash may keep a log and
// lose the end of an earlier one. A sync mark in the log proves that the missing part was on disk;
// then the gap is damage. proven is set if a mark has been seen already.
func (r *Recovery) passLost(in *record.Reader, proven bool, gap error) error {
	for !proven {
		payload, _, err := in.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		proven = isMark(payload)
	}
	if !proven {
		var err error
		if proven, err = hasMark(in, r.nextSeq); err != nil {
			return err
		}
	}
	if proven {
		return gap
	}
	r.cutOff(gap)
	return nil
}

// cutOff records that the last writes are lost, so that no later ones are replayed.
func (r *Recovery) cutOff(err error) {
	if r.torn == nil {
		r.torn = err
		r.Torn = append(r.Torn, err)
		r.Logger.Warn("the end of a log was cut off", "err", err)
	}
}

// unusedLogBytes is the length of a log that holds only its header. A write needs more.
const unusedLogBytes = record.HeaderLen + BatchHeaderLen

// passUnused handles a log that is too short to hold a write. It may never have been used:
// when a new log could not be completed, or power was lost between its creation and its first
// use, the previous log stayed in use. So it proves nothing about the end of that one, except
// that all sequence numbers before its own had been assigned, on disk or not.
func (r *Recovery) passUnused(in *record.Reader, path string) error {
	payload, offset, err := in.Next()
	if err == io.EOF {
		if tail := in.Tail(); tail.Kind != record.Clean {
			r.Torn = append(r.Torn, tail.Err)
			r.Logger.Warn("the end of a log was cut off", "err", tail.Err)
		}
		return nil
	} else if err != nil {
		return err
	}
	first, count, err := DecodeBatch(payload, nil)
	bySift := err == nil && count == 0
	if lost := r.lostBefore(bySift); lost != nil {
		return lost
	}
	if err == nil && first > r.LastSeq+1 {
		if gap := r.gapBefore(path, offset, bySift, first); gap != nil {
			r.cutOff(gap)
			return nil
		}
		if r.torn != nil {
			return r.torn
		}
		err = r.checkOrder(bySift, first, count, true)
	}
	if err != nil {
		return &base.CorruptionError{Path: path, Offset: offset, What: "log record", Err: err}
	}
	if r.nextSeq == 0 && r.torn == nil {
		r.nextSeq, r.prevBySift = r.LastSeq+1, bySift
	}
	return nil
}

// hasMark looks for a sync mark with a number of at least minSeq among the intact records
// after the damage in a log. REQUIRES: in was read to its end.
func hasMark(in *record.Reader, minSeq uint64) (found bool, err error) {
	if in.Tail().Kind != record.Damaged {
		return false, nil
	}
	err = in.Salvage(func(payload []byte, _ int64) bool {
		// A value may contain what looks like a record of an older log.
		first, count, err := DecodeBatch(payload, nil)
		found = err == nil && count == 0 && first >= minSeq
		return !found
	})
	return found, err
}

// checkOrder compares a batch's first sequence number with the expected one. It applies only to
// logs that sift wrote, since those of LevelDB need not continue each other or the MANIFEST; if a
// log is missing, it checks the start of any log. Empty batches may have a lower number.
func (r *Recovery) checkOrder(bySift bool, first uint64, count uint32, firstOfLog bool) error {
	before := r.ManifestSeq
	if r.Batches > 0 {
		before = r.LastSeq // of the logs before this one
	}
	switch {
	case r.Missing != nil && firstOfLog && first > before+1:
		return fmt.Errorf("log begins at sequence %d, and what came after %d is missing: %w", first, before, r.Missing)
	case !bySift:
		return nil
	case r.nextSeq == 0 && first > before+1:
		return fmt.Errorf("log begins at sequence %d, and what came after %d is missing", first, before)
	case r.nextSeq != 0 && (first > r.nextSeq || first < r.nextSeq && count > 0):
		return fmt.Errorf("batch begins at sequence %d, and %d is next", first, r.nextSeq)
	}
	return nil
}

// judgeTail decides whether what follows the last good record of a log is a torn tail, which
// is cut off and reported, or damage.
//
// In sift's own logs, a sync mark after the bad record proves that the record had been synced:
// damage. Other valid records after it do not: a power cut may keep the later of two unsynced
// records. Other engines' logs have no marks: any valid record after the bad one counts as
// proof, and so does a complete last record with a wrong checksum.
//
// Zeros up to the end, after a record of sift's own, are preallocated space. No log of sift's
// begins with zeros: its header is on disk before space is allocated.
func (r *Recovery) judgeTail(in *record.Reader, bySift bool) error {
	tail := in.Tail()
	if tail.Kind == record.Clean || tail.Kind == record.Zeros && bySift {
		return nil
	}
	damaged := tail.Kind == record.Damaged
	if !bySift {
		damaged = damaged || errors.Is(tail.Err, record.ErrChecksum)
	} else {
		var err error
		if damaged, err = hasMark(in, r.nextSeq); err != nil {
			return err
		}
	}
	if damaged {
		return tail.Err
	}
	r.cutOff(tail.Err)
	return nil
}
