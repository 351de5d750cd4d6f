package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/cluster/internal/durable"
	"github.com/siftdb/sift/internal/vfs"
)

// A snapshot is a directory whose name is the index, the term and a counter:
//
//	INDEX-TERM-N/meta   a line of JSON, and its CRC-32C in hex on the next
//	INDEX-TERM-N/db/    a database
//
// It is created in a directory with the suffix .tmp, synced, and renamed. A directory that still
// has the suffix when a store is opened is left over from a crash, and is removed.
//
// On disk; do not change.
const (
	snapshotMeta = "meta"
	snapshotDB   = "db"
)

// SnapshotStore is a raft.SnapshotStore that holds databases. The snapshots of an FSM of this
// package are not copied if both are on one file system: tables are hard links. Snapshots are sent
// to other nodes as files, and received with no more than a buffer in memory. The store keeps the
// newest snapshot, and those that are being read.
type SnapshotStore struct {
	dir string
	// holds reports whether the node has the log up to an entry; it then rejects snapshots that end
	// there. It may be nil.
	holds func(index, term uint64) bool

	// ownSnapshotMu is held from the moment when a snapshot that the node has taken is put into the
	// store until Raft has recorded it, and while a received one is published. Otherwise Raft could
	// continue from the older of the two.
	ownSnapshotMu sync.Mutex

	mu      sync.Mutex
	counter uint64
	last    string         // the ID of the snapshot that was stored last; Raft restores from it
	inUse   map[string]int // number of readers, by ID
}

// meta describes a snapshot.
type meta struct {
	raft.SnapshotMeta
	Applied uint64 // the last command that it contains
	Held    uint64 // the index that the database holds
}

func (m *meta) header() streamHeader {
	return streamHeader{index: m.Index, applied: m.Applied, held: m.Held}
}

// NewSnapshotStore opens the snapshots in dir, which it creates if necessary.
func NewSnapshotStore(dir string) (*SnapshotStore, error) {
	if err := durable.MkdirAll(dir); err != nil {
		return nil, err
	}
	s := &SnapshotStore{dir: dir, inUse: map[string]int{}}
	names, err := vfs.OS.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, tempSuffix) {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				return nil, err
			}
		} else if _, _, n, ok := parseID(name); ok {
			s.counter = max(s.counter, n)
		}
	}
	s.reap()
	return s, nil
}

func parseID(id string) (index, term, n uint64, ok bool) {
	parts := strings.Split(id, "-")
	if len(parts) != 3 {
		return 0, 0, 0, false
	}
	var numbers [3]uint64
	for i, part := range parts {
		var err error
		if numbers[i], err = strconv.ParseUint(part, 10, 64); err != nil {
			return 0, 0, 0, false
		}
	}
	return numbers[0], numbers[1], numbers[2], true
}

// newest returns the ID of the newest snapshot, and those of the others.
func (s *SnapshotStore) newest() (id string, others []string, err error) {
	names, err := vfs.OS.List(s.dir)
	if err != nil {
		return "", nil, err
	}
	var best [3]uint64
	for _, name := range names {
		index, term, n, ok := parseID(name)
		if !ok {
			continue
		}
		at := [3]uint64{index, term, n}
		if id != "" && less(at, best) {
			others = append(others, name)
			continue
		}
		if id != "" {
			others = append(others, id)
		}
		id, best = name, at
	}
	return id, others, nil
}

func less(a, b [3]uint64) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// List implements raft.SnapshotStore. It returns the newest snapshot.
func (s *SnapshotStore) List() ([]*raft.SnapshotMeta, error) {
	m, err := s.latest()
	if err != nil || m == nil {
		return nil, err
	}
	return []*raft.SnapshotMeta{&m.SnapshotMeta}, nil
}

// latest returns the description of the newest snapshot, nil if there is none.
func (s *SnapshotStore) latest() (*meta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, _, err := s.newest()
	if err != nil || id == "" {
		return nil, err
	}
	return s.readMeta(id)
}

