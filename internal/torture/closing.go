package torture

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// closer closes a database, in separate goroutines, when a given operation on the file system
// begins. A nil closer does nothing.
type closer struct {
	due func(vfstest.Op) bool // reports whether it closes at this operation

	mu  sync.Mutex
	db  *sift.DB // the last one that was opened; nil: none yet
	wg  sync.WaitGroup
	err error // the errors of Close, except ErrClosed
}

// opened sets the database to close.
func (c *closer) opened(db *sift.DB) {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.db = db
	}
}

// wait waits until the database is closed.
func (c *closer) wait() {
	if c != nil {
		c.wg.Wait()
	}
}

// hook is called before each operation. Two goroutines close the database at once; the
// operation waits a moment to give them a head start.
func (c *closer) hook(op vfstest.Op) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.due(op) || c.db == nil { // nil: it is being opened
		return nil
	}
	db := c.db
	for range 2 {
		c.wg.Go(func() {
			if err := db.Close(); err != nil && !errors.Is(err, sift.ErrClosed) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.err = errors.Join(c.err, err)
			}
		})
	}
	time.Sleep(50 * time.Microsecond)
	return nil
}

// TryClose repeats the run and closes the database when a site is reached for the nth time,
// whatever is running then. The workload continues, and may reopen the database. It returns the
// number of failed calls.
func (r *Recording) TryClose(site *Site, nth int) (failures int, err error) {
	e, faulty := r.start()
	times := 0
	c := &closer{due: func(op vfstest.Op) bool {
		if siteOf(op) == site.ID {
			times++
			return times == nth
		}
		return false
	}}
	e.closeAt = c
	wrap := e.Wrap
	e.Wrap = func(mem *vfstest.Mem) vfs.FS {
		fs := wrap(mem)
		(*faulty).SetHook(c.hook)
		return fs
	}
	(*faulty).SetHook(c.hook)
	r.Workload.Run(e, r.Writes)
	e.Close()
	c.wait()
	(*faulty).SetHook(nil)
	e.closeAt = nil
	if c.err != nil {
		e.broken("Close: %w", c.err)
	}
	e.finish(faulty)
	if e.Err != nil {
		e.Err = fmt.Errorf("%s, closed at %v (occurrence %d of %d): %w", r.Workload.Name, site.Op, nth, site.Times, e.Err)
	}
	return e.Failures, e.Err
}
