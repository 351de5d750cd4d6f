package compact

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
)

// parseVersion reads "L0: 5:a-c 4:b@3-d*2 / L1: ...": tables as number, smallest
// and largest user key, each with an optional @sequence (else the number), and a
// size, 1 if not given. A table's size counts in units of 100 bytes.
func parseVersion(t testing.TB, text string) *manifest.Version {
	t.Helper()
	edit := new(manifest.Edit)
	for part := range strings.SplitSeq(text, "/") {
		fields := strings.Fields(part)
		if len(fields) == 0 {
			continue
		}
		var level int
		if _, err := fmt.Sscanf(fields[0], "L%d:", &level); err != nil {
			t.Fatalf("%q: %v", part, err)
		}
		for _, f := range fields[1:] {
			num, keys, _ := strings.Cut(f, ":")
			keys, size, _ := strings.Cut(keys, "*")
			from, to, _ := strings.Cut(keys, "-")
			table := &manifest.TableMeta{Size: 1}
			fmt.Sscan(num, &table.Num)
			fmt.Sscan(size, &table.Size)
			table.Size *= 100
			table.Smallest = parseKey(from, table.Num)
			table.Largest = parseKey(to, table.Num)
			edit.Added = append(edit.Added, manifest.AddedTable{Level: level, Table: table})
		}
	}
	v, err := (*manifest.Version)(nil).Apply(edit)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}

func parseKey(s string, seq uint64) []byte {
	user, at, ok := strings.Cut(s, "@")
	if ok {
		fmt.Sscan(at, &seq)
	}
	return base.AppendInternalKey(nil, []byte(user), seq, base.KindSet)
}

func numbers(tables []*manifest.TableMeta) string {
	var nums []string
	for _, t := range tables {
		nums = append(nums, fmt.Sprint(t.Num))
	}
	return strings.Join(nums, " ")
}

// describe prints a plan on one line.
func describe(p Plan, ok bool) string {
	if !ok {
		return "none"
	}
	s := fmt.Sprintf("L%d [%s] L%d [%s]", p.Level, numbers(p.Inputs[0]), p.OutputLevel, numbers(p.Inputs[1]))
	if len(p.Grandparents) > 0 {
		s += fmt.Sprintf(" over [%s]", numbers(p.Grandparents))
	}
	if p.TrivialMove {
		s += " move"
	}
	if p.Pointer == nil { // a compaction in place
		return s
	}
	return s + " until " + string(base.UserKey(p.Pointer))
}

// testConfig lets level 1 hold 10 units, level 2 hold 100.
var testConfig = Config{L0Trigger: 4, LevelBaseBytes: 1000, LevelMultiplier: 10, TableBytes: 200}

// TestScript runs testdata/picker.txt. A line "version TEXT" sets the version, "pointer LEVEL KEY"
// a pointer. "pick" is Pick, "idle" is PickIdle, and "range LEVEL FROM TO", with "." for no bound,
// is the first step of a Manual in that level; each must return the plan on the line after it.
func TestScript(t *testing.T) {
	f, err := os.Open("testdata/picker.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var (
		v        *manifest.Version
		pointers [manifest.NumLevels][]byte
		got      string
		line     int
	)
	pending := false
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line++
		text := strings.TrimSpace(sc.Text())
		verb, rest, _ := strings.Cut(text, " ")
		if pending && verb != "=" {
			t.Errorf("line %d: the line before needs a plan after it", line)
		}
		pending = verb == "pick" || verb == "range" || verb == "idle"
		switch verb {
		case "", "#":
		case "version":
			v, pointers = parseVersion(t, rest), [manifest.NumLevels][]byte{}
		case "pointer":
			var level int
			var key string
			fmt.Sscan(rest, &level, &key)
			pointers[level] = parseKey(key, 0)
		case "pick":
			got = describe(Pick(v, testConfig, pointers))
		case "range":
			var level int
			var from, to string
			fmt.Sscan(rest, &level, &from, &to)
			bound := func(s string) []byte {
				if s == "." {
					return nil
				}
				return []byte(s)
			}
			got = describe(firstOf(v, testConfig, level, bound(from), bound(to)))
		case "idle":
			got = describe(PickIdle(v, testConfig))
		case "=":
			if got != rest {
				t.Errorf("line %d: got  %s\n          want %s", line, got, rest)
			}
			got = "no plan was requested"
		default:
			t.Fatalf("line %d: %q", line, text)
		}
	}
	if line < 20 || pending {
		t.Fatalf("the script has %d lines, and lacks the last plan: %t", line, pending)
	}
}