func (s *SnapshotStore) readMeta(id string) (*meta, error) {
	path := filepath.Join(s.dir, id, snapshotMeta)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	line, sum, _ := strings.Cut(string(data), "\n")
	if sum != checksumLine(line) {
		return nil, fmt.Errorf("cluster: %s: wrong checksum", path)
	}
	m := new(meta)
	if err := json.Unmarshal([]byte(line), m); err != nil {
		return nil, fmt.Errorf("cluster: %s: %w", path, err)
	}
	m.ID = id
	m.Size, err = streamSize(filepath.Join(s.dir, id, snapshotDB))
	return m, err
}

func checksumLine(line string) string {
	return fmt.Sprintf("%08x\n", crc32.Checksum([]byte(line), castagnoli))
}

// Open implements raft.SnapshotStore. The reader returns the snapshot as a stream.
func (s *SnapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.readMeta(id)
	if err != nil {
		return nil, nil, err
	}
	s.inUse[id]++
	return &m.SnapshotMeta, &snapshotReader{store: s, meta: m, db: filepath.Join(s.dir, id, snapshotDB)}, nil
}

// reap removes all snapshots but the newest and those that are being read.
func (s *SnapshotStore) reap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, others, err := s.newest()
	if err != nil {
		return
	}
	for _, id := range others {
		if s.inUse[id] > 0 || id == s.last {
			continue
		}
		// Renamed first, so that its remains never look like a snapshot.
		path := filepath.Join(s.dir, id)
		if os.Rename(path, path+tempSuffix) == nil {
			os.RemoveAll(path + tempSuffix)
		}
	}
}

// snapshotReader reads a snapshot as a stream, which starts at the first Read.
type snapshotReader struct {
	store *SnapshotStore
	meta  *meta
	db    string
	once  sync.Once
	pipe  *io.PipeReader
	done  chan struct{}
}

func (r *snapshotReader) Read(p []byte) (int, error) {
	if r.pipe == nil {
		var w *io.PipeWriter
		r.pipe, w = io.Pipe()
		r.done = make(chan struct{})
		go func() {
			defer close(r.done)
			w.CloseWithError(writeStream(w, r.meta.header(), r.db))
		}()
	}
	return r.pipe.Read(p)
}

func (r *snapshotReader) Close() error {
	r.once.Do(func() {
		if r.pipe != nil {
			r.pipe.Close()
			<-r.done
		}
		r.store.mu.Lock()
		if r.store.inUse[r.meta.ID]--; r.store.inUse[r.meta.ID] == 0 {
			delete(r.store.inUse, r.meta.ID)
		}
		r.store.mu.Unlock()
		r.store.reap()
	})
	return nil
}

// Create implements raft.SnapshotStore.
func (s *SnapshotStore) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	if version != raft.SnapshotVersionMax {
		return nil, fmt.Errorf("cluster: snapshots of version %d are not supported", version)
	}
	s.mu.Lock()
	s.counter++
	id := fmt.Sprintf("%d-%d-%d", index, term, s.counter)
	s.mu.Unlock()
	sink := &snapshotSink{store: s, dir: filepath.Join(s.dir, id+tempSuffix), meta: meta{SnapshotMeta: raft.SnapshotMeta{
		Version: version, ID: id, Index: index, Term: term,
		Configuration: configuration, ConfigurationIndex: configurationIndex,
	}}}
	if err := vfs.OS.MkdirAll(filepath.Join(sink.dir, snapshotDB)); err != nil {
		return nil, err
	}
	return sink, nil
}

// errOvertaken rejects a snapshot that the node has taken: it has received a newer one meanwhile.
var errOvertaken = errors.New("cluster: the node has a newer snapshot")

// errCovered rejects a received snapshot. If the leader sends it again, it is acknowledged: see
// Node.covers.
var errCovered = errors.New("cluster: the node already has everything in the snapshot")

// snapshotSink is a raft.SnapshotSink. It either adopts a directory or unpacks a stream as it
// arrives.
type snapshotSink struct {
	store   *SnapshotStore
	dir     string
	meta    meta
	pipe    *io.PipeWriter
	header  streamHeader
	err     error // of unpacking the stream
	done    chan struct{}
	adopted bool
	closed  bool
}

func (s *snapshotSink) ID() string { return s.meta.ID }

func (s *snapshotSink) db() string { return filepath.Join(s.dir, snapshotDB) }

