package manifest

import (
	"bytes"
	"sort"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/fence"
)

// newFence returns the index of a level's largest user keys.
func newFence(tables []*TableMeta) fence.Index {
	return fence.New(len(tables), func(i int) []byte { return base.UserKey(tables[i].Largest) })
}

// FindTable returns the index of the first table of a level >= 1 whose largest user key is at or
// after userKey, or len(v.Levels[level]) if there is none, and whether userKey is that largest key.
// If the table begins after userKey, the level does not hold the key. LevelDB may have split the
// entries of a key between adjacent tables: the tables after one that ends with the key may hold
// older entries, as long as they begin with it. FindTable takes no lock and does not allocate.
func (v *Version) FindTable(level int, userKey []byte) (i int, last bool) {
	first, ties := v.fences[level].Find(userKey)
	if ties == 0 {
		return first, false
	}
	tables := v.Levels[level]
	i = first + sort.Search(ties, func(j int) bool { return bytes.Compare(base.UserKey(tables[first+j].Largest), userKey) >= 0 })
	return i, i < len(tables) && bytes.Equal(base.UserKey(tables[i].Largest), userKey)
}
