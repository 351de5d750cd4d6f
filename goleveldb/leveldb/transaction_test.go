package leveldb

import (
	"bytes"
	"encoding/binary"
	stderrors "errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// temps returns the number of temporary files.
func temps(t *testing.T, stor storage.Storage) int {
	t.Helper()
	fds, err := stor.List(storage.TypeTemp)
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// sameAs checks that an iterator finds exactly want, in both directions.
func sameAs(t *testing.T, what string, it iterator.Iterator, want map[string]string) {
	t.Helper()
	defer it.Release()
	keys := slices.Sorted(maps.Keys(want))
	i := 0
	for ; it.Next(); i++ {
		if i >= len(keys) || string(it.Key()) != keys[i] || string(it.Value()) != want[keys[i]] {
			t.Fatalf("%s: key %d is %q: %.20q", what, i, it.Key(), it.Value())
		}
	}
	for back := i; it.Prev(); {
		if back--; string(it.Key()) != keys[back] {
			t.Fatalf("%s: backward, key %d is %q", what, back, it.Key())
		}
	}
	if it.Error() != nil || i != len(keys) {
		t.Fatalf("%s: %d keys, want %d: %v", what, i, len(keys), it.Error())
	}
}

// TestLargeTransaction compares transactions that are much larger than the write buffer
// with a map: their reads, older iterators, and the database after Commit and Discard.
func TestLargeTransaction(t *testing.T) {
	file, err := storage.OpenFile(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, stor := range map[string]storage.Storage{"file": file, "memory": storage.NewMemStorage()} {
		o := &opt.Options{WriteBuffer: 2 << 10, CompactionTableSize: 16 << 10}
		db, err := Open(stor, o)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		key := func() string { return fmt.Sprintf("key%04d", rng.IntN(400)) }
		value := func() string { return fmt.Sprint(rng.Uint64(), bytes.Repeat([]byte{'.'}, rng.IntN(20))) }
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		inDB := map[string]string{}
		for range 500 {
			k, v := key(), value()
			must(db.Put([]byte(k), []byte(v), nil))
			inDB[k] = v
		}
		for round := range 3 {
			tr, err := db.OpenTransaction()
			must(err)
			want := maps.Clone(inDB)
			var old iterator.Iterator
			var oldWant map[string]string
			most := 0
			for i := range 2000 {
				k, v := key(), value()
				switch rng.IntN(10) {
				case 0, 1:
					must(tr.Delete([]byte(k), nil))
					delete(want, k)
				case 2:
					var b Batch
					for range 5 {
						k, v := key(), value()
						b.Put([]byte(k), []byte(v))
						want[k] = v
					}
					k := key()
					b.Delete([]byte(k))
					delete(want, k)
					must(tr.Write(&b, nil))
				default:
					must(tr.Put([]byte(k), []byte(v), nil))
					want[k] = v
				}
				k = key()
				got, err := tr.Get([]byte(k), nil)
				if v, ok := want[k]; string(got) != v || ok != (err == nil) {
					t.Fatalf("%s: Get %s: %q, %v, want %q", name, k, got, err, v)
				}
				if i%900 == 500 {
					if old != nil {
						sameAs(t, name+", an older iterator", old, oldWant)
					}
					old, oldWant = tr.NewIterator(nil, nil), maps.Clone(want)
					sameAs(t, name, tr.NewIterator(nil, nil), want)
					part := maps.Clone(want)
					maps.DeleteFunc(part, func(k, _ string) bool { return k < "key01" || k >= "key03" })
					sameAs(t, name+", a range", tr.NewIterator(&util.Range{Start: []byte("key01"), Limit: []byte("key03")}, nil), part)
				}
				most = max(most, temps(t, stor))
			}
			if most < 5 || most > 4*runsPerTier {
				t.Errorf("%s: at most %d temporary files", name, most)
			}
			sameAs(t, name+", the database", db.NewIterator(nil, nil), inDB)
			if round == 1 {
				tr.Discard()
			} else {
				must(tr.Commit())
				inDB = want
			}
			sameAs(t, name+", an older iterator after the end", old, oldWant)
			if n := temps(t, stor); n != 0 {
				t.Errorf("%s: %d temporary files are left", name, n)
			}
			sameAs(t, name+", at the end", db.NewIterator(nil, nil), inDB)
		}
		// Open removes temporary files that a crash has left behind.
		must(db.Close())
		w, err := stor.Create(storage.FileDesc{Type: storage.TypeTemp, Num: 7})
		must(err)
		must(w.Close())
		db, err = Open(stor, o)
		must(err)
		if n := temps(t, stor); n != 0 {
			t.Errorf("%s: %d temporary files after Open", name, n)
		}
		sameAs(t, name+", reopened", db.NewIterator(nil, nil), inDB)
		must(db.Close())
	}
}

// TestTransactionOfLargeBatch checks that a batch that is much larger than the write buffer goes to
// temporary files, too.
func TestTransactionOfLargeBatch(t *testing.T) {
	const writeBuffer = 4 << 10
	stor := storage.NewMemStorage()
	db, err := Open(stor, &opt.Options{WriteBuffer: writeBuffer})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tr, err := db.OpenTransaction()
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Discard()
	var b Batch
	want := map[string]string{}
	for i := range 1000 {
		k, v := fmt.Sprintf("key%03d", i), fmt.Sprintf("%0100d", i)
		b.Put([]byte(k), []byte(v))
		want[k] = v
	}
	if err := tr.Write(&b, nil); err != nil {
		t.Fatal(err)
	}
	if n := tr.writes.mem.Size(); n > writeBuffer+200 {
		t.Errorf("%d bytes of the batch are in memory", n)
	}
	if n := temps(t, stor); n == 0 || n > 4*runsPerTier {
		t.Errorf("%d temporary files", n)
	}
	sameAs(t, "the transaction", tr.NewIterator(nil, nil), want)
	if err := tr.Commit(); err != nil {
		t.Fatal(err)
	}
	sameAs(t, "the database", db.NewIterator(nil, nil), want)
}

// noTemps is a Storage that creates no temporary files while fails is set.
type noTemps struct {
	storage.Storage
	fails bool
}

var errNoTemps = stderrors.New("no space")

func (s *noTemps) Create(fd storage.FileDesc) (storage.Writer, error) {
	if s.fails && fd.Type == storage.TypeTemp {
		return nil, errNoTemps
	}
	return s.Storage.Create(fd)
}

// TestTransactionWithoutRoom checks that a write that fails for lack of space has no effect, and
// that the transaction can continue once there is space again.
func TestTransactionWithoutRoom(t *testing.T) {
	stor := &noTemps{Storage: storage.NewMemStorage(), fails: true}
	db, err := Open(stor, &opt.Options{WriteBuffer: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tr, err := db.OpenTransaction()
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Discard()
	refused := 0
	want := map[string]string{}
	for i := range 300 {
		stor.fails = i < 200
		k := fmt.Sprintf("key%03d", i)
		err := tr.Put([]byte(k), make([]byte, 100), nil)
		switch {
		case err == nil:
			want[k] = string(make([]byte, 100))
		case stderrors.Is(err, errNoTemps):
			refused++
		default:
			t.Fatal(err)
		}
	}
	if refused == 0 || len(want) < 100 {
		t.Errorf("%d writes failed, %d did not", refused, len(want))
	}
	if err := tr.Commit(); err != nil {
		t.Fatal(err)
	}
	sameAs(t, "the database", db.NewIterator(nil, nil), want)
}

// TestTransactionAboveBatch checks that writes that fit in the write buffer, but not in a batch,
// are committed.
func TestTransactionAboveBatch(t *testing.T) {
	defer func(most int) { maxCommitBatch = most }(maxCommitBatch)
	maxCommitBatch = 1000
	db, err := Open(storage.NewMemStorage(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	want := map[string]string{}
	for _, n := range []int{100, 2000} {
		tr, err := db.OpenTransaction()
		if err != nil {
			t.Fatal(err)
		}
		k, v := fmt.Sprint("key", n), string(make([]byte, n))
		if err := tr.Put([]byte(k), []byte(v), nil); err != nil {
			t.Fatal(err)
		}
		want[k] = v
		if err := tr.Commit(); err != nil {
			t.Fatal(err)
		}
		tables, err := db.GetProperty("leveldb.openedtables")
		if above := n > maxCommitBatch; above != (tables != "0") || err != nil {
			t.Errorf("%s tables after a transaction of %d bytes: %v", tables, n, err)
		}
	}
	sameAs(t, "the database", db.NewIterator(nil, nil), want)
}

// TestTransactionOfLongKeys checks that a transaction can be read and committed whose runs have an
// index of more than 256 MiB.
func TestTransactionOfLongKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 0.8 GiB of memory")
	}
	db, err := Open(storage.NewMemStorage(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tr, err := db.OpenTransaction()
	if err != nil {
		t.Fatal(err)
	}
	key := make([]byte, 1<<20)
	for i := range 260 {
		binary.BigEndian.PutUint32(key, uint32(i))
		if err := tr.Put(key, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if has, err := tr.Has(key, nil); !has || err != nil {
		t.Errorf("Has: %t, %v", has, err)
	}
	if err := tr.Commit(); err != nil {
		t.Error(err)
	}
}

// TestForeignTempFiles checks that Open leaves files alone whose names only resemble those of a
// transaction's temporary files.
func TestForeignTempFiles(t *testing.T) {
	dir := t.TempDir()
	names := []string{"7.tmp", "4012345678.tmp"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	db, err := OpenFile(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestOptionsAreCopied checks that a program may change Options after Open.
func TestOptionsAreCopied(t *testing.T) {
	stor := storage.NewMemStorage()
	o := &opt.Options{WriteBuffer: 2 << 10}
	db, err := Open(stor, o)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	o.WriteBuffer = 1 << 30 // for another database
	tr, err := db.OpenTransaction()
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Discard()
	for i := range 1000 {
		if err := tr.Put(fmt.Appendf(nil, "key%05d", i), make([]byte, 100), nil); err != nil {
			t.Fatal(err)
		}
	}
	if temps(t, stor) == 0 {
		t.Error("the transaction uses a WriteBuffer that was set after Open")
	}
}
