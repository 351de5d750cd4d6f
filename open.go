package sift

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/siftdb/sift/internal/filecache"
	"github.com/siftdb/sift/internal/gap"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/wal"
)

// Open opens the database in a directory. It creates the directory, with its parents, and the
// database if they do not exist; on the host's file system, directories get the mode 0755 and files
// 0644, the secret of KeyedFilters 0600, less the umask. o may be nil. Only one DB at a time, in
// whichever process, can have a directory open; with Options.ReadOnly, several can.
//
// After a crash, Open recovers a prefix of the writes that includes all those acknowledged with
// Sync; Metrics.Recovery reports what it dropped. It opens databases of LevelDB, goleveldb and
// earlier releases of sift without conversion.
//
// Errors match ErrLocked, ErrExists, ErrNotExist, ErrUnsupported if the database uses a comparator
// other than LevelDB's default, or ErrCorruption if the MANIFEST or a log is damaged, or a table is
// missing; Repair may help then. Others name an invalid field of o, or are those of the file
// system. Open succeeds even if a table is damaged; reads that need the table fail. A database of
// goleveldb with more than seven levels is the exception: unless ReadOnly is set, Open merges
// levels until it has seven, which may take long and fails if damaged tables prevent it.
//
// Open reads the logs and, unless ReadOnly is set, writes their contents to tables. It reads no
// tables: the index of each is loaded when it is first needed, or in the background, level 0
// first. The filters follow in the background; until then, lookups of absent keys read blocks.
func Open(dir string, o *Options) (*DB, error) {
	opts, err := o.resolve()
	if err != nil {
		return nil, err
	}
	d := newDB(dir, opts)
	if err := d.open(); err != nil {
		return nil, err
	}
	return d, nil
}

// newDB returns a DB that has read nothing from disk yet.
func newDB(dir string, opts Options) *DB {
	dir = cleanDir(dir)
	d := &DB{dir: dir, opts: opts, fs: opts.FS, gaps: gap.NewSet(opts.gapBytes)}
	d.opener = tableOpener{fs: d.fs, dir: dir, opts: &d.opts, secret: &d.secret, io: &d.blockIO, filters: &d.filters, indexes: &d.indexes}
	d.opener.loaded = func() { d.filterManager.Changed() }
	d.loader.stop, d.loader.done = make(chan struct{}), make(chan struct{})
	d.opener.files = filecache.New(d.fs, opts.MaxOpenFiles, opts.MapBytes)
	d.commit.db = d
	d.commit.init()
	d.bg.changed.L = &d.bg.mu
	for _, c := range []*cleaner{&d.cleaner, &d.retired} {
		c.idle.L, c.now = &c.mu, opts.cleanNow
	}
	d.logs = wal.Config{
		FS: d.fs, Dir: dir, Logger: opts.Logger,
		NextNum: func() uint64 { return d.nextFile.Add(1) - 1 },
		NextSeq: func() uint64 { return d.visible.Load() + 1 },
		Later:   d.cleaner.do,
	}
	d.divideMemory()
	return d
}

func (d *DB) open() (err error) {
	if d.opts.ReadOnly || d.opts.ErrorIfMissing {
		if err := d.mustExist(); err != nil {
			return err
		}
	} else if err := d.fs.MkdirAll(d.dir); err != nil {
		return err
	}
	d.lock, err = d.opts.lockDir(d.dir, !d.opts.ReadOnly)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.lock.Close())
		}
	}()
	state, err := manifest.Load(d.fs, d.dir)
	switch {
	case errors.Is(err, manifest.ErrNoDatabase):
		if d.opts.ReadOnly || d.opts.ErrorIfMissing {
			return fmt.Errorf("%w: %s", ErrNotExist, d.dir)
		}
		if state, err = d.create(); err != nil {
			return err
		}
	case err != nil:
		return err
	case d.opts.ErrorIfExists:
		return fmt.Errorf("%w: %s", ErrExists, d.dir)
	}
	if state.Dropped != nil {
		d.opts.Logger.Warn("the end of the MANIFEST was cut off", "err", state.Dropped)
		d.opts.Events.failed(state.Dropped)
		d.recovery.Torn = append(d.recovery.Torn, state.Dropped)
	}
	if err := d.openFilterKey(); err != nil {
		return err
	}
	return d.recover(state)
}

// mustExist returns an error if the directory is missing, cannot be read, or has no file of a
// database, not even LOCK: locking it would leave that file there.
func (d *DB) mustExist() error {
	names, err := d.fs.List(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrNotExist, err)
	}
	if err == nil && !slices.ContainsFunc(names, isDatabaseFile) {
		return fmt.Errorf("%w: %s", ErrNotExist, d.dir)
	}
	return err
}

func isDatabaseFile(name string) bool {
	_, _, ok := manifest.ParseName(name)
	return ok
}

// create creates an empty database: a MANIFEST without tables, and CURRENT. It writes nothing else
// before them, so that a directory with other files but without CURRENT is a damaged database and
// not a new one.
func (d *DB) create() (*manifest.State, error) {
	if err := d.syncParents(d.dir); err != nil {
		return nil, err
	}
	names, err := d.fs.List(d.dir)
	if err != nil {
		return nil, err
	}
	d.nextFile.Store(manifest.NewState().NextFile)
	d.reserveFileNumbers(names)
	if err := d.checkNextFile(); err != nil {
		return nil, err
	}
	if _, err := d.newManifest(new(manifest.Version)); err != nil {
		return nil, err
	}
	if err := d.manifest.Close(); err != nil {
		return nil, err
	}
	return manifest.Load(d.fs, d.dir)
}

// syncParents makes the directory entries of dir and of its parents durable, since any of them may
// be new. A directory that can be searched but not read cannot be synced. Open has created neither
// that directory nor its parents, but perhaps its subdirectory on the path to dir. Nothing on a
// read-only volume, such as the root of macOS, can be new.
func (d *DB) syncParents(dir string) error {
	for at := filepath.Dir(dir); ; at = filepath.Dir(at) {
		err := d.fs.SyncDir(at)
		if errors.Is(err, fs.ErrPermission) {
			if at == filepath.Dir(dir) {
				d.opts.Logger.Warn("a parent directory is not readable, so it cannot be synced: if the database's directory is new, a power cut may remove it", "dir", at, "err", err)
			}
			return nil
		} else if err != nil && !errors.Is(err, syscall.EROFS) {
			return err
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}
