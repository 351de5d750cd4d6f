package torture

import (
	"errors"
	"fmt"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TrySpace repeats the run on a disk with space for the given number of bytes. Reads must
// continue to work, and everything must work once there is space again.
func (r *Recording) TrySpace(bytes int64) (failures int, err error) {
	e, faulty := r.start()
	wrap := e.Wrap
	e.Wrap = func(mem *vfstest.Mem) vfs.FS {
		fs := wrap(mem)
		(*faulty).SetSpace(bytes)
		return fs
	}
	(*faulty).SetSpace(bytes)
	e.ReadsWork = true
	r.Workload.Run(e, r.Writes)
	e.finish(faulty)
	if e.Err != nil {
		e.Err = fmt.Errorf("%s, space for %d of %d bytes: %w", r.Workload.Name, bytes, r.Bytes, e.Err)
	}
	return e.Failures, e.Err
}

// Resumption is how a database behaves when the disk has space again.
type Resumption uint8

// The possible behaviors.
const (
	Unharmed Resumption = iota // no write failed
	Resumes                    // it accepts writes again
	Refuses                    // it is read-only until it is reopened, and says so
)

// FillUp writes to a database whose disk has space for the given number of bytes, and then
// again with enough space. If stops is set, it stops at the first failure and flushes
// occasionally, so that a flush may fail first; otherwise it keeps writing to the full disk.
func FillUp(seed uint64, writes int, bytes int64, stops bool) (Resumption, error) {
	r := &Recording{Seed: seed}
	e, faulty := r.start()
	e.ReadsWork = true
	e.Open()
	(*faulty).SetSpace(bytes)
	for i := 0; i < writes && !(stops && e.Failures > 0); i++ {
		e.Put(e.key(40), 100, e.Sync(5))
		if stops && i%8 == 7 {
			e.Flush()
		}
	}
	if e.dead() {
		return 0, e.Err
	}
	e.Check()
	if e.Failures == 0 {
		e.finish(faulty)
		return Unharmed, e.Err
	}
	(*faulty).SetSpace(-1)
	outcome := e.resume()
	if outcome == Resumes {
		e.Compact("", "")
	}
	e.Check()
	e.finish(faulty)
	return outcome, e.Err
}

// resume writes until a write succeeds or the database refuses writes.
func (e *Env) resume() Resumption {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && e.Err == nil; time.Sleep(e.Retry) {
		before := e.Failures
		e.Put("more", 10, true)
		switch {
		case e.Failures == before:
			return Resumes
		case errors.Is(e.LastErr, sift.ErrReopen):
			return Refuses
		case !errors.Is(e.LastErr, sift.ErrTryAgain):
			e.broken("there is space again, and a write fails: %w", e.LastErr)
		}
	}
	e.broken("there is space again, and writes neither resume nor fail with ErrReopen: %w", e.LastErr)
	return Refuses
}
