//go:build unix

package sift

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFewDescriptors opens, reads, scans, writes and compacts a database with more tables than the
// process may have descriptors.
func TestFewDescriptors(t *testing.T) {
	const dirEnv = "SIFT_TEST_FEW_DESCRIPTORS"
	dir := os.Getenv(dirEnv)
	if dir == "" {
		dir = t.TempDir()
		manyTables(t, dir, nil, 6000)
		cmd := exec.Command(os.Args[0], "-test.run", "^TestFewDescriptors$", "-test.v")
		cmd.Env = append(os.Environ(), dirEnv+"="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 128, Max: 128}); err != nil {
		t.Fatal(err)
	}
	db := mustOpen(t, dir, &Options{TableBytes: 2 << 10, DisableCompression: true, CacheBytes: -1})
	if n := len(db.Tables()); n < 200 {
		t.Fatalf("only %d tables", n)
	}
	for i := range 6000 {
		if _, err := db.Get(fmt.Appendf(nil, "key%05d", i*7919%6000)); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, err := range db.Scan(nil) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 6000 {
		t.Errorf("a scan finds %d keys", n)
	}
	for i := range 6000 {
		if err := db.Put(fmt.Appendf(nil, "key%05d", i), make([]byte, 100), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Error(err)
	}
	for _, m := range db.Tables() {
		if m.Err != nil {
			t.Error(m.Err)
		}
	}
	// 64 tables, the log, the MANIFEST, the LOCK, and what the runtime and the test have open.
	if open, err := os.ReadDir("/dev/fd"); err != nil || len(open) > 80 {
		t.Errorf("%d descriptors are open, %v", len(open), err)
	}
	mustClose(t, db)
}
