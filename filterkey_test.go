package sift

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

const filterKeyHex = "736966746b657931" + "000102030405060708090a0b0c0d0e0f" + "c6cb24ce"

func TestFilterKeyFormat(t *testing.T) {
	var s filter.Secret
	for i := range s {
		s[i] = byte(i)
	}
	b := appendFilterKey(nil, s)
	if got := hex.EncodeToString(b); got != filterKeyHex {
		t.Errorf("stored as %s, want %s", got, filterKeyHex)
	}
	if got, err := decodeFilterKey(b); err != nil || got != s {
		t.Errorf("read back as %x, %v", got, err)
	}
	for n := range b {
		if _, err := decodeFilterKey(b[:n]); err == nil {
			t.Errorf("the first %d bytes of a secret are accepted", n)
		}
		c := bytes.Clone(b)
		c[n] ^= 0x10
		if _, err := decodeFilterKey(c); err == nil {
			t.Errorf("a secret with byte %d changed is accepted", n)
		}
	}
	if _, err := decodeFilterKey(append(b, 0)); err == nil {
		t.Error("a secret with an additional byte is accepted")
	}
}

func keyedOptions(fs vfs.FS) *Options {
	return &Options{
		KeyedFilters: true, FS: fs, MemtableBytes: 64 << 10, TableBytes: 32 << 10, LevelBaseBytes: 64 << 10, DisableAutoCompaction: true,
		cleanNow: true, // for the same files each time
	}
}

