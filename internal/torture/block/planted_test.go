//go:build linux

package block

import (
	"bytes"
	"errors"
	"flag"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/torture/plant"
)

// planted are bugs: with each, the store omits a wait for the disk or a check.
var planted = []struct {
	name  string
	hides string // why no power cut can reveal the bug; "" if one must
	edits []plant.Edit
}{
	{"a synced write does not sync the log", "",
		[]plant.Edit{{File: "internal/wal/writer.go", Old: "\t\tl.wantSync = true\n\t\tif err := l.sync(); err != nil {", New: "\t\tif err := error(nil); err != nil {"}}},
	{"a synced write does not wait for the logs before", "",
		[]plant.Edit{{File: "internal/wal/writer.go", Old: "would not replay this one.\n\t\tif err := w.SyncSealed()", New: "would not replay this one.\n\t\tif err := w.Check()"}}},
	{"a full log is closed without a sync", "",
		[]plant.Edit{{File: "internal/wal/writer.go", Old: "s.finish(s.log.sync)", New: "s.Flushed()"}}},
	{"a durability marker is written before the logs before it are on disk", "",
		[]plant.Edit{{File: "internal/wal/writer.go", Old: "\tif len(w.sealed) == 0 {\n\t\tif err := l.addMarker", New: "\tif true {\n\t\tif err := l.addMarker"}}},
	{"recovery does not look for missing records between logs", "",
		[]plant.Edit{{File: "internal/wal/replay.go", Old: "case !bySift || !r.prevBySift || r.nextSeq == 0 || first <= r.nextSeq:", New: "case true:"},
			{File: "internal/wal/replay.go", Old: "case r.nextSeq != 0 && (first > r.nextSeq || first < r.nextSeq && count > 0):", New: "case false:"}}},
	{"a new log is not synced", "",
		[]plant.Edit{{File: "internal/wal/log.go", Old: "\tif err == nil {\n\t\terr = f.Sync()\n\t}\n\tif err == nil {\n\t\terr = c.FS.SyncDir(c.Dir)", New: "\tif err == nil {\n\t\terr = c.FS.SyncDir(c.Dir)"}}},
	{"the directory is not synced after a log was created", nameGoesAlong,
		[]plant.Edit{{File: "internal/wal/log.go", Old: "err = c.FS.SyncDir(c.Dir)", New: "err = nil"}}},
	{"a table is not synced", "",
		[]plant.Edit{{File: "internal/compact/run.go", Old: "if err := r.file.Sync(); err != nil {\n\t\treturn err\n\t}", New: ""}}},
	{"the directory is not synced after tables were created", nameGoesAlong,
		[]plant.Edit{{File: "tablewrite.go", Old: "err = d.fs.SyncDir(d.dir) // (I2)", New: "err = nil"}}},
	{"an edit of the MANIFEST is not synced", "",
		[]plant.Edit{{File: "internal/manifest/writer.go", Old: "err = w.file.Sync()", New: "err = nil"}}},
	{"the directory is not synced between a new MANIFEST and CURRENT", nameGoesAlong,
		[]plant.Edit{{File: "internal/manifest/writer.go", Old: "err = fsys.SyncDir(dir)", New: "err = nil"}}},
	{"CURRENT is not synced before it is renamed", "",
		[]plant.Edit{{File: "internal/manifest/current.go", Old: "err = f.Sync()", New: "err = nil"}}},
	{"the directory is not synced after CURRENT was renamed", "",
		[]plant.Edit{{File: "internal/manifest/current.go", Old: "return true, fsys.SyncDir(dir)", New: "return true, nil"}}},
	{"the parents of a new database are not synced", nameGoesAlong,
		[]plant.Edit{{File: "open.go", Old: "\tif err := d.syncParents(d.dir); err != nil {\n\t\treturn nil, err\n\t}\n\tnames", New: "\tnames"}}},
	{"the parents of a checkpoint are not synced", nameGoesAlong,
		[]plant.Edit{{File: "checkpoint.go", Old: "log.Close(), d.syncParents(dir))", New: "log.Close())"}}},
	{"a rotation by Flush, Ingest or Close does not sync the log", flushedSoon,
		[]plant.Edit{{File: "write.go", Old: "\terr := c.log.Sync()\n", New: "\terr := error(nil)\n"},
			{File: "internal/wal/writer.go", Old: "\t\ts.sync() // only finishes it: everything is on disk\n", New: "\t\ts.Flushed()\n"}}},
	{"a rotation does not sync the logs before", flushedSoon,
		[]plant.Edit{{File: "write.go", Old: "\tif !ahead {\n\t\tif err := c.log.SyncSealed(); err != nil {\n\t\t\treturn c.fail(err)\n\t\t}\n\t}\n\tc.changing", New: "\tc.changing"}}},
	{"Ingest does not wait for earlier logs", "the writes are in tables by then: it only reports that a sync has failed",
		[]plant.Edit{{File: "ingest.go", Old: "\tif err := c.log.SyncSealed(); err != nil {\n\t\treturn c.fail(err)\n\t}\n\treturn nil", New: "\treturn nil"}}},
	{"FILTERKEY is not synced before it is renamed", costsReads,
		[]plant.Edit{{File: "filterkey.go", Old: "err = f.Sync()", New: "err = nil"}}},
	{"the directory is not synced after FILTERKEY was renamed", costsReads,
		[]plant.Edit{{File: "filterkey.go", Old: "return fsys.SyncDir(dir)", New: "return nil"}}},
	{"nothing is ever synced but directories", "",
		[]plant.Edit{{File: "internal/vfs/log_linux.go", Old: "err := control(l.f, func(fd uintptr) error { return unix.Fdatasync(int(fd)) })", New: "var err error"},
			{File: "internal/compact/run.go", Old: "if err := r.file.Sync(); err != nil {\n\t\treturn err\n\t}", New: ""},
			{File: "internal/manifest/writer.go", Old: "err = w.file.Sync()", New: "err = nil"}}},
}

