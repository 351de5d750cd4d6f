package manifest

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/fence"
)

// Version is the set of tables at one point in time. It is immutable and safe for concurrent
// use.
type Version struct {
	// Levels holds the tables: level 0 newest first, that is by descending file number, but see
	// State.Deep; the others by Smallest, without overlap (I7).
	Levels [NumLevels][]*TableMeta
	// Deepest is the deepest level with a table.
	Deepest int
	// Large reports that a level below level 0 has at least largeLevel bytes, so that its filters
	// do not fit into the CPU's caches, and that another level has tables.
	Large bool
	// Runs are the tables of level 0 grouped for iterators: the tables of a run are ascending and
	// share no user key, and there are as few runs as possible.
	Runs [][]*TableMeta

	sizes  [NumLevels]uint64
	fences [NumLevels]fence.Index // of the levels >= 1
	refs   atomic.Int64
}

// largeLevel is the least size in bytes of a large level. With keys of 16 bytes, its filters take
// 16 MiB if values have 100 bytes, and 50 MiB if they have 8.
const largeLevel = 1 << 30

// Size returns the total size in bytes of a level's tables.
func (v *Version) Size(level int) uint64 { return v.sizes[level] }

// NumTables returns the number of tables in all levels.
func (v *Version) NumTables() int {
	n := 0
	for _, l := range v.Levels {
		n += len(l)
	}
	return n
}

// Overlapping appends to dst, in the level's order, the tables of a level whose range overlaps
// the user keys from..to. Both bounds are inclusive; nil means unbounded.
func (v *Version) Overlapping(dst []*TableMeta, level int, from, to []byte) []*TableMeta {
	tables := v.Levels[level]
	if level > 0 {
		if from != nil {
			i, _ := v.FindTable(level, from)
			tables = tables[i:]
		}
		for _, t := range tables {
			if to != nil && bytes.Compare(base.UserKey(t.Smallest), to) > 0 {
				break
			}
			dst = append(dst, t)
		}
		return dst
	}
	for _, t := range tables {
		if t.Overlaps(from, to) {
			dst = append(dst, t)
		}
	}
	return dst
}

// Apply returns the version that results from v and the edits, in order. v is not modified;
// nil means an empty version. Tables that stay keep their TableMeta; an added table has the
// edit's TableMeta. The new version has no references yet.
//
// An error means that the edits do not fit v: they delete a missing table, add one in two
// places, or make the tables of a level overlap.
func (v *Version) Apply(edits ...*Edit) (*Version, error) {
	tree := NewTree(v)
	for _, e := range edits {
		if err := tree.Apply(e); err != nil {
			return nil, err
		}
	}
	return tree.finish()
}

// Tree is a tree of tables, in any number of levels, to which edits are applied one by one. Its
// maps are keyed by file number.
type Tree struct {
	levels []map[uint64]*TableMeta
	where  map[uint64]int // the level of each table
}

// NewTree returns a tree with the tables of v; nil means none.
func NewTree(v *Version) *Tree {
	t := &Tree{where: make(map[uint64]int)}
	if v == nil {
		return t
	}
	for level, tables := range v.Levels {
		for _, meta := range tables {
			t.put(level, meta)
		}
	}
	return t
}

func (t *Tree) put(level int, meta *TableMeta) {
	for len(t.levels) <= level {
		t.levels = append(t.levels, make(map[uint64]*TableMeta))
	}
	t.levels[level][meta.Num] = meta
	t.where[meta.Num] = level
}

func (t *Tree) remove(level int, num uint64) {
	delete(t.levels[level], num)
	delete(t.where, num)
}

// Apply applies an edit's deletions before its additions. goleveldb may list a table twice in
// one edit, which is not an error if both entries are equal. After an error the tree is as it was
// before. Apply does not check whether tables overlap: see Levels.
func (t *Tree) Apply(e *Edit) (err error) {
	var removed, put []AddedTable
	defer func() {
		if err == nil {
			return
		}
		for _, a := range put {
			t.remove(a.Level, a.Table.Num)
		}
		for _, r := range removed {
			t.put(r.Level, r.Table)
		}
	}()
	gone := make(map[DeletedTable]bool, len(e.Deleted))
	for _, d := range e.Deleted {
		if gone[d] {
			continue
		}
		if level, ok := t.where[d.Num]; !ok || level != d.Level {
			return fmt.Errorf("table %06d is deleted from level %d, but is not in it", d.Num, d.Level)
		}
		gone[d] = true
		removed = append(removed, AddedTable{d.Level, t.levels[d.Level][d.Num]})
		t.remove(d.Level, d.Num)
	}
	for _, a := range e.Added {
		if err := a.Table.check(); err != nil {
			return err
		}
		level, ok := t.where[a.Table.Num]
		if !ok {
			t.put(a.Level, a.Table)
			put = append(put, a)
			continue
		}
		if level != a.Level {
			return fmt.Errorf("table %06d is in level %d and added to level %d", a.Table.Num, level, a.Level)
		}
		if !t.levels[level][a.Table.Num].same(a.Table) {
			return fmt.Errorf("table %06d is added to level %d twice with different contents", a.Table.Num, level)
		}
	}
	return nil
}

