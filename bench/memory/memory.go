// Package memory compares stores that are short of memory: each runs in a separate process, in a
// control group that limits its memory, page cache included, and starts with none of its files in
// the page cache.
package memory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/measure"
)

// The workloads.
const (
	Fill      = "fill"      // puts of new keys in random order, into an empty database
	Absent    = "absent"    // lookups of absent keys
	Present   = "present"   // lookups of present keys
	Scan      = "scan"      // scans of 100,000 entries from random keys
	Mixed     = "mixed"     // 95% lookups of present keys, 5% overwrites
	Overwrite = "overwrite" // puts of present keys
	Open      = "open"      // the first 1,000 lookups of present keys after opening, by one goroutine
	All       = "all"       // concurrently: overwrites, scans, lookups, and one full compaction after another
)

// FirstLookups is the number of lookups of Open.
const FirstLookups = 1000

// Workloads lists all workloads.
var Workloads = []string{Fill, Absent, Present, Scan, Mixed, Overwrite, Open, All}

// errNoGroups is returned where control groups cannot be created.
var errNoGroups = errors.New("memory cannot be limited here: this needs Linux, control groups and root")

// Case describes the work of one process.
type Case struct {
	Engine   string        `json:"engine"` // with a setting, if any: see settings
	Workload string        `json:"workload"`
	Limit    int64         `json:"limit"` // bytes
	Keys     int           `json:"keys"`  // that the database holds, or that Fill writes
	Value    int           `json:"value"` // bytes per value
	Threads  int           `json:"threads"`
	Time     time.Duration `json:"time"`    // how long it is measured; Fill ends with its keys, and Open with its lookups
	Warm     time.Duration `json:"warm"`    // how long it runs before that; Fill and Open do not
	Preread  bool          `json:"preread"` // all files are read once before the database is opened
	Sorted   bool          `json:"sorted"`  // Fill writes the keys in ascending order, in bulk where the engine can
	Dir      string        `json:"dir"`
}

// Result is the result of a Case.
type Result struct {
	Case
	OpenMS    float64 `json:"open_ms"`
	Ops       int64   `json:"ops"`
	Seconds   float64 `json:"seconds"`
	CPU       float64 `json:"cpu_us"`     // per operation
	P99       float64 `json:"p99_us"`     // of an operation; for scans, of a whole range
	Reads     float64 `json:"reads"`      // disk reads per operation; -1 if unknown
	ReadBytes float64 `json:"read_bytes"` // from the disk, per operation
	Resident  int64   `json:"resident"`   // bytes at the end
	Anonymous int64   `json:"anonymous"`
	Peak      int64   `json:"peak"`   // of the control group, page cache included
	Faults    int64   `json:"faults"` // major page faults
	Killed    bool    `json:"killed"` // by a signal: out of memory
}

// PerSecond returns the operations per second.
func (r *Result) PerSecond() float64 { return float64(r.Ops) / r.Seconds }

// settings maps ENGINE/SETTING to what the setting changes.
var settings = map[string]func(c *engine.Config){
	"sift/nomap":          func(c *engine.Config) { c.MapBytes = -1 },
	"sift/map":            func(c *engine.Config) { c.MapBytes = 1 << 50 },
	"sift/cache":          func(c *engine.Config) { c.CacheBytes = c.Memory / 4 },
	"sift/memory":         func(c *engine.Config) { c.UseMemory = true },
	"rocksdb/filters":     func(c *engine.Config) { c.FiltersInMemory = true },
	"rocksdb/partitioned": func(c *engine.Config) { c.PartitionFilters = true },
}

// config returns the case's engine and the configuration to open it with.
func (c *Case) config() (*engine.Engine, engine.Config, error) {
	name, setting, _ := strings.Cut(c.Engine, "/")
	o := engine.Config{
		Dir: c.Dir, BloomBits: 10, Keys: c.Keys, BlockBytes: 4 << 10, TxnBatch: 100, Memory: c.Limit,
	}
	if setting != "" {
		set := settings[c.Engine]
		if set == nil {
			return nil, o, fmt.Errorf("engine %q has no setting %q", name, setting)
		}
		set(&o)
	}
	for _, e := range engine.All() {
		if e.Name == name {
			return e, o, nil
		}
	}
	return nil, o, fmt.Errorf("engine %q is not built in", name)
}

// Known returns an error unless name is an engine that is built in, with a known setting, if any.
func Known(name string) error {
	_, _, err := (&Case{Engine: name}).config()
	return err
}

// Check returns an error if the memory of a process cannot be limited here.
func Check() error {
	g, err := newGroup(64 << 20)
	if err != nil {
		return err
	}
	return g.remove()
}

// ChildArg is the first argument of a process that must call Child.
const ChildArg = "memory-case"

// Run runs a case in a new process. Its memory is limited only if limit is true.
func Run(c Case, limit bool) (Result, error) {
	program, err := os.Executable()
	if err != nil {
		return Result{}, err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return Result{}, err
	}
	if err := dropPages(c.Dir); err != nil {
		return Result{}, err
	}
	var g *group
	if limit {
		if g, err = newGroup(c.Limit); err != nil {
			return Result{}, err
		}
		defer g.remove()
	}
	child := exec.Command(program, ChildArg)
	// By default glibc's malloc has an arena per thread, and memory that is freed in one is of no
	// use to the others: caches of stores in C++, and pebble's, would take up to twice their size.
	child.Env = append(os.Environ(), "MALLOC_ARENA_MAX=1")
	in, err := child.StdinPipe()
	if err != nil {
		return Result{}, err
	}
	var out, fault bytes.Buffer
	child.Stdout, child.Stderr = &out, &fault
	if err := child.Start(); err != nil {
		return Result{}, err
	}
	if g != nil {
		if err := g.join(child.Process.Pid); err != nil {
			_ = child.Process.Kill()
			return Result{}, errors.Join(err, child.Wait())
		}
	}
	line, _ := json.Marshal(&task{Case: c, Group: g})
	_, err = in.Write(line)
	err = errors.Join(err, in.Close(), child.Wait())
	r := Result{Case: c}
	if child.ProcessState != nil && strings.Contains(child.ProcessState.String(), "killed") {
		r.Killed = true
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("%s, %s: %w: %s", c.Engine, c.Workload, err, tail(fault.Bytes()))
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return r, err
	}
	return r, nil
}

func tail(b []byte) []byte { return b[max(0, len(b)-2000):] }

// task is the input of the process. The parent has put the process into Group; the process
// only reads the group's counters.
type task struct {
	Case  Case
	Group *group
}

// Child reads a case from in, runs it, and writes the result to out.
func Child(in io.Reader, out io.Writer) error {
	var t task
	if err := json.NewDecoder(in).Decode(&t); err != nil {
		return err
	}
	r, err := t.run()
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}

// DirBytes returns the total size of all files below dir.
func DirBytes(dir string) (sum int64) {
	_ = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			sum += measure.DiskBytes(info)
		}
		return nil
	})
	return sum
}

// readFiles reads all files of a directory into the page cache, as far as they fit.
func readFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // the store has removed it
		} else if err != nil {
			return err
		}
		_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, buf)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