// firstOf returns the first step of a manual compaction's pass over a level.
func firstOf(v *manifest.Version, cfg Config, level int, from, to []byte) (Plan, bool) {
	if level == 0 {
		return PickOld(v, cfg, from, to, math.MaxUint64)
	}
	m := NewManual(from, to, 0)
	m.level, m.start = level, from
	m.lay(v, cfg)
	return m.step(v, cfg)
}

func TestPickIsPure(t *testing.T) {
	v := parseVersion(t, "L0: 5:a-c 4:b-d 3:c-e 2:x-z / L1: 1:a-b 6:c-m")
	var pointers [manifest.NumLevels][]byte
	a, _ := Pick(v, testConfig, pointers)
	b, _ := Pick(v, testConfig, pointers)
	if describe(a, true) != describe(b, true) || a.Score != 1 || pointers[0] != nil {
		t.Fatalf("%s, then %s, score %v", describe(a, true), describe(b, true), a.Score)
	}
}

// TestPointer checks that a plan's pointer makes the next plan take the next table.
func TestPointer(t *testing.T) {
	v := parseVersion(t, "L1: 1:a-b*6 2:c-d*6 3:e-f*6")
	var pointers [manifest.NumLevels][]byte
	for _, want := range []string{"1", "2", "3", "1"} {
		plan, ok := Pick(v, testConfig, pointers)
		if got := numbers(plan.Inputs[0]); !ok || got != want {
			t.Fatalf("table %s, want %s", got, want)
		}
		pointers[1] = plan.Pointer
	}
}

// TestPickOld checks that a table written since the compaction began stays where it is.
func TestPickOld(t *testing.T) {
	v := parseVersion(t, "L0: 7:x-z 5:a-c")
	for before, want := range map[uint64]string{5: "none", 6: "L0 [5] L1 [] move until c", 7: "L0 [5] L1 [] move until c", 8: "L0 [7 5] L1 [] until z"} {
		if got := describe(PickOld(v, testConfig, nil, nil, before)); got != want {
			t.Errorf("before %d: %s, want %s", before, got, want)
		}
	}
}

// TestPickDeletions checks that tombstones are dropped in place if nothing lies below them, and
// otherwise merged with what they overlap in the next level, even where a table could be moved
// unchanged.
func TestPickDeletions(t *testing.T) {
	for _, tt := range []struct {
		version string
		level   int
		want    string
	}{
		{"L1: 1:c-d 2:e-f / L2: 3:a-b 4:g-h / L6: 5:i-j", 1, "L1 [1] L1 []"},
		{"L1: 1:c-d 2:e-f / L2: 3:d-e", 1, "L1 [1 2] L2 [3] until f"},
		{"L1: 1:c-d / L6: 3:d-d", 1, "L1 [1] L2 [] until d"},
		{"L5: 1:c-d / L6: 3:d-d", 5, "L5 [1] L6 [3] until d"},
		{"L6: 1:c-d", 6, "L6 [1] L6 []"},
		{"L0: 1:c-d / L1: 3:e-f", 0, "L0 [1] L1 [] until d"}, // others of level 0 may lie below it
	} {
		v := parseVersion(t, tt.version)
		if got := describe(PickDeletions(v, testConfig, tt.level, v.Levels[tt.level][0]), true); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.version, got, tt.want)
		}
	}
}

func TestNothingBelow(t *testing.T) {
	// The plan: 5 and 8 into level 2.
	v := parseVersion(t, "L1: 5:b-f 6:f@2-k / L2: 8:a@9-c@9 9:c@1-d / L3: 10:e-e 11:g-h / L5: 12:a-a 13:f-g")
	plan := Plan{Level: 1, OutputLevel: 2}
	plan.Inputs[0] = v.Levels[1][:1]
	plan.Inputs[1] = v.Levels[2][:1]
	f := NothingBelow(v, &plan, nil)
	var got []string
	for _, k := range []string{"a", "aa", "b", "bz", "c", "cz", "d", "da", "e", "ea", "f"} {
		if f([]byte(k)) {
			got = append(got, k)
		}
	}
	// a: 12; c to d: 9, left out of the plan; e: 10; f: 6, left out as well.
	if s := strings.Join(got, " "); s != "aa b bz da ea" {
		t.Errorf("nothing below %s", s)
	}

	// A table of level 0 that stays counts, wherever it is in the order.
	v = parseVersion(t, "L0: 5:a-z 4:c-d 3:b-b")
	plan = Plan{Level: 0, OutputLevel: 0}
	plan.Inputs[0] = v.Levels[0][:1]
	f = NothingBelow(v, &plan, nil)
	for _, tc := range []struct {
		key  string
		want bool
	}{{"a", true}, {"b", false}, {"c", false}, {"e", true}} {
		if f([]byte(tc.key)) != tc.want {
			t.Errorf("level 0: %q: %v", tc.key, !tc.want)
		}
	}
}

