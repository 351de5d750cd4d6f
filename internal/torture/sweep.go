package torture

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// Trouble is a way for operations to fail.
type Trouble struct {
	Name  string
	Fault vfstest.Fault    // without Index and Match, which select operations
	Kinds []vfstest.OpKind // of operations that can fail; nil: all
}

// strikes reports whether an operation can fail with this trouble.
func (t Trouble) strikes(op vfstest.Op) bool {
	return t.Kinds == nil || slices.Contains(t.Kinds, op.Kind)
}

var (
	growing  = []vfstest.OpKind{vfstest.OpCreate, vfstest.OpWrite, vfstest.OpRename, vfstest.OpLink, vfstest.OpMkdirAll, vfstest.OpSync, vfstest.OpSyncDir}
	opening  = []vfstest.OpKind{vfstest.OpCreate, vfstest.OpOpen, vfstest.OpList, vfstest.OpLock}
	changing = append([]vfstest.OpKind{vfstest.OpRemove}, growing...)
)

// Troubles are what the error sweep tries at each operation. With sticky ones every later
// operation of their kinds fails, too.
var Troubles = []Trouble{
	{"EIO once", vfstest.Fault{Err: syscall.EIO}, nil},
	{"EIO from then on", vfstest.Fault{Err: syscall.EIO, Sticky: true}, nil},
	{"EIO once, though done", vfstest.Fault{Err: syscall.EIO, After: true}, changing},
	{"ENOSPC once", vfstest.Fault{Err: syscall.ENOSPC}, growing},
	{"ENOSPC from then on", vfstest.Fault{Err: syscall.ENOSPC, Sticky: true}, growing},
	{"short write once", vfstest.Fault{Err: syscall.ENOSPC, Short: true}, []vfstest.OpKind{vfstest.OpWrite}},
	{"short writes from then on", vfstest.Fault{Err: syscall.ENOSPC, Short: true, Sticky: true}, []vfstest.OpKind{vfstest.OpWrite}},
	{"EMFILE once", vfstest.Fault{Err: syscall.EMFILE}, opening},
	{"EMFILE from then on", vfstest.Fault{Err: syscall.EMFILE, Sticky: true}, opening},
}

// FailedSync is a failed Sync that discards the data, as on Linux.
var FailedSync = Trouble{"fsync that drops the pages", vfstest.Fault{Err: syscall.EIO, DropPages: true}, []vfstest.OpKind{vfstest.OpSync}}

// Recording is a run of a workload without faults: its operations on the file system, and
// the places in the store that make them.
type Recording struct {
	Workload Workload
	Writes   int
	Seed     uint64
	Sites    []*Site
	Bytes    int64 // written
}

// Site is an operation on the file system together with its call stack in the store.
type Site struct {
	ID    uint64
	Op    vfstest.Op // the first
	Times int        // how often it occurs
}

// Record runs a workload and records its operations.
func Record(w Workload, writes int, seed uint64) (*Recording, error) {
	r := &Recording{Workload: w, Writes: writes, Seed: seed}
	e := NewEnv(seed)
	e.Wrap = func(mem *vfstest.Mem) vfs.FS {
		f := vfstest.Inject(mem)
		r.Sites, r.Bytes = nil, 0
		sites := map[uint64]*Site{}
		f.SetFaults(vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool {
			id := siteOf(op)
			if sites[id] == nil {
				sites[id] = &Site{ID: id, Op: op}
				r.Sites = append(r.Sites, sites[id])
			}
			sites[id].Times++
			if op.Kind == vfstest.OpWrite {
				r.Bytes += int64(op.Len)
			}
			return false
		}})
		return f
	}
	e.FS = e.Wrap(e.Mem)
	w.Run(e, writes)
	return r, e.Err
}

// siteOf returns the call stack of the current operation within the store, up to the start
// of the goroutine or the workload.
func siteOf(op vfstest.Op) uint64 {
	var pcs [48]uintptr
	n := runtime.Callers(2, pcs[:])
	id := uint64(op.Kind) + 1
	for _, pc := range pcs[:n] {
		if inStore(pc) {
			id = (id ^ uint64(pc)) * 0x9e3779b97f4a7c15
			id ^= id >> 29
		}
	}
	return id
}

var storePCs sync.Map // of uintptr to bool

// inStore reports whether a program counter is in the store itself.
func inStore(pc uintptr) bool {
	if in, ok := storePCs.Load(pc); ok {
		return in.(bool)
	}
	const module = "github.com/siftdb/sift"
	in := false
	frames := runtime.CallersFrames([]uintptr{pc})
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		pkg, ok := strings.CutPrefix(f.Function, module)
		in = in || ok && !strings.HasPrefix(pkg, "/internal/vfs") && !strings.HasPrefix(pkg, "/internal/torture")
	}
	storePCs.Store(pc, in)
	return in
}

