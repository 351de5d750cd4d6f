package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift"
)

func openFSM(t testing.TB, dir string) *FSM {
	t.Helper()
	f, err := OpenFSM(dir, appendApply, small())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func applyTo(t testing.TB, f *FSM, from, to uint64) {
	t.Helper()
	for i := from; i <= to; i++ {
		r := f.Apply(&raft.Log{Index: i, Type: raft.LogCommand, Data: fmt.Appendf(nil, "k %d", i)})
		if r := r.(result); r.err != nil {
			t.Fatal(r.err)
		}
	}
}

// tokens returns the contents that applyTo writes.
func tokens(from, to uint64) string {
	var b bytes.Buffer
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "%d,", i)
	}
	return b.String()
}

func wantList(t testing.TB, f *FSM, want string) {
	t.Helper()
	err := f.View(func(v *View) error {
		got, err := getList(v, "k")
		if err == nil && got != want {
			err = fmt.Errorf("k is %q, want %q", got, want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// takeSnapshot stores a snapshot up to index, and returns its ID.
func takeSnapshot(t testing.TB, f *FSM, store raft.SnapshotStore, index uint64) string {
	t.Helper()
	snap, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	sink, err := store.Create(raft.SnapshotVersionMax, index, 1, raft.Configuration{}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := snap.Persist(sink); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	return sink.ID()
}

// send copies a snapshot into another store, as one node sends it to another.
func send(t testing.TB, from *SnapshotStore, id string, to *SnapshotStore) string {
	t.Helper()
	m, r, err := from.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	sink, err := to.Create(m.Version, m.Index, m.Term, m.Configuration, m.ConfigurationIndex, nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(sink, r)
	if err != nil || n != m.Size {
		t.Fatalf("%d bytes of %d, %v", n, m.Size, err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	return sink.ID()
}

func restore(f *FSM, store raft.SnapshotStore, id string) error {
	_, r, err := store.Open(id)
	if err != nil {
		return err
	}
	return errors.Join(f.Restore(r), r.Close())
}

func newStore(t testing.TB, dir string) *SnapshotStore {
	t.Helper()
	s, err := NewSnapshotStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestReopen: after a restart no command is applied twice, and none is skipped.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	for i := uint64(1); i <= 10; i++ {
		f := openFSM(t, dir)
		if got := f.Applied(); got != i-1 {
			t.Fatalf("applied is %d, want %d", got, i-1)
		}
		// Raft replays the log from the last snapshot on.
		for j := uint64(1); j < i; j++ {
			if r := f.Apply(&raft.Log{Index: j, Type: raft.LogCommand, Data: []byte("k again")}).(result); !r.fatal {
				t.Fatalf("command %d is applied again", j)
			}
		}
		applyTo(t, f, i, i)
		wantList(t, f, tokens(1, i))
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInstall sends a snapshot to a node that is behind, to one that is ahead, and to
// one with another kind of snapshot store.
func TestInstall(t *testing.T) {
	a, storeA := openFSM(t, t.TempDir()), newStore(t, t.TempDir())
	applyTo(t, a, 1, 50)
	id := takeSnapshot(t, a, storeA, 52) // the last two entries are not commands

	dir, storeB := t.TempDir(), newStore(t, t.TempDir())
	b := openFSM(t, dir)
	applyTo(t, b, 1, 7)
	idB := send(t, storeA, id, storeB)
	if err := restore(b, storeB, idB); err != nil {
		t.Fatal(err)
	}
	wantList(t, b, tokens(1, 50))
	if b.Applied() != 50 || b.seen != 52 {
		t.Errorf("applied is %d, seen %d", b.Applied(), b.seen)
	}
	applyTo(t, b, 53, 60)
	if err := restore(b, storeB, idB); err != nil { // as when Raft starts
		t.Fatal(err)
	}
	wantList(t, b, tokens(1, 50)+tokens(53, 60))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	wantList(t, openFSM(t, dir), tokens(1, 50)+tokens(53, 60))
	if names, _ := filepath.Glob(filepath.Join(dir, statePrefix+"*")); len(names) != 1 {
		t.Errorf("%v, want only one state directory", names)
	}

	file, err := raft.NewFileSnapshotStore(t.TempDir(), 1, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	idF := takeSnapshot(t, a, file, 52)
	c := openFSM(t, t.TempDir())
	if err := restore(c, file, idF); err != nil {
		t.Fatal(err)
	}
	wantList(t, c, tokens(1, 50))
}

// TestMembers: an FSM takes the newest members and their index from the log, and from a snapshot,
// whether or not its database is behind that.
func TestMembers(t *testing.T) {
	dir := t.TempDir()
	from := openFSM(t, filepath.Join(dir, "from"))
	applyTo(t, from, 1, 2)
	one := raft.Configuration{Servers: []raft.Server{{ID: "a", Address: "a:1"}}}
	two := raft.Configuration{Servers: append(one.Clone().Servers, raft.Server{Suffrage: raft.Nonvoter, ID: "b", Address: "b:1"})}
	from.StoreConfiguration(3, one)
	from.StoreConfiguration(4, two)
	store := newStore(t, filepath.Join(dir, "snapshots"))
	snap, err := from.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	sink, err := store.Create(raft.SnapshotVersionMax, 4, 1, two, 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(snap.Persist(sink), sink.Close()); err != nil {
		t.Fatal(err)
	}
	behind := openFSM(t, filepath.Join(dir, "behind"))
	ahead := openFSM(t, filepath.Join(dir, "ahead"))
	applyTo(t, ahead, 1, 2)
	for _, f := range []*FSM{behind, ahead} {
		if err := restore(f, store, sink.ID()); err != nil {
			t.Fatal(err)
		}
	}
	for i, f := range []*FSM{from, behind, ahead} {
		if members, index := f.Members(); index != 4 || !slices.Equal(members, two.Servers) {
			t.Errorf("%d: %v at %d", i, members, index)
		}
	}
}

// TestSnapshotIsLinks: a snapshot links the tables instead of copying them.
func TestSnapshotIsLinks(t *testing.T) {
	dir := t.TempDir()
	f, store := openFSM(t, filepath.Join(dir, "state")), newStore(t, filepath.Join(dir, "snapshots"))
	applyTo(t, f, 1, 50)
	id := takeSnapshot(t, f, store, 50)
	tables, _ := filepath.Glob(filepath.Join(dir, "snapshots", id, snapshotDB, "*.ldb"))
	if len(tables) == 0 {
		t.Fatal("no tables")
	}
	for _, table := range tables {
		own, err := os.Stat(filepath.Join(f.state.dir, filepath.Base(table)))
		if err != nil {
			t.Fatal(err)
		}
		if other, err := os.Stat(table); err != nil || !os.SameFile(own, other) {
			t.Errorf("%s is a copy: %v", table, err)
		}
	}
}

// TestReadersGoOn: a view keeps reading a database after a snapshot has replaced it.
func TestReadersGoOn(t *testing.T) {
	a, store := openFSM(t, t.TempDir()), newStore(t, t.TempDir())
	applyTo(t, a, 1, 50)
	id := takeSnapshot(t, a, store, 50)
	b := openFSM(t, t.TempDir())
	applyTo(t, b, 1, 3)
	old := b.state.dir
	err := b.View(func(v *View) error {
		if err := restore(b, store, id); err != nil {
			return err
		}
		wantList(t, b, tokens(1, 50))
		list, err := getList(v, "k")
		if err == nil && list != tokens(1, 3) {
			err = fmt.Errorf("the view holds %q", list)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old database is still there: %v", err)
	}
}

// TestStreamDamage: a snapshot is rejected if any byte is changed in transit, or if it is truncated
// anywhere.
func TestStreamDamage(t *testing.T) {
	f, store := openFSM(t, t.TempDir()), newStore(t, t.TempDir())
	applyTo(t, f, 1, 3)
	_, r, err := store.Open(takeSnapshot(t, f, store, 3))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	whole, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	receive := func(data []byte) error {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		_, err = readStream(bytes.NewReader(data), dir)
		return err
	}
	if err := receive(whole); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		if err := receive(whole[:i]); !errors.Is(err, errStream) {
			t.Fatalf("truncated at %d of %d: %v", i, len(whole), err)
		}
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1 << (i % 8)
		if err := receive(damaged); !errors.Is(err, errStream) {
			t.Fatalf("a bit flipped in byte %d of %d: %v", i, len(whole), err)
		}
	}
	if err := receive(append(bytes.Clone(whole), 0)); !errors.Is(err, errStream) {
		t.Errorf("a byte after the end: %v", err)
	}
}

// TestStreamNames: a stream cannot write outside its directory.
func TestStreamNames(t *testing.T) {
	for _, name := range []string{"../000001.ldb", "/tmp/000001.ldb", "x", "LOCK", "..", "000001.ldb/x"} {
		if isDBFile(name) {
			t.Errorf("%q counts as a database file", name)
		}
	}
}

// TestHeader checks the format against an example.
func TestHeader(t *testing.T) {
	want := "73696674736e7031" + "3400000000000000" + "3200000000000000" + "3200000000000000"
	got := appendHeader(nil, streamHeader{52, 50, 50})
	if fmt.Sprintf("%x", got[:len(got)-4]) != want {
		t.Errorf("%x", got)
	}
	if h, err := decodeHeader(got); err != nil || h != (streamHeader{52, 50, 50}) {
		t.Errorf("%v, %v", h, err)
	}
}

// TestWrongDatabase: a snapshot is rejected if the applied index of its database is not that of its
// header.
func TestWrongDatabase(t *testing.T) {
	a, store := openFSM(t, t.TempDir()), newStore(t, t.TempDir())
	a.test.checkpointed = func(dir string) error {
		db, err := sift.Open(dir, nil)
		if err != nil {
			return err
		}
		return errors.Join(db.Put([]byte(appliedKey), appliedValue(49), nil), db.Close())
	}
	applyTo(t, a, 1, 50)
	id := takeSnapshot(t, a, store, 50)
	b := openFSM(t, t.TempDir())
	applyTo(t, b, 1, 3)
	if err := restore(b, store, id); err == nil {
		t.Error("the snapshot is installed")
	}
	wantList(t, b, tokens(1, 3))
	applyTo(t, b, 4, 5)
}

// TestDamagedMeta: a damaged meta file of a snapshot is an error; the snapshot is neither skipped
// nor misread.
func TestDamagedMeta(t *testing.T) {
	f, dir := openFSM(t, t.TempDir()), t.TempDir()
	store := newStore(t, dir)
	applyTo(t, f, 1, 3)
	path := filepath.Join(dir, takeSnapshot(t, f, store, 3), snapshotMeta)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1
		if err := os.WriteFile(path, damaged, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := store.List(); err == nil {
			t.Fatalf("damage in byte %d is not detected: %q", i, damaged)
		}
	}
}

// TestFailure: after its database has failed, an FSM applies nothing and takes no snapshot.
func TestFailure(t *testing.T) {
	f := openFSM(t, t.TempDir())
	applyTo(t, f, 1, 3)
	if err := f.state.db.Close(); err != nil {
		t.Fatal(err)
	}
	for i := uint64(4); i < 6; i++ {
		if r := f.Apply(&raft.Log{Index: i, Type: raft.LogCommand, Data: []byte("k x")}).(result); !r.fatal || !errors.Is(r.err, sift.ErrClosed) {
			t.Errorf("%d: %v", i, r.err)
		}
	}
	select {
	case <-f.Failed():
	default:
		t.Error("Failed is not closed")
	}
	if _, err := f.Snapshot(); err == nil {
		t.Error("a snapshot is taken")
	}
	if f.Applied() != 3 {
		t.Errorf("applied is %d", f.Applied())
	}
}

// TestReservedIsHidden: reads do not see the keys that belong to the package.
func TestReservedIsHidden(t *testing.T) {
	f := openFSM(t, t.TempDir())
	applyTo(t, f, 1, 3)
	err := f.View(func(v *View) error {
		for e, err := range v.Scan(&sift.IterOptions{LowerBound: []byte("l"), UpperBound: []byte("\xff\xff\xff")}) {
			return fmt.Errorf("a scan shows %q, %v", e.Key, err)
		}
		if has, err := v.Has([]byte(appliedKey)); has || err != nil {
			return fmt.Errorf("Has: %v, %v", has, err)
		}
		if _, err := v.Get([]byte(appliedKey)); !errors.Is(err, sift.ErrNotFound) {
			return fmt.Errorf("Get: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestLostCurrent: a directory without CURRENT is not treated as a new one.
func TestLostCurrent(t *testing.T) {
	dir := t.TempDir()
	f := openFSM(t, dir)
	applyTo(t, f, 1, 3)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, currentName)
	for _, text := range []string{"", "state-", "state-1", "state-x\n", "../state-1\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenFSM(dir, appendApply, nil); err == nil {
			t.Errorf("CURRENT %q is accepted", text)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFSM(dir, appendApply, nil); err == nil {
		t.Error("the directory opens without CURRENT")
	}
}

// lastIter is a reader that remembers the iterator that it has created last.
type lastIter struct {
	reader
	it *sift.Iter
}

func (r *lastIter) NewIter(o *sift.IterOptions) (it *sift.Iter, err error) {
	r.it, err = r.reader.NewIter(o)
	return r.it, err
}

// TestScanPanics: the iterator of a loop that panics is closed.
func TestScanPanics(t *testing.T) {
	f := openFSM(t, t.TempDir())
	applyTo(t, f, 1, 1)
	err := f.View(func(v *View) error {
		r := &lastIter{reader: v.r}
		v.r = r
		func() {
			defer func() { _ = recover() }()
			for range v.Scan(nil) {
				panic("the caller's")
			}
		}()
		defer r.it.Close()
		if err := r.it.Reset(nil); !errors.Is(err, sift.ErrClosed) {
			t.Errorf("the iterator can be used: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestOpenLocked: opening a database that is in use removes nothing: the other FSM may be taking a
// snapshot, or installing one.
func TestOpenLocked(t *testing.T) {
	dir := t.TempDir()
	f := openFSM(t, dir)
	applyTo(t, f, 1, 3)
	snap, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	installing := filepath.Join(dir, statePrefix+"2")
	if err := os.Mkdir(installing, 0o755); err != nil {
		t.Fatal(err)
	}
	if other, err := OpenFSM(dir, appendApply, small()); !errors.Is(err, sift.ErrLocked) {
		t.Errorf("a second FSM: %v, want %v", err, sift.ErrLocked)
		if err == nil {
			other.Close()
		}
	}
	for _, path := range []string{snap.(*checkpoint).dir, installing} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
