package manifest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/siftdb/sift/internal/base"
)

func meta(num uint64, smallest, largest []byte) *TableMeta {
	return &TableMeta{Num: num, Size: 10 * num, Smallest: smallest, Largest: largest}
}

func add(level int, tables ...*TableMeta) *Edit {
	e := new(Edit)
	for _, t := range tables {
		e.Added = append(e.Added, AddedTable{level, t})
	}
	return e
}

func mustApply(t testing.TB, v *Version, edits ...*Edit) *Version {
	t.Helper()
	next, err := v.Apply(edits...)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func nums(tables []*TableMeta) string {
	var s []string
	for _, t := range tables {
		s = append(s, fmt.Sprint(t.Num))
	}
	return strings.Join(s, " ")
}

func TestApply(t *testing.T) {
	a, b, c := meta(5, key("a", 1), key("c", 1)), meta(9, key("b", 2), key("z", 2)), meta(7, key("a", 3), key("b", 3))
	d, e := meta(4, key("m", 1), key("p", 1)), meta(3, key("c", 1), key("d", 1))
	v := mustApply(t, nil, add(0, a, b, c), add(1, d, e))
	if nums(v.Levels[0]) != "9 7 5" || nums(v.Levels[1]) != "3 4" || v.Size(0) != 210 || v.Size(1) != 70 || v.NumTables() != 5 {
		t.Fatalf("%s / %s, %d and %d bytes, %d tables", nums(v.Levels[0]), nums(v.Levels[1]), v.Size(0), v.Size(1), v.NumTables())
	}
	move := add(2, d)
	move.Deleted = []DeletedTable{{1, 4}, {1, 4}, {0, 9}}
	next := mustApply(t, v, move)
	if nums(next.Levels[0]) != "7 5" || nums(next.Levels[1]) != "3" || nums(next.Levels[2]) != "4" {
		t.Fatalf("%s / %s / %s", nums(next.Levels[0]), nums(next.Levels[1]), nums(next.Levels[2]))
	}
	if next.Levels[2][0] != d || next.Levels[0][1] != a {
		t.Error("a table that stays got another TableMeta")
	}
	if nums(v.Levels[1]) != "3 4" {
		t.Error("Apply changed the old version")
	}
	// Deleting and adding in one edit leaves the table there, as in LevelDB.
	again := add(0, meta(5, key("a", 1), key("c", 1)))
	again.Deleted = []DeletedTable{{0, 5}}
	if next := mustApply(t, v, again); nums(next.Levels[0]) != "9 7 5" {
		t.Errorf("level 0: %s", nums(next.Levels[0]))
	}
	// goleveldb may add a table twice in one edit.
	if next := mustApply(t, v, add(0, meta(5, key("a", 1), key("c", 1)), meta(11, key("x", 1), key("x", 1)), meta(11, key("x", 1), key("x", 1)))); nums(next.Levels[0]) != "11 9 7 5" || next.Levels[0][3] != a {
		t.Errorf("level 0: %s", nums(next.Levels[0]))
	}
}

func TestApplyRefuses(t *testing.T) {
	v := mustApply(t, nil, add(0, meta(5, key("a", 1), key("c", 1))), add(1, meta(6, key("d", 5), key("f", 4))))
	for _, tc := range []struct {
		desc string
		edit *Edit
	}{
		{"deletion of an unknown table", &Edit{Deleted: []DeletedTable{{0, 9}}}},
		{"deletion from another level", &Edit{Deleted: []DeletedTable{{1, 5}}}},
		{"a table twice with different sizes", add(0, &TableMeta{Num: 5, Size: 1, Smallest: key("a", 1), Largest: key("c", 1)})},
		{"a table twice with different keys", add(0, meta(5, key("a", 1), key("d", 1)))},
		{"a table in two levels", add(2, meta(5, key("a", 1), key("c", 1)))},
		{"overlap", add(1, meta(7, key("a", 1), key("d", 1)), meta(8, key("d", 1), key("d", 0)))},
		{"overlap with what is there", add(1, meta(7, key("e", 1), key("e", 1)))},
		{"overlap in the last version of a key", add(1, meta(7, key("f", 4), key("g", 1)))},
		{"malformed key", add(1, meta(7, []byte("short"), key("g", 1)))},
	} {
		if next, err := v.Apply(tc.edit); err == nil {
			t.Errorf("%s: %v", tc.desc, next.Levels[:3])
		}
	}
	// LevelDB splits the versions of a key between adjacent tables: no overlap.
	mustApply(t, v, add(1, meta(7, key("f", 3), key("g", 1))))
}

// describeLevels prints the numbers of the tables of each level.
func describeLevels(levels []DeepLevel) string {
	var s []string
	for _, l := range levels {
		s = append(s, fmt.Sprintf("%d: %s", l.Level, nums(l.Tables)))
	}
	return strings.Join(s, ", ")
}

// TestTree checks that a tree has tables in any level, in the order of a version, and that an edit
// that does not fit leaves it as it was.
func TestTree(t *testing.T) {
	tree := NewTree(mustApply(t, nil, add(0, meta(5, key("a", 1), key("c", 1)), meta(9, key("b", 1), key("z", 1)))))
	moved := meta(3, key("m", 1), key("p", 1))
	move := add(8, moved)
	move.Deleted = []DeletedTable{{7, 3}}
	for i, c := range []struct {
		edit *Edit
		want string
	}{
		{add(7, moved, meta(4, key("a", 1), key("b", 1))), "0: 9 5, 7: 4 3"},
		{move, "0: 9 5, 7: 4, 8: 3"},
	} {
		if err := tree.Apply(c.edit); err != nil {
			t.Fatalf("edit %d: %v", i, err)
		}
		if levels, err := tree.Levels(); describeLevels(levels) != c.want || err != nil {
			t.Errorf("edit %d: %s, %v; want %s", i, describeLevels(levels), err, c.want)
		}
	}
	for _, c := range []struct {
		desc    string
		deleted []DeletedTable
		added   *Edit
	}{
		{"a deletion after others", []DeletedTable{{7, 4}, {0, 9}, {0, 77}}, new(Edit)},
		{"a deletion from a level that does not exist", []DeletedTable{{0, 9}, {100, 9}}, new(Edit)},
		{"a table in two levels", []DeletedTable{{7, 4}}, add(0, meta(20, key("q", 1), key("r", 1)), meta(3, key("m", 1), key("p", 1)))},
		{"a table twice", []DeletedTable{{8, 3}}, add(2, moved, meta(20, key("q", 1), key("r", 1)), meta(20, key("q", 1), key("s", 1)))},
		{"a malformed key", []DeletedTable{{7, 4}}, add(9, meta(20, key("q", 1), []byte("short")))},
	} {
		c.added.Deleted = c.deleted
		if err := tree.Apply(c.added); err == nil {
			t.Errorf("%s: no error", c.desc)
		}
		if levels, err := tree.Levels(); describeLevels(levels) != "0: 9 5, 7: 4, 8: 3" || err != nil {
			t.Errorf("%s: afterwards %s, %v", c.desc, describeLevels(levels), err)
		}
	}
	if err := tree.Apply(add(8, meta(30, key("n", 1), key("z", 1)))); err != nil {
		t.Fatal(err)
	}
	levels, err := tree.Levels()
	if describeLevels(levels) != "0: 9 5, 7: 4, 8: 3 30" || err == nil || !strings.Contains(err.Error(), "000003 and 000030 of level 8 overlap") {
		t.Errorf("tables that overlap: %s, %v", describeLevels(levels), err)
	}
}

// TestFindTable compares FindTable with a linear search, over keys that share long prefixes, short
// ones, or none.
func TestFindTable(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	shapes := []func() []byte{
		func() []byte { return fmt.Appendf(nil, "user%08d", r.IntN(500)) },
		func() []byte { return fmt.Appendf(nil, "x%03d-a-long-middle-part-%03d", r.IntN(3), r.IntN(200)) },
		func() []byte { return bytes.Repeat([]byte{byte(r.IntN(2)) * 0xff}, r.IntN(20)) },
		func() []byte { return []byte{byte(r.IntN(256)), byte(r.IntN(256))} },
	}
	for _, n := range []int{0, 1, 2, 3, 100} {
		for i, shape := range shapes {
			var keys [][]byte
			for range 2 * n {
				keys = append(keys, shape())
			}
			slices.SortFunc(keys, bytes.Compare)
			keys = slices.CompactFunc(keys, bytes.Equal)
			e := new(Edit)
			for j := 0; j+1 < len(keys); j += 2 {
				// Some tables begin with the last key of the table before.
				from := keys[j]
				if j > 0 && r.IntN(3) == 0 {
					from = keys[j-1]
				}
				e.Added = append(e.Added, AddedTable{3, meta(uint64(j+1), key(string(from), 5), key(string(keys[j+1]), 9))})
			}
			v := mustApply(t, nil, e)
			for range 500 {
				k := shape()
				switch r.IntN(4) {
				case 0:
					k = k[:r.IntN(len(k)+1)]
				case 1:
					k = append(k, byte(r.IntN(2)))
				}
				want := slices.IndexFunc(v.Levels[3], func(t *TableMeta) bool { return bytes.Compare(base.UserKey(t.Largest), k) >= 0 })
				if want < 0 {
					want = len(v.Levels[3])
				}
				wantLast := want < len(v.Levels[3]) && bytes.Equal(base.UserKey(v.Levels[3][want].Largest), k)
				if got, last := v.FindTable(3, k); got != want || last != wantLast {
					t.Fatalf("shape %d, %d tables: FindTable(%q) = %d, %v, want %d, %v", i, len(v.Levels[3]), k, got, last, want, wantLast)
				}
				to := shape()
				var overlapping []*TableMeta
				for _, t := range v.Levels[3] {
					if t.Overlaps(k, to) {
						overlapping = append(overlapping, t)
					}
				}
				if got := v.Overlapping(nil, 3, k, to); bytes.Compare(k, to) <= 0 && !slices.Equal(got, overlapping) {
					t.Fatalf("Overlapping(%q, %q) = %s, want %s", k, to, nums(got), nums(overlapping))
				}
			}
			if n := testing.AllocsPerRun(10, func() { v.FindTable(3, []byte("user00000123")) }); n != 0 {
				t.Fatalf("FindTable allocates %v times", n)
			}
		}
	}
}

func TestOverlapping(t *testing.T) {
	v := mustApply(t, nil,
		add(0, meta(5, key("a", 1), key("c", 1)), meta(6, key("b", 2), key("z", 2)), meta(7, key("", 3), key("a", 3))),
		add(2, meta(8, key("a", 1), key("c", 1)), meta(9, key("c", 0), key("f", 2))))
	for _, tc := range []struct {
		level    int
		from, to []byte
		want     string
	}{
		{0, nil, nil, "7 6 5"},
		{0, []byte("a"), []byte("a"), "7 5"},
		{0, []byte{}, []byte{}, "7"},
		{0, []byte("c"), nil, "6 5"},
		{2, nil, nil, "8 9"},
		{2, []byte("c"), []byte("c"), "8 9"},
		{2, []byte("d"), []byte("z"), "9"},
		{2, nil, []byte("b"), "8"},
		{2, []byte("g"), nil, ""},
		{1, nil, nil, ""},
	} {
		if got := nums(v.Overlapping(nil, tc.level, tc.from, tc.to)); got != tc.want {
			t.Errorf("level %d %q..%q: %s, want %s", tc.level, tc.from, tc.to, got, tc.want)
		}
	}
}

// TestRuns checks that the runs of level 0 hold each of its tables once, ascending and without a
// common key, and that they are as few as possible: as many as there are tables, at most, that hold
// the same key.
func TestRuns(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		e, deepest := new(Edit), [30]int{}
		for num := range rng.IntN(12) {
			from, to := rng.IntN(len(deepest)), rng.IntN(len(deepest))
			from, to = min(from, to), max(from, to)
			for k := from; k <= to; k++ {
				deepest[k]++
			}
			m := meta(uint64(num+1), key(fmt.Sprintf("%02d", from), uint64(1000-num)), key(fmt.Sprintf("%02d", to), uint64(num)))
			e.Added = append(e.Added, AddedTable{0, m})
		}
		v := mustApply(t, nil, e)
		seen := map[*TableMeta]bool{}
		for _, run := range v.Runs {
			for i, m := range run {
				if seen[m] {
					t.Errorf("table %d occurs twice", m.Num)
				}
				seen[m] = true
				if i > 0 && bytes.Compare(base.UserKey(run[i-1].Largest), base.UserKey(m.Smallest)) >= 0 {
					t.Errorf("tables %d and %d of a run overlap", run[i-1].Num, m.Num)
				}
			}
		}
		if len(seen) != len(v.Levels[0]) || len(v.Runs) != slices.Max(deepest[:]) {
			t.Errorf("%d of %d tables in %d runs, want %d", len(seen), len(v.Levels[0]), len(v.Runs), slices.Max(deepest[:]))
		}
	}
}

