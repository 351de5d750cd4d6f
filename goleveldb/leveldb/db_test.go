package leveldb

import (
	"bytes"
	stderrors "errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/syndtr/goleveldb/leveldb/cache"
	"github.com/syndtr/goleveldb/leveldb/comparer"
	"github.com/syndtr/goleveldb/leveldb/errors"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/journal"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/siftdb/sift"
)

type backwards struct{ comparer.Comparer }

func (backwards) Name() string            { return "backwards" }
func (backwards) Compare(a, b []byte) int { return -bytes.Compare(a, b) }

// TestComparer checks that an order other than the bytewise one is rejected before anything is
// written.
func TestComparer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	o := &opt.Options{Comparer: backwards{comparer.DefaultComparer}}
	if _, err := OpenFile(dir, o); err == nil {
		t.Error("OpenFile accepts another order")
	}
	if _, err := RecoverFile(dir, o); err == nil {
		t.Error("RecoverFile accepts another order")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory exists: %v", err)
	}
	if db, err := Open(storage.NewMemStorage(), &opt.Options{Comparer: comparer.DefaultComparer}); err != nil {
		t.Errorf("the bytewise order: %v", err)
	} else if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// counted is a custom Storage. It counts created files and logged lines.
type counted struct {
	storage.Storage
	created, logged int
}

func (c *counted) Create(fd storage.FileDesc) (storage.Writer, error) {
	c.created++
	return c.Storage.Create(fd)
}

func (c *counted) Log(s string) {
	c.logged++
	c.Storage.Log(s)
}

