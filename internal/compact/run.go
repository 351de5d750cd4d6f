package compact

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/sstable"
)

// Job describes a merge: a flush or a compaction.
type Job struct {
	// Input supplies the entries. Run does not close it.
	Input base.Iterator
	// Boundaries are the sequence numbers of the open snapshots, ascending, and the current
	// sequence number. They delimit the snapshot stripes: of the entries of a key within
	// one stripe, only the newest is visible.
	Boundaries []uint64
	// NothingBelow reports whether no table outside the job can hold an older entry of
	// the key. It is called with ascending keys. Nil: never.
	NothingBelow func(userKey []byte) bool
	// SplitBefore reports whether a new table should start at the key, for reasons other
	// than size. It is called once for each ascending key. Nil: never.
	SplitBefore func(userKey []byte) bool
	// DeletionRun is the number of consecutive tombstones, of different keys, that get a table of
	// their own, so that a compaction can drop them without rewriting much else; 0: none do.
	DeletionRun int
	// TableBytes is the target size of a table; 0: unlimited.
	TableBytes int64
	// GrowTables returns the target size of the next table, if larger than TableBytes, when the
	// given number of bytes have been written. Nil: it does not grow.
	GrowTables func(written int64) int64
	// Writer configures the tables.
	Writer *sstable.WriterOptions
	// Create creates the file of the next table. The caller owns the files, whether Run
	// succeeds or not.
	Create func() (num uint64, f vfs.File, err error)
}

// Output is a complete, synced and closed table.
type Output struct {
	Num  uint64
	Info sstable.TableInfo
}

// LargeValue is the least size in bytes of a value that Stats.LargeBytes counts.
const LargeValue = 256 << 10

// Stats counts what a job did.
type Stats struct {
	EntriesIn, EntriesOut uint64
	BytesOut              int64
	LargeBytes            int64 // of values of at least LargeValue bytes
}

// Run executes a job. The outputs are durable except for their directory entries (I2). It never
// splits the entries of a user key over two tables.
func Run(ctx context.Context, job *Job) (outputs []Output, stats Stats, err error) {
	r := runner{job: job, tableBytes: job.TableBytes}
	defer func() { // also if the input panics
		if r.file == nil {
			return
		}
		if cerr := r.file.Close(); err == nil {
			err = cerr
		}
	}()
	err = r.run(ctx)
	return r.outputs, r.stats, err
}

// yieldEvery is how many entries are merged between calls of Turn.Yield and checks of the context,
// and yieldBytes how many bytes of values: small entries take 10 to 100 µs.
const (
	yieldEvery = 256
	yieldBytes = 256 << 10
)

type runner struct {
	job     *Job
	outputs []Output
	stats   Stats

	deletions int    // consecutive tombstones up to the current entry
	tableKeys int    // keys in the table being written
	shared    []byte // common prefix of the keys in the table being written

	tableBytes int64 // target size of the table being written

	num    uint64
	file   vfs.File // the table being written, or nil
	buf    *bufio.Writer
	writer *sstable.Writer
}

