package compat

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	allPrograms = flag.Bool("programs", false, "run the tests of all programs, not only of a few small ones")
	original    = flag.Bool("programs.original", false, "run the tests of the programs with goleveldb itself")
)

// program is a module whose tests use goleveldb.
type program struct {
	module  string
	version string
	dirs    []string          // packages whose tests are run, relative to the module's root
	skip    string            // matches tests that are left out: they also fail with goleveldb, or abort the others
	noVet   bool              // its tests do not pass this Go's vet
	fails   map[string]string // tests that are known to fail, and why
	small   bool              // run without -programs, too: takes less than a minute
	outside bool              // it is not a module; its tests are run from one that requires it
}

const (
	logsAhead = "it expects files to grow with a single write, and logs are preallocated"
	// Its consumers drop what they receive in their last poll.
	dropsOne = "TestPerProducerOrder"
	// It opens a database without the log that the MANIFEST names, and panics on an error.
	noLog = "TestV11v12"
)

// fabric lists the packages of Hyperledger Fabric that use goleveldb directly.
var fabric = []string{
	"common/ledger/util/leveldbhelper", "common/ledger/blkstorage/...", "core/transientstore", "core/ledger/confighistory",
	"core/ledger/kvledger/bookkeeping", "core/ledger/kvledger/history", "core/ledger/kvledger/txmgmt/statedb/stateleveldb", "core/ledger/pvtdatastorage",
}

var programs = []program{
	{module: "github.com/ethereum/go-ethereum", version: gethVersion, dirs: []string{"ethdb/leveldb", "core/rawdb", "p2p/enode", "triedb/..."}, small: true},
	{module: "github.com/btcsuite/btcd", version: "v0.24.2", dirs: []string{"database/...", "blockchain/indexers"}, small: true},
	{module: "github.com/cometbft/cometbft-db", version: "v0.14.1", dirs: []string{"."}},
	{module: "github.com/tendermint/tm-db", version: "v0.6.7", dirs: []string{"./..."}, skip: "TestRemoteDB"},
	{module: "github.com/cosmos/cosmos-db", version: "v1.1.1", dirs: []string{"."}, noVet: true, small: true},
	{module: "github.com/hyperledger/fabric", version: "v1.4.0-rc1.0.20201118191903-ec81f3e74fa1", dirs: fabric, skip: noLog, noVet: true},
	{module: "github.com/ipfs/go-ds-leveldb", version: "v0.5.0", dirs: []string{"."}, fails: map[string]string{"TestDiskUsage": logsAhead}, small: true},
	{module: "github.com/syncthing/syncthing", version: "v1.27.12", dirs: []string{"lib/db/..."}, noVet: true},
	{module: "gitea.com/lunny/levelqueue", version: "v0.5.1", dirs: []string{"."}, skip: dropsOne},
	{module: "github.com/decred/dcrd/database/v3", version: "v3.0.2", dirs: []string{"./..."}},
	{module: "github.com/ava-labs/avalanchego", version: "v1.11.13", dirs: []string{"database/leveldb"}, noVet: true},
	{module: "github.com/ethersphere/bee", version: "v1.18.2", dirs: []string{"pkg/shed/...", "pkg/statestore/leveldb", "pkg/storage/leveldbstore"}, noVet: true},
	{module: "github.com/kaspanet/kaspad", version: "v0.12.17", dirs: []string{"infrastructure/db/database/..."}, noVet: true},
	{module: "github.com/nspcc-dev/neo-go", version: "v0.106.3", dirs: []string{"pkg/core/storage"}, noVet: true},
	{module: "github.com/philippgille/gokv/leveldb", version: "v0.7.0", dirs: []string{"."}, noVet: true},
	{module: "github.com/hidal-go/hidalgo", version: "v0.3.0", dirs: []string{"kv/flat/leveldb"}, noVet: true},
	{module: "github.com/blevesearch/bleve", version: "v1.0.14", dirs: []string{"index/store/goleveldb", "index/store/metrics"}, noVet: true},
	{module: "github.com/projectdiscovery/hmap", version: "v0.0.45", dirs: []string{"store/...", "filekv"}, noVet: true},
	{module: "github.com/ledisdb/ledisdb", version: "v0.0.0-20200510135210-d35789ec47e6", dirs: []string{"store/...", "ledis"}, skip: "TestStore$", noVet: true, outside: true},
}

// TestPrograms runs the tests of programs that use goleveldb with the module and no other
// change. It skips modules that the proxy does not serve.
func TestPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	proxy(t)
	for _, p := range programs {
		if !p.small && !*allPrograms {
			continue
		}
		t.Run(filepath.Base(p.module), func(t *testing.T) { p.run(t) })
	}
}

