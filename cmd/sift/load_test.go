package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/siftdb/sift"
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
	content, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	content[0] ^= 0xff // in the first data block
	damaged := filepath.Join(t.TempDir(), "damaged.ldb")
	if err := os.WriteFile(damaged, content, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tables []string
		status int
		err    string
		want   string
	}{
		{[]string{tables[0], bad}, 3, "bad.ldb", ""},
		{[]string{tables[0], damaged}, 3, "checksum mismatch", ""},
		{[]string{tables[0], "missing.ldb"}, 3, "missing.ldb", ""},
		{tables, 0, "", "a\t1\nb\t3\nc\t4\n"},
	} {
		args := []string{"load", to}
		for _, path := range c.tables {
			args = append(args, "--table", path)
		}
		if r := runSift(t, "", args...); r.status != c.status || !strings.Contains(r.err, c.err) {
			t.Errorf("load of %q: %+v", c.tables, r)
		} else if strings.Contains(r.err, "sift repair") {
			t.Errorf("load of %q: %q, but the database is intact", c.tables, r.err)
		}
		if _, err := os.Stat(to); c.err == "bad.ldb" && !os.IsNotExist(err) {
			t.Errorf("load of %q created a database: %v", c.tables, err)
		}
		if r := runSift(t, "", "scan", to); r.out != c.want {
			t.Errorf("after load of %q: %+v", c.tables, r)
		}
	}
}

// fullDisk is a file system without room for more bytes once room is used up.
type fullDisk struct {
	sift.FS
	room atomic.Int64
}

type fullDiskFile struct {
	sift.File
	disk *fullDisk
}

func (d *fullDisk) Create(name string) (sift.File, error) {
	f, err := d.FS.Create(name)
	return &fullDiskFile{f, d}, err
}

func (f *fullDiskFile) Write(p []byte) (int, error) {
	if f.disk.room.Add(-int64(len(p))) < 0 {
		return 0, errors.New("no space left")
	}
	return f.File.Write(p)
}

// TestLoadFullDisk checks that load reports a full disk once, and names the line up to which it has
// stored the input.
func TestLoadFullDisk(t *testing.T) {
	disk := &fullDisk{FS: sift.NewMemFS()}
	disk.room.Store(5 << 19)
	var stderr strings.Builder
	e := &env{ctx: context.Background(), err: &stderr}
	err := e.withDB("db", sift.Options{FS: disk}, func(db *sift.DB) error {
		l := loader{db: db, in: newLineReader(strings.NewReader(lines(200_000)))}
		for {
			if more, err := l.batch(); err != nil || !more {
				return err
			}
		}
	})
	if err == nil || strings.Count(err.Error(), "no space left") != 1 {
		t.Fatalf("error %v", err)
	}
	_, text, _ := strings.Cut(err.Error(), " after line ")
	stored := 0
	if _, err := fmt.Sscan(text, &stored); err != nil || stored == 0 {
		t.Fatalf("line %q, %v", text, err)
	}
	disk.room.Store(1 << 30)
	err = e.withDB("db", sift.Options{FS: disk}, func(db *sift.DB) error {
		n := 0
		for _, err := range db.Scan(nil) {
			if err != nil {
				return err
			}
			n++
		}
		if n != stored {
			t.Errorf("%d lines are stored, not %d", n, stored)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