func (r *runner) run(ctx context.Context) error {
	in := r.job.Input
	var (
		key   []byte // the previous entry's user key
		have  bool
		last  int  // the previous entry's stripe
		split bool // start a new table at the next entry that is kept
	)
	turn := base.BeginTurns()
	defer turn.End()
	merged := 0 // bytes of values since the last yield
	for ok := in.First(); ok; ok = in.Next() {
		if r.stats.EntriesIn%yieldEvery == 0 || merged >= yieldBytes {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			turn.Yield()
			merged = 0
		}
		r.stats.EntriesIn++
		userKey, seq, kind, valid := base.SplitInternalKey(in.Key())
		if !valid {
			return fmt.Errorf("%w: entry without a valid internal key", base.ErrCorruption)
		}
		sameKey := have && bytes.Equal(userKey, key)
		// Stripe i holds entries that are first visible at boundary i; entries past the last
		// boundary are not visible yet.
		stripe, _ := slices.BinarySearch(r.job.Boundaries, seq)
		shadowed := sameKey && stripe == last && stripe < len(r.job.Boundaries)
		if !sameKey {
			key, have = append(key[:0], userKey...), true
			split = r.job.SplitBefore != nil && r.job.SplitBefore(key) || split
		}
		last = stripe
		if shadowed {
			continue
		}
		if kind == base.KindDelete && stripe == 0 && r.job.NothingBelow != nil && r.job.NothingBelow(key) {
			continue
		}
		if !sameKey {
			split = r.runEnds(kind) || split
			split = r.prefixEnds(key) || split
		}
		if r.writer != nil && !sameKey && (split || r.tableBytes > 0 && r.writer.EstimatedBytes() >= r.tableBytes) {
			if err := r.finish(); err != nil {
				return err
			}
		}
		split = false
		value := in.Value()
		merged += len(value)
		if err := r.add(userKey, seq, kind, value, sameKey); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil {
		return err
	}
	if r.writer != nil {
		return r.finish()
	}
	return nil
}

// add adds an entry to the table; if there is none, it begins one. sameKey: the previous entry of
// the input has the same key.
func (r *runner) add(key []byte, seq uint64, kind base.Kind, value []byte, sameKey bool) error {
	if r.writer == nil {
		if err := r.begin(); err != nil {
			return err
		}
	}
	if r.tableKeys == 0 && !sameKey {
		r.shared = append(r.shared[:0], key...)
	}
	if err := r.writer.Add(key, seq, kind, value); err != nil {
		return err
	}
	if !sameKey {
		r.tableKeys++
	}
	if len(value) >= LargeValue {
		r.stats.LargeBytes += int64(len(value))
	}
	r.stats.EntriesOut++
	return nil
}

// runEnds is called with the kind of each next key's newest entry. It reports whether a long run of
// tombstones ends before that entry, or becomes long enough with it for a table of its own.
// Tombstones of the run that were written before then stay in their table.
func (r *runner) runEnds(kind base.Kind) bool {
	n := r.job.DeletionRun
	if n == 0 {
		return false
	}
	if kind == base.KindDelete {
		r.deletions++
		return r.deletions == n && r.tableKeys >= 2*n
	}
	long := r.deletions >= n
	r.deletions = 0
	return long
}

const (
	// prefixBytes is by how much a key must shorten the common prefix of a table's keys to end the
	// table. The index distinguishes blocks by the eight bytes after the common prefix; with a
	// prefix that much shorter, most blocks would have the same eight bytes.
	prefixBytes = 8
	// prefixShare: only a table of at least 1/prefixShare of its target size is ended for that.
	prefixShare = 8
)

// prefixEnds is called with each next key. It reports whether the table should end before the key
// because the key would shorten the common prefix of the table's keys too much.
func (r *runner) prefixEnds(key []byte) bool {
	if r.writer == nil {
		return false
	}
	n := base.CommonPrefix(r.shared, key)
	lost := len(r.shared) - n
	r.shared = r.shared[:n]
	return lost >= prefixBytes && r.tableBytes > 0 && r.writer.EstimatedBytes() >= r.tableBytes/prefixShare
}

func (r *runner) begin() error {
	num, f, err := r.job.Create()
	if err != nil {
		return err
	}
	if r.buf == nil {
		r.buf = bufio.NewWriterSize(f, 64<<10)
	} else {
		r.buf.Reset(f)
	}
	if r.job.GrowTables != nil {
		r.tableBytes = max(r.job.TableBytes, r.job.GrowTables(r.stats.BytesOut))
	}
	o := *r.job.Writer
	o.FileNumber = num
	r.tableKeys = 0
	r.num, r.file, r.writer = num, f, sstable.NewWriter(r.buf, &o)
	return nil
}

func (r *runner) finish() error {
	info, err := r.writer.Finish()
	if err != nil {
		return err
	}
	if err := r.buf.Flush(); err != nil {
		return err
	}
	if err := r.file.Sync(); err != nil {
		return err
	}
	f := r.file
	r.file, r.writer = nil, nil
	if err := f.Close(); err != nil {
		return err
	}
	r.outputs = append(r.outputs, Output{Num: r.num, Info: *info})
	r.stats.BytesOut += info.Size
	return nil
}
