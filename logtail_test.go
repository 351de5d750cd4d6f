package sift_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/siftdb/sift"
)

// crashedLog returns a copy of a database as a killed program would leave it,
// and the path of the only log in it.
func crashedLog(t *testing.T) (dir, log string) {
	t.Helper()
	live := t.TempDir()
	db := mustOpen(t, live, nil)
	for i := range 100 {
		o := sift.NoSync
		if i == 20 || i == 40 || i == 60 {
			o = sift.Sync
		}
		if err := db.Put(fmt.Appendf(nil, "key%03d", i), []byte("value"), o); err != nil {
			t.Fatal(err)
		}
	}
	dir = copyDir(t, live)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %v, %v", logs, err)
	}
	return dir, logs[0]
}

// TestLogTail checks that zeros after the records of a log are unused space, and that zeros between
// records are damage if a durability marker follows.
func TestLogTail(t *testing.T) {
	for _, tc := range []struct {
		desc   string
		change func(log []byte) []byte // of the log without its zeros
		keys   int
		torn   int
		damage bool
	}{
		{"as it is", func(log []byte) []byte { return log }, 100, 0, false},
		{"with one zero", func(log []byte) []byte { return append(log, 0) }, 100, 0, false},
		{"with a mebibyte of zeros", func(log []byte) []byte { return append(log, make([]byte, 1<<20)...) }, 100, 0, false},
		{"with zeros and one other byte", func(log []byte) []byte { return append(append(log, make([]byte, 1<<20)...), 1) }, 100, 1, false},
		{"with the last record half zeros", func(log []byte) []byte {
			clear(log[len(log)-10:])
			return append(log, make([]byte, 5000)...)
		}, 99, 1, false},
		{"with the last ten records zeros", func(log []byte) []byte {
			clear(log[len(log)-10*recordLen:])
			return log
		}, 90, 0, false},
		{"with zeros after the last marker and records after them", func(log []byte) []byte {
			clear(log[len(log)-10*recordLen : len(log)-5*recordLen])
			return log
		}, 90, 1, false},
		{"with zeros before a marker", func(log []byte) []byte {
			clear(log[10*recordLen : 12*recordLen])
			return append(log, make([]byte, 5000)...)
		}, 0, 0, true},
		{"with zeros only", func(log []byte) []byte {
			clear(log)
			return log
		}, 0, 1, false},
	} {
		t.Run(tc.desc, func(t *testing.T) {
			dir, path := crashedLog(t)
			log, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			log = tc.change(bytes.TrimRight(log, "\x00"))
			if err := os.WriteFile(path, log, 0o644); err != nil {
				t.Fatal(err)
			}
			db, err := sift.Open(dir, nil)
			if tc.damage {
				if !errors.Is(err, sift.ErrCorruption) {
					t.Fatalf("Open: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r := db.Metrics().Recovery; len(r.Torn) != tc.torn || r.Logs != 1 || r.Batches != tc.keys {
				t.Errorf("%d batches in %d logs, Torn is %v", r.Batches, r.Logs, r.Torn)
			}
			found := 0
			for i := range 100 {
				switch ok, err := db.Has(fmt.Appendf(nil, "key%03d", i)); {
				case err != nil:
					t.Error(err)
				case ok && found < i:
					t.Errorf("key %d is there, but an earlier one is not", i)
				case ok:
					found++
				}
			}
			if found != tc.keys {
				t.Errorf("%d keys, want %d", found, tc.keys)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// recordLen is the length of a record in crashedLog's log.
const recordLen = 7 + 12 + 1 + 1 + 6 + 1 + 5
