//go:build linux

package block

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/torture"
)

// stats adds up the results of runs.
type stats struct {
	runs, writes, events, flushes int
	overtook                      int // flushes that began while a write was in flight
	images                        int // checked
	losses                        int // images that lack writes that had begun
	broken                        int // images that violate a guarantee
	unopened                      int // databases that did not open
	refused                       int // images that the file system refuses to mount
	reclaims                      int // times that the page cache was reclaimed during the writes
}

func (s *stats) add(o stats) {
	s.runs += o.runs
	s.writes += o.writes
	s.events += o.events
	s.flushes += o.flushes
	s.overtook += o.overtook
	s.images += o.images
	s.losses += o.losses
	s.broken += o.broken
	s.unopened += o.unopened
	s.refused += o.refused
	s.reclaims += o.reclaims
}

func (s stats) String() string {
	return fmt.Sprintf("%d runs, %d writes, the page cache reclaimed %d times; %d events on the disk, %d of them flushes, %d of these during a write; %d images, %d of which lack writes that had begun: %d violations, %d databases that do not open; %d images that the file system does not mount",
		s.runs, s.writes, s.reclaims, s.events, s.flushes, s.overtook, s.images, s.losses, s.broken, s.unopened, s.refused)
}

// A run is a database at work on a recorded disk, and the power cuts after it.
type run struct {
	fs     *fileSystem
	engine engine
	dir    string // for its files, in memory
	rng    *rand.Rand
	writes int
	images int
	keep   string    // the directory for images that violate a guarantee
	until  time.Time // after it, no further image is checked; the first one always is

	disk        *disk
	oracle      torture.Oracle
	checkpoints []checkpoint
	stats       stats
}

// checkpoint is a copy of the database that must be intact after a power cut later than made.
type checkpoint struct {
	name     string
	contents map[string]string
	made     int
}

// dbName is the database's directory on the disk.
const dbName = "db"

// do performs a run on a disk whose initial contents are the file named base in the run's
// directory. The disk holds a database with contents; if contents is empty, it holds none.
func (r *run) do(contents map[string]string) error {
	tape, err := r.record(contents)
	if err != nil {
		return err
	}
	r.stats.runs++
	r.stats.events += len(tape.events)
	for _, e := range tape.events {
		if e.flush {
			r.stats.flushes++
			if len(e.except) > 0 {
				r.stats.overtook++
			}
		}
	}
	return r.cuts(tape)
}

// record runs the writers on the database, and returns what reached its disk.
func (r *run) record(contents map[string]string) (t *tape, err error) {
	if r.disk, err = startDisk(r.dir, r.rng.Uint64()); err != nil {
		return nil, err
	}
	defer func() {
		if r.disk != nil {
			r.disk.stdin.Close() // it unmounts
			r.disk.cmd.Wait()
		}
	}()
	m, err := r.fs.mountFile(r.disk.file(), filepath.Join(r.dir, "work"))
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(m.dir, dbName)
	stop := writeBack(dir, r.rng.Uint64())
	var short *pressure
	if r.rng.IntN(2) == 0 {
		short, _ = startPressure() // nil where there is no such cgroup
	}
	if len(contents) == 0 && r.engine.name == siftEngine.name && r.rng.IntN(4) == 0 {
		err = r.group(dir)
	} else {
		err = r.single(dir, contents)
	}
	stop()
	if short != nil {
		n, serr := short.stop()
		r.stats.reclaims += n
		err = errors.Join(err, serr)
	}
	if err = errors.Join(err, m.unmount()); err != nil {
		return nil, err
	}
	t, err = r.disk.stop()
	r.disk = nil
	return t, err
}