// loadKeys writes n keys, compacts the first half and flushes the second.
func loadKeys(t *testing.T, db *DB, n int) {
	t.Helper()
	for i := range n {
		if err := db.Put(fmt.Appendf(nil, "key%06d", i), fmt.Appendf(nil, "value%d", i), NoSync); err != nil {
			t.Fatal(err)
		}
		if i == n/2 {
			if err := db.Compact(context.Background(), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
}

// wantPolicies compares the set of policies of a database's tables.
func wantPolicies(t *testing.T, db *DB, want ...string) {
	t.Helper()
	var got []string
	for _, level := range db.state.Load().version.Levels {
		for _, meta := range level {
			got = append(got, meta.Handle.(*table).filterPolicy())
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("filters are %q, want %q", got, want)
	}
}

// wantKeys looks up n keys that are present and n that are absent.
func wantKeys(t *testing.T, db *DB, n int) {
	t.Helper()
	for i := range n {
		v, err := db.Get(fmt.Appendf(nil, "key%06d", i))
		if err != nil || string(v) != fmt.Sprint("value", i) {
			t.Fatalf("key %d is %q, %v", i, v, err)
		}
		if _, err := db.Get(fmt.Appendf(nil, "key%06dx", i)); !errors.Is(err, ErrNotFound) {
			t.Fatalf("absent key %d: %v", i, err)
		}
	}
}

func mustOpen(t *testing.T, dir string, o *Options) *DB {
	t.Helper()
	db, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func mustClose(t *testing.T, db *DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// mustCheck checks a database and fails the test on any fault.
func mustCheck(t *testing.T, dir string, o *Options) CheckReport {
	t.Helper()
	report, err := Check(context.Background(), dir, o, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestFilterKey follows a secret: it is created, kept, used even without the option, lost, and
// created again.
func TestFilterKey(t *testing.T) {
	const n = 3000
	fs := vfstest.NewMem()
	path := filepath.Join("db", "FILTERKEY")
	flushed, below := filter.DefaultForFlush().Name(), filter.Default().Name()
	keyedFlushed, keyedBelow := "keyed("+flushed+")", "keyed("+below+")"
	plain := keyedOptions(fs)
	plain.KeyedFilters = false
	readOnly := keyedOptions(fs)
	readOnly.ReadOnly = true

	db := mustOpen(t, "db", plain)
	loadKeys(t, db, n)
	wantPolicies(t, db, flushed, below)
	mustClose(t, db)
	db = mustOpen(t, "db", readOnly)
	wantPolicies(t, db, flushed, below)
	wantKeys(t, db, n)
	mustClose(t, db)
	if _, err := fs.Size(path); err == nil {
		t.Fatal("a secret was created without KeyedFilters")
	}

	// Filters of old tables are probed as before, and those of new tables with the secret.
	db = mustOpen(t, "db", keyedOptions(fs))
	wantPolicies(t, db, flushed, below)
	wantKeys(t, db, n)
	if err := db.Put([]byte("key000000"), []byte("value0"), nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	wantPolicies(t, db, flushed, keyedFlushed, below)
	wantKeys(t, db, n)
	if _, err := db.BuildFilters(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantPolicies(t, db, keyedBelow)
	wantKeys(t, db, n)
	mustClose(t, db)
	secret, err := readFilterKey(fs, path)
	if err != nil {
		t.Fatal(err)
	}

	// Without the option, filters stay keyed, and a checkpoint can use them.
	db = mustOpen(t, "db", plain)
	loadKeys(t, db, n)
	wantPolicies(t, db, keyedFlushed, keyedBelow)
	wantKeys(t, db, n)
	if err := db.Checkpoint("copy"); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	if again, err := readFilterKey(fs, path); err != nil || again != secret {
		t.Errorf("the secret has changed: %v", err)
	}
	if report := mustCheck(t, "copy", plain); report.Filters != report.Tables || len(report.Notes) > 0 {
		t.Errorf("checking the checkpoint: %+v", report)
	}

	// Without the secret, filters are ignored, and a compaction builds new ones.
	if err := fs.Remove(path); err != nil {
		t.Fatal(err)
	}
	report := mustCheck(t, "db", plain)
	if report.Filters != 0 || len(report.Notes) != report.Tables || !strings.Contains(report.Notes[0], "BuildFilters") {
		t.Errorf("checking without the secret: %+v", report)
	}
	db = mustOpen(t, "db", plain)
	wantPolicies(t, db, "none")
	wantKeys(t, db, n)
	mustClose(t, db)
	db = mustOpen(t, "db", keyedOptions(fs))
	wantPolicies(t, db, "none") // filters keyed with another secret
	wantKeys(t, db, n)
	mustClose(t, db)
	report = mustCheck(t, "db", plain)
	if report.Filters != 0 || len(report.Notes) != report.Tables || !strings.Contains(report.Notes[0], "another secret") {
		t.Errorf("checking with another secret: %+v", report)
	}
	memory := keyedOptions(fs)
	memory.FilterMemory = 1 << 20
	db = mustOpen(t, "db", memory)
	wantKeys(t, db, n)
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	wantPolicies(t, db, keyedBelow)
	wantKeys(t, db, n)
	mustClose(t, db)
	if report := mustCheck(t, "db", memory); report.Filters != report.Tables || len(report.Notes) > 0 {
		t.Errorf("checking with FilterMemory: %+v", report)
	}
}

// TestFilterKeyDamaged checks that a damaged secret is a fault for Check, but not for Open: with
// the option, a new secret replaces it.
func TestFilterKeyDamaged(t *testing.T) {
	const n = 500
	for _, damage := range [][]byte{{}, []byte("siftkey1"), make([]byte, filterKeyLen), bytes.Repeat([]byte{1}, 1<<16)} {
		fs := vfstest.NewMem()
		path := filepath.Join("db", "FILTERKEY")
		db := mustOpen(t, "db", keyedOptions(fs))
		loadKeys(t, db, n)
		mustClose(t, db)
		f, err := fs.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(damage); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		plain := keyedOptions(fs)
		plain.KeyedFilters = false
		db = mustOpen(t, "db", plain)
		wantKeys(t, db, n)
		mustClose(t, db)
		var faults []error
		if _, err := Check(context.Background(), "db", plain, func(err error) { faults = append(faults, err) }); err != nil {
			t.Fatal(err)
		}
		var corrupt *CorruptionError
		if len(faults) != 1 || !errors.As(faults[0], &corrupt) || corrupt.Path != path {
			t.Errorf("%d bytes: faults are %v", len(damage), faults)
		}
		db = mustOpen(t, "db", keyedOptions(fs))
		wantKeys(t, db, n)
		mustClose(t, db)
		if _, err := readFilterKey(fs, path); err != nil {
			t.Errorf("%d bytes: the secret after an Open with KeyedFilters: %v", len(damage), err)
		}
	}
}

// TestFilterKeyUnreadable checks that Open and Repair return the I/O error of a secret that cannot
// be read, and keep the secret.
func TestFilterKeyUnreadable(t *testing.T) {
	mem := vfstest.NewMem()
	db := mustOpen(t, "db", keyedOptions(mem))
	loadKeys(t, db, 100)
	mustClose(t, db)
	path := filepath.Join("db", "FILTERKEY")
	before, err := readFilterKey(mem, path)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []vfstest.OpKind{vfstest.OpOpen, vfstest.OpReadAt} {
		faulty := vfstest.Inject(mem)
		faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool {
			return op.Kind == kind && filepath.Base(op.Name) == "FILTERKEY"
		}})
		if db, err := Open("db", keyedOptions(faulty)); !errors.Is(err, syscall.EIO) {
			t.Errorf("%v fails, and Open: %v", kind, err)
			if err == nil {
				mustClose(t, db)
			}
		}
		if _, err := Repair("db", keyedOptions(faulty)); !errors.Is(err, syscall.EIO) {
			t.Errorf("%v fails, and Repair: %v", kind, err)
		}
		if after, err := readFilterKey(mem, path); err != nil || after != before {
			t.Errorf("the secret has changed: %v", err)
		}
	}
	mustCheck(t, "db", keyedOptions(mem))
}

// TestFilterKeyForbidden checks that the data can be read without permission to read the secret,
// for example after a run by another user: only speed depends on it. The secret must not be
// replaced, and with KeyedFilters no filter may be built without it.
func TestFilterKeyForbidden(t *testing.T) {
	const n = 2000
	path := filepath.Join("db", "FILTERKEY")
	for _, keyed := range []bool{false, true} {
		mem := vfstest.NewMem()
		db := mustOpen(t, "db", keyedOptions(mem))
		loadKeys(t, db, n)
		mustClose(t, db)
		before, err := readFilterKey(mem, path)
		if err != nil {
			t.Fatal(err)
		}
		faulty := vfstest.Inject(mem)
		faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Err: syscall.EACCES, Match: func(op vfstest.Op) bool {
			return op.Kind == vfstest.OpOpen && filepath.Base(op.Name) == "FILTERKEY"
		}})
		var out logged
		o := keyedOptions(faulty)
		o.KeyedFilters, o.Logger = keyed, slog.New(slog.NewTextHandler(&out, nil))
		for _, readOnly := range []bool{true, false} {
			o.ReadOnly = readOnly
			db := mustOpen(t, "db", o)
			wantKeys(t, db, n)
			if !strings.Contains(out.String(), "level=WARN") {
				t.Errorf("keyed %v, read-only %v: no warning is logged: %s", keyed, readOnly, out.String())
			}
			if !readOnly {
				if err := errors.Join(db.Put([]byte("new"), nil, nil), db.Flush()); err != nil {
					t.Error(err)
				}
				for _, table := range db.Tables() {
					if own := table.FilterUnits > 0; own != (string(table.Smallest) == "new" && !keyed) {
						t.Errorf("keyed %v: the table from %q has the filter %s", keyed, table.Smallest, table.FilterPolicy)
					}
				}
				if _, err := db.BuildFilters(context.Background()); keyed != errors.Is(err, fs.ErrPermission) {
					t.Errorf("keyed %v: BuildFilters: %v", keyed, err)
				}
			}
			mustClose(t, db)
		}
		faults := 0
		if _, err := Check(context.Background(), "db", o, func(err error) {
			faults++
			if !errors.Is(err, fs.ErrPermission) {
				t.Error(err)
			}
		}); err != nil || faults != 1 {
			t.Errorf("Check: %v, %d faults", err, faults)
		}
		if _, err := Repair("db", o); err != nil {
			t.Errorf("Repair: %v", err)
		}
		if after, err := readFilterKey(mem, path); err != nil || after != before {
			t.Errorf("the secret has changed: %v", err)
		}
		mustCheck(t, "db", keyedOptions(mem))
	}
}

// TestFilterKeyForbiddenRanges checks that, with KeyedFilters, tables that are written without
// permission to read the secret have no range filters either.
func TestFilterKeyForbiddenRanges(t *testing.T) {
	options := func(fsys vfs.FS) *Options {
		o := keyedOptions(fsys)
		o.RangeFilter, o.Logger = filter.Range(12, 0), slog.New(slog.DiscardHandler)
		return o
	}
	key := func(n int) []byte { return fmt.Appendf(nil, "key%06d", n) }
	mem := vfstest.NewMem()
	mustClose(t, mustOpen(t, "db", options(mem)))
	faulty := vfstest.Inject(mem)
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Err: syscall.EACCES, Match: func(op vfstest.Op) bool {
		return op.Kind == vfstest.OpOpen && filepath.Base(op.Name) == "FILTERKEY"
	}})
	for _, forbidden := range []bool{true, false} {
		var fsys vfs.FS = mem
		if forbidden {
			fsys = faulty
		}
		db := mustOpen(t, "db", options(fsys))
		for i := range 500 {
			if err := db.Put(key(997*i), nil, NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Compact(context.Background(), nil, nil); err != nil {
			t.Fatal(err)
		}
		mustClose(t, db)
		db = mustOpen(t, "db", options(mem))
		for i := range 400 {
			if has, err := db.HasRange(key(997*i+100), key(997*i+101)); has || err != nil {
				t.Fatal(i, has, err)
			}
		}
		if m := db.Metrics(); m.RangeProbes == 0 || (m.RangeUseful == 0) != forbidden {
			t.Errorf("forbidden %t: of %d probes of range filters, %d are useful", forbidden, m.RangeProbes, m.RangeUseful)
		}
		mustClose(t, db)
	}
}

// TestParentThatCannotBeRead checks that a database and a checkpoint can be created in a directory
// that can be searched but not read, such as one of mode 0711: it cannot be opened for the sync
// that would make the new entry durable.
func TestParentThatCannotBeRead(t *testing.T) {
	mem := vfstest.NewMem()
	parent := filepath.FromSlash("/home/other/parent")
	if err := mem.MkdirAll(parent); err != nil {
		t.Fatal(err)
	}
	fails := func(name string, err error) *vfstest.Faulty {
		faulty := vfstest.Inject(mem)
		faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Err: err, Match: func(op vfstest.Op) bool {
			return op.Kind == vfstest.OpSyncDir && filepath.Base(op.Name) == name
		}})
		return faulty
	}
	for _, unreadable := range []string{"parent", "other"} {
		dir := filepath.Join(parent, "of "+unreadable)
		var out logged
		db := mustOpen(t, dir, &Options{FS: fails(unreadable, syscall.EACCES), Logger: slog.New(slog.NewTextHandler(&out, nil))})
		if err := db.Checkpoint(dir + " copied"); err != nil {
			t.Error(err)
		}
		mustClose(t, db)
		if warned := strings.Contains(out.String(), "level=WARN"); warned != (unreadable == "parent") {
			t.Errorf("%s cannot be read: logged %q", unreadable, out.String())
		}
		mustCheck(t, dir+" copied", &Options{FS: mem})
	}
	if _, err := Open(filepath.Join(parent, "third"), &Options{FS: fails("parent", syscall.EIO)}); !errors.Is(err, syscall.EIO) {
		t.Errorf("Open with an I/O error of the parent directory: %v", err)
	}
}

// TestFilterKeyDurable checks that a new secret survives a power cut.
func TestFilterKeyDurable(t *testing.T) {
	mem := vfstest.NewMem()
	if err := errors.Join(mem.MkdirAll("db"), mem.SyncDir(".")); err != nil {
		t.Fatal(err)
	}
	want := filter.Secret{1, 2, 3}
	if err := writeFilterKey(mem, "db", want); err != nil {
		t.Fatal(err)
	}
	img := mem.CrashImage(mem.NumOps(), vfstest.LoseUnsynced)
	if got, err := readFilterKey(img, filepath.Join("db", "FILTERKEY")); err != nil || got != want {
		t.Errorf("after a power cut: %x, %v", got, err)
	}
}

func TestFilterKeyOptions(t *testing.T) {
	o := keyedOptions(vfstest.NewMem())
	o.Filter = filter.RocksDBBloom(10)
	if _, err := Open("db", o); err == nil || !strings.Contains(err.Error(), "KeyedFilters") {
		t.Errorf("Open: %v", err)
	}
}

// TestFilterKeyMode checks that only the owner may read the secret.
func TestFilterKeyMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	dir := t.TempDir()
	mustClose(t, mustOpen(t, dir, keyedOptions(vfs.OS)))
	info, err := os.Stat(filepath.Join(dir, "FILTERKEY"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of the secret is %v", info.Mode())
	}
}

// TestChosenKeys attacks a store whose keys and options are known: the attacker builds a copy and
// looks up absent keys that are false positives of the copy's filters. Each costs a block read,
// unless filters are keyed.
func TestChosenKeys(t *testing.T) {
	const n, chosen = 20000, 200
	load := func(keyed bool) *DB {
		o := keyedOptions(vfstest.NewMem())
		o.KeyedFilters, o.Filter = keyed, filter.Bloom(10)
		o.TableBytes, o.MemtableBytes = 8<<20, 8<<20
		db := mustOpen(t, "db", o)
		loadKeys(t, db, n)
		if err := db.Compact(context.Background(), nil, nil); err != nil {
			t.Fatal(err)
		}
		return db
	}
	wasted := func(db *DB, key []byte) bool {
		before := db.Metrics().Levels
		if _, err := db.Get(key); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		for i, l := range db.Metrics().Levels {
			if l.Filter.FalsePositive > before[i].Filter.FalsePositive {
				return true
			}
		}
		return false
	}
	copied := load(false)
	var attack [][]byte
	tries := 0
	for ; len(attack) < chosen; tries++ {
		key := fmt.Appendf(nil, "key%06d-%d", tries%n, tries)
		if wasted(copied, key) {
			attack = append(attack, key)
		}
	}
	mustClose(t, copied)
	for _, keyed := range []bool{false, true} {
		db := load(keyed)
		hits := 0
		for _, key := range attack {
			if wasted(db, key) {
				hits++
			}
		}
		mustClose(t, db)
		t.Logf("keyed %v: %d of %d chosen keys cost a read; found among %d", keyed, hits, chosen, tries)
		if !keyed && hits != chosen || keyed && hits > chosen/20 {
			t.Errorf("keyed %v: %d of %d chosen keys cost a read", keyed, hits, chosen)
		}
	}
}

// BenchmarkKeyedGet looks up absent keys in a store of a few levels.
func BenchmarkKeyedGet(b *testing.B) {
	for _, keyed := range []bool{false, true} {
		b.Run(fmt.Sprintf("keyed=%v", keyed), func(b *testing.B) {
			db, err := Open("db", &Options{KeyedFilters: keyed, FS: vfstest.NewMem(), MemtableBytes: 1 << 20, TableBytes: 512 << 10, LevelBaseBytes: 1 << 20, L0Tables: 4})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			const n = 200000
			for i := range n {
				if err := db.Put(fmt.Appendf(nil, "key%012d", i*7919%n), bytes.Repeat([]byte{'v'}, 40), NoSync); err != nil {
					b.Fatal(err)
				}
			}
			if err := db.Flush(); err != nil {
				b.Fatal(err)
			}
			keys := make([][]byte, 1<<14)
			for i := range keys {
				keys[i] = fmt.Appendf(nil, "key%012dx", i*7907%n)
			}
			b.ResetTimer()
			for i := range b.N {
				if ok, err := db.Has(keys[i%len(keys)]); ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}

// TestReadersOfAnotherSecret checks that filters which the caller keyed with a secret of its own
// remain usable, and hide no key, once the database has a secret.
func TestReadersOfAnotherSecret(t *testing.T) {
	const n = 3000
	mem, own := vfstest.NewMem(), filter.Secret{1}
	policy, err := filter.Keyed(filter.Bloom(10), own)
	if err != nil {
		t.Fatal(err)
	}
	o := keyedOptions(mem)
	o.KeyedFilters, o.Filter = false, policy
	db := mustOpen(t, "db", o)
	loadKeys(t, db, n)
	wantKeys(t, db, n)
	mustClose(t, db)
	for range 2 {
		o = keyedOptions(mem)
		o.FilterReaders = filter.KeyedReaders(own)
		db = mustOpen(t, "db", o)
		wantKeys(t, db, n)
		for _, m := range db.Tables() {
			if m.FilterErr != nil {
				t.Errorf("table %d: %v", m.Num, m.FilterErr)
			}
		}
		// Now there are filters of both secrets.
		if err := errors.Join(db.Put([]byte("z"), nil, nil), db.Flush()); err != nil {
			t.Fatal(err)
		}
		mustClose(t, db)
	}
}

// TestPartlyDamagedFilterIsRebuilt checks that BuildFilters rewrites a table of whose filter only a
// later unit is damaged.
func TestPartlyDamagedFilterIsRebuilt(t *testing.T) {
	dir, o := t.TempDir(), &Options{Filter: filter.Ribbon(16), DisableAutoCompaction: true}
	db := mustOpen(t, dir, o)
	for i := range 20_000 {
		if err := db.Put(fmt.Appendf(nil, "key%06d", i), nil, NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	v := db.state.Load().version
	tab := v.Levels[v.Deepest][0].Handle.(*table)
	r := tab.reader.Load()
	mustClose(t, db)
	data, err := os.ReadFile(tab.path)
	if err != nil {
		t.Fatal(err)
	}
	hit := false
	for _, m := range r.MetaBlocks() {
		if strings.HasPrefix(m.Name, "fullfilter.") && strings.HasSuffix(m.Name, ".1") {
			data[m.Offset+m.Length/2] ^= 1
			hit = true
		}
	}
	if !hit {
		t.Fatal("the filter has one unit")
	}
	if err := os.WriteFile(tab.path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, dir, o)
	if n, err := db.BuildFilters(context.Background()); n != 1 || err != nil {
		t.Errorf("%d tables rewritten, %v", n, err)
	}
	mustClose(t, db)
	mustCheck(t, dir, o)
}

// TestBuildFiltersUnderLimit checks that BuildFilters rewrites tables whose filters cannot be used
// although no filter is loaded.
func TestBuildFiltersUnderLimit(t *testing.T) {
	mem := vfstest.NewMem()
	db := mustOpen(t, "db", keyedOptions(mem))
	loadKeys(t, db, 1000)
	mustClose(t, db)
	if err := mem.Remove(filepath.Join("db", "FILTERKEY")); err != nil {
		t.Fatal(err)
	}
	o := keyedOptions(mem)
	o.FilterMemory = 1 // no filter is loaded
	db = mustOpen(t, "db", o)
	if err := db.Compact(context.Background(), []byte("z"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := db.BuildFilters(context.Background()); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	if r := mustCheck(t, "db", keyedOptions(mem)); r.Filters != r.Tables {
		t.Errorf("%d of %d filters are usable", r.Filters, r.Tables)
	}
}

// TestBuildFiltersUnreadable checks that BuildFilters returns the error if it cannot read a filter
// that is not in memory.
func TestBuildFiltersUnreadable(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	o := uncached(faulty)
	o.FilterMemory = 1 // no filter is loaded
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	loadKeys(t, db, 1000)
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	db.Tables() // loads the tables
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpReadAt }})
	if n, err := db.BuildFilters(context.Background()); !errors.Is(err, syscall.EIO) {
		t.Errorf("BuildFilters rewrites %d tables, and returns %v", n, err)
	}
	faulty.SetFaults()
	if _, err := db.BuildFilters(context.Background()); err != nil {
		t.Error(err)
	}
}
