// Package compact decides what to compact and does it: the picker makes a Plan
// out of a version, and Run merges the tables of a plan into new ones.
package compact

import (
	"bytes"
	"slices"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
)

// Config is the shape of tree that compactions work towards.
type Config struct {
	L0Trigger       int    // tables in level 0 that call for a compaction
	LevelBaseBytes  uint64 // what level 1 may hold at most
	LevelBaseMin    uint64 // what it may hold in any case; 0: LevelBaseBytes
	LevelMultiplier uint64 // how many times as much each further level may hold
	TableBytes      uint64 // the size of a table down to level 2; see LevelTableBytes
}

// maxTableBytes bounds LevelTableBytes.
const maxTableBytes = 1 << 30

// LevelTableBytes returns the size of a table in a level. It doubles from level 3 on, so
// that the number of files does not grow as fast as the data: with tables of 8 MiB a
// terabyte is some 14,000 files and not 119,000.
func (c Config) LevelTableBytes(level int) uint64 {
	return max(c.TableBytes, min(c.TableBytes<<max(level-2, 0), maxTableBytes))
}

// The limits of LevelDB, in tables.
const (
	// maxGrandparents bounds what a table may overlap with two levels down, as
	// all of it takes part when the table itself is compacted.
	maxGrandparents = 10
	// maxExpanded bounds a compaction that takes in more of its upper level
	// because that adds nothing from the lower one.
	maxExpanded = 25
	// maxManual bounds what one step of a manual compaction takes from a level
	// >= 1, so that others have their turn and it needs little free space.
	maxManual = 10
)

// baseShare is how many times as large as level 1 the tree is while that holds
// less than LevelBaseBytes. All of level 1 is written again for each few tables of
// level 0, so it should be no larger than it takes to have no more levels: with
// an eighth, level 2 has room for the rest.
const baseShare = 8

// base is what level 1 may hold.
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

// maxBytes is what a level >= 1 may hold, if level 1 may hold base; it saturates.
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

// score says how much a level calls for a compaction; 1 is when it does.
func (c *Config) score(v *manifest.Version, base uint64, level int) float64 {
	if level == 0 {
		return float64(len(v.Levels[0])) / float64(max(1, c.L0Trigger))
	}
	return float64(v.Size(level)) / float64(c.maxBytes(base, level))
}

// Plan is a compaction: the tables of Inputs go, and tables with the same
// contents appear in OutputLevel.
type Plan struct {
	Level       int // of Inputs[0]
	OutputLevel int // of Inputs[1] and of what comes out
	// Inputs are the tables from the two levels, in the order of the version.
	Inputs [2][]*manifest.TableMeta
	// Grandparents are the tables of the level after OutputLevel within the
	// range of the inputs.
	Grandparents []*manifest.TableMeta
	// TrivialMove says that Inputs[0] is one table that can change its level
	// as it is.
	TrivialMove bool
	// Score is what the level's need was; at least 1. 0 in a manual plan.
	Score float64
	// Pointer is the largest internal key of Inputs[0], after which the next
	// compaction of the level prefers to begin.
	Pointer []byte
}