// writeBack makes the kernel write back files of a directory: logs, or any files if there are none.
// It writes back single pages in any order, or whole files, whose clean pages the kernel then
// drops, as it does when memory is short. It continues until stop is called.
func writeBack(dir string, seed uint64) (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 3))
		for {
			select {
			case <-end:
				return
			case <-time.After(time.Duration(rng.IntN(4000)) * time.Microsecond):
			}
			names, _ := filepath.Glob(filepath.Join(dir, "*.log"))
			if len(names) == 0 {
				names, _ = filepath.Glob(filepath.Join(dir, "*"))
			}
			if len(names) == 0 {
				continue
			}
			f, err := os.Open(names[rng.IntN(len(names))])
			if err != nil {
				continue // it is gone
			}
			if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
				if rng.IntN(8) == 0 { // all of the file, which is then read from the disk
					unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
				}
				for range 1 + rng.IntN(3) {
					// Logs have preallocated space at the end; pages far into it are not dirty.
					page := rng.Int64N(min(info.Size(), 64<<10)/pageBytes + 1)
					unix.SyncFileRange(int(f.Fd()), page*pageBytes, pageBytes, unix.SYNC_FILE_RANGE_WRITE)
				}
			}
			f.Close()
		}
	})
	return func() { close(end); wg.Wait() }
}

// single runs one writer. After a power cut, the database must hold a prefix of its writes.
func (r *run) single(dir string, contents map[string]string) error {
	h := torture.NewHistory(contents)
	r.oracle = h
	syncs := []int{2, 4, 20}[r.rng.IntN(3)] // one write in this many is synced
	now := maps.Clone(contents)
	if now == nil {
		now = map[string]string{}
	}
	s, err := r.engine.open(dir)
	if err != nil {
		return err
	}
	defer func() {
		if s != nil {
			s.Close()
		}
	}()
	for i := range r.writes {
		edits := r.edits(i)
		sync := r.rng.IntN(syncs) == 0 || !r.engine.unsynced
		h.Begin(edits, sync, r.disk.now())
		err := s.Write(edits, sync)
		h.End(err, r.disk.now())
		if err != nil {
			return err
		}
		r.stats.writes++
		for _, e := range edits {
			if e.Delete {
				delete(now, e.Key)
			} else {
				now[e.Key] = e.Value
			}
		}
		switch r.rng.IntN(30) {
		case 0:
			durable, err := s.Tidy(r.rng.IntN(100))
			if err != nil {
				return err
			}
			if durable {
				h.Durable(r.disk.now())
			}
		case 1:
			err := s.Close()
			s = nil
			if err != nil {
				return err
			}
			reopened, err := r.engine.open(dir)
			if err != nil {
				return err
			}
			s = reopened
		case 2:
			if err := r.checkpoint(s, now); err != nil {
				return err
			}
		}
	}
	err = s.Close()
	s = nil
	h.Finish()
	return err
}

// edits returns a write: of one key, a few, or many.
func (r *run) edits(i int) []torture.Edit {
	n := 1
	if r.rng.IntN(3) == 0 {
		n += r.rng.IntN(12)
	}
	edits := make([]torture.Edit, n)
	for j := range edits {
		size := r.rng.IntN(200)
		if r.rng.IntN(40) == 0 {
			size = r.rng.IntN(12 << 10)
		}
		edits[j] = torture.Edit{Key: fmt.Sprintf("key%03d", r.rng.IntN(60)), Value: fmt.Sprintf("%d.%d ", i, j) + strings.Repeat("x", size)}
		if r.rng.IntN(5) == 0 {
			edits[j] = torture.Edit{Key: edits[j].Key, Delete: true}
		}
	}
	return edits
}

// checkpoint makes a checkpoint next to the database, if the engine has them.
func (r *run) checkpoint(s store, now map[string]string) error {
	db, ok := s.(*siftStore)
	if !ok {
		return nil
	}
	c := checkpoint{name: fmt.Sprintf("copy%08x", r.rng.Uint32()), contents: maps.Clone(now)}
	if err := db.db.Checkpoint(filepath.Join(r.dir, "work", c.name)); err != nil {
		return err
	}
	c.made = r.disk.now()
	r.checkpoints = append(r.checkpoints, c)
	return nil
}

