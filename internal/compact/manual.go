package compact

import (
	"bytes"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
)

// Manual is a manual compaction of the user keys from..to, both included and nil for
// no bound: it moves what the range held when it began into the deepest level that
// holds any of it, in steps that go through the levels and through the keys of each.
//
// Between its steps the tree may change in any way. What was there at first moves
// down only, so what a pass over a level has left behind it is new: a step never goes
// back. And the steps of a pass are laid out when it begins, so that however much is
// added meanwhile they come to an end.
type Manual struct {
	from, to []byte
	before   uint64 // tables of level 0 with lower numbers were there at first

	done  bool
	level int      // of the pass
	ends  [][]byte // the last user keys of the steps that are left of it
	start []byte   // the first user key of the next; nil: no bound
}

// NewManual returns a compaction that has not begun. What is to move down from level 0
// are tables with numbers below before.
func NewManual(from, to []byte, before uint64) *Manual {
	return &Manual{from: bytes.Clone(from), to: bytes.Clone(to), before: before}
}

// Level returns the level of the pass: once there is no next step, the deepest one as
// it was then.
func (m *Manual) Level() int { return m.level }

// Next returns the next step. ok is false when all has arrived in the deepest level.
// A step counts as done when it has been returned.
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

// lay lays out the steps of a pass over a level >= 1.
func (m *Manual) lay(v *manifest.Version, cfg Config) {
	var size uint64
	inputs := v.Overlapping(nil, m.level, m.from, m.to)
	for i, t := range inputs {
		size += t.Size
		if i == len(inputs)-1 || size+inputs[i+1].Size > maxManual*cfg.LevelTableBytes(m.level) {
			m.ends, size = append(m.ends, bytes.Clone(base.UserKey(t.Largest))), 0
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

// PickOld returns the compaction of the tables of level 0 that have keys from..to, both
// included and nil for no bound, and numbers below before, and of those that have to
// come along. ok is false if there are none.
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