func TestRefs(t *testing.T) {
	a, b, c := meta(1, key("a", 1), key("a", 1)), meta(2, key("b", 1), key("b", 1)), meta(3, key("c", 1), key("c", 1))
	v1 := mustApply(t, nil, add(1, a, b))
	v1.Ref()
	v1.Ref() // a reader's
	e := add(2, b, c)
	e.Deleted = []DeletedTable{{1, 1}, {1, 2}}
	v2 := mustApply(t, v1, e)
	v2.Ref()
	var gone []*TableMeta
	obsolete := func(t *TableMeta) { gone = append(gone, t) }
	if v1.Unref(obsolete); len(gone) != 0 || v1.refs.Load() != 1 {
		t.Fatalf("%s obsolete while a reader uses them", nums(gone))
	}
	if v1.Unref(obsolete); nums(gone) != "1" {
		t.Fatalf("%q obsolete after the first version, want 1: 2 has moved", nums(gone))
	}
	gone = nil
	if v2.Unref(obsolete); nums(gone) != "2 3" {
		t.Fatalf("%q obsolete after the last version", nums(gone))
	}
	defer func() {
		if recover() == nil {
			t.Error("Unref without a reference did not panic")
		}
	}()
	v2.Unref(obsolete)
}

// TestRefsConcurrently has readers take and drop references while versions replace each other:
// every table becomes obsolete once, and only when it is no longer in use.
func TestRefsConcurrently(t *testing.T) {
	var mu sync.Mutex // guards current and gone
	current := mustApply(t, nil, add(0, meta(1, key("a", 1), key("a", 1))))
	current.Ref()
	gone := make(map[uint64]int)
	obsolete := func(t *TableMeta) {
		mu.Lock()
		defer mu.Unlock()
		gone[t.Num]++
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				mu.Lock()
				v := current
				v.Ref()
				for _, table := range v.Levels[0] {
					if gone[table.Num] != 0 {
						t.Errorf("table %d is obsolete but in use", table.Num)
					}
				}
				mu.Unlock()
				v.Unref(obsolete)
			}
		})
	}
	const last = 1000
	for n := uint64(2); n <= last; n++ {
		e := add(0, meta(n, key("a", n), key("a", n)))
		e.Deleted = []DeletedTable{{0, n - 1}}
		mu.Lock()
		old := current
		current = mustApply(t, old, e)
		current.Ref()
		mu.Unlock()
		old.Unref(obsolete)
	}
	wg.Wait()
	for n := uint64(1); n < last; n++ {
		if gone[n] != 1 {
			t.Fatalf("table %d became obsolete %d times", n, gone[n])
		}
	}
	if gone[last] != 0 {
		t.Fatal("the current table became obsolete")
	}
}

