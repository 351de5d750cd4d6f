package compact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
	"github.com/siftdb/sift/memtable"
	"github.com/siftdb/sift/sstable"
)

// sliceIter iterates over keys in the given order, even one that no table can have.
type sliceIter struct {
	base.Iterator
	keys [][]byte
	at   int
}

func (b *sliceIter) First() bool   { b.at = 0; return true }
func (b *sliceIter) Next() bool    { b.at++; return b.Valid() }
func (b *sliceIter) Valid() bool   { return b.at < len(b.keys) }
func (b *sliceIter) Key() []byte   { return b.keys[b.at] }
func (b *sliceIter) Value() []byte { return nil }
func (b *sliceIter) Err() error    { return nil }

func jobTo(fs vfs.FS, input base.Iterator) *Job {
	num := uint64(0)
	return &Job{Input: input, Boundaries: []uint64{base.MaxSequence}, Writer: &sstable.WriterOptions{},
		Create: func() (uint64, vfs.File, error) {
			num++
			f, err := fs.Create(fmt.Sprintf("%06d.ldb", num))
			return num, f, err
		}}
}

// Entries out of order, or without a valid key, make no table.
func TestRunRefusesDisorder(t *testing.T) {
	key := func(s string, seq uint64) []byte { return base.AppendInternalKey(nil, []byte(s), seq, base.KindSet) }
	for _, keys := range [][][]byte{
		{key("b", 2), key("a", 1)},
		{key("b", 2), key("c", 2), key("a", 1), key("d", 9)},
		{[]byte("short")},
		{key("a", 1), base.AppendInternalKey(nil, []byte("b"), 1, 9)}, // of no kind
	} {
		outputs, _, err := Run(context.Background(), jobTo(vfstest.NewMem(), &sliceIter{keys: keys}))
		if err == nil || len(outputs) > 0 {
			t.Errorf("%q: %v, %v", keys, outputs, err)
		}
	}
}