// nameGoesAlong is why missing directory syncs are not found here, although POSIX requires them.
const nameGoesAlong = "on each of these file systems an fsync of a new file makes its name durable, too"

const (
	// flushedSoon is why unsynced logs before a new one are hardly found here.
	// TestPowerCutDuringFlush of the root package holds the flush up.
	flushedSoon = "their memtables are in tables a moment later"
	// costsReads is why the loss of the secret is not found. The root package's
	// TestFilterKeyDurable finds it.
	costsReads = "without its secret a filter is not probed, which costs block reads and gives no wrong answer"
)

var (
	plantedRun  = flag.Bool("planted", false, "plant the bugs and run the tests")
	plantedOnly = flag.String("planted-only", "", "only plant bugs whose names contain this")
)

// TestPlanted builds this test with one bug after another, and runs TestBlock with it.
func TestPlanted(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	failed := regexp.MustCompile(`(?m)^ +--- FAIL: TestBlock/(\S+)`)
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			work := t.TempDir()
			overlay, err := plant.Overlay(root, work, p.edits)
			if err != nil {
				t.Fatal(err)
			}
			if !*plantedRun || !strings.Contains(p.name, *plantedOnly) {
				t.Skip("only with -planted")
			}
			bin := filepath.Join(work, "test")
			if out, err := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-w", "-overlay", overlay, "-o", bin, ".").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			start := time.Now()
			out, err := exec.Command(bin, "-test.v", "-test.failfast", "-test.run", "TestBlock", "-budget", budget.String()).CombinedOutput()
			took := time.Since(start).Round(100 * time.Millisecond)
			var exit *exec.ExitError
			switch {
			case err == nil && p.hides == "":
				t.Errorf("survived for %v", took)
			case err == nil:
				t.Logf("survived for %v: %s", took, p.hides)
			case !errors.As(err, &exit):
				t.Fatal(err)
			default:
				where := failed.FindSubmatch(out)
				if where == nil || !bytes.Contains(out, []byte(", power cut after ")) { // it failed in another way
					t.Fatalf("%s", out)
				}
				t.Logf("found on %s, after %v", where[1], took)
			}
		})
	}
}