func (p *program) run(t *testing.T) {
	dir := p.mainModule(t)
	if !*original {
		replace(t, dir)
	}
	args := []string{"test", "-json", "-count=1", "-timeout", "10m"}
	if p.noVet {
		args = append(args, "-vet=off")
	}
	if p.skip != "" {
		args = append(args, "-skip", p.skip)
	}
	for _, d := range p.dirs {
		if p.outside {
			args = append(args, p.module+"/"+d)
		} else {
			args = append(args, "./"+strings.TrimPrefix(d, "./"))
		}
	}
	start := time.Now()
	log, runErr := goCommand(dir, args...).CombinedOutput()
	passed, skipped, failed := outcomes(log)
	for _, name := range failed {
		if why := p.fails[name]; why != "" && !*original {
			t.Logf("%s fails: %s", name, why)
			continue
		}
		t.Errorf("%s fails", name)
	}
	if t.Failed() || len(failed) == 0 && runErr != nil || passed == 0 {
		t.Errorf("%v\n%s", runErr, readable(log))
	}
	t.Logf("%s %s: %d passed, %d skipped, %d failed, in %.0f s", p.module, p.version, passed, skipped, len(failed), time.Since(start).Seconds())
}

// mainModule returns the directory of the module that the tests are run from.
func (p *program) mainModule(t *testing.T) string {
	if !p.outside {
		return p.checkOut(t)
	}
	dir := newModule(t, lastVersion, false)
	edit(t, dir, "-require", p.module+"@"+p.version)
	return dir
}

// checkOut copies the module from the module cache.
func (p *program) checkOut(t *testing.T) string {
	cmd := exec.Command("go", "mod", "download", "-json", p.module+"@"+p.version)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("the Go module proxy does not serve it: %v\n%s", err, out)
	}
	var got struct{ Dir string }
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "program")
	if err := os.CopyFS(dir, os.DirFS(got.Dir)); err != nil {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o755)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	mod := filepath.Join(dir, "go.mod")
	for _, name := range []string{mod, filepath.Join(dir, "go.sum")} {
		if err := os.Chmod(name, 0o644); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return dir
}

// replace replaces goleveldb by this repository's module.
func replace(t *testing.T, dir string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	edit(t, dir, "-replace", "github.com/syndtr/goleveldb="+filepath.Join(root, "goleveldb"))
	edit(t, dir, "-replace", "github.com/siftdb/sift="+root)
}

func edit(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"mod", "edit"}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go mod edit: %v\n%s", err, out)
	}
}

// event is a line of go test -json.
type event struct{ Action, Package, Test, Output string }

func events(log []byte, f func(e event, line string)) {
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		_ = json.Unmarshal(lines.Bytes(), &e) // messages of the go command itself are not JSON
		f(e, lines.Text())
	}
}

// outcomes counts tests and subtests, and lists those that failed. A test that did not end, because
// its process did, has failed. A package that fails without a failed test is listed by its name.
func outcomes(log []byte) (passed, skipped int, failed []string) {
	type id struct{ pkg, test string }
	running := map[id]bool{}
	byPackage := map[string]int{}
	events(log, func(e event, _ string) {
		switch e.Action {
		case "run":
			running[id{e.Package, e.Test}] = true
		case "pass", "skip", "fail":
			delete(running, id{e.Package, e.Test})
		}
		switch {
		case e.Test != "" && e.Action == "pass":
			passed++
		case e.Test != "" && e.Action == "skip":
			skipped++
		case e.Test != "" && e.Action == "fail":
			failed = append(failed, e.Test)
			byPackage[e.Package]++
		case e.Action == "fail" && byPackage[e.Package] == 0:
			failed = append(failed, e.Package)
		}
	})
	for r := range running {
		failed = append(failed, r.test+" (did not end)")
	}
	slices.Sort(failed)
	return passed, skipped, failed
}

// TestOutcomesOfCrash checks that a test during which its process ends counts as failed, even if
// another test of its package has failed before.
func TestOutcomesOfCrash(t *testing.T) {
	log := `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Test":"TestC","Output":"fatal error: all goroutines are asleep - deadlock!\n"}
{"Action":"fail","Package":"p"}
`
	passed, _, failed := outcomes([]byte(log))
	if passed != 1 || !slices.Equal(failed, []string{"TestA", "TestC (did not end)"}) {
		t.Errorf("%d passed, failed: %q", passed, failed)
	}
}

// readable returns the last lines of the output of a failed run.
func readable(log []byte) string {
	var lines []string
	events(log, func(e event, line string) {
		switch {
		case e.Action == "":
			lines = append(lines, line+"\n")
		case e.Action == "build-output", e.Action == "output" && !strings.HasPrefix(e.Output, "=== "):
			lines = append(lines, e.Output)
		}
	})
	return strings.Join(lines[max(0, len(lines)-200):], "")
}