// group runs several writers at once, some of whose writes are synced.
func (r *run) group(dir string) error {
	const writers = 4
	s, err := r.engine.open(dir)
	if err != nil {
		return err
	}
	g := &torture.GroupHistory{}
	r.oracle = g
	var wg sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		rng := rand.New(rand.NewPCG(r.rng.Uint64(), uint64(w)))
		wg.Go(func() {
			for i := range r.writes / writers {
				edits := make([]torture.Edit, 1+rng.IntN(3))
				for j := range edits {
					edits[j] = torture.Edit{Key: fmt.Sprintf("%d/%04d/%d", w, i, j), Value: strings.Repeat("x", rng.IntN(300)+1)}
				}
				sync := rng.IntN(3) == 0
				id := g.Begin(edits, sync, r.disk.now())
				if errs[w] = s.Write(edits, sync); errs[w] != nil {
					return
				}
				g.End(id, r.disk.now())
			}
		})
	}
	wg.Wait()
	r.stats.writes += r.writes
	return errors.Join(append(errs, s.Close())...)
}

// cuts checks images of what the run left. It continues after a violation, and returns the first
// one.
func (r *run) cuts(t *tape) (first error) {
	c := newCutter(t)
	for _, clock := range r.clocks(t) {
		if r.stats.images > 0 && time.Now().After(r.until) {
			break
		}
		s := survival(r.rng.IntN(int(survivals)))
		c.cut(clock, s, r.rng)
		err := r.cut(c, s)
		if err == nil {
			continue
		}
		if _, ok := errors.AsType[*violation](err); !ok {
			return err
		}
		if r.keep != "" {
			name := filepath.Join(r.keep, fmt.Sprintf("%s-%s-%08x", r.engine.name, r.fs.name, r.rng.Uint32()))
			err = errors.Join(fmt.Errorf("%w; the disk is %s", err, name), c.writeImage(name))
		}
		if first == nil {
			first = fmt.Errorf("%s on %s, power cut after %d of %d events (survival %d): %w", r.engine.name, r.fs.name, clock, len(t.events), s, err)
		}
	}
	return first
}

// cut checks one image, and sometimes continues from it.
func (r *run) cut(c *cutter, s survival) error {
	image := filepath.Join(r.dir, "image")
	if err := c.writeImage(image); err != nil {
		return err
	}
	r.stats.images++
	contents, err := r.check(image, atCut(c.clock))
	if errors.Is(err, errMount) && (s == keepTorn || r.fs.refuses) {
		r.stats.refused++
		return nil
	}
	if _, ok := errors.AsType[*violation](err); ok {
		r.stats.broken++
	}
	if err == nil && contents != nil && r.rng.IntN(12) == 0 {
		err = r.again(c, contents)
		if errors.Is(err, errMount) && r.fs.refuses {
			r.stats.refused++
			return nil
		}
	}
	return err
}

// clocks returns when to cut: half of the time anywhere, half of the time next to a flush.
func (r *run) clocks(t *tape) []int {
	var flushes []int
	for i, e := range t.events {
		if e.flush {
			flushes = append(flushes, i)
		}
	}
	var clocks []int
	for range r.images {
		at := r.rng.IntN(len(t.events) + 1)
		if r.rng.IntN(2) == 0 && len(flushes) > 0 {
			at = flushes[r.rng.IntN(len(flushes))] + r.rng.IntN(2)
		}
		clocks = append(clocks, at)
	}
	slices.Sort(clocks)
	return clocks
}

// violation is a violated guarantee.
type violation struct{ err error }

func (v *violation) Error() string { return v.err.Error() }
func (v *violation) Unwrap() error { return v.err }

func broken(format string, args ...any) error { return &violation{fmt.Errorf(format, args...)} }

// check mounts an image and compares the database with what was acknowledged. contents is nil if
// there is no database.
func (r *run) check(image string, clock int) (contents map[string]string, err error) {
	m, err := r.fs.mountFile(image, filepath.Join(r.dir, "check"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.unmount()) }()
	dir := filepath.Join(m.dir, dbName)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		if _, err := r.oracle.Found(nil, clock); err != nil {
			return nil, broken("no database: %w", err)
		}
		return nil, nil
	}
	contents, found, err := r.open(dir, clock)
	if err != nil {
		return nil, err
	}
	if found < r.oracle.Began(clock) {
		r.stats.losses++
	}
	again, _, err := r.open(dir, -1)
	if err != nil {
		return nil, err
	}
	if !maps.Equal(contents, again) {
		return nil, broken("a second open finds other contents: %d keys, the first %d", len(again), len(contents))
	}
	if r.engine.name == siftEngine.name {
		if err := checkSift(dir); err != nil {
			return nil, broken("%w", err)
		}
		err = r.checkCheckpoints(m.dir, clock)
	}
	return contents, err
}

