package cluster

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/torture/plant"
)

// editEnv holds plant.Edits, for programs that a test builds itself.
const editEnv = "SIFT_CLUSTER_EDIT"

func plantedEdits(t *testing.T) []plant.Edit {
	t.Helper()
	text := os.Getenv(editEnv)
	if text == "" {
		return nil
	}
	var edits []plant.Edit
	if err := json.Unmarshal([]byte(text), &edits); err != nil {
		t.Fatal(err)
	}
	return edits
}

var planted = flag.Bool("cluster.planted", false, "plant faults in siftd, and run the tests that must find them")

// siftdFaults lists bugs that a replicated server may have, each with a test that must find it.
var siftdFaults = []struct {
	name  string
	edits []plant.Edit
	found string // the test that finds it
	in    string // the package of that test, below the root
}{{
	"a write is acknowledged before it is committed",
	[]plant.Edit{{File: "cluster/siftd/group.go", Old: "func (g *group) Write(b *sift.Batch) error {\n", New: "func (g *group) Write(b *sift.Batch) error {\n\tgo g.write(b)\n\treturn nil\n}\n\nfunc (g *group) write(b *sift.Batch) error {\n"}},
	"TestWire", "cluster",
}, {
	"reads of a leader that was deposed are not confirmed",
	[]plant.Edit{{File: "cluster/siftd/group.go", Old: "if done {\n\t\treturn nil\n\t}", New: "if true || done {\n\t\treturn nil\n\t}"}},
	"TestDeposedReads", "cluster",
}, {
	"writes of a leader that was deposed are applied",
	[]plant.Edit{{File: "cluster/siftd/commands.go", Old: "if !bytes.Equal(epoch, command[:epochLen]) {", New: "if false && !bytes.Equal(epoch, command[:epochLen]) {"}},
	"TestDeposedWrites", "cluster/siftd",
}, {
	"EXEC does not confirm",
	[]plant.Edit{{File: "internal/serve/group.go", Old: "c.needSync = true\n", New: "c.needSync = cmd.name != \"exec\"\n"}},
	"TestGroupDeposed", "internal/serve",
}, {
	"a leader transfers its leadership before it has confirmed its replies",
	[]plant.Edit{{File: "internal/serve/group.go", Old: "s.unconfirmed.Lock() // no client takes it any more\n\tdefer s.unconfirmed.Unlock()", New: ""}},
	"TestGroupRetires", "internal/serve",
}, {
	"the time at which a key has expired is not replicated",
	[]plant.Edit{{File: "internal/serve/group.go", Old: "if c.seen.Load() <= c.decided.Load() {", New: "if true {"}},
	"TestGroupExpired", "internal/serve",
}, {
	"a restarted node applies again what it has applied",
	[]plant.Edit{{File: "cluster/fsm.go", Old: "if log.Index <= applied &&", New: "if false &&"}, {File: "cluster/fsm.go", Old: "db, applied, err := f.state.db, f.applied, f.err", New: "db, err := f.state.db, f.err"}},
	"TestGoesOn", "cluster",
}, {
	"a snapshot without its last batch",
	[]plant.Edit{
		{File: "cluster/fsm.go", Old: "\tapplied uint64        // the last command that state holds\n", New: "\tapplied uint64        // the last command that state holds\n\tlast    []byte\n"},
		{File: "cluster/fsm.go", Old: "\treply, cmdErr, err := f.execute(db, log)\n", New: "\tf.last = log.Data\n\treply, cmdErr, err := f.execute(db, log)\n"},
		{File: "cluster/fsm.go", Old: "\t\treturn db.Checkpoint(s.dir)\n", New: `		if err := db.Checkpoint(s.dir); err != nil || len(f.last) < 17 || f.last[0] != 'W' {
			return err
		}
		cut, err := sift.Open(s.dir, nil)
		if err != nil {
			return err
		}
		var b, undo sift.Batch
		if err := b.Load(f.last[17:]); err != nil {
			return err
		}
		for op := range b.Ops() {
			undo.Delete(op.Key)
		}
		return errors.Join(cut.Write(&undo, nil), cut.Close())
`},
	},
	"TestJoinBySnapshot", "cluster/siftd",
}}

// symptom is how tests report a violation.
var symptom = regexp.MustCompile(`(?m)_test.go:\d+: .*(linearizable|acknowledged, and is|want|early|another node may lead|not found|is there again).*`)

// TestPlantedInSiftd: each fault can be planted, and with -cluster.planted it is found.
func TestPlantedInSiftd(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range siftdFaults {
		t.Run(f.name, func(t *testing.T) {
			overlay, err := plant.Overlay(root, t.TempDir(), f.edits)
			if err != nil {
				t.Fatal(err)
			}
			if !*planted {
				return
			}
			exe := filepath.Join(t.TempDir(), "test")
			build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", exe, ".")
			build.Dir = filepath.Join(root, f.in)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			edits, err := json.Marshal(f.edits)
			if err != nil {
				t.Fatal(err)
			}
			for try := range 5 {
				test := exec.Command(exe, "-test.run", f.found+"$", "-test.timeout", "3m", "-test.v")
				test.Dir = build.Dir
				test.Env = append(os.Environ(), editEnv+"="+string(edits))
				if f.in == "cluster" {
					test.Args = append(test.Args, "-cluster.seed", strconv.Itoa(1+try))
				}
				begin := time.Now()
				out, err := test.CombinedOutput()
				if err == nil {
					continue
				}
				why := symptom.Find(out)
				if t.Logf("%s found it in %.1f s: %s", f.found, time.Since(begin).Seconds(), why); why == nil {
					t.Errorf("the test failed, but not with a violation: %v\n%s", err, out)
				}
				return
			}
			t.Error("not found")
		})
	}
}
