package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLoadTables loads the tables of one database into another, all of them or none.
func TestLoadTables(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	for _, lines := range []string{"a\t1\nb\t2\n", "b\t3\nc\t4\n"} {
		if r := runSift(t, lines, "load", "--sorted", from); r.status != 0 {
			t.Fatal(r)
		}
	}
	tables, err := filepath.Glob(filepath.Join(from, "*.ldb"))
	if err != nil || len(tables) != 2 {
		t.Fatal(tables, err)
	}
	bad := filepath.Join(t.TempDir(), "bad.ldb")
	if err := os.WriteFile(bad, []byte(strings.Repeat("no table", 100)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tables []string
		status int
		err    string
		want   string
	}{
		{[]string{tables[0], bad}, 3, "bad.ldb", ""},
		{[]string{tables[0], "missing.ldb"}, 2, "missing.ldb", ""},
		{tables, 0, "", "a\t1\nb\t3\nc\t4\n"},
	} {
		args := []string{"load", to}
		for _, path := range c.tables {
			args = append(args, "--table", path)
		}
		if r := runSift(t, "", args...); r.status != c.status || !strings.Contains(r.err, c.err) {
			t.Errorf("load of %q: %+v", c.tables, r)
		}
		if r := runSift(t, "", "scan", to); r.out != c.want {
			t.Errorf("after load of %q: %+v", c.tables, r)
		}
	}
}
