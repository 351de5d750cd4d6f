package compact

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
)

// TestManualEnds guards against a manual compaction that a steady writer keeps going forever.
// With flushes and automatic compactions between its steps it must end after a number of steps
// that the initial tables bound, and have moved one version of each of their keys to its level
// or below.
func TestManualEnds(t *testing.T) {
	for seed := range uint64(4) {
		s := newSim(t, seed, leastOverlap)
		s.cfg.LevelMultiplier = 3
		const early = 400
		next := uint64(0)
		random := func(r *rand.Rand) uint64 { return r.Uint64N(60_000) }
		ascending := func(*rand.Rand) uint64 { next++; return 60_000 + next }
		s.keys = random
		automatic := func() {
			if plan, ok := s.pick(); ok {
				s.run(&plan)
			}
		}
		for i := range early {
			s.flush(i)
			automatic()
		}
		var from, to []byte
		if seed%2 == 1 {
			from, to = simKey(15_000), simKey(45_000)
		}
		if seed%4 >= 2 {
			s.keys = ascending // it must not chase them
		}
		tables := s.v.NumTables()
		m := NewManual(from, to, s.nextNum+1)
		steps := 0
		for {
			plan, ok := m.Next(s.v, s.cfg)
			if !ok {
				break
			}
			checkPlan(t, s.v, &plan)
			s.run(&plan)
			if steps++; steps > manifest.NumLevels*tables {
				t.Fatalf("seed %d: %d steps for %d tables", seed, steps, tables)
			}
			// Level 0 grows without bound.
			for range 2 {
				s.flush(early + steps)
			}
			automatic()
		}
		if plan, ok := m.Next(s.v, s.cfg); ok {
			t.Errorf("seed %d: after the end there is %s", seed, describe(plan, true))
		}
		seen := map[uint64]int{}
		for level, metas := range s.v.Levels {
			for _, meta := range metas {
				for _, e := range meta.Handle.([]uint64) {
					key, time := e>>20, 1<<20-1-e&(1<<20-1)
					inRange := from == nil || key >= 15_000 && key <= 45_000
					if time >= early || !inRange {
						continue
					}
					seen[key]++
					if level < m.Level() || seen[key] > 1 {
						t.Fatalf("seed %d: key %d of %s is in level %d, of %d, %d times", seed, key, base.UserKey(meta.Smallest), level, m.Level(), seen[key])
					}
				}
			}
		}
		if len(seen) == 0 || steps < 5 {
			t.Errorf("seed %d: %d keys, %d steps", seed, len(seen), steps)
		}
	}
}

// TestManualLooksAgain checks that a step whose tables have moved meanwhile is skipped, and that a
// level that holds nothing of the range is not the deepest.
func TestManualLooksAgain(t *testing.T) {
	v := parseVersion(t, "L1: 1:a-b*20 2:c-d*20 / L2: 3:a-a 4:c-c / L3: 5:x-z")
	m := NewManual([]byte("a"), []byte("d"), 0)
	plan, ok := m.Next(v, testConfig)
	if got := describe(plan, ok); got != "L1 [1] L2 [3] until b" {
		t.Fatalf("first %s", got)
	}
	v = parseVersion(t, "L2: 3:a-b*20 4:c-d*20 / L3: 5:x-z")
	if plan, ok := m.Next(v, testConfig); ok || m.Level() != 2 {
		t.Errorf("then %s, and the deepest level is %d", describe(plan, ok), m.Level())
	}
}

// TestManualStepsAreBounded checks that a step takes a bounded part of the next level, however
// small the tables above it are.
func TestManualStepsAreBounded(t *testing.T) {
	var upper, lower strings.Builder
	for i := range 10 {
		fmt.Fprintf(&upper, " %d:%c0-%c9", i+1, 'a'+i, 'a'+i)
		fmt.Fprintf(&lower, " %d:%c0-%c9*100", i+11, 'a'+i, 'a'+i)
	}
	v := parseVersion(t, "L1:"+upper.String()+" / L2:"+lower.String())
	m := NewManual(nil, nil, 0)
	steps := 0
	for { // the version stays, so a step finds the last table of the previous one again
		plan, ok := m.Next(v, testConfig)
		if !ok {
			break
		}
		steps++
		if n := totalSize(plan.Inputs[1]); n > 40_000 {
			t.Errorf("step %d takes %d bytes of level 2", steps, n)
		}
	}
	if steps < 3 {
		t.Errorf("%d steps", steps)
	}
}
