package torture

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// runRepair creates a database, removes or damages its CURRENT or MANIFEST, and repairs
// it. The recorded disk starts out damaged.
func runRepair(e *Env, n int) {
	faults := e.Faults
	e.FS, e.Faults = e.Mem, false
	runDelete(e, n)
	if e.Err != nil {
		return
	}
	err := e.damageForRepair()
	if err != nil {
		e.broken("damage: %w", err)
		return
	}
	e.H = NewHistory(e.H.now)
	e.Faults, e.Repairs = faults, true
	e.lost, err = filesOf(e.Mem, e.Dir)
	if err != nil {
		e.broken("damage: %w", err)
		return
	}
	report, err := sift.Repair(e.Dir, e.options(e.FS))
	if e.failed("Repair", err) {
		return
	}
	if int(report.Entries) != len(e.H.now) {
		e.broken("Repair reports %d entries; there were %d", report.Entries, len(e.H.now))
	}
	e.H.Durable(e.ops())
	e.repaired = e.ops()
	if err := e.checkLost(e.Mem, e.repaired); err != nil {
		e.broken("Repair: %w", err)
		return
	}
	e.Open()
	for range n / 10 {
		e.Put(e.key(25), 30+e.Rng.IntN(100), e.Sync(4))
	}
	e.Check()
	e.Close()
}

// damageForRepair damages CURRENT or the MANIFEST, and makes a new disk of the result.
func (e *Env) damageForRepair() error {
	names, err := e.Mem.List(e.Dir)
	if err != nil {
		return err
	}
	current := filepath.Join(e.Dir, manifest.MakeName(manifest.KindCurrent, 0))
	for _, name := range names {
		kind, _, _ := manifest.ParseName(name)
		if kind != manifest.KindManifest {
			continue
		}
		path := filepath.Join(e.Dir, name)
		switch e.Rng.IntN(4) {
		case 0:
			err = e.Mem.Remove(current)
		case 1:
			err = e.Mem.Remove(path)
		case 2:
			err = rewrite(e.Mem, path, func(b []byte) []byte { return b[:e.Rng.IntN(len(b))] })
		case 3:
			err = rewrite(e.Mem, path, func(b []byte) []byte { b[e.Rng.IntN(len(b))] ^= 0x10; return b })
		}
	}
	img := e.Mem.CrashImage(e.ops(), vfstest.KeepUnsynced)
	e.Mem, e.FS = img, e.Wrap(img)
	return err
}

// rewrite replaces the bytes of a file.
func rewrite(fs vfs.FS, path string, edit func([]byte) []byte) error {
	b, err := readFile(fs, path)
	if err != nil {
		return err
	}
	return writeFile(fs, path, edit(b))
}

func readFile(fs vfs.FS, path string) ([]byte, error) {
	size, err := fs.Size(path)
	if err != nil {
		return nil, err
	}
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if n == len(b) {
		err = nil
	}
	return b, errors.Join(err, f.Close())
}

func writeFile(fs vfs.FS, path string, b []byte) error {
	f, err := fs.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// openRepaired opens a database whose repair was interrupted by a power cut: either it
// can be opened, or it can be repaired again.
func (c *Cuts) openRepaired(img *vfstest.Mem) (*sift.DB, error) {
	o := c.Env.options(img)
	o.ErrorIfMissing = true
	db, err := sift.Open(c.Env.Dir, o)
	if err == nil || !errors.Is(err, sift.ErrCorruption) {
		return db, err
	}
	if _, err := sift.Repair(c.Env.Dir, c.Env.options(img)); err != nil {
		return nil, fmt.Errorf("repairing: %w", err)
	}
	return sift.Open(c.Env.Dir, o)
}

// checkLost checks that the files that a repair reads are kept unchanged: in the directory
// lost once it has returned, and before that there or in their old place.
func (e *Env) checkLost(img *vfstest.Mem, ops int) error {
	if !e.Repairs {
		return nil
	}
	moved := e.repaired != 0 && ops >= e.repaired
	for name, b := range e.lost {
		kind, _, _ := manifest.ParseName(name)
		if kind == manifest.KindLock || kind == manifest.KindCurrent {
			continue // replaced, as it must be
		}
		got, err := readFile(img, filepath.Join(e.Dir, "lost", name))
		if err != nil && !moved {
			got, err = readFile(img, filepath.Join(e.Dir, name))
		}
		if err != nil {
			return fmt.Errorf("a file that Repair has read is not kept: %w", err)
		}
		if !bytes.Equal(got, b) {
			return fmt.Errorf("a file that Repair has read is not kept: %s has changed", name)
		}
	}
	return nil
}
