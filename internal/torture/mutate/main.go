// Command mutate removes, one at a time, each Sync, each SyncDir, each check of an
// error, and whatever wakes a goroutine that waits (a Broadcast, a Signal, a send to or
// the closing of a channel), from the store, and runs the short form of the regime to see
// whether it notices. What that misses goes on to the tests of the mutant's own package. It
// changes no file: all mutants are compiled into the test binaries, and each run switches
// one on.
//
//	go run ./internal/torture/mutate                        all of them; exits with 1 if one survives
//	go run ./internal/torture/mutate -list                  what there is
//	go run ./internal/torture/mutate -only 7,9              some of them, in this order
//	go run ./internal/torture/mutate -work DIR -for 10m     a part of them, and with the same
//	                                                        directory the next part
//	go run ./internal/torture/mutate -bounds                changes conditions and bounds instead: < to <=, && to ||,
//	                                                        i+1 to i, in boundDirs; the tests of these packages
//	                                                        alone have to notice
//	go run ./internal/torture/mutate -bounds -dirs sstable  only these packages, with commas, or files
//	go run ./internal/torture/mutate -constants             changes integer constants instead, by 1 and by -1, in
//	                                                        constantDirs; their tests have to notice
//	go run ./internal/torture/mutate -quick 2s -limit 10s   no slow tests, and little patience
//
// Tests that are quick share a process. If that fails, each is run by itself.
//
// With -constants, what changes is each constant that is declared, in all places that
// depend on it and in all packages of -dirs, so that what is written and what is read stay
// consistent; and each literal from 2 on in an expression. Durations and the elements of
// array and slice literals (tables) stay, and so do the lengths of array types.
//
// When the store or its tests have changed since, the results in DIR are only
// used to run first what caught a mutant last time.
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

// dirs are the packages that write and read durable data.
var dirs = []string{".", "internal/manifest", "internal/record", "internal/wal", "internal/compact", "internal/vfs/os*.go", "internal/vfs/log_linux.go", "sstable", "internal/merge"}

const module = "github.com/siftdb/sift"

// short are the tests of the short form, quick ones first.
var short = []string{
	"TestRegress", "TestStress", "TestLinear", "TestTxn", "TestPoison", "TestSpace", "TestHostile", "TestClosing",
	"TestKill", "TestMetamorphic", "TestErrors", "TestDamage", "TestCut", "Fuzz.*",
}

type options struct {
	list      bool
	bounds    bool
	constants bool
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
	some := flag.String("dirs", "", "the packages to change, with commas; default: all that the mutants are meant for")
	flag.StringVar(&o.only, "only", "", "the numbers of the mutants to run, with commas; default: all")
	flag.StringVar(&o.work, "work", "", "a directory that keeps the binaries and the results, so that what was run is not run again")
	flag.DurationVar(&o.time, "for", 0, "begin no mutant after this time; 0: no end")
	flag.IntVar(&o.parallel, "parallel", 2, "how many mutants run at a time")
	flag.DurationVar(&o.quick, "quick", 0, "leave out tests that take longer; 0: none")
	flag.DurationVar(&o.limit, "limit", time.Minute, "what tests with a mutant may take, and eight times what they take without")
	flag.Parse()
	switch {
	case *some != "":
		o.dirs = strings.Split(*some, ",")
	case o.bounds:
		o.dirs = boundDirs
	case o.constants:
		o.dirs = constantDirs
	default:
		o.dirs = dirs
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// mutant is one removal.
type mutant struct {
	id   int
	name string // file, function and text, the same when lines have moved
	dir  string // of its package, as in dirs
	kind string // "sync", "check", "wake", "bound", "logic", "plus1" or "minus1"
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
	if work == "" {
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
