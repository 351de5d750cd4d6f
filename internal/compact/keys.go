package compact

import (
	"bytes"
	"slices"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
)

// NothingBelow returns a function that reports whether no table outside the plan can hold an older
// entry of a user key, so that its tombstone can be dropped. It must be called with ascending keys,
// and not concurrently. v is the version that the plan was made for, or an earlier one: tables
// added later hold no older entries. A plan without inputs is a flush, and all tables count.
// mayContain reports whether a table whose range includes the key may hold it, according to its
// filter; nil means that every such table may.
func NothingBelow(v *manifest.Version, plan *Plan, mayContain func(t *manifest.TableMeta, userKey []byte) bool) func(userKey []byte) bool {
	from, to := userRange(plan.Inputs[0], plan.Inputs[1])
	// Besides deeper levels, the tables next to the inputs in the plan's own levels count:
	// they may share a key with the inputs.
	var levels [][]*manifest.TableMeta
	for level := plan.Level; level < manifest.NumLevels; level++ {
		others := slices.DeleteFunc(v.Overlapping(nil, level, from, to), func(t *manifest.TableMeta) bool {
			return slices.Contains(plan.Inputs[0], t) || slices.Contains(plan.Inputs[1], t)
		})
		if level == 0 {
			for _, t := range others {
				levels = append(levels, []*manifest.TableMeta{t}) // tables of level 0 overlap
			}
		} else if len(others) > 0 {
			levels = append(levels, others)
		}
	}
	return func(userKey []byte) bool {
		for i, tables := range levels {
			for len(tables) > 0 && bytes.Compare(base.UserKey(tables[0].Largest), userKey) < 0 {
				tables = tables[1:]
			}
			levels[i] = tables
			// More than one if LevelDB has split the entries of a key between adjacent tables.
			for _, t := range tables {
				if bytes.Compare(base.UserKey(t.Smallest), userKey) > 0 {
					break
				}
				if mayContain == nil || mayContain(t, userKey) {
					return false
				}
			}
		}
		return true
	}
}

// SplitBefore returns a function that reports whether an output table should end before a user
// key because it would otherwise overlap too many grandparents. It must be called once for
// each ascending key, and not concurrently.
func SplitBefore(plan *Plan, tableBytes uint64) func(userKey []byte) bool {
	rest := plan.Grandparents
	started := false
	var overlap uint64
	return func(userKey []byte) bool {
		for len(rest) > 0 && bytes.Compare(base.UserKey(rest[0].Largest), userKey) < 0 {
			if started {
				overlap += rest[0].Size
			}
			rest = rest[1:]
		}
		started = true
		if overlap > maxGrandparents*tableBytes {
			overlap = 0
			return true
		}
		return false
	}
}
