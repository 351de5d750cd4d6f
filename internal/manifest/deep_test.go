package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/vfs"
)

// TestLoadDeep checks that a MANIFEST of goleveldb with tables in levels that LevelDB does not have
// can be read, and that newer tables are searched before older ones.
func TestLoadDeep(t *testing.T) {
	for _, c := range []struct {
		levels  string // of the tables 1, 2, ...; a newer table has a lower level
		version string // their levels for reading
		deep    string
	}{
		{"6 5 0", "6 5 0", ""},
		{"7", "6", "7:1"},
		{"9 7 0", "6 5 0", "7:2 9:1"},
		{"9 3 1 0", "6 3 1 0", "1:3 3:2 9:1"},
		{"7 6 5 4 3 2", "6 5 4 3 2 1", "2:6 3:5 4:4 5:3 6:2 7:1"},
		{"7 6 5 4 3 2 1 0", "6 5 4 3 2 1 0 0", "1:7 2:6 3:5 4:4 5:3 6:2 7:1"},
		{"12 11 9 8 7 6 5 2 1 0", "6 5 4 3 2 1 0 0 0 0", "1:9 2:8 5:7 6:6 7:5 8:4 9:3 11:2 12:1"},
	} {
		edits := []*Edit{counters()}
		for i, level := range strings.Fields(c.levels) {
			var l int
			fmt.Sscan(level, &l)
			// Each table is first in another level.
			edits = append(edits, add(l+1, meta(uint64(i+1), key("a", uint64(i+1)), key("z", uint64(i+1)))),
				&Edit{Deleted: []DeletedTable{{l + 1, uint64(i + 1)}}, Pointers: []Pointer{{l, key("m", 1)}}},
				add(l, meta(uint64(i+1), key("a", uint64(i+1)), key("z", uint64(i+1)))))
		}
		dir := writeFiles(t, map[string]string{"CURRENT": "MANIFEST-000008\n", "MANIFEST-000008": manifestOf(t, edits...)})
		s, err := Load(vfs.OS, dir)
		if err != nil {
			t.Errorf("%s: %v", c.levels, err)
			continue
		}
		levels := make([]string, len(strings.Fields(c.levels)))
		last := uint64(len(levels) + 1)
		for level, tables := range s.Version.Levels {
			for _, meta := range tables {
				levels[meta.Num-1] = fmt.Sprint(level)
				if meta.Num >= last {
					t.Errorf("%s: table %d is searched after %d", c.levels, meta.Num, last)
				}
				last = meta.Num
			}
		}
		if got := strings.Join(levels, " "); got != c.version {
			t.Errorf("%s: read in the levels %s, want %s", c.levels, got, c.version)
		}
		var deep []string
		for _, l := range s.Deep {
			deep = append(deep, fmt.Sprintf("%d:%d", l.Level, l.Tables[0].Num))
		}
		if got := strings.Join(deep, " "); got != c.deep {
			t.Errorf("%s: deep %q, want %q", c.levels, got, c.deep)
		}
	}
	v, err := (*Version)(nil).Apply(add(NumLevels, meta(1, key("a", 1), key("z", 1))))
	if err == nil {
		t.Errorf("a version with a table in level %d: %v", NumLevels, v)
	}
}
