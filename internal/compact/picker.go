// Package compact decides what to compact, and does it: the picker makes a Plan from a
// version, and Run merges the tables of a plan into new ones.
package compact

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
)

// Config describes the shape of the tree that compactions work toward.
type Config struct {
	L0Trigger       int    // number of tables in level 0 that triggers a compaction
	LevelBaseBytes  uint64 // maximum target size of level 1
	LevelBaseMin    uint64 // minimum target size of level 1; 0: LevelBaseBytes
	LevelMultiplier uint64 // factor between the target sizes of adjacent levels
	TableBytes      uint64 // the size of a table down to level 2; see LevelTableBytes
	MaxTableBytes   uint64 // bounds the size of tables below level 2; 0: 1 GiB
	// Failed are the levels that wait for a retry: other levels that are due come first.
	Failed [manifest.NumLevels]bool
}

// maxTableBytes bounds LevelTableBytes.
const maxTableBytes = 1 << 30

// LevelTableBytes returns the target size of the tables in a level. It doubles from level 3 on,
// so that the number of files grows more slowly than the data: with tables of 8 MiB a
// terabyte is some 14,000 files instead of 119,000.
func (c Config) LevelTableBytes(level int) uint64 {
	return max(c.TableBytes, min(c.TableBytes<<max(level-2, 0), cmp.Or(c.MaxTableBytes, maxTableBytes), maxTableBytes))
}

// LastTableBytes returns the target size of the tables in the last level of a tree of the given
// size.
func (c Config) LastTableBytes(size uint64) uint64 {
	level := 1
	for level < manifest.NumLevels-1 && size > c.maxBytes(c.LevelBaseBytes, level) {
		level++
	}
	return c.LevelTableBytes(level)
}

// The limits of LevelDB, in tables.
const (
	// maxGrandparents bounds the overlap of a table with the level two below its own, all of
	// which takes part when the table is itself compacted.
	maxGrandparents = 10
	// maxExpanded bounds a compaction that is expanded by tables of its upper level that add
	// nothing from the lower one.
	maxExpanded = 25
	// maxManual bounds what one step of a manual compaction takes from a level >= 1, so that
	// other compactions get their turn and a step needs little free space.
	maxManual = 10
)

// baseShare is the size of the tree in multiples of level 1 while level 1 is smaller than
// LevelBaseBytes. All of level 1 is rewritten for every few tables of level 0, so it should be no
// larger than needed to avoid another level: with an eighth in level 1, the rest fits in level 2.
const baseShare = 8

// base returns the target size of level 1.
func (c *Config) base(v *manifest.Version) uint64 {
	least := c.LevelBaseMin
	if least == 0 || least > c.LevelBaseBytes {
		least = c.LevelBaseBytes
	}
	var total uint64
	for level := 1; level < manifest.NumLevels; level++ {
		total += v.Size(level)
	}
	return max(1, least, min(c.LevelBaseBytes, total/baseShare))
}

// maxBytes returns the target size of a level >= 1, given that of level 1; it saturates.
func (c *Config) maxBytes(base uint64, level int) uint64 {
	n := base
	for range level - 1 {
		if n > 1<<63/max(1, c.LevelMultiplier) {
			return 1 << 63
		}
		n *= max(1, c.LevelMultiplier)
	}
	return n
}

// score returns how urgently a level needs a compaction; from 1 up, it is due.
func (c *Config) score(v *manifest.Version, base uint64, level int) float64 {
	if level == 0 {
		return float64(len(v.Levels[0])) / float64(max(1, c.L0Trigger))
	}
	return float64(v.Size(level)) / float64(c.maxBytes(base, level))
}

// Plan is a compaction: the tables of Inputs are merged into new tables in OutputLevel.
type Plan struct {
	Level       int // of Inputs[0]
	OutputLevel int // of Inputs[1] and of the output
	// Inputs are the tables from the two levels, in the order of the version.
	Inputs [2][]*manifest.TableMeta
	// Grandparents are the tables of the level below OutputLevel that overlap the inputs.
	Grandparents []*manifest.TableMeta
	// TrivialMove is set if Inputs[0] is a single table that can move to OutputLevel unchanged.
	TrivialMove bool
	// Score is the level's score, at least 1, if Pick made the plan; otherwise it is 0.
	Score float64
	// Pointer is the largest internal key of Inputs[0]; the next compaction of the level prefers
	// tables after it. It is nil for a compaction in place.
	Pointer []byte
}