// adopt moves a database that ends with the given command into the snapshot. The caller holds
// store.ownSnapshotMu until Raft has recorded the snapshot.
func (s *snapshotSink) adopt(db string, applied uint64) error {
	s.adopted = true
	s.store.mu.Lock()
	id, _, err := s.store.newest()
	s.store.mu.Unlock()
	if err != nil {
		return err
	}
	if newest, _, _, _ := parseID(id); newest > s.meta.Index {
		return errOvertaken
	}
	s.header = streamHeader{index: s.meta.Index, applied: applied, held: applied}
	if err := vfs.OS.Remove(s.db()); err != nil {
		return err
	}
	if os.Rename(db, s.db()) == nil {
		return vfs.OS.SyncDir(s.db())
	}
	// Another file system.
	if err := vfs.OS.MkdirAll(s.db()); err != nil {
		return err
	}
	return linkDB(db, s.db())
}

func (s *snapshotSink) Write(p []byte) (int, error) {
	if s.pipe == nil {
		// Since the call of Node.covers, Raft may have handled a request that arrived earlier.
		if holds := s.store.holds; holds != nil && holds(s.meta.Index, s.meta.Term) {
			return 0, errCovered
		}
		var r *io.PipeReader
		r, s.pipe = io.Pipe()
		s.done = make(chan struct{})
		go func() {
			defer close(s.done)
			s.header, s.err = readStream(r, s.db())
			r.CloseWithError(errors.Join(s.err, io.ErrClosedPipe))
		}()
	}
	return s.pipe.Write(p)
}

// Close makes the snapshot durable, and then visible.
func (s *snapshotSink) Close() error {
	if s.closed {
		return nil
	}
	if err := s.finish(); err != nil {
		return errors.Join(err, s.Cancel())
	}
	s.closed = true
	s.store.mu.Lock()
	s.store.last = s.meta.ID
	s.store.mu.Unlock()
	s.store.reap()
	return nil
}

func (s *snapshotSink) finish() error {
	if s.pipe != nil {
		s.pipe.Close()
		<-s.done
	}
	switch {
	case s.err != nil:
		return fmt.Errorf("cluster: receiving a snapshot: %w", s.err)
	case s.pipe == nil && !s.adopted:
		return errors.New("cluster: the snapshot is empty")
	}
	if !s.adopted {
		if err := s.check(); err != nil {
			return fmt.Errorf("cluster: receiving a snapshot: %w", err)
		}
	}
	s.meta.Applied, s.meta.Held = s.header.applied, s.header.held
	if s.header.index != s.meta.Index {
		// A backup: its place in the log is where it is restored.
		s.meta.Applied = s.meta.Index
	}
	line, err := json.Marshal(&s.meta)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(s.dir, snapshotMeta), append(line, "\n"+checksumLine(string(line))...)); err != nil {
		return err
	}
	if err := vfs.OS.SyncDir(s.dir); err != nil {
		return err
	}
	if !s.adopted {
		s.store.ownSnapshotMu.Lock()
		defer s.store.ownSnapshotMu.Unlock()
	}
	final := strings.TrimSuffix(s.dir, tempSuffix)
	if err := vfs.OS.Rename(s.dir, final); err != nil {
		return err
	}
	if err := vfs.OS.SyncDir(s.store.dir); err != nil {
		// Raft does not use it, so it must not be sent, nor be restored at the next start.
		return errors.Join(err, os.Rename(final, s.dir))
	}
	return nil
}

// check opens the database that was received: once a backup has been closed without an error, Raft
// panics if it cannot be restored.
func (s *snapshotSink) check() error {
	db, err := sift.Open(s.db(), &sift.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	held, err := readApplied(db)
	if err == nil && held != s.header.held {
		err = fmt.Errorf("%w: the database ends with command %d, not %d", errStream, held, s.header.held)
	}
	return errors.Join(err, db.Close())
}

// Cancel removes what has been written of the snapshot.
func (s *snapshotSink) Cancel() error {
	if s.closed {
		return nil
	}
	s.closed = true
	if s.pipe != nil {
		s.pipe.CloseWithError(errors.New("canceled"))
		<-s.done
	}
	return os.RemoveAll(s.dir)
}