func TestSplitBefore(t *testing.T) {
	v := parseVersion(t, "L3: 1:a-a*9 2:b-b*9 3:c-c*9 4:d-d*9 5:e-e*9")
	f := SplitBefore(&Plan{Grandparents: v.Levels[3]}, 170) // 17 units in all
	var got []string
	for _, k := range []string{"aa", "b", "c", "ca", "cb", "d", "e", "z"} {
		if f([]byte(k)) {
			got = append(got, k)
		}
	}
	// 1 lies before the first key. At ca 2 and 3 are passed, 18 units; at z 4 and 5.
	if s := strings.Join(got, " "); s != "ca z" {
		t.Errorf("splits before %s", s)
	}
	f = SplitBefore(&Plan{Grandparents: v.Levels[3]}, 180) // as much as 2 and 3 are
	if f([]byte("aa")) || f([]byte("ca")) {
		t.Error("splits at the allowed overlap")
	}
	f = SplitBefore(&Plan{}, 1)
	if f([]byte("a")) || f([]byte("b")) {
		t.Error("splits without grandparents")
	}
}

// TestPlansKeepOrder checks two properties of every plan on random versions, some with user keys
// split between tables: what stays in the upper level has no older version of a key that moves, and
// the inputs of the lower level are all tables that the output could overlap.
func TestPlansKeepOrder(t *testing.T) {
	s := newSim(t, 1, leastOverlap)
	s.split = true
	s.keys = func(r *rand.Rand) uint64 { return r.Uint64N(2000) }
	plans, splitKeys := 0, 0
	for i := range 200 {
		s.flush(i)
		for {
			plan, ok := Pick(s.v, s.cfg, s.pointers)
			if !ok {
				break
			}
			plans++
			checkPlan(t, s.v, &plan)
			s.run(&plan)
		}
		for level := range manifest.NumLevels - 1 {
			for from := uint64(0); from < 2000; from += 300 {
				if plan, ok := firstOf(s.v, s.cfg, level, simKey(from), simKey(from+20)); ok {
					plans++
					checkPlan(t, s.v, &plan)
				}
			}
			for j, table := range s.v.Levels[level] {
				if level > 0 && j > 0 && bytes.Equal(base.UserKey(s.v.Levels[level][j-1].Largest), base.UserKey(table.Smallest)) {
					splitKeys++
				}
			}
		}
	}
	if plans < 1000 || splitKeys < 1000 {
		t.Fatalf("%d plans, %d keys split over tables", plans, splitKeys)
	}
}

func checkPlan(t *testing.T, v *manifest.Version, p *Plan) {
	t.Helper()
	if len(p.Inputs[0]) == 0 || p.OutputLevel != p.Level+1 {
		t.Fatalf("%s", describe(*p, true))
	}
	for i, level := range []int{p.Level, p.OutputLevel} {
		for _, in := range p.Inputs[i] {
			if !slices.Contains(v.Levels[level], in) {
				t.Fatalf("table %d is not in level %d", in.Num, level)
			}
		}
		for _, other := range v.Levels[level] {
			if slices.Contains(p.Inputs[i], other) {
				continue
			}
			for _, in := range p.Inputs[0] {
				overlap := other.Overlaps(base.UserKey(in.Smallest), base.UserKey(in.Largest))
				newer := base.CompareInternal(other.Largest, in.Smallest) < 0
				if overlap && !(i == 0 && level > 0 && newer) {
					t.Fatalf("%s leaves out %v of level %d", describe(*p, true), other, level)
				}
			}
		}
	}
	from, to := userRange(p.Inputs[0], p.Inputs[1])
	if p.OutputLevel+1 < manifest.NumLevels {
		if want := v.Overlapping(nil, p.OutputLevel+1, from, to); !slices.Equal(want, p.Grandparents) {
			t.Fatalf("grandparents %s, want %s", numbers(p.Grandparents), numbers(want))
		}
	}
	if p.TrivialMove && (len(p.Inputs[0]) != 1 || len(p.Inputs[1]) != 0) {
		t.Fatalf("moves %s", describe(*p, true))
	}
	if _, last := userRange(p.Inputs[0]); !bytes.Equal(base.UserKey(p.Pointer), last) {
		t.Fatalf("pointer %q", p.Pointer)
	}
}

