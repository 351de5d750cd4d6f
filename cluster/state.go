package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/cluster/internal/durable"
	"github.com/siftdb/sift/internal/vfs"
)

// A node's directory holds databases, and a file that names the one in use:
//
//	CURRENT         "state-N\n"
//	state-N/        a sift database
//	checkpoint-*/   a snapshot that is being taken
//
// A snapshot is installed into a directory with the next number, synced, and then named by a
// CURRENT that replaces the old one. Everything else in the directory is left over from a crash,
// and is removed when the node is opened.
//
// On disk; do not change.
const (
	currentName      = "CURRENT"
	statePrefix      = "state-"
	checkpointPrefix = "checkpoint-"
	tempSuffix       = ".tmp"
)

type stateDir struct {
	dir  string
	opts sift.Options
	next uint64 // the number of the next database
}

func newStateDir(dir string, o *sift.Options) stateDir {
	var opts sift.Options
	if o != nil {
		opts = *o
	}
	opts.FS, opts.ReadOnly, opts.ErrorIfExists, opts.ErrorIfMissing, opts.Lock = nil, false, false, false, nil
	// A command is applied on all nodes or on none, so no limit may depend on how fast a node is.
	opts.TxLifetime, opts.TxBytes = -1, 1<<30
	return stateDir{dir: dir, opts: opts}
}

// state is an open database. It is closed when the FSM and all readers have released it.
type state struct {
	db       *sift.DB
	dir      string
	applied  uint64 // the index of its last command when it was opened
	refs     atomic.Int64
	obsolete atomic.Bool // set when another has replaced it
	once     sync.Once
	done     chan struct{}
	err      error // what Close returned
}

func newState(db *sift.DB, dir string) *state {
	s := &state{db: db, dir: dir, done: make(chan struct{})}
	s.refs.Store(1)
	return s
}

func (s *state) acquire() { s.refs.Add(1) }

func (s *state) release() {
	if s.refs.Add(-1) > 0 {
		return
	}
	s.once.Do(func() {
		s.err = s.db.Close()
		if s.obsolete.Load() {
			os.RemoveAll(s.dir)
		}
		close(s.done)
	})
}

func (s *state) wait() error {
	<-s.done
	return s.err
}

// open opens the current database, and removes what a crash has left behind.
func (d *stateDir) open() (*state, error) {
	if err := vfs.OS.MkdirAll(d.dir); err != nil {
		return nil, err
	}
	names, err := vfs.OS.List(d.dir)
	if err != nil {
		return nil, err
	}
	current, err := os.ReadFile(filepath.Join(d.dir, currentName))
	if errors.Is(err, fs.ErrNotExist) {
		for _, name := range names {
			if strings.HasPrefix(name, statePrefix) {
				return nil, fmt.Errorf("cluster: %s holds %s, but no %s", d.dir, name, currentName)
			}
		}
		current = []byte(statePrefix + "1\n")
		err = d.setCurrent(statePrefix + "1")
	}
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(string(current), "\n")
	number, err := strconv.ParseUint(strings.TrimPrefix(name, statePrefix), 10, 64)
	if err != nil || !strings.HasPrefix(name, statePrefix) || len(name) == len(current) {
		return nil, fmt.Errorf("cluster: %s contains %q", filepath.Join(d.dir, currentName), current)
	}
	d.next = number + 1
	// The lock comes first: another FSM may be taking a snapshot, or installing one. What is left
	// over may fill the disk, and opening a database takes space.
	lock, err := sift.LockDirectory(filepath.Join(d.dir, name), true)
	if err != nil {
		return nil, err
	}
	// It may have replaced the database since CURRENT was read.
	if now, e := os.ReadFile(filepath.Join(d.dir, currentName)); e != nil || string(now) != string(current) {
		return nil, errors.Join(fmt.Errorf("%w: %s has changed", sift.ErrLocked, currentName), e, lock.Close())
	}
	for _, other := range names {
		if other != name && (strings.HasPrefix(other, statePrefix) || strings.HasPrefix(other, checkpointPrefix)) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(d.dir, other)))
		}
	}
	if err = errors.Join(err, lock.Close()); err != nil {
		return nil, err
	}
	return d.openDB(filepath.Join(d.dir, name))
}

func (d *stateDir) openDB(dir string) (*state, error) {
	opts := d.opts
	db, err := sift.Open(dir, &opts)
	if err != nil {
		return nil, err
	}
	return newState(db, dir), nil
}

// create creates the next database and makes it the current one. fill writes its files into a
// directory.
func (d *stateDir) create(fill func(dir string) (streamHeader, error), step func(string)) (*state, error) {
	name := statePrefix + strconv.FormatUint(d.next, 10)
	d.next++
	dir := filepath.Join(d.dir, name)
	s, err := d.build(dir, fill, step)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	step("opened")
	if err := d.setCurrent(name); err != nil {
		// CURRENT may or may not name it; the next open is correct either way.
		return nil, errors.Join(err, s.db.Close())
	}
	return s, nil
}

// build creates a durable database, and opens it.
func (d *stateDir) build(dir string, fill func(dir string) (streamHeader, error), step func(string)) (*state, error) {
	if err := vfs.OS.MkdirAll(dir); err != nil {
		return nil, err
	}
	header, err := fill(dir)
	if err != nil {
		return nil, err
	}
	step("filled")
	s, err := d.openDB(dir)
	if err != nil {
		return nil, err
	}
	s.applied = header.applied
	held, err := readApplied(s.db)
	switch {
	case err != nil:
	case held != header.held:
		err = fmt.Errorf("the database ends with command %d, but the snapshot with %d", held, header.held)
	case held != header.applied:
		// A restored backup continues from the current index of the log.
		err = s.db.Put([]byte(appliedKey), appliedValue(header.applied), sift.Sync)
	}
	if err == nil {
		err = errors.Join(vfs.OS.SyncDir(dir), vfs.OS.SyncDir(d.dir))
	}
	if err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	return s, nil
}

// setCurrent makes CURRENT name a database.
func (d *stateDir) setCurrent(name string) error {
	return durable.Replace(filepath.Join(d.dir, currentName), []byte(name+"\n"))
}