// Pick returns the most urgent compaction. ok is false if no level needs one. pointers are the
// Pointer of each level's last plan, initially nil. Pick is a pure function.
//
// It compacts the level with the highest score into the next one; levels in Config.Failed come
// last. From level 0 it takes the oldest table with all that overlap it; from another level the
// table with the least overlap in the next level per byte of its own, which writes 2 to 5% less in
// total than taking tables in turn (TestPickWritesLess). Ties go to the first table after the
// pointer.
func Pick(v *manifest.Version, cfg Config, pointers [manifest.NumLevels][]byte) (plan Plan, ok bool) {
	levelBase := cfg.base(v)
	level, score := -1, 0.0
	for l := range manifest.NumLevels - 1 {
		s := cfg.score(v, levelBase, l)
		if s < 1 || len(v.Levels[l]) == 0 {
			continue
		}
		if level < 0 || cfg.Failed[level] && !cfg.Failed[l] || cfg.Failed[level] == cfg.Failed[l] && s > score {
			level, score = l, s
		}
	}
	if level < 0 {
		return Plan{}, false
	}
	var seed *manifest.TableMeta
	if level == 0 {
		seed = v.Levels[0][len(v.Levels[0])-1]
	} else {
		seed = leastOverlap(v, level, pointers[level])
	}
	plan = newPlan(v, cfg, level, []*manifest.TableMeta{seed})
	plan.Score = score
	return plan, true
}

// idleShare and idleShareOne bound what PickIdle writes: tables of level 0 and at most this many
// times their size from level 1, the latter for a single table of level 0.
const (
	idleShare    = 8
	idleShareOne = 2
)

// PickIdle returns a compaction of level 0 tables that is not due yet, for idle times, so that
// reads have fewer tables to probe. ok is false if none is worthwhile. It compacts fewer level 0
// tables than Pick with as much of level 1, so during writes it would increase write amplification.
// Tables of level 0 that overlap no others there are compacted without them, the oldest first.
func PickIdle(v *manifest.Version, cfg Config) (plan Plan, ok bool) {
	for _, seed := range slices.Backward(v.Levels[0]) {
		if slices.Contains(plan.Inputs[0], seed) {
			continue // refused with the last plan
		}
		plan = newPlan(v, cfg, 0, []*manifest.TableMeta{seed})
		if len(v.Levels[0]) == 1 && len(plan.Inputs[1]) == 0 {
			break // reads of level 1 would be no faster
		}
		share := uint64(idleShare)
		if len(plan.Inputs[0]) == 1 {
			share = idleShareOne
		}
		if totalSize(plan.Inputs[1]) <= share*totalSize(plan.Inputs[0]) {
			return plan, true
		}
	}
	return Plan{}, false
}

// PickDeletions returns the compaction of a table of mostly tombstones. A table of a level >= 1
// that no deeper level overlaps is rewritten in place, without the tombstones. Any other is merged
// into the next level, closer to what the tombstones delete.
func PickDeletions(v *manifest.Version, cfg Config, level int, t *manifest.TableMeta) Plan {
	from, to := userRange([]*manifest.TableMeta{t})
	bottom := level > 0
	for below := level + 1; below < manifest.NumLevels; below++ {
		bottom = bottom && len(v.Overlapping(nil, below, from, to)) == 0
	}
	if bottom {
		p := Plan{Level: level, OutputLevel: level}
		p.Inputs[0] = []*manifest.TableMeta{t}
		return p
	}
	p := newPlan(v, cfg, level, []*manifest.TableMeta{t})
	p.TrivialMove = false
	return p
}

