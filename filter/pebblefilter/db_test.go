package pebblefilter

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/siftdb/sift/filter"
)

// options returns options for a small tree of many tables.
func options(fs vfs.FS, p pebble.FilterPolicy, known ...pebble.FilterPolicy) *pebble.Options {
	o := &pebble.Options{
		FS:                    fs,
		FormatMajorVersion:    pebble.FormatNewest,
		MemTableSize:          64 << 10,
		L0CompactionThreshold: 2,
		LBaseMaxBytes:         128 << 10,
		Logger:                quiet{},
	}
	o.Levels[0].FilterPolicy = p
	for i := range o.TargetFileSizes {
		o.TargetFileSizes[i] = 32 << 10
	}
	if len(known) > 0 {
		o.Filters = Filters(known...)
	}
	return o
}

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

// model is a database and its expected contents.
type model struct {
	t    *testing.T
	fs   vfs.FS
	db   *pebble.DB
	want map[string]string
	rng  *rand.Rand

	policy pebble.FilterPolicy // of ingested tables
	n      int                 // files and directories so far
}

func (m *model) open(o *pebble.Options) {
	m.t.Helper()
	db, err := pebble.Open("db", o)
	if err != nil {
		m.t.Fatal(err)
	}
	m.db = db
}

func (m *model) close() {
	m.t.Helper()
	m.do(m.db.Close())
}

func (m *model) do(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) key() []byte { return key(m.rng.IntN(4000)) }

// step does a random operation.
func (m *model) step() {
	m.t.Helper()
	switch r := m.rng.IntN(1000); {
	case r < 600:
		k, v := m.key(), fmt.Sprintf("%d%060d", m.rng.Uint64(), 0)
		m.do(m.db.Set(k, []byte(v), pebble.NoSync))
		m.want[string(k)] = v
	case r < 800:
		k := m.key()
		m.do(m.db.Delete(k, pebble.NoSync))
		delete(m.want, string(k))
	case r < 803:
		a, b := m.key(), m.key()
		if bytes.Compare(a, b) > 0 {
			a, b = b, a
		}
		b = append(a[:len(a):len(a)], 'z') // few keys
		m.do(m.db.DeleteRange(a, b, pebble.NoSync))
		for k := range m.want {
			if k >= string(a) && k < string(b) {
				delete(m.want, k)
			}
		}
	case r < 805:
		m.do(m.db.Flush())
	case r < 806:
		m.do(m.db.Compact(m.t.Context(), key(0), key(9999), false))
	case r < 808:
		m.ingest()
	case r < 809:
		m.checkpoint()
	default:
		m.get(m.key())
		m.get(absent(m.rng.IntN(4000)))
	}
}

func (m *model) get(k []byte) {
	m.t.Helper()
	want, ok := m.want[string(k)]
	v, closer, err := m.db.Get(k)
	if errors.Is(err, pebble.ErrNotFound) {
		if ok {
			m.t.Fatalf("Get(%q) finds nothing", k)
		}
	} else if m.do(err); !ok || string(v) != want {
		m.t.Fatalf("Get(%q) = %q, want %q, %v", k, v, want, ok)
	} else {
		m.do(closer.Close())
	}
	it, err := m.db.NewIter(&pebble.IterOptions{UseL6Filters: true})
	m.do(err)
	found := it.SeekPrefixGE(k) && bytes.Equal(it.Key(), k)
	if found != ok || found && string(it.Value()) != want {
		m.t.Fatalf("SeekPrefixGE(%q) finds %v, want %v", k, found, ok)
	}
	m.do(it.Close())
}

// ingest adds a table from a separate writer with the same policy.
func (m *model) ingest() {
	m.t.Helper()
	m.n++
	name := fmt.Sprintf("ingest%d", m.n)
	f, err := m.fs.Create(name, vfs.WriteCategoryUnspecified)
	m.do(err)
	o := options(m.fs, m.policy)
	o.EnsureDefaults()
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f), o.MakeWriterOptions(0, m.db.TableFormat()))
	at := m.rng.IntN(3000)
	for i := at; i < at+50; i++ {
		v := fmt.Sprintf("ingested %d", m.rng.Uint64())
		m.do(w.Set(key(i), []byte(v)))
		m.want[string(key(i))] = v
	}
	m.do(w.Close())
	m.do(m.db.Ingest(m.t.Context(), []string{name}))
}

