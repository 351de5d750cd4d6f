package compact

import (
	"bytes"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
)

// Manual is a manual compaction of the user keys from..to, both inclusive, nil for unbounded.
// It moves what the range held at the start into the deepest level that holds any of it. It
// works in steps: level by level, and within a level in key order.
//
// Between steps the tree may change in any way. Data only moves down, so anything that appears
// behind a pass over a level is new, and no step goes back for it. The steps of a pass are fixed
// when it begins, so it ends however much is added meanwhile.
type Manual struct {
	from, to []byte
	before   uint64 // level 0 tables with lower numbers existed at the start

	done  bool
	level int      // level of the current pass
	ends  [][]byte // the last user keys of the pass's remaining steps
	start []byte   // the first user key of the next step; nil: unbounded
}

// NewManual returns a manual compaction that has not begun. From level 0 it moves only tables with
// file numbers below before.
func NewManual(from, to []byte, before uint64) *Manual {
	return &Manual{from: bytes.Clone(from), to: bytes.Clone(to), before: before}
}

// Level returns the level of the current pass. Once Next has returned false, it is the deepest
// level.
func (m *Manual) Level() int { return m.level }

// Next returns the next step and assumes that it will be done. ok is false when everything has
// reached the deepest level.
func (m *Manual) Next(v *manifest.Version, cfg Config) (plan Plan, ok bool) {
	for !m.done {
		if m.level == 0 {
			plan, ok = PickOld(v, cfg, m.from, m.to, m.before)
		} else {
			plan, ok = m.step(v, cfg)
		}
		if ok {
			return plan, true
		}
		deepest := m.deepest(v)
		if m.done = m.level >= deepest; !m.done {
			m.level++
			m.start, m.ends = m.from, nil
			if m.level < deepest {
				m.lay(v, cfg)
			}
		}
	}
	return Plan{}, false
}

// step returns the next step of a pass over a level >= 1.
func (m *Manual) step(v *manifest.Version, cfg Config) (plan Plan, ok bool) {
	for len(m.ends) > 0 {
		inputs := v.Overlapping(nil, m.level, m.start, m.ends[0])
		m.start, m.ends = m.ends[0], m.ends[1:]
		if len(inputs) > 0 {
			return newPlan(v, cfg, m.level, inputs), true
		}
	}
	return Plan{}, false
}

// lay determines the steps of a pass over a level >= 1. Small tables may overlap much of the next
// level, all of which takes part, so a step bounds that, too.
func (m *Manual) lay(v *manifest.Version, cfg Config) {
	most := maxManual * cfg.LevelTableBytes(m.level)
	var size, below uint64
	inputs, lower := v.Overlapping(nil, m.level, m.from, m.to), v.Levels[m.level+1]
	for i, t := range inputs {
		size += t.Size
		for len(lower) > 0 && bytes.Compare(base.UserKey(lower[0].Smallest), base.UserKey(t.Largest)) <= 0 {
			if bytes.Compare(base.UserKey(lower[0].Largest), base.UserKey(t.Smallest)) >= 0 {
				below += lower[0].Size
			}
			lower = lower[1:]
		}
		if i == len(inputs)-1 || size+inputs[i+1].Size > most || below > maxGrandparents*most {
			m.ends, size, below = append(m.ends, bytes.Clone(base.UserKey(t.Largest))), 0, 0
		}
	}
}

// deepest returns the deepest level that holds keys of the range; at least 1.
func (m *Manual) deepest(v *manifest.Version) int {
	for level := v.Deepest; level > 1; level-- {
		if len(v.Overlapping(nil, level, m.from, m.to)) > 0 {
			return level
		}
	}
	return 1
}

// PickOld returns the compaction of the level 0 tables that overlap from..to, both inclusive,
// nil for unbounded, and have file numbers below before, with all tables that must move with them.
// ok is false if there are none.
func PickOld(v *manifest.Version, cfg Config, from, to []byte, before uint64) (plan Plan, ok bool) {
	var old []*manifest.TableMeta
	for _, t := range v.Overlapping(nil, 0, from, to) {
		if t.Num < before {
			old = append(old, t)
		}
	}
	if len(old) == 0 {
		return Plan{}, false
	}
	return newPlan(v, cfg, 0, old), true
}