// leastOverlap returns the table of a level >= 1 that overlaps the fewest bytes of the next
// level per byte of its own.
func leastOverlap(v *manifest.Version, level int, pointer []byte) *manifest.TableMeta {
	tables, below := v.Levels[level], v.Levels[level+1]
	// Start after the pointer, so that ties are broken in turn.
	start := 0
	if pointer != nil {
		start, _ = slices.BinarySearchFunc(tables, pointer, func(t *manifest.TableMeta, p []byte) int {
			if base.CompareInternal(t.Largest, p) <= 0 {
				return -1
			}
			return 1
		})
	}
	// Two cursors over the next level compute every table's overlap in one pass.
	overlaps := make([]uint64, len(tables))
	first := 0
	for i, t := range tables {
		for first < len(below) && bytes.Compare(base.UserKey(below[first].Largest), base.UserKey(t.Smallest)) < 0 {
			first++
		}
		for _, u := range below[first:] {
			if bytes.Compare(base.UserKey(u.Smallest), base.UserKey(t.Largest)) > 0 {
				break
			}
			overlaps[i] += u.Size
		}
	}
	best, bestRatio := -1, 0.0
	for i := range tables {
		at := (start + i) % len(tables)
		ratio := float64(overlaps[at]) / float64(max(1, tables[at].Size))
		if best < 0 || ratio < bestRatio {
			best, bestRatio = at, ratio
		}
	}
	return tables[best]
}

// newPlan returns a compaction of the level that includes the seed tables.
func newPlan(v *manifest.Version, cfg Config, level int, seed []*manifest.TableMeta) Plan {
	p := Plan{Level: level, OutputLevel: level + 1}
	upper := complete(v, level, seed)
	from, to := userRange(upper)
	lower := complete(v, level+1, v.Overlapping(nil, level+1, from, to))

	// Include more of the upper level if that adds nothing from the lower one.
	if len(lower) > 0 {
		from, to = userRange(upper, lower)
		more := complete(v, level, v.Overlapping(nil, level, from, to))
		from, to = userRange(more)
		if len(more) > len(upper) && totalSize(more)+totalSize(lower) < maxExpanded*cfg.LevelTableBytes(p.OutputLevel) &&
			len(complete(v, level+1, v.Overlapping(nil, level+1, from, to))) == len(lower) {
			upper = more
		}
	}

	p.Inputs = [2][]*manifest.TableMeta{upper, lower}
	if level+2 < manifest.NumLevels {
		from, to = userRange(upper, lower)
		p.Grandparents = v.Overlapping(nil, level+2, from, to)
	}
	p.TrivialMove = len(upper) == 1 && len(lower) == 0 && totalSize(p.Grandparents) <= maxGrandparents*cfg.LevelTableBytes(p.OutputLevel)
	for _, t := range upper {
		if p.Pointer == nil || base.CompareInternal(t.Largest, p.Pointer) > 0 {
			p.Pointer = t.Largest
		}
	}
	return p
}

// complete adds to tables those of the level that must move down with them, because a read
// would otherwise find an older entry first. tables are all tables of the level within some
// range, in the level's order.
//
// In level 0 these are all tables that overlap, transitively. In another level they are the
// following tables as long as they hold older entries of the last user key: LevelDB may have split
// the entries of a key between tables.
func complete(v *manifest.Version, level int, tables []*manifest.TableMeta) []*manifest.TableMeta {
	if len(tables) == 0 {
		return nil
	}
	if level == 0 {
		for {
			from, to := userRange(tables)
			more := v.Overlapping(nil, 0, from, to)
			if len(more) == len(tables) {
				return tables
			}
			tables = more
		}
	}
	all := v.Levels[level]
	last := slices.Index(all, tables[len(tables)-1])
	for _, next := range all[last+1:] {
		if !bytes.Equal(base.UserKey(next.Smallest), base.UserKey(tables[len(tables)-1].Largest)) {
			break
		}
		tables = append(tables, next)
	}
	return tables
}

// userRange returns the smallest and the largest user key of the tables.
func userRange(sets ...[]*manifest.TableMeta) (from, to []byte) {
	for _, set := range sets {
		for _, t := range set {
			if s := base.UserKey(t.Smallest); from == nil || bytes.Compare(s, from) < 0 {
				from = s
			}
			if l := base.UserKey(t.Largest); to == nil || bytes.Compare(l, to) > 0 {
				to = l
			}
		}
	}
	return from, to
}

func totalSize(tables []*manifest.TableMeta) uint64 {
	var n uint64
	for _, t := range tables {
		n += t.Size
	}
	return n
}
