package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/fixtures"
)

// expected returns the contents of a database of the fixtures.
func expected(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(fixtures.Dir(t), "expected", name+".tsv"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// copied returns a copy of a directory of the fixtures. It skips the test if there are no
// fixtures.
func copied(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "db")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(fixtures.Dir(t), filepath.FromSlash(name)))); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestScanFixtures(t *testing.T) {
	for _, c := range []struct{ dir, want string }{
		{"leveldb-cpp-1.23/walonly", "walonly"},
		{"leveldb-cpp-1.23/wal", "wal"},
		{"leveldb-cpp-1.23/small", "small"},
		{"leveldb-cpp-1.23/medium", "medium"},
		{"leveldb-cpp-1.23/race", "race"},
		{"goleveldb-1.0.0/walonly", "walonly"},
		{"goleveldb-1.0.0/wal", "wal"},
		{"goleveldb-1.0.0/small", "small"},
		{"goleveldb-1.0.0/medium", "medium"},
		{"goleveldb-1.0.0/nobloom", "small"},
		{"superset/cpp-full", "medium"},
		{"superset/gol-fullonly", "medium"},
		{"superset/cpp-full-lying", "medium"},
	} {
		t.Run(c.dir, func(t *testing.T) {
			db := copied(t, c.dir)
			want := expected(t, c.want)
			if got := mustSift(t, "", "scan", "--hex", db); got != want {
				t.Error("scan differs from the listing")
			}
			// load reads back what scan prints.
			text := filepath.Join(t.TempDir(), "text")
			mustSift(t, mustSift(t, "", "scan", db), "load", text)
			if got := mustSift(t, "", "scan", "--hex", text); got != want {
				t.Error("scan of what was loaded as text differs from the listing")
			}
			mustSift(t, "", "compact", db)
			if got := mustSift(t, "", "scan", "--hex", db); got != want {
				t.Error("scan after a compaction differs from the listing")
			}
			if out := mustSift(t, "", "check", db); !strings.Contains(out, "no faults") {
				t.Errorf("check prints\n%s", out)
			}
			// Every file can be dumped.
			files, err := os.ReadDir(db)
			if err != nil {
				t.Fatal(err)
			}
			dumped := 0
			for _, f := range files {
				if strings.HasPrefix(f.Name(), "MANIFEST") || strings.HasSuffix(f.Name(), ".ldb") || strings.HasSuffix(f.Name(), ".log") {
					mustSift(t, "", "dump", "--entries", filepath.Join(db, f.Name()))
					dumped++
				}
			}
			if dumped < 3 {
				t.Errorf("only %d files to dump", dumped)
			}
		})
	}
}

func TestCheckAndRepairFixtures(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault string // that check prints
	}{
		{"cpp-data-flip", "offset"},
		{"cpp-index-flip", "offset"},
		{"cpp-footer-magic", ".ldb"},
		{"cpp-table-missing", "missing"},
		{"cpp-manifest-flip", "MANIFEST"},
		{"cpp-current-missing", "CURRENT"},
		{"cpp-log-mid-crc", "offset"},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := copied(t, "corrupt/"+c.name)
			r := runSift(t, "", "check", db)
			if r.status != statusFailed || !strings.Contains(r.out, c.fault) || !strings.Contains(r.out, db) || !strings.Contains(r.err, "fault") {
				t.Errorf("check: status %d, prints\n%s\nstderr %s", r.status, r.out, r.err)
			}
			r = runSift(t, "", "repair", db)
			if r.status != 0 || !strings.Contains(r.out, "dropped: ") {
				t.Errorf("repair: status %d, prints\n%s\nstderr %s", r.status, r.out, r.err)
			}
			if out := mustSift(t, "", "check", db); !strings.Contains(out, "no faults") {
				t.Errorf("check after repair prints\n%s", out)
			}
		})
	}
}

// TestFilterStatsOfOthers: sift uses the filters of LevelDB and RocksDB until it builds its own.
func TestFilterStatsOfOthers(t *testing.T) {
	out := mustSift(t, "", "filter", "stats", copied(t, "superset/cpp-full"))
	if n := strings.Count(out, "rocksdb.BuiltinBloomFilter "); n != 4 {
		t.Errorf("%d tables with a filter of RocksDB, want 4, in\n%s", n, out)
	}
	db := copied(t, "leveldb-cpp-1.23/medium")
	if out := mustSift(t, "", "filter", "stats", db); strings.Count(out, "leveldb.BuiltinBloomFilter2 ") != 4 {
		t.Errorf("LevelDB's tables:\n%s", out)
	}
	for _, table := range decode(t, mustSift(t, "", "filter", "stats", "--json", db))["tables"].([]any) {
		if wasted := table.(map[string]any)["wastedReads"].(float64); wasted == 0 || wasted > 0.1 {
			t.Errorf("an absent key reads %v blocks of a table with LevelDB's filter", wasted)
		}
	}
	mustSift(t, "", "filter", "build", db)
	if out := mustSift(t, "", "filter", "stats", db); strings.Contains(out, "leveldb") || !strings.Contains(out, "ribbon(10)") {
		t.Errorf("after filter build:\n%s", out)
	}
}

// TestTornLog: scan reads a log that a crash has truncated, with a warning.
func TestTornLog(t *testing.T) {
	db := copied(t, "corrupt/cpp-log-trunc-payload")
	want := expected(t, "wal")
	r := runSift(t, "", "scan", "--hex", db)
	if r.status != 0 || !strings.HasPrefix(r.err, "sift: warning: ") || !strings.Contains(r.err, "000003.log") {
		t.Errorf("status %d, stderr %q", r.status, r.err)
	}
	if !strings.Contains(r.err, "left out") || !strings.Contains(r.err, "The file is unchanged.") || !strings.Contains(r.err, "sift repair "+db) {
		t.Errorf("stderr %q does not say what to do before the next write", r.err)
	}
	if strings.Count(r.out, "\n") != strings.Count(want, "\n")-1 {
		t.Errorf("%d keys of %d", strings.Count(r.out, "\n"), strings.Count(want, "\n"))
	}
	for _, l := range strings.SplitAfter(r.out, "\n") {
		if !strings.Contains(want, l) {
			t.Errorf("line %q is not in the listing", l)
		}
	}
}