func BenchmarkFindTable(b *testing.B) {
	for _, n := range []int{10, 1000, 50_000} {
		e := new(Edit)
		for i := range n {
			k := fmt.Sprintf("user%012d", 10*i)
			e.Added = append(e.Added, AddedTable{1, meta(uint64(i+1), key(k, 1), key(k+"5", 1))})
		}
		v := mustApply(b, nil, e)
		keys := make([][]byte, 1024)
		r := rand.New(rand.NewPCG(1, 1))
		for i := range keys {
			keys[i] = fmt.Appendf(nil, "user%012d", r.IntN(10*n))
		}
		i := 0
		b.Run(fmt.Sprintf("prefixes/%d", n), func(b *testing.B) {
			for b.Loop() {
				v.FindTable(1, keys[i&1023])
				i++
			}
		})
		b.Run(fmt.Sprintf("plain/%d", n), func(b *testing.B) {
			for b.Loop() {
				k := keys[i&1023]
				_, _ = slices.BinarySearchFunc(v.Levels[1], k, func(t *TableMeta, k []byte) int { return bytes.Compare(base.UserKey(t.Largest), k) })
				i++
			}
		})
	}
}

// TestLarge checks that a version is large if a level below level 0 is, and another level has
// tables.
func TestLarge(t *testing.T) {
	table := func(num, size uint64, user string) *TableMeta {
		m := meta(num, key(user, 1), key(user, 1))
		m.Size = size
		return m
	}
	for _, tt := range []struct {
		desc  string
		edits []*Edit
		large bool
	}{
		{"one level", []*Edit{add(2, table(1, largeLevel, "a"))}, false},
		{"one level and level 0", []*Edit{add(2, table(1, largeLevel, "a")), add(0, table(2, 1, "a"))}, true},
		{"two levels", []*Edit{add(2, table(1, largeLevel, "a")), add(3, table(2, 1, "a"))}, true},
		{"a byte less", []*Edit{add(2, table(1, largeLevel-1, "a")), add(3, table(2, 1, "a"))}, false},
		{"two tables", []*Edit{add(2, table(1, largeLevel-1, "a"), table(3, 1, "b")), add(3, table(2, 1, "a"))}, true},
		{"level 0 alone", []*Edit{add(0, table(1, largeLevel, "a"), table(2, largeLevel, "a"))}, false},
		{"level 0 and a small level", []*Edit{add(0, table(1, largeLevel, "a")), add(1, table(2, 1, "a"))}, false},
	} {
		if v := mustApply(t, nil, tt.edits...); v.Large != tt.large {
			t.Errorf("%s: large %t", tt.desc, v.Large)
		}
	}
}