func fill(t *testing.T, db *DB, n int) {
	t.Helper()
	for i := range n {
		if err := db.Put(fmt.Appendf(nil, "key%05d", i), bytes.Repeat([]byte{byte(i)}, 100), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStorage checks that a database uses a custom Storage, and can be reopened, even from another
// Storage with the same files.
func TestStorage(t *testing.T) {
	dir := t.TempDir()
	files, err := storage.OpenFile(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	o := &opt.Options{WriteBuffer: 64 << 10, Filter: filter.NewBloomFilter(10)}
	for _, inner := range []storage.Storage{storage.NewMemStorage(), files} {
		stor := &counted{Storage: inner}
		db, err := Open(stor, o)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, db, 5000)
		if _, err := Open(stor, o); err == nil {
			t.Error("opened twice")
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if stor.created < 5 || stor.logged == 0 {
			t.Errorf("%d files created, %d lines logged", stor.created, stor.logged)
		}
		if db, err = Open(stor, o); err != nil {
			t.Fatal(err)
		}
		if v, err := db.Get([]byte("key04321"), nil); err != nil || len(v) != 100 {
			t.Errorf("Get: %d bytes, %v", len(v), err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := OpenFile(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if v, err := db.Get([]byte("key04321"), nil); err != nil || len(v) != 100 {
		t.Errorf("Get in the directory: %d bytes, %v", len(v), err)
	}
}

// TestReadOnlyStorage checks that a database in a storage that was opened read-only, whose
// directory other processes may have open as well, can only be opened read-only.
func TestReadOnlyStorage(t *testing.T) {
	dir := t.TempDir()
	db, err := OpenFile(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	stor, err := storage.OpenFile(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer stor.Close()
	for name, open := range map[string]func(storage.Storage, *opt.Options) (*DB, error){"Open": Open, "Recover": Recover} {
		if db, err := open(stor, nil); err == nil {
			t.Errorf("%s opens a read-only storage for writing", name)
			db.Close()
		}
	}
	if db, err = Open(stor, &opt.Options{ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDamage checks that Open returns an errors.ErrCorrupted that names the damaged file, whatever
// Strict is, and that RecoverFile recovers the rest.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	o := &opt.Options{WriteBuffer: 64 << 10}
	db, err := OpenFile(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, db, 5000)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	manifests, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	if err != nil || len(manifests) != 1 {
		t.Fatalf("%v, %v", manifests, err)
	}
	data, err := os.ReadFile(manifests[0])
	if err != nil {
		t.Fatal(err)
	}
	data[20] ^= 1
	if err := os.WriteFile(manifests[0], data, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, strict := range []opt.Strict{opt.NoStrict, opt.StrictAll, 0} {
		o.Strict = strict
		_, err = OpenFile(dir, o)
		var damage *errors.ErrCorrupted
		if !errors.IsCorrupted(err) || !stderrors.As(err, &damage) || damage.Fd.Type != storage.TypeManifest {
			t.Fatalf("Open: %v", err)
		}
	}
	if db, err = RecoverFile(dir, o); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	it := db.NewIterator(util.BytesPrefix([]byte("key")), nil)
	defer it.Release()
	n := 0
	for it.Next() {
		n++
	}
	if n != 5000 || it.Error() != nil {
		t.Errorf("%d keys, %v", n, it.Error())
	}
}

// TestDamageOfStorage checks that Open returns an errors.ErrCorrupted for damage in a custom
// Storage as well.
func TestDamageOfStorage(t *testing.T) {
	dir := t.TempDir()
	db, err := OpenFile(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "CURRENT"), []byte("nothing\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	files, err := storage.OpenFile(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	if db, err := Open(&counted{Storage: files}, nil); err == nil {
		t.Error("the damage was not found")
		db.Close()
	} else if !errors.IsCorrupted(err) {
		t.Errorf("Open: %v", err)
	}
}

// TestTransactionWriters checks that writes wait until a transaction ends, and that Close makes
// waiting writes and transactions return ErrClosed.
func TestTransactionWriters(t *testing.T) {
	db, err := Open(storage.NewMemStorage(), nil)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := db.OpenTransaction()
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Put([]byte("key"), []byte("transaction"), nil); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() { wrote <- db.Put([]byte("key"), []byte("write"), nil) }()
	select {
	case err := <-wrote:
		t.Fatalf("a write did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if err := tr.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if v, err := db.Get([]byte("key"), nil); string(v) != "write" || err != nil {
		t.Errorf("%q, %v", v, err)
	}

	if _, err = db.OpenTransaction(); err != nil {
		t.Fatal(err)
	}
	go func() { wrote <- db.Put([]byte("key"), nil, nil) }()
	second := make(chan error, 1)
	go func() {
		_, err := db.OpenTransaction()
		second <- err
	}()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != ErrClosed {
		t.Errorf("the write that waited: %v", err)
	}
	if err := <-second; err != ErrClosed {
		t.Errorf("the transaction that waited: %v", err)
	}
}

// TestStats checks what Stats, SizeOf and the properties report about a database after flushes and
// compactions.
func TestStats(t *testing.T) {
	db, err := Open(storage.NewMemStorage(), &opt.Options{WriteBuffer: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	fill(t, db, 5000)
	if err := db.CompactRange(util.Range{}); err != nil {
		t.Fatal(err)
	}
	var s DBStats
	if err := db.Stats(&s); err != nil {
		t.Fatal(err)
	}
	if s.MemComp == 0 || s.Level0Comp == 0 || s.LevelWrite.Sum() == 0 || s.LevelSizes.Sum() == 0 || s.OpenedTablesCount == 0 || s.IOWrite == 0 {
		t.Errorf("%+v", s)
	}
	sizes, err := db.SizeOf([]util.Range{{Start: []byte("key"), Limit: []byte("kez")}, {Start: []byte("a"), Limit: []byte("b")}})
	if err != nil || sizes[0] != s.LevelSizes.Sum() || sizes[1] != 0 {
		t.Errorf("SizeOf: %v, %v, want %d and 0", sizes, err, s.LevelSizes.Sum())
	}
	for level, n := range s.LevelTablesCounts {
		if got, err := db.GetProperty(fmt.Sprintf("leveldb.num-files-at-level%d", level)); got != fmt.Sprint(n) || err != nil {
			t.Errorf("level %d: %s, %v, want %d", level, got, err, n)
		}
	}
}

// uncomparable is a Cacher that cannot be the key of a map.
type uncomparable struct {
	cache.Cacher
	_ []int
}

// TestSharedCache checks that databases with one Cacher share one block cache.
func TestSharedCache(t *testing.T) {
	o := &opt.Options{BlockCacher: opt.NewLRU(1 << 20), WriteBuffer: 64 << 10}
	var dbs []*DB
	for range 2 {
		db, err := Open(storage.NewMemStorage(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		dbs = append(dbs, db)
	}
	if dbs[0].blocks != dbs[1].blocks || len(sharedCaches.by) != 1 {
		t.Error("the databases have two block caches")
	}
	own := &opt.Options{BlockCacher: opt.PassthroughCacher(uncomparable{Cacher: cache.NewLRU(1 << 20)})}
	if db, err := Open(storage.NewMemStorage(), own); err != nil {
		t.Fatal(err)
	} else if err := db.Close(); err != nil || db.blocks == nil || len(sharedCaches.by) != 1 {
		t.Errorf("a Cacher that cannot be compared: %v, %d caches", err, len(sharedCaches.by))
	}
	if db, err := Open(storage.NewMemStorage(), &opt.Options{DisableBlockCache: true}); err != nil {
		t.Fatal(err)
	} else if v, err := db.GetProperty("leveldb.cachedblock"); v != "<nil>" || err != nil {
		t.Errorf("without a cache: %s, %v", v, err)
	} else if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRecoverHoldsNoFiles checks that Recover of a storage that is not a directory keeps no old
// files in memory.
func TestRecoverHoldsNoFiles(t *testing.T) {
	stor := storage.NewMemStorage()
	o := &opt.Options{WriteBuffer: 64 << 10}
	db, err := Open(stor, o)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, db, 5000)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	so, blocks := storeOptions(o, stor)
	defer blocks.release()
	fs := newStorageFS(stor)
	so.FS = fs
	if _, err := sift.Repair("db", so); err != nil {
		t.Fatal(err)
	}
	for name, f := range fs.other {
		t.Errorf("%s: %d bytes are held in memory", name, len(f.bytes()))
	}
	if db, err = Open(stor, o); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if v, err := db.Get([]byte("key04321"), nil); err != nil || len(v) != 100 {
		t.Errorf("%d bytes, %v", len(v), err)
	}
}

// TestRecoverCorruptMetaOtherOrder checks that Recover leaves a database with another order alone,
// even if the storage reports a damaged CURRENT.
func TestRecoverCorruptMetaOtherOrder(t *testing.T) {
	dir := t.TempDir()
	var manifest bytes.Buffer
	w := journal.NewWriter(&manifest)
	edit, err := w.Next()
	if err == nil {
		_, err = edit.Write([]byte("\x01\x05other")) // the comparator
	}
	if err := stderrors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"MANIFEST-000007": manifest.String(), "000003.ldb": "table", "CURRENT": "damaged"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stor, err := storage.OpenFile(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer stor.Close()
	if db, err := Recover(struct{ storage.Storage }{stor}, nil); err == nil {
		db.Close()
		t.Error("Recover succeeds")
	}
	if _, err := os.Stat(filepath.Join(dir, "000003.ldb")); err != nil {
		t.Error(err)
	}
}

// TestRecoverCorruptMeta checks that Recover brings a database back whose storage reports a damaged
// CURRENT.
func TestRecoverCorruptMeta(t *testing.T) {
	dir := t.TempDir()
	db, err := OpenFile(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := stderrors.Join(db.Put([]byte("k"), []byte("v"), nil), db.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "CURRENT"), []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	stor, err := storage.OpenFile(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer stor.Close()
	db, err = Recover(struct{ storage.Storage }{stor}, nil) // not the type that stands for a directory
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if v, err := db.Get([]byte("k"), nil); err != nil || string(v) != "v" {
		t.Errorf("%q, %v", v, err)
	}
}

// TestStorageClosedFirst checks that a directory stays locked while a database is open in it, even
// if the storage has been closed.
func TestStorageClosedFirst(t *testing.T) {
	dir := t.TempDir()
	stor, err := storage.OpenFile(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	db, err := Open(stor, nil)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, db, 10)
	if err := stor.Close(); err != nil {
		t.Fatal(err)
	}
	if again, err := storage.OpenFile(dir, false); err == nil {
		t.Error("the directory of an open database can be locked again")
		again.Close()
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	again, err := storage.OpenFile(dir, false)
	if err != nil {
		t.Fatalf("after Close of the database: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// TestRecoverNothing checks that Recover creates a database if there is none, as in goleveldb.
func TestRecoverNothing(t *testing.T) {
	o := &opt.Options{ErrorIfMissing: true}
	for name, open := range map[string]func() (*DB, error){
		"directory": func() (*DB, error) { return RecoverFile(filepath.Join(t.TempDir(), "db"), o) },
		"memory":    func() (*DB, error) { return Recover(storage.NewMemStorage(), o) },
	} {
		db, err := open()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := stderrors.Join(db.Put([]byte("k"), nil, nil), db.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
