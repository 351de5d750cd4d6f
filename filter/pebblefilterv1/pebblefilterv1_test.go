package pebblefilterv1

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble"
	"github.com/cockroachdb/pebble/bloom"
	"github.com/cockroachdb/pebble/vfs"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/filter/filtertest"
)

func policies() []filter.Policy {
	return []filter.Policy{filter.Bloom(10), filter.Fuse(8), filter.Ribbon(10), filter.RocksDBBloom(10)}
}

func key(i int) []byte    { return fmt.Appendf(nil, "key%06d", i) }
func absent(i int) []byte { return fmt.Appendf(nil, "key%06d-", i) }

func TestFrom(t *testing.T) {
	filtertest.RunWith(t, From(bloom.FilterPolicy(10)), filtertest.Options{Unsealed: true, MaxKeys: 10_000})
	if p := From(bloom.FilterPolicy(10)); p.Family() != "rocksdb.BuiltinBloomFilter" {
		t.Errorf("family %q", p.Family())
	}
	for _, p := range policies() {
		if From(New(p)) != p {
			t.Errorf("From(New(%s)) is another policy", p.Name())
		}
	}
	if New(nil) != nil || New(filter.None()) != nil || !filter.IsNone(From(nil)) {
		t.Error("New or From of no filter is not nil")
	}
}

// TestRocksDBBloomBytes compares RocksDBBloom with pebble's own policy, byte for byte.
func TestRocksDBBloomBytes(t *testing.T) {
	for _, n := range []int{1, 64, 1000, 20_000} {
		theirs := bloom.FilterPolicy(10).NewWriter(pebble.TableFilter)
		ours := New(filter.RocksDBBloom(10)).NewWriter(pebble.TableFilter)
		for i := range n {
			theirs.AddKey(key(i))
			ours.AddKey(key(i))
		}
		if !bytes.Equal(theirs.Finish(nil), ours.Finish(nil)) {
			t.Errorf("%d keys: the bytes differ", n)
		}
	}
}

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

func open(t *testing.T, fs vfs.FS, p pebble.FilterPolicy, known ...pebble.FilterPolicy) *pebble.DB {
	t.Helper()
	comparer := *pebble.DefaultComparer
	comparer.Split = func(k []byte) int { return len(k) }
	db, err := pebble.Open("db", &pebble.Options{
		Comparer:              &comparer,
		FS:                    fs,
		MemTableSize:          64 << 10,
		L0CompactionThreshold: 2,
		LBaseMaxBytes:         128 << 10,
		Logger:                quiet{},
		Filters:               Filters(known...),
		Levels:                []pebble.LevelOptions{{FilterPolicy: p, FilterType: pebble.TableFilter, TargetFileSize: 32 << 10}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// TestDB writes one database with one policy after another, pebble's own first, and
// compares it with a map.
func TestDB(t *testing.T) {
	const seed = 21
	rng := rand.New(rand.NewPCG(seed, 0))
	fs := vfs.NewMem()
	want := map[string]string{}
	order := []pebble.FilterPolicy{bloom.FilterPolicy(10)}
	for _, p := range policies() {
		order = append(order, New(p), bloom.FilterPolicy(10))
	}
	get := func(db *pebble.DB, k []byte) {
		v, closer, err := db.Get(k)
		w, ok := want[string(k)]
		if errors.Is(err, pebble.ErrNotFound) {
			if ok {
				t.Fatalf("Get(%q) finds nothing (seed %d)", k, seed)
			}
			return
		}
		if err != nil || !ok || string(v) != w {
			t.Fatalf("Get(%q) = %q, %v, want %q, %v (seed %d)", k, v, err, w, ok, seed)
		}
		if err := closer.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range order {
		db := open(t, fs, p, order...)
		for k := range 4000 {
			get(db, key(k))
			get(db, absent(k))
		}
		it, err := db.NewIter(&pebble.IterOptions{UseL6Filters: true})
		if err != nil {
			t.Fatal(err)
		}
		for k := range 4000 {
			if k := absent(k); it.SeekPrefixGE(k) && bytes.Equal(it.Key(), k) {
				t.Fatalf("SeekPrefixGE finds %q", k)
			}
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
		if hits := db.Metrics().Filter.Hits; i > 0 && hits == 0 {
			t.Errorf("step %d: the filters of %s excluded nothing", i, order[i-1].Name())
		}
		for range 5000 {
			k := key(rng.IntN(4000))
			var err error
			if rng.IntN(4) == 0 {
				delete(want, string(k))
				err = db.Delete(k, pebble.NoSync)
			} else {
				want[string(k)] = fmt.Sprintf("%d%060d", rng.Uint64(), 0)
				err = db.Set(k, []byte(want[string(k)]), pebble.NoSync)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if i%2 == 0 {
			if err := db.Compact(key(0), key(999999), false); err != nil {
				t.Fatal(err)
			}
		} else if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func ExampleNew() {
	opts := &pebble.Options{FS: vfs.NewMem(), Logger: quiet{}}
	opts.Levels = []pebble.LevelOptions{{
		FilterPolicy: New(filter.Bloom(10)),
		FilterType:   pebble.TableFilter,
	}}
	db, err := pebble.Open("db", opts)
	if err != nil {
		panic(err)
	}
	defer db.Close()
	fmt.Println(db.Set([]byte("key"), []byte("value"), pebble.Sync))
	// Output: <nil>
}