// TestLevelBase checks that the target size of level 1 is an eighth of the tree, within its bounds.
func TestLevelBase(t *testing.T) {
	for _, tc := range []struct {
		min, level1, level2, level3, want uint64
	}{
		{0, 10, 10, 10, 1000},
		{100, 10, 10, 10, 100},
		{100, 300, 1000, 300, 200},
		{100, 1000, 10_000, 0, 1000},
		{5000, 10, 10, 10, 1000},
	} {
		v := new(manifest.Version)
		var edit manifest.Edit
		for i, size := range []uint64{tc.level1, tc.level2, tc.level3} {
			edit.Added = append(edit.Added, manifest.AddedTable{Level: i + 1, Table: &manifest.TableMeta{
				Num: uint64(i + 1), Size: size, Smallest: parseKey("a", 1), Largest: parseKey("b", 1)}})
		}
		v, err := v.Apply(&edit)
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{L0Trigger: 4, LevelBaseBytes: 1000, LevelBaseMin: tc.min, LevelMultiplier: 10, TableBytes: 100}
		if got := cfg.base(v); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
		plan, ok := Pick(v, cfg, [manifest.NumLevels][]byte{})
		if want := tc.level1 >= tc.want || tc.level2 >= 10*tc.want; ok != want {
			t.Errorf("%+v: a compaction of level %d, %v", tc, plan.Level, ok)
		}
	}
}

// TestLastTableBytes checks that the tables of a tree have the size for the level that a tree of
// its size reaches.
func TestLastTableBytes(t *testing.T) {
	cfg := Config{TableBytes: 8 << 20, LevelBaseBytes: 64 << 20, LevelMultiplier: 10, MaxTableBytes: 100 << 20}
	for _, c := range []struct{ size, want uint64 }{
		{0, 8 << 20}, {640 << 20, 8 << 20}, {640<<20 + 1, 16 << 20}, {6400 << 20, 16 << 20}, {10 << 30, 32 << 20}, {1 << 40, 100 << 20}, {1 << 63, 100 << 20},
	} {
		if got := cfg.LastTableBytes(c.size); got != c.want {
			t.Errorf("%d bytes: tables of %d, want %d", c.size, got, c.want)
		}
	}
}

// TestLevelTableBytes checks that tables double from level 3 on, up to a bound.
func TestLevelTableBytes(t *testing.T) {
	for _, c := range []struct {
		tableBytes, want uint64
		level            int
	}{
		{8 << 20, 8 << 20, 0}, {8 << 20, 8 << 20, 2}, {8 << 20, 16 << 20, 3}, {8 << 20, 128 << 20, 6},
		{512 << 20, 1 << 30, 6}, {1 << 30, 1 << 30, 6}, {1 << 31, 1 << 31, 6},
	} {
		if got := (Config{TableBytes: c.tableBytes}).LevelTableBytes(c.level); got != c.want {
			t.Errorf("%d in level %d: %d, want %d", c.tableBytes, c.level, got, c.want)
		}
	}
}

// TestMaxBytesSaturates checks that the target size of a level is that of the one above times the
// multiplier, but never overflows.
func TestMaxBytesSaturates(t *testing.T) {
	c := Config{LevelMultiplier: 10}
	for _, x := range []struct {
		base  uint64
		level int
		want  uint64
	}{
		{7, 1, 7}, {7, 3, 700}, {1 << 62, 1, 1 << 62}, {1 << 62, 2, 1 << 63}, {1 << 62, 6, 1 << 63},
		{1 << 63 / 10, 2, 1 << 63 / 10 * 10}, {1<<63/10 + 1, 2, 1 << 63}, {1 << 63 / 10, 3, 1 << 63},
	} {
		if got := c.maxBytes(x.base, x.level); got != x.want {
			t.Errorf("%d at level %d: %d, want %d", x.base, x.level, got, x.want)
		}
	}
}
