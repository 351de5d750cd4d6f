package compact

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
)

// sim is a tree without contents: a table is a sorted list of entries, each of which
// counts as one byte. It measures how much compactions write.
type sim struct {
	t        testing.TB
	r        *rand.Rand
	choose   func(v *manifest.Version, level int, pointer []byte) *manifest.TableMeta
	cfg      Config
	v        *manifest.Version
	pointers [manifest.NumLevels][]byte
	nextNum  uint64
	keys     func(r *rand.Rand) uint64
	flushed  uint64
	written  uint64
	split    bool // let tables end within the versions of a key, as LevelDB does
}

func newSim(t testing.TB, seed uint64, choose func(v *manifest.Version, level int, pointer []byte) *manifest.TableMeta) *sim {
	return &sim{
		t: t, r: rand.New(rand.NewPCG(seed, seed)), choose: choose, v: new(manifest.Version),
		cfg: Config{L0Trigger: 4, LevelBaseBytes: 1000, LevelMultiplier: 10, TableBytes: 100},
	}
}

func simKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func (s *sim) table(entries []uint64) *manifest.TableMeta {
	s.nextNum++
	ikey := func(e uint64) []byte {
		// The high bits of an entry are its key, the low 20 its age.
		return base.AppendInternalKey(nil, simKey(e>>20), 1<<20-e&(1<<20-1), base.KindSet)
	}
	return &manifest.TableMeta{Num: s.nextNum, Size: uint64(len(entries)), Handle: entries,
		Smallest: ikey(entries[0]), Largest: ikey(entries[len(entries)-1])}
}

func (s *sim) apply(e *manifest.Edit) {
	v, err := s.v.Apply(e)
	if err != nil {
		s.t.Fatal(err)
	}
	s.v = v
}

// flush adds a table of 100 keys to level 0. time counts up and stays below 1<<20.
func (s *sim) flush(time int) {
	entries := make([]uint64, 100)
	for i := range entries {
		entries[i] = s.keys(s.r)<<20 | (1<<20 - 1 - uint64(time))
	}
	slices.Sort(entries)
	entries = slices.Compact(entries)
	s.flushed += uint64(len(entries))
	s.apply(&manifest.Edit{Added: []manifest.AddedTable{{Level: 0, Table: s.table(entries)}}})
}

// pick is Pick with the simulation's choice within a level.
func (s *sim) pick() (Plan, bool) {
	plan, ok := Pick(s.v, s.cfg, s.pointers)
	if ok && plan.Level > 0 {
		plan = newPlan(s.v, s.cfg, plan.Level, []*manifest.TableMeta{s.choose(s.v, plan.Level, s.pointers[plan.Level])})
	}
	return plan, ok
}

// run executes a plan. It keeps the newest version of each key, or all versions if split is set.
func (s *sim) run(p *Plan) {
	edit := new(manifest.Edit)
	var entries []uint64
	for i, level := range []int{p.Level, p.OutputLevel} {
		for _, t := range p.Inputs[i] {
			edit.Deleted = append(edit.Deleted, manifest.DeletedTable{Level: level, Num: t.Num})
			entries = append(entries, t.Handle.([]uint64)...)
		}
	}
	s.pointers[p.Level] = p.Pointer
	if p.TrivialMove {
		edit.Added = []manifest.AddedTable{{Level: p.OutputLevel, Table: p.Inputs[0][0]}}
		s.apply(edit)
		return
	}
	slices.Sort(entries)
	if !s.split {
		entries = slices.CompactFunc(entries, func(a, b uint64) bool { return a>>20 == b>>20 })
	}
	split := SplitBefore(p, s.cfg.TableBytes)
	var table []uint64
	for i, e := range entries {
		newKey := i == 0 || entries[i-1]>>20 != e>>20
		if (newKey && split(simKey(e>>20)) || uint64(len(table)) >= s.cfg.TableBytes) && len(table) > 0 {
			edit.Added = append(edit.Added, manifest.AddedTable{Level: p.OutputLevel, Table: s.table(table)})
			table = nil
		}
		table = append(table, e)
	}
	edit.Added = append(edit.Added, manifest.AddedTable{Level: p.OutputLevel, Table: s.table(table)})
	s.written += uint64(len(entries))
	s.apply(edit)
}

