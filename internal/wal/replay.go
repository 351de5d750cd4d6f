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
// directory. missing is not nil if the log that the MANIFEST names is missing, and recovery may
// still be possible.
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
	// A log is created before the MANIFEST names it, and removed after the MANIFEST names another
	// one. The exception is goleveldb, which silently replaces an empty log by a newer one. The
	// replay checks whether the newer one begins with the right sequence number.
	if len(logs) == 0 || logs[len(logs)-1] < state.LogNumber {
		return nil, nil, missing
	}
	return logs, missing, nil
}

// Recovery replays logs, oldest first. The caller sets the fields up to Apply, and may set Torn.
type Recovery struct {
	Config
	ManifestSeq uint64 // the last sequence number in the MANIFEST
	LastSeq     uint64 // the highest sequence number in tables and, as they are replayed, in logs
	Missing     error  // see Find

	// Apply is called for each batch that has operations; see DecodeBatch.
	Apply func(payload []byte) error

	Logs    int     // number of logs replayed
	Batches int     // number of batches applied
	Torn    []error // an error for each end of a log that was cut off

	prevBySift bool   // sift wrote the previous log
	torn       error  // how the previous log ended, if not cleanly
	nextSeq    uint64 // the next sequence number according to the previous log; 0: unknown
}

// Replay replays a log. It returns an error if the log is damaged. A torn end is not damage.
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
	records int  // number of records replayed so far
}

// next replays a record. done means that the rest of the log is not to be replayed.
func (l *logReplay) next(payload []byte, offset int64) (done bool, err error) {
	first, count, err := DecodeBatch(payload, nil)
	if l.records == 0 {
		l.bySift = err == nil && count == 0
	}
	if begins := l.records == 0 || l.records == 1 && l.bySift; begins && err == nil {
		if missing := l.missingBefore(l.path, offset, l.bySift, first); missing != nil {
			return true, l.passLost(l.in, l.records > 0 && count == 0, missing)
		}
		if l.torn != nil && !(l.records == 0 && l.bySift && l.prevBySift) {
			// Nothing is missing before this log, or that cannot be determined: the bad end of
			// the previous log counts as damage.
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

// lostBefore returns an error if the log that the MANIFEST names is missing, and the first log that
// is there, which has been replayed, was written by sift and has no entries. Entries that follow
// the MANIFEST's last sequence number prove that the missing log was empty. A log without entries,
// such as one that was created ahead, proves nothing, and sift removes no log that the MANIFEST
// names.
func (r *Recovery) lostBefore(bySift bool) error {
	if bySift && r.Logs == 1 && r.Batches == 0 {
		return r.Missing
	}
	return nil
}

// missingBefore returns an error if entries are missing between the previous log and this one,
// which begins at sequence number first. It returns nil if nothing is missing, or if sift did not
// write both logs.
func (r *Recovery) missingBefore(path string, offset int64, bySift bool, first uint64) error {
	switch {
	case !bySift || !r.prevBySift || r.nextSeq == 0 || first <= r.nextSeq:
		return nil
	case r.torn != nil:
		return r.torn
	}
	return &base.CorruptionError{Path: path, Offset: offset, What: "log record", Err: fmt.Errorf("batch begins at sequence %d, and %d is next", first, r.nextSeq)}
}

// passLost skips a log whose writes are lost because earlier writes are: a crash may keep a log and
// lose the end of an earlier one. But if a durability marker in the log proves that the missing
// entries were on disk, this is damage, and passLost returns missing. proven: a marker has been
// read already.
func (r *Recovery) passLost(in *record.Reader, proven bool, missing error) error {
	for !proven {
		payload, _, err := in.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		proven = isMarker(payload)
	}
	if !proven {
		var err error
		if proven, err = hasMarker(in, r.nextSeq); err != nil {
			return err
		}
	}
	if proven {
		return missing
	}
	r.cutOff(missing)
	return nil
}

// cutOff records that the writes after a point are lost, so no later ones are replayed.
func (r *Recovery) cutOff(err error) {
	if r.torn == nil {
		r.torn = err
		r.Torn = append(r.Torn, err)
		r.Logger.Warn("the end of a log was left out", "err", err)
	}
}

// unusedLogBytes is the length of a log that consists of its header. A write needs more.
const unusedLogBytes = record.HeaderLen + BatchHeaderLen

// passUnused handles a log that is too short for a write. It may never have been used: if a new
// log could not be completed, or power was lost between its creation and its first use, the
// previous log stayed in use. So it proves nothing about the end of the previous log, except
// that all sequence numbers before that in its header had been assigned, on disk or not.
func (r *Recovery) passUnused(in *record.Reader, path string) error {
	payload, offset, err := in.Next()
	if err == io.EOF {
		if tail := in.Tail(); tail.Kind != record.Clean {
			r.Torn = append(r.Torn, tail.Err)
			r.Logger.Warn("the end of a log was left out", "err", tail.Err)
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
		if missing := r.missingBefore(path, offset, bySift, first); missing != nil {
			r.cutOff(missing)
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

// hasMarker reports whether the intact records after the damage in a log include a durability
// marker with a sequence number of at least minSeq. REQUIRES: in was read to its end.
func hasMarker(in *record.Reader, minSeq uint64) (found bool, err error) {
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

// checkOrder compares a batch's first sequence number with the expected one. It checks only logs
// that sift wrote, since the sequence numbers of LevelDB's logs need not follow each other or the
// MANIFEST; if a log is missing, it checks the start of every log. Empty batches may have lower
// numbers.
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

// judgeTail decides whether the bytes after the last good record of a log are a torn tail, which
// it cuts off and reports, or damage, for which it returns an error.
//
// In logs that sift wrote, a durability marker after the bad record proves that the record had been
// synced, so it is damaged. Other valid records after it prove nothing: a power cut may keep the
// later of two unsynced records. Logs of other engines have no markers: any valid record after the
// bad one counts as proof, and so does a complete last record with a wrong checksum.
//
// In logs that sift wrote, zeros up to the end are preallocated space. Such a log never begins
// with zeros: its header is on disk before space is allocated.
func (r *Recovery) judgeTail(in *record.Reader, bySift bool) error {
	tail := in.Tail()
	if tail.Kind == record.Clean || tail.Kind == record.Zeros && bySift {
		return nil
	}
	damaged, err := TailDamaged(in, bySift, r.nextSeq)
	if err != nil {
		return err
	}
	if damaged {
		return tail.Err
	}
	r.cutOff(tail.Err)
	return nil
}

// TailDamaged reports whether what follows the records of a log is damaged, and not what a crash
// has left; see judgeTail. nextSeq is the sequence number after the last record.
func TailDamaged(in *record.Reader, bySift bool, nextSeq uint64) (bool, error) {
	if bySift {
		return hasMarker(in, nextSeq)
	}
	tail := in.Tail()
	return tail.Kind == record.Damaged || errors.Is(tail.Err, record.ErrChecksum), nil
}