// Pick returns the compaction that the tree needs most. ok is false if it needs
// none. pointers are the Pointer of each level's last plan, nil at first. Pick
// is a pure function.
//
// The level with the highest score is compacted into the next. From level 0
// goes the oldest table with all that overlap it; from another level the table
// with the least to rewrite below it for its size, which writes 2 to 5 % less in
// all than taking the tables in turn (TestPickWritesLess). Of equal tables the
// first after the pointer is taken.
func Pick(v *manifest.Version, cfg Config, pointers [manifest.NumLevels][]byte) (plan Plan, ok bool) {
	levelBase := cfg.base(v)
	level, score := 0, cfg.score(v, levelBase, 0)
	for l := 1; l < manifest.NumLevels-1; l++ {
		if s := cfg.score(v, levelBase, l); s > score {
			level, score = l, s
		}
	}
	if score < 1 || len(v.Levels[level]) == 0 {
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

// idleShare bounds what PickIdle writes: a table of level 0 and this many times
// as much of level 1.
const idleShare = 8

// PickIdle returns a compaction that no level calls for, to be done when there is
// nothing else to do: of tables of level 0, so that reads have fewer to ask. ok is
// false if they are too few to be worth it. Unlike what Pick returns it gets by
// with less of level 0 for the same of level 1, and so it writes more in all if it
// is done while writes go on.
func PickIdle(v *manifest.Version, cfg Config) (plan Plan, ok bool) {
	if len(v.Levels[0]) < 2 {
		return Plan{}, false
	}
	plan = newPlan(v, cfg, 0, v.Levels[0][len(v.Levels[0])-1:])
	upper, lower := plan.Inputs[0], plan.Inputs[1]
	return plan, plan.TrivialMove || len(upper) > 1 && totalSize(lower) <= idleShare*totalSize(upper)
}

// PickDeletions returns the compaction of one table of mostly deletions that gets rid of
// them, or takes them to what they delete: in its place if no level further down holds
// anything in its range, and else into the next level.
func PickDeletions(v *manifest.Version, cfg Config, level int, t *manifest.TableMeta) Plan {
	from, to := userRange([]*manifest.TableMeta{t})
	bottom := level > 0
	for below := level + 1; below < manifest.NumLevels; below++ {
		bottom = bottom && len(v.Overlapping(nil, below, from, to)) == 0
	}
	if bottom || level == manifest.NumLevels-1 {
		p := Plan{Level: level, OutputLevel: level}
		p.Inputs[0] = []*manifest.TableMeta{t}
		return p
	}
	p := newPlan(v, cfg, level, []*manifest.TableMeta{t})
	p.TrivialMove = false
	return p
}

// Debt estimates the bytes that compactions must write until no level calls for
// one.
func Debt(v *manifest.Version, cfg Config) uint64 {
	var debt, down float64 // down moves on from the level before
	if len(v.Levels[0]) >= max(1, cfg.L0Trigger) {
		down = float64(v.Size(0))
		debt = down + float64(v.Size(1))
	}
	levelBase := cfg.base(v)
	for level := 1; level < manifest.NumLevels-1; level++ {
		size := float64(v.Size(level)) + down
		down = max(0, size-float64(cfg.maxBytes(levelBase, level)))
		if down > 0 {
			// Each byte meets as many as the next level has for one here.
			debt += down * (1 + float64(v.Size(level+1))/size)
		}
	}
	return uint64(min(debt, 1<<62))
}

// leastOverlap returns the table of a level >= 1 that overlaps with the fewest
// bytes of the next level for each of its own.
func leastOverlap(v *manifest.Version, level int, pointer []byte) *manifest.TableMeta {
	tables, below := v.Levels[level], v.Levels[level+1]
	// Start behind the pointer, so that of equal tables each has its turn.
	start := 0
	if pointer != nil {
		start, _ = slices.BinarySearchFunc(tables, pointer, func(t *manifest.TableMeta, p []byte) int {
			if base.CompareInternal(t.Largest, p) <= 0 {
				return -1
			}
			return 1
		})
	}
	// Two cursors over the level below give every table's overlap in one pass.
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

// newPlan completes the tables that a compaction of the level must move.
func newPlan(v *manifest.Version, cfg Config, level int, seed []*manifest.TableMeta) Plan {
	p := Plan{Level: level, OutputLevel: level + 1}
	upper := complete(v, level, seed)
	from, to := userRange(upper)
	lower := complete(v, level+1, v.Overlapping(nil, level+1, from, to))

	// Take in more of the upper level if that costs nothing below.
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

// complete adds to tables of a level those that must not stay behind when they
// move down, as a read would find an older version there first. tables are all
// of the level within some range, in its order.
//
// In level 0 these are the tables that overlap, however many steps away. In
// another level they are the next tables if they hold older versions of the last
// user key, which is found in databases that LevelDB has written.
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
