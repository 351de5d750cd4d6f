package torture

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// Oracle judges the contents after a power cut at an operation.
type Oracle interface {
	// Found returns how many writes the contents hold.
	Found(contents map[string]string, ops int) (writes int, err error)
	// Began returns how many writes had begun.
	Began(ops int) int
	// Keys returns all keys that were ever written.
	Keys() []string
}

// CutStats counts outcomes of power cuts.
type CutStats struct {
	Images int
	Torn   int // images with a torn log
	Losses int // images on which fewer writes were found than had begun
}

func (s *CutStats) add(o CutStats) {
	s.Images += o.Images
	s.Torn += o.Torn
	s.Losses += o.Losses
}

// Cuts is a finished run of a workload whose power can be cut at any operation.
type Cuts struct {
	Env    *Env
	Oracle Oracle
	Stats  CutStats
	keys   []string
	round  int
}

// NewCuts returns the Cuts of an environment whose workload has ended.
func NewCuts(e *Env) *Cuts {
	e.H.Finish()
	c := &Cuts{Env: e, Oracle: e.H}
	if e.Oracle != nil {
		c.Oracle = e.Oracle
	}
	c.keys = c.Oracle.Keys()
	return c
}

func isMissing(err error) bool { return errors.Is(err, sift.ErrNotExist) }

// Cut cuts the power after the first ops operations and checks the image.
func (c *Cuts) Cut(ops int, s vfstest.Survival) error {
	img := c.Env.Mem.CrashImage(ops, s)
	c.Stats.Images++
	c.round++
	err := c.check(img, ops)
	if err != nil {
		err = fmt.Errorf("power cut after %d operations (survival %d): %w", ops, s, err)
	}
	return err
}

// check runs the checks that every image must pass.
func (c *Cuts) check(img *vfstest.Mem, ops int) error {
	if err := errors.Join(c.checkExtras(img, ops), c.Env.checkLost(img, ops)); err != nil {
		return err
	}
	open := c.open
	if c.Env.Repairs {
		open = c.openRepaired
	}
	db, err := open(img)
	if err != nil {
		return fmt.Errorf("the database does not open: %w", err)
	}
	contents, err := c.checkOpen(db, ops)
	if err != nil {
		db.Close()
		return err
	}
	if splitmix(uint64(c.round))%4 == 0 { // not at regular intervals, at which some survivals would never occur
		if contents, err = c.checkGoesOn(db, img, contents); err != nil {
			return err
		}
	} else if err := db.Close(); err != nil {
		return fmt.Errorf("Close: %w", err)
	}
	return c.checkClosed(img, contents)
}

func (c *Cuts) open(img *vfstest.Mem) (*sift.DB, error) {
	return sift.Open(c.Env.Dir, c.Env.options(img))
}

// checkOpen compares the recovered contents with the oracle.
func (c *Cuts) checkOpen(db *sift.DB, ops int) (map[string]string, error) {
	contents, err := contentsOf(db)
	if err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	found, err := c.Oracle.Found(contents, ops)
	if err != nil {
		return nil, err
	}
	if found < c.Oracle.Began(ops) {
		c.Stats.Losses++
	}
	r := db.Metrics().Recovery
	if len(r.Torn) > 0 {
		c.Stats.Torn++
	}
	for _, k := range c.keys {
		v, err := db.Get([]byte(k))
		if w, there := contents[k]; there && (err != nil || string(v) != w) {
			return nil, fmt.Errorf("a scan finds %q, but Get returns %.20q, %w", k, v, err)
		} else if !there && !errors.Is(err, sift.ErrNotFound) {
			return nil, fmt.Errorf("a scan does not find %q, but Get returns %.20q, %w", k, v, err)
		}
	}
	return contents, nil
}

// checkGoesOn writes to the recovered database and cuts the power again.
func (c *Cuts) checkGoesOn(db *sift.DB, img *vfstest.Mem, contents map[string]string) (map[string]string, error) {
	probe := fmt.Sprintf("probe %d", c.round)
	if err := db.Put([]byte("probe"), []byte(probe), sift.Sync); err != nil {
		return nil, fmt.Errorf("Put after recovery: %w", err)
	}
	contents["probe"] = probe
	second := img.CrashImage(img.NumOps(), vfstest.TearUnsynced(uint64(c.round)))
	again, err := c.Env.readImage(second)
	if err != nil {
		return nil, fmt.Errorf("after a second power cut: %w", err)
	}
	if sumOf(again) != sumOf(contents) {
		return nil, fmt.Errorf("after a second power cut: %s", difference(again, contents))
	}
	if err := db.Close(); err != nil {
		return nil, fmt.Errorf("Close: %w", err)
	}
	return contents, nil
}

// checkClosed checks a closed database: no faults, no superfluous files, and the same
// contents.
func (c *Cuts) checkClosed(img *vfstest.Mem, contents map[string]string) error {
	if err := checkClean(c.Env, img, c.Env.Dir); err != nil {
		return err
	}
	again, err := c.Env.readImage(img)
	if err != nil {
		return fmt.Errorf("second open: %w", err)
	}
	if sumOf(again) != sumOf(contents) {
		return fmt.Errorf("second open: %s", difference(again, contents))
	}
	return nil
}

// checkClean runs sift.Check and looks for unreferenced files.
func checkClean(e *Env, fs vfs.FS, dir string) error {
	var faults error
	report, err := sift.Check(context.Background(), dir, e.options(fs), func(fault error) { faults = errors.Join(faults, fault) })
	if err = errors.Join(err, faults); err != nil {
		return fmt.Errorf("Check: %w", err)
	}
	if len(report.Notes) > 0 {
		return fmt.Errorf("Check of a closed database notes: %s", report.Notes[0])
	}
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	count := map[manifest.FileKind]int{}
	for _, name := range names {
		kind, _, ok := manifest.ParseName(name)
		if !ok && !(e.Repairs && name == "lost") {
			return fmt.Errorf("not a database file: %s in %v", name, names)
		}
		count[kind]++
	}
	tables := count[manifest.KindTable] + count[manifest.KindTableSST]
	if count[manifest.KindLog] != 1 || count[manifest.KindManifest] != 1 || count[manifest.KindTemp] != 0 || tables != report.Tables {
		return fmt.Errorf("orphan files: %v, with %d tables in use", names, report.Tables)
	}
	return nil
}

// checkExtras checks the extra databases.
func (c *Cuts) checkExtras(img *vfstest.Mem, ops int) error {
	for _, x := range c.Env.extras {
		e := *c.Env
		e.Dir = x.dir
		contents, err := e.readExtra(img, ops >= x.made)
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(x.dir), err)
		}
		if contents != nil && sumOf(contents) != sumOf(x.contents) {
			return fmt.Errorf("%s: %s", filepath.Base(x.dir), difference(contents, x.contents))
		}
	}
	return nil
}

// readExtra reads an extra database, which must exist or may exist. An unfinished one is
// missing or returns an error, but never has wrong contents.
func (e *Env) readExtra(img *vfstest.Mem, must bool) (map[string]string, error) {
	o := e.options(img)
	o.ErrorIfMissing = true
	db, err := sift.Open(e.Dir, o)
	if err != nil {
		if !must && (isMissing(err) || errors.Is(err, sift.ErrCorruption)) {
			return nil, nil
		}
		return nil, err
	}
	contents, err := contentsOf(db)
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	return contents, checkClean(e, img, e.Dir)
}