// open reads a database. If clock is not negative, it compares the contents with the oracle, and
// then, half of the time, writes a key that the next open must find.
func (r *run) open(dir string, clock int) (contents map[string]string, found int, err error) {
	s, err := r.engine.open(dir)
	if err != nil {
		r.stats.unopened++
		return nil, 0, broken("the database does not open: %w", err)
	}
	defer func() {
		if err2 := s.Close(); err == nil && err2 != nil {
			err = broken("Close: %w", err2)
		}
	}()
	if contents, err = s.Contents(r.oracle.Keys()); err != nil {
		return nil, 0, broken("%w", err)
	}
	if clock < 0 {
		return contents, 0, nil
	}
	if found, err = r.oracle.Found(contents, clock); err != nil {
		return nil, 0, broken("%w", err)
	}
	if r.rng.IntN(2) == 0 {
		edit := torture.Edit{Key: "probe", Value: "probe"}
		if err := s.Write([]torture.Edit{edit}, true); err != nil {
			return nil, 0, broken("a write after recovery: %w", err)
		}
		contents["probe"] = "probe"
	}
	return contents, found, nil
}

// checkCheckpoints checks the checkpoints that were made before a clock.
func (r *run) checkCheckpoints(dir string, clock int) error {
	for _, c := range r.checkpoints {
		if c.made > clock {
			continue
		}
		o := siftOptions()
		o.ReadOnly = true
		db, err := sift.Open(filepath.Join(dir, c.name), o)
		if err != nil {
			return broken("checkpoint %s: %w", c.name, err)
		}
		contents, err := (&siftStore{db: db}).Contents(nil)
		if err := errors.Join(err, db.Close()); err != nil {
			return broken("checkpoint %s: %w", c.name, err)
		}
		if !maps.Equal(contents, c.contents) {
			return broken("checkpoint %s has other contents than when it was made: %d keys, want %d", c.name, len(contents), len(c.contents))
		}
	}
	return nil
}

// again continues from the image of a power cut: it records the recovery, and cuts the power during
// that, too.
func (r *run) again(c *cutter, contents map[string]string) error {
	delete(contents, "probe")
	next := &run{fs: r.fs, engine: r.engine, dir: filepath.Join(r.dir, "again"), rng: r.rng,
		writes: r.writes / 8, images: r.images / 4, keep: r.keep, until: r.until}
	if err := os.MkdirAll(next.dir, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(next.dir)
	if err := c.writeImage(filepath.Join(next.dir, baseName)); err != nil {
		return err
	}
	err := next.do(contents)
	r.stats.add(next.stats)
	if err != nil {
		return fmt.Errorf("after a first power cut: %w", err)
	}
	return nil
}

// copyFile copies a sparse file.
func copyFile(to, from string) error {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	size, err := extents(from, func(b []byte, off int64) error {
		_, err := out.WriteAt(b, off)
		return err
	})
	return errors.Join(err, out.Truncate(size), out.Close())
}

// readSparse reads a sparse file, whose holes take no memory.
func readSparse(name string) (b []byte, err error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	b = make([]byte, info.Size())
	_, err = extents(name, func(data []byte, off int64) error {
		copy(b[off:], data)
		return nil
	})
	return b, err
}

// extents calls fn for the parts of a file that are not holes, and returns the file's size.
func extents(name string, fn func(b []byte, off int64) error) (size int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	for at := int64(0); ; {
		start, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return info.Size(), nil // only holes follow
		} else if err != nil {
			return 0, err
		}
		if at, err = f.Seek(start, unix.SEEK_HOLE); err != nil {
			return 0, err
		}
		b := make([]byte, at-start)
		if _, err := f.ReadAt(b, start); err != nil {
			return 0, err
		}
		if err := fn(b, start); err != nil {
			return 0, err
		}
	}
}