// Run returns the error of each operation that fails. The tables are larger than the write buffer,
// so that writes fail at any point.
func TestRunFails(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	mem := memtable.New(4 << 20)
	mem.Reserve(3 << 20)
	for i := range 500 {
		value := make([]byte, 4000)
		for j := range value {
			value[j] = byte(rng.Uint32())
		}
		if err := mem.Add(uint64(i), uint64(i+1), base.KindSet, fmt.Appendf(nil, "key%06d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	failed := map[vfstest.OpKind]int{}
	for at := 0; ; at++ {
		faulty := vfstest.Inject(vfstest.NewMem())
		faulty.SetFaults(vfstest.Fault{Index: at})
		job := jobTo(faulty, mem.NewIter())
		job.TableBytes = 1 << 20
		outputs, stats, err := Run(context.Background(), job)
		ops := faulty.Failed()
		if len(ops) == 0 {
			if err != nil || len(outputs) < 2 || stats.EntriesOut != 500 {
				t.Fatalf("%d tables, %+v, %v", len(outputs), stats, err)
			}
			break
		}
		if failed[ops[0].Kind]++; !errors.Is(err, syscall.EIO) {
			t.Errorf("%v fails: %v", ops[0], err)
		}
		if open := faulty.OpenFiles(); len(open) > 0 {
			t.Errorf("%v fails: left open: %v", ops[0], open)
		}
	}
	for _, kind := range []vfstest.OpKind{vfstest.OpCreate, vfstest.OpWrite, vfstest.OpSync, vfstest.OpClose} {
		if failed[kind] < 2 {
			t.Errorf("%v failed %d times", kind, failed[kind])
		}
	}
}

// TestRunCanceled checks that a job that is canceled before its first key writes nothing.
func TestRunCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var keys [][]byte
	for i := range 100_000 {
		keys = append(keys, base.AppendInternalKey(nil, fmt.Appendf(nil, "key%06d", i), 1, base.KindSet))
	}
	if !slices.IsSortedFunc(keys, bytes.Compare) {
		t.Fatal("keys are not sorted")
	}
	cancel()
	if outputs, _, err := Run(ctx, jobTo(vfstest.NewMem(), &sliceIter{keys: keys})); !errors.Is(err, context.Canceled) || len(outputs) > 0 {
		t.Errorf("%v, %v", outputs, err)
	}
}

// TestRunCanceledByBytes checks that a job with large values notices before long that it is
// canceled.
func TestRunCanceledByBytes(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	mem := memtable.New(64 << 20)
	mem.Reserve(60 << 20)
	for i := range 50 {
		if err := mem.Add(uint64(i), uint64(i+1), base.KindSet, fmt.Appendf(nil, "key%06d", i), make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	in := mem.NewIter()
	job := jobTo(vfstest.NewMem(), in)
	job.SplitBefore = func(key []byte) bool {
		if string(key) == "key000002" {
			cancel()
		}
		return false
	}
	if _, stats, err := Run(ctx, job); !errors.Is(err, context.Canceled) || stats.EntriesIn > 4 {
		t.Errorf("after %d entries: %v", stats.EntriesIn, err)
	}
}

// TestRunsOfTombstones checks that a table ends where a long run of tombstones ends, and where a
// run becomes long enough after enough other keys, but never between the versions of a key.
func TestRunsOfTombstones(t *testing.T) {
	for _, tt := range []struct{ desc, kinds, want string }{
		{"none", "ssssssssss", "10"},
		{"one at the start", "ddddssss", "4 4"},
		{"one in the middle", "ssssssdddddsss", "8 3 3"},
		{"one after few other keys", "ssdddddsss", "7 3"},
		{"one after just enough other keys", "ssssddddss", "6 2 2"},
		{"one at the end", "ssssssddddd", "8 3"},
		{"only short ones", "ssddssddssdd", "12"},
		{"an older version of a key, which a snapshot sees", "dddd2sss", "5 3"},
		{"an older version of the key that begins the next table", "ddds2ss", "3 4"},
	} {
		mem := memtable.New(1 << 20)
		mem.Reserve(1 << 19)
		key := 0
		for _, kind := range tt.kinds {
			if kind != '2' {
				key++
			}
			k, seq := base.KindSet, uint64(200)
			switch kind {
			case 'd':
				k = base.KindDelete
			case '2': // of the same key
				seq = 100
			}
			if err := mem.Add(uint64(key), seq, k, fmt.Appendf(nil, "%04d", key), nil); err != nil {
				t.Fatal(err)
			}
		}
		job := jobTo(vfstest.NewMem(), mem.NewIter())
		job.Boundaries = []uint64{150, base.MaxSequence}
		job.DeletionRun = 3
		outputs, _, err := Run(context.Background(), job)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range outputs {
			got = append(got, fmt.Sprint(o.Info.Properties.NumEntries))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s, %s: tables of %v entries, want %s", tt.desc, tt.kinds, got, tt.want)
		}
	}
}

// A table ends before a key that shortens its common prefix too much, if it is not too small.
func TestPrefixEndsTable(t *testing.T) {
	keys := func(format string, n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf(format, i))
		}
		return out
	}
	pages, names := keys("filter:page:%06d", 300), keys("key:name:%06d", 300)
	for _, c := range []struct {
		desc       string
		keys       []string
		tableBytes int64
		first      []string // of each table
	}{
		{"two prefixes", slices.Concat(pages, names), 100_000, []string{pages[0], names[0]}},
		{"two prefixes, the first of few keys", slices.Concat(pages[:20], names), 100_000, []string{pages[0]}},
		{"one prefix, whose numbers grow", keys("key:name:%06d", 600), 100_000, []string{names[0]}},
		{"no prefix", slices.Concat(keys("a%05d", 200), keys("b%05d", 200), keys("c%05d", 200)), 100_000, []string{"a00000"}},
		{"a prefix that loses eight bytes", slices.Concat(keys("x/abcdefg/%03d", 300), keys("x/n%03d", 300)), 100_000, []string{"x/abcdefg/000", "x/n000"}},
		{"a prefix that loses seven bytes", slices.Concat(keys("x/abcdef/%03d", 300), keys("x/n%03d", 300)), 100_000, []string{"x/abcdef/000"}},
		{"a short prefix, and long ends", keys("key:%03[1]d:%09[1]d", 600), 100_000, []string{"key:000:000000000"}},
		{"two prefixes, but only one table is allowed", slices.Concat(pages, names), 0, []string{pages[0]}},
	} {
		mem := memtable.New(1 << 20)
		mem.Reserve(1 << 19)
		value := make([]byte, 100)
		rng := rand.New(rand.NewPCG(1, 2))
		for i, k := range c.keys {
			for j := range value {
				value[j] = byte(rng.Uint32())
			}
			if err := mem.Add(uint64(i), uint64(i+1), base.KindSet, []byte(k), value); err != nil {
				t.Fatal(err)
			}
		}
		job := jobTo(vfstest.NewMem(), mem.NewIter())
		job.TableBytes = c.tableBytes
		outputs, _, err := Run(context.Background(), job)
		if err != nil {
			t.Fatal(err)
		}
		var first []string
		for _, o := range outputs {
			first = append(first, string(base.UserKey(o.Info.Smallest)))
		}
		if !slices.Equal(first, c.first) {
			t.Errorf("%s: tables begin at %q, want %q", c.desc, first, c.first)
		}
	}
}

// TestRunKeeps checks that a job keeps the versions of a key that a reader can see, and no others.
func TestRunKeeps(t *testing.T) {
	for _, tt := range []struct {
		desc       string
		in         string // key, sequence number and d for a tombstone
		boundaries []uint64
		below      string // keys that a level below may hold
		splits     string // keys before which a table ends
		want       string // tables are separated by |
	}{
		{"no reader sees the older versions", "a9 a8 a7 b3", []uint64{20}, "", "", "a9 b3"},
		{"a snapshot after each of two versions", "a9 a8 a7 a6", []uint64{7, 8, 20}, "", "", "a9 a8 a7"},
		{"a snapshot between", "a9 a8 a3 a2", []uint64{5, 20}, "", "", "a9 a3"},
		{"newer than every boundary", "a9 a8 a4 a3", []uint64{5}, "", "", "a9 a8 a4"},
		{"tombstones with nothing below", "a9d a8 b7d", []uint64{20}, "", "", ""},
		{"a tombstone with something below", "a9d a8 b7d", []uint64{20}, "a", "", "a9d"},
		{"a tombstone that a snapshot does not see", "a9d a4", []uint64{5, 20}, "", "", "a9d a4"},
		{"a value is no tombstone", "a9 b4", []uint64{5, 20}, "", "", "a9 b4"},
		{"a table ends before a key", "a9 b8 b3 c7", []uint64{5, 20}, "", "b", "a9 | b8 b3 c7"},
		{"a table ends before a key that is dropped", "a9 b8d c7", []uint64{20}, "", "b", "a9 | c7"},
	} {
		var input sliceIter
		for _, e := range strings.Fields(tt.in) {
			var seq uint64
			fmt.Sscan(strings.TrimSuffix(e[1:], "d"), &seq)
			kind := base.KindSet
			if strings.HasSuffix(e, "d") {
				kind = base.KindDelete
			}
			input.keys = append(input.keys, base.AppendInternalKey(nil, []byte(e[:1]), seq, kind))
		}
		fs := vfstest.NewMem()
		job := jobTo(fs, &input)
		job.Boundaries = tt.boundaries
		job.NothingBelow = func(key []byte) bool { return !strings.Contains(tt.below, string(key)) }
		job.SplitBefore = func(key []byte) bool { return strings.Contains(tt.splits, string(key)) }
		outputs, _, err := Run(context.Background(), job)
		if err != nil {
			t.Fatal(err)
		}
		var tables []string
		for _, o := range outputs {
			tables = append(tables, tableEntries(t, fs, fmt.Sprintf("%06d.ldb", o.Num)))
		}
		if got := strings.Join(tables, " | "); got != tt.want {
			t.Errorf("%s, %s: %s, want %s", tt.desc, tt.in, got, tt.want)
		}
	}
}

// tableEntries returns a table's keys as TestRunKeeps writes them.
func tableEntries(t *testing.T, fs vfs.FS, name string) string {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := fs.Size(name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := sstable.NewReader(f, size, nil)
	if err != nil {
		t.Fatal(err)
	}
	it := r.NewIter(nil)
	var entries []string
	for ok := it.First(); ok; ok = it.Next() {
		user, seq, kind, _ := base.SplitInternalKey(it.Key())
		entry := fmt.Sprintf("%s%d", user, seq)
		if kind == base.KindDelete {
			entry += "d"
		}
		entries = append(entries, entry)
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(entries, " ")
}

// TestRunLargeBytes checks that only values of at least LargeValue bytes count as large.
func TestRunLargeBytes(t *testing.T) {
	mem := memtable.New(4 << 20)
	mem.Reserve(3 << 20)
	for i, n := range []int{LargeValue - 1, LargeValue, LargeValue + 1} {
		if err := mem.Add(uint64(i), 1, base.KindSet, []byte{byte(i)}, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	_, stats, err := Run(context.Background(), jobTo(vfstest.NewMem(), mem.NewIter()))
	if err != nil || stats.LargeBytes != 2*LargeValue+1 {
		t.Errorf("%d bytes, %v", stats.LargeBytes, err)
	}
}

// TestLongSeparatorsEndTable checks that a table ends when its index would take much memory.
func TestLongSeparatorsEndTable(t *testing.T) {
	prefix := strings.Repeat("x", 1<<20)
	var keys [][]byte
	for i := range 24 {
		keys = append(keys, base.AppendInternalKey(nil, fmt.Appendf(nil, "%s%04d", prefix, i), 1, base.KindSet))
	}
	job := jobTo(vfstest.NewMem(), &sliceIter{keys: keys})
	job.TableBytes = 4 << 20
	outputs, _, err := Run(context.Background(), job)
	if err != nil || len(outputs) < 3 {
		t.Errorf("%d tables, %v: the separators of one table take 24 MiB", len(outputs), err)
	}
}