// amplification fills a tree with 600 tables and returns how often each byte
// was written by compactions.
func amplification(t testing.TB, choose func(v *manifest.Version, level int, pointer []byte) *manifest.TableMeta, keys func(r *rand.Rand) uint64) float64 {
	s := newSim(t, 1, choose)
	s.keys = keys
	for i := range 600 {
		s.flush(i)
		for {
			plan, ok := s.pick()
			if !ok {
				break
			}
			s.run(&plan)
		}
	}
	return float64(s.written) / float64(s.flushed)
}

// roundRobin is LevelDB's choice: the first table after the pointer.
func roundRobin(v *manifest.Version, level int, pointer []byte) *manifest.TableMeta {
	for _, t := range v.Levels[level] {
		if pointer == nil || base.CompareInternal(t.Largest, pointer) > 0 {
			return t
		}
	}
	return v.Levels[level][0]
}

// TestPickWritesLess checks that choosing the table with the least overlap writes less than
// LevelDB's choice.
func TestPickWritesLess(t *testing.T) {
	for _, tc := range []struct {
		name string
		keys func(r *rand.Rand) uint64
	}{
		{"uniform", func(r *rand.Rand) uint64 { return r.Uint64N(1 << 40) }},
		{"overwrites", func(r *rand.Rand) uint64 { return r.Uint64N(30_000) }},
		{"skewed", func(r *rand.Rand) uint64 { return uint64(r.ExpFloat64() * 10_000) }},
	} {
		least, robin := amplification(t, leastOverlap, tc.keys), amplification(t, roundRobin, tc.keys)
		t.Logf("%s: least overlap writes %.2f bytes per byte, round robin %.2f (%.0f%%)", tc.name, least, robin, 100*least/robin)
		if least >= robin {
			t.Errorf("%s: least overlap writes %.2f bytes per byte, round robin %.2f", tc.name, least, robin)
		}
	}
}

// TestIdleWritesLittle bounds what compactions write if level 0 is compacted after every burst of
// writes.
func TestIdleWritesLittle(t *testing.T) {
	for _, tc := range []struct {
		keys  uint64
		burst int
		most  float64 // bytes written by compactions, per byte flushed
	}{
		{100, 1, 2}, {300, 1, 2}, {1000, 1, 4}, {30_000, 1, 9},
		{100, 2, 2}, {300, 2, 2}, {1000, 2, 4}, {30_000, 2, 9},
	} {
		s := newSim(t, 1, leastOverlap)
		s.cfg.L0Trigger, s.cfg.LevelBaseBytes, s.cfg.TableBytes = 8, 400, 50
		s.keys = func(r *rand.Rand) uint64 { return r.Uint64N(tc.keys) }
		for i := range 200 {
			s.flush(i)
			for plan, ok := s.pick(); ok; plan, ok = s.pick() {
				s.run(&plan)
			}
			if i%tc.burst != tc.burst-1 {
				continue
			}
			for plan, ok := PickIdle(s.v, s.cfg); ok; plan, ok = PickIdle(s.v, s.cfg) {
				s.run(&plan)
			}
		}
		wrote := float64(s.written) / float64(s.flushed)
		t.Logf("%d keys, bursts of %d: %.2f bytes per byte", tc.keys, tc.burst, wrote)
		if wrote > tc.most {
			t.Errorf("%d keys, bursts of %d: compactions write %.2f bytes per byte, more than %v", tc.keys, tc.burst, wrote, tc.most)
		}
	}
}