// arm returns the trouble as a fault at the nth occurrence of the site, which then calls
// hit.
func (t Trouble) arm(site uint64, nth int, hit func()) vfstest.Fault {
	f := t.Fault
	f.Index = -1
	times, struck := 0, false
	f.Match = func(op vfstest.Op) bool {
		if struck {
			return t.strikes(op)
		}
		if siteOf(op) != site {
			return false
		}
		times++
		if struck = times == nth; struck {
			hit()
		}
		return struck
	}
	return f
}

// Try repeats the run with a fault at the nth occurrence of a site, and verifies all
// guarantees. It returns the number of failed calls.
func (r *Recording) Try(t Trouble, site *Site, nth int) (failures int, err error) {
	var e *Env
	var faulty **vfstest.Faulty
	e, faulty = r.start(t.arm(site.ID, nth, func() { e.struck = max(1, e.ops()) }))
	r.Workload.Run(e, r.Writes)
	e.finish(faulty)
	if e.Err != nil {
		e.Err = fmt.Errorf("%s, %s at %v (occurrence %d of %d): %w", r.Workload.Name, t.Name, site.Op, nth, site.Times, e.Err)
	}
	return e.Failures, e.Err
}

// start returns an environment with a fault.
func (r *Recording) start(faults ...vfstest.Fault) (*Env, **vfstest.Faulty) {
	e := NewEnv(r.Seed)
	e.Faults, e.Retry = true, 200*time.Microsecond
	faulty := new(*vfstest.Faulty)
	e.Wrap = func(mem *vfstest.Mem) vfs.FS {
		*faulty = vfstest.Inject(mem)
		(*faulty).SetFaults(faults...)
		return *faulty
	}
	e.FS = e.Wrap(e.Mem)
	return e, faulty
}

// finish closes a database that has seen faults, cuts the power in several ways, and then
// repairs the disk and verifies the database.
func (e *Env) finish(faulty **vfstest.Faulty) {
	e.Close()
	if open := (*faulty).OpenFiles(); len(open) > 0 {
		e.broken("files are left open: %v", open)
	}
	if e.Err != nil {
		return
	}
	ops := e.ops()
	for _, s := range []vfstest.Survival{vfstest.LoseUnsynced, vfstest.KeepUnsynced, vfstest.TearUnsynced(e.Rng.Uint64())} {
		if err := e.afterFaults(e.Mem.CrashImage(ops, s), ops); err != nil {
			e.broken("with a power cut then (survival %d): %w", s, err)
			return
		}
	}
	if err := e.cutsAfterFault(ops); err != nil {
		e.broken("%w", err)
		return
	}
	(*faulty).SetFaults()
	(*faulty).SetSpace(-1)
	e.Faults = false
	e.heal()
}

// cutsAfterFault cuts the power at some moments between the fault and the end, unless the
// database was reopened in between: what was done after a failure may be on disk although
// something before it is not.
func (e *Env) cutsAfterFault(last int) error {
	if e.struck == 0 || e.struck < e.begun || e.struck >= last || e.Repairs {
		return nil
	}
	for i := range 4 {
		at := min(e.struck+1+2*i, last)
		if i > 1 {
			at = e.struck + e.Rng.IntN(last-e.struck)
		}
		s := vfstest.LoseUnsynced
		if i%2 == 1 {
			s = vfstest.TearUnsynced(e.Rng.Uint64())
		}
		if err := e.afterFaults(e.Mem.CrashImage(at, s), at); err != nil {
			return fmt.Errorf("with a power cut %d operations after the fault (survival %d): %w", at-e.struck, s, err)
		}
	}
	return nil
}

// heal opens a database whose disk works again, and uses it.
func (e *Env) heal() {
	if e.Repairs && !e.opens(e.FS) {
		_, err := sift.Repair(e.Dir, e.options(e.FS))
		if e.failed("Repair, once the disk works again", err) {
			return
		}
	}
	e.Open()
	e.Put("afterwards", 100, true)
	e.Compact("", "")
	e.Check()
	e.Close()
	if e.Err == nil {
		if err := checkClean(e, e.FS, e.Dir); err != nil {
			e.broken("once the disk works again: %w", err)
		}
	}
}

// opens reports whether a database can be opened, and closes it.
func (e *Env) opens(fs vfs.FS) bool {
	db, err := sift.Open(e.Dir, e.options(fs))
	if err == nil {
		err = db.Close()
	}
	return err == nil
}

// afterFaults checks the contents after a power cut of a disk that had faults.
func (e *Env) afterFaults(img *vfstest.Mem, ops int) error {
	if e.Repairs && !e.opens(img) {
		if _, err := sift.Repair(e.Dir, e.options(img)); err != nil {
			return fmt.Errorf("repairing: %w", err)
		}
	}
	db, err := sift.Open(e.Dir, e.options(img))
	if err != nil {
		return fmt.Errorf("the database does not open: %w", err)
	}
	contents, err := contentsOf(db)
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	if _, err := e.H.Found(contents, ops); err != nil {
		return err
	}
	return errors.Join(checkClean(e, img, e.Dir), (&Cuts{Env: e}).checkExtras(img, ops))
}
