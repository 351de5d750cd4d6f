// Command mutate removes each Sync, each SyncDir, each check of an error, and each wakeup of a
// waiting goroutine (a Broadcast, a Signal, a send on a channel or the closing of one) from the
// store, one at a time, and runs tests until one notices: those of the short form of package
// torture, those of the mutant's package, and quick ones of the root package. It changes no file:
// all mutants are compiled into the test binaries, and each run switches one on.
//
//	go run ./internal/torture/mutate                        all of them; exits with 1 if one survives
//	go run ./internal/torture/mutate -list                  lists them
//	go run ./internal/torture/mutate -only 7,9              some of them, in this order
//	go run ./internal/torture/mutate -stress                only the wakeups, and only TestStress, whose calls may
//	                                                        take 15 s
//	go run ./internal/torture/mutate -work DIR -for 10m     some of them, and the next ones when run with
//	                                                        the same directory again
//	go run ./internal/torture/mutate -bounds                changes conditions and bounds instead: < to <=, && to ||,
//	                                                        i+1 to i, in boundDirs; only the tests of these
//	                                                        packages are run
//	go run ./internal/torture/mutate -bounds -dirs sstable  only these packages or files, separated by commas
//	go run ./internal/torture/mutate -constants             changes integer constants instead, by 1 and by -1, in
//	                                                        constantDirs; only their tests are run
//	go run ./internal/torture/mutate -locks                 moves unlocks instead, a statement up or down, in
//	                                                        lockDirs; tests that run calls against each other, and
//	                                                        those of the package, run under the race detector
//	go run ./internal/torture/mutate -locks -stress         the same, but only with TestStress
//	go run ./internal/torture/mutate -quick 2s -limit 10s   skips slow tests, and allows little time
//
// Quick tests share a process. If that fails, each is run by itself.
//
// -constants changes each declared constant, in all places that depend on it and in all packages of
// -dirs, so that writing and reading stay consistent, and each literal of at least 2 in an
// expression. Durations, the elements of array and slice literals (tables) and the lengths of array
// types are left alone.
//
// If the store or its tests have changed, the results in DIR are only used to run first the
// test that caught a mutant last time.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// dirs are the packages that write and read durable data, and those that wake goroutines.
var dirs = []string{".", "internal/groupcommit", "internal/manifest", "internal/record", "internal/wal", "internal/compact", "internal/vfs/os*.go", "internal/vfs/log_linux.go", "sstable", "internal/merge", "internal/filtermem"}

const module = "github.com/siftdb/sift"

// short are the tests of the short form, quick ones first.
var short = []string{
	"TestRegress", "TestStress", "TestLinear", "TestTxn", "TestFailedSync", "TestSpace", "TestHostile", "TestClosing",
	"TestKill", "TestTxnKill", "TestMetamorphic", "TestErrors", "TestDamage", "TestCut", "Fuzz.*",
}

type options struct {
	list      bool
	bounds    bool
	constants bool
	locks     bool
	stress    bool
	dirs      []string // of the packages to change
	only      string
	work      string
	time      time.Duration
	parallel  int
	quick     time.Duration
	limit     time.Duration
}

func main() {
	var o options
	flag.BoolVar(&o.list, "list", false, "list the mutants and stop")
	flag.BoolVar(&o.bounds, "bounds", false, "change conditions and bounds instead: < to <=, && to ||, i+1 to i")
	flag.BoolVar(&o.constants, "constants", false, "change integer constants instead, by 1 and by -1")
	flag.BoolVar(&o.locks, "locks", false, "move unlocks instead, a statement up or down")
	flag.BoolVar(&o.stress, "stress", false, "remove only wakeups or, with -locks, move only unlocks, and run only TestStress")
	some := flag.String("dirs", "", "the packages to change, separated by commas; default: all that the mutants are meant for")
	flag.StringVar(&o.only, "only", "", "the numbers of the mutants to run, separated by commas; default: all")
	flag.StringVar(&o.work, "work", "", "a directory for binaries and results; mutants with a result in it are not run again")
	flag.DurationVar(&o.time, "for", 0, "begin no mutant after this time; 0: no limit")
	flag.IntVar(&o.parallel, "parallel", 2, "how many mutants run at a time")
	flag.DurationVar(&o.quick, "quick", 0, "skip tests that take longer; 0: none")
	flag.DurationVar(&o.limit, "limit", time.Minute, "how long tests with a mutant may take beyond eight times their usual time")
	flag.Parse()
	switch {
	case *some != "":
		o.dirs = strings.Split(*some, ",")
	case o.bounds:
		o.dirs = boundDirs
	case o.constants:
		o.dirs = constantDirs
	case o.locks:
		o.dirs = lockDirs
	default:
		o.dirs = dirs
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// mutant is one change of the store.
type mutant struct {
	id   int
	name string // file, function and text: it stays the same when lines move
	dir  string // of its package, as in dirs
	kind string // "sync", "check", "wake", "bound", "logic", "plus1", "minus1", "early" or "late"
	at   string // file and line
	text string
}

func (m mutant) String() string { return fmt.Sprintf("%4d %-6s %-28s %s", m.id, m.kind, m.at, m.text) }

func run(o options) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	work := o.work
	if work == "" || o.list { // a list must not change what an earlier run left in the directory
		if work, err = os.MkdirTemp("", "mutate"); err != nil {
			return err
		}
		defer os.RemoveAll(work)
	} else if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	mutants, same, err := instrument(root, work, o)
	if err != nil {
		return err
	}
	if o.stress && !o.locks {
		mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return m.kind != "wake" })
	}
	if o.list {
		for _, m := range mutants {
			fmt.Println(m)
		}
		return nil
	}
	chosen, err := choose(mutants, o.only)
	if err != nil {
		return err
	}
	r, err := newRunner(root, work, same, o)
	if err != nil {
		return err
	}
	if o.time > 0 {
		r.until = time.Now().Add(o.time)
	}
	return r.all(chosen)
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(out)), err
}

func choose(mutants []mutant, only string) ([]mutant, error) {
	if only == "" {
		return mutants, nil
	}
	var some []mutant
	for _, s := range strings.Split(only, ",") {
		id, err := strconv.Atoi(s)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(mutants, func(m mutant) bool { return m.id == id })
		if i < 0 {
			return nil, fmt.Errorf("there is no mutant %d", id)
		}
		some = append(some, mutants[i])
	}
	return some, nil
}