// checkpoint makes a checkpoint, opens it and checks it.
func (m *model) checkpoint() {
	m.t.Helper()
	m.n++
	dir := fmt.Sprintf("checkpoint%d", m.n)
	m.do(m.db.Checkpoint(dir, pebble.WithFlushedWAL()))
	o := options(m.fs, m.policy)
	o.ReadOnly = true
	db, err := pebble.Open(dir, o)
	m.do(err)
	c := &model{t: m.t, fs: m.fs, db: db, want: m.want, rng: m.rng}
	c.check()
	c.close()
}

// check compares all keys by an iterator, and some by lookups.
func (m *model) check() {
	m.t.Helper()
	it, err := m.db.NewIter(nil)
	m.do(err)
	var keys []string
	for it.First(); it.Valid(); it.Next() {
		k := string(it.Key())
		if v := string(it.Value()); m.want[k] != v {
			m.t.Fatalf("%q is %q, want %q", k, v, m.want[k])
		}
		keys = append(keys, k)
	}
	m.do(it.Close())
	if len(keys) != len(m.want) {
		m.t.Fatalf("%d keys, want %d", len(keys), len(m.want))
	}
	for i, k := range keys {
		if i%7 == 0 {
			m.get([]byte(k))
			m.get([]byte(k + "-"))
		}
	}
}

// TestDB does random operations with each policy and compares the database with a map.
func TestDB(t *testing.T) {
	for _, fp := range policies() {
		t.Run(fmt.Sprintf("%T/%s", fp, fp.Name()), func(t *testing.T) {
			const seed = 11
			m := &model{t: t, fs: vfs.NewMem(), want: map[string]string{}, rng: rand.New(rand.NewPCG(seed, 0))}
			m.policy = New(fp)
			for round := range 3 {
				m.open(options(m.fs, m.policy))
				for range 4000 {
					m.step()
				}
				m.check()
				if hits := m.db.Metrics().Filter.Hits; hits == 0 {
					t.Errorf("round %d: the filters excluded nothing", round)
				}
				m.close()
			}
		})
	}
}

// TestMigrate writes a database with one policy after another. Each reads the tables
// of the previous ones.
func TestMigrate(t *testing.T) {
	const seed = 12
	m := &model{t: t, fs: vfs.NewMem(), want: map[string]string{}, rng: rand.New(rand.NewPCG(seed, 0))}
	theirs := pebble.FilterPolicy(bloom.FilterPolicy(10))
	all := []pebble.FilterPolicy{theirs}
	for _, p := range policies() {
		all = append(all, New(p))
	}
	order := []pebble.FilterPolicy{theirs}
	for _, p := range all[1:] {
		order = append(order, p, theirs)
	}
	for i, p := range order {
		m.policy = p
		m.open(options(m.fs, p, all...))
		// Nothing is written yet: all tables are those of the previous policy.
		m.check()
		if hits := m.db.Metrics().Filter.Hits; i > 0 && hits == 0 {
			t.Errorf("step %d, %s: the filters of %s excluded nothing", i, p.Name(), order[i-1].Name())
		}
		for range 1500 {
			m.step()
		}
		m.check()
		m.do(m.db.Compact(t.Context(), key(0), key(9999), false))
		m.check()
		m.close()
		// Without the other policies in Options.Filters, tables are read without filters.
		m.open(options(m.fs, New(filter.Bloom(7))))
		m.check()
		m.close()
	}
}

func TestFilters(t *testing.T) {
	a, b, c := New(filter.Bloom(10)), New(filter.Bloom(12)), pebble.FilterPolicy(bloom.FilterPolicy(10))
	got := Filters(nil, a, pebble.NoFilterPolicy, b, c)
	var names []string
	for name := range got {
		names = append(names, name)
	}
	slices.Sort(names)
	if fmt.Sprint(names) != "[rocksdb.BuiltinBloomFilter sift.Bloom]" || got["sift.Bloom"] != a {
		t.Errorf("%v", got)
	}
}