// Levels returns the levels that have tables, upper ones first, each in the order of a Version. The
// error names two tables of a level below level 0 that overlap, if there are any (I7).
func (t *Tree) Levels() (levels []DeepLevel, err error) {
	for n, set := range t.levels {
		if len(set) == 0 {
			continue
		}
		tables := slices.Collect(maps.Values(set))
		levels = append(levels, DeepLevel{n, tables})
		if n == 0 {
			slices.SortFunc(tables, func(a, b *TableMeta) int { return cmp.Compare(b.Num, a.Num) })
			continue
		}
		slices.SortFunc(tables, func(a, b *TableMeta) int { return base.CompareInternal(a.Smallest, b.Smallest) })
		for i := 1; i < len(tables) && err == nil; i++ {
			if base.CompareInternal(tables[i-1].Largest, tables[i].Smallest) >= 0 {
				err = fmt.Errorf("tables %06d and %06d of level %d overlap", tables[i-1].Num, tables[i].Num, n)
			}
		}
	}
	return levels, err
}

// finish builds the version. It fails if a table is in a level beyond those of a Version.
func (t *Tree) finish() (*Version, error) {
	v, deep, err := t.finishDeep()
	if deep != nil {
		return nil, fmt.Errorf("there is a table in level %d, above the maximum %d", deep[len(deep)-1].Level, NumLevels-1)
	}
	return v, err
}

// finishDeep builds the version and, if there are too many levels, their list; see State.Deep.
func (t *Tree) finishDeep() (*Version, []DeepLevel, error) {
	deep, err := t.Levels()
	if err != nil {
		return nil, nil, err
	}
	var top []*TableMeta
	if len(deep) > 0 && deep[0].Level == 0 {
		top, deep = deep[0].Tables, deep[1:]
	}
	if len(deep) == 0 || deep[len(deep)-1].Level < NumLevels {
		return newVersion(top, deep), nil, nil
	}
	// The tables of the upper levels in excess join level 0; the other levels are renumbered.
	rest := deep
	for len(rest) >= NumLevels {
		top = append(top, rest[0].Tables...)
		rest = rest[1:]
	}
	return newVersion(top, Fit(rest)), deep, nil
}

// Fit renumbers at most NumLevels-1 levels, upper ones first, to fit a Version. Levels keep
// their numbers where possible.
func Fit(levels []DeepLevel) []DeepLevel {
	fit := slices.Clone(levels)
	for i, below := len(fit)-1, NumLevels; i >= 0; i-- {
		fit[i].Level = min(fit[i].Level, below-1)
		below = fit[i].Level
	}
	return fit
}

// newVersion builds a version from the tables of level 0 and the levels below it.
func newVersion(top []*TableMeta, levels []DeepLevel) *Version {
	v := new(Version)
	v.Levels[0], v.Runs = top, Runs(top)
	for _, l := range levels {
		v.Levels[l.Level], v.Deepest = l.Tables, l.Level
	}
	for level, tables := range v.Levels {
		for _, t := range tables {
			v.sizes[level] += t.Size
		}
		if level > 0 {
			v.fences[level] = newFence(tables)
		}
	}
	several := len(levels) > 1 || len(top) > 0
	v.Large = several && slices.Max(v.sizes[1:]) >= largeLevel
	return v
}

// Runs groups tables of level 0 as in Version.Runs. Adding each table, in the order of smallest
// keys, to any run that ends before it gives the fewest runs.
func Runs(tables []*TableMeta) (runs [][]*TableMeta) {
	tables = slices.Clone(tables)
	slices.SortFunc(tables, func(a, b *TableMeta) int { return base.CompareInternal(a.Smallest, b.Smallest) })
	for _, t := range tables {
		i := slices.IndexFunc(runs, func(run []*TableMeta) bool {
			return bytes.Compare(base.UserKey(run[len(run)-1].Largest), base.UserKey(t.Smallest)) < 0
		})
		if i < 0 {
			runs = append(runs, []*TableMeta{t})
			continue
		}
		runs[i] = append(runs[i], t)
	}
	return runs
}

// Ref takes a reference on the version. The first one also takes the version's references on
// its tables; it must be taken before the version is published.
func (v *Version) Ref() {
	if v.refs.Add(1) == 1 {
		for _, l := range v.Levels {
			for _, t := range l {
				t.refs.Add(1)
			}
		}
	}
}

// Unref drops a reference. With the version's last one, obsolete is called for each table
// that no version in use holds any more. To keep the tables that two versions share, Ref the
// new version before Unref of the old one.
func (v *Version) Unref(obsolete func(t *TableMeta)) {
	switch n := v.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("manifest: Unref of a version without references")
	}
	for _, l := range v.Levels {
		for _, t := range l {
			if t.refs.Add(-1) == 0 {
				obsolete(t)
			}
		}
	}
}
