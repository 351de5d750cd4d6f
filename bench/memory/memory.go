// Package memory compares stores that are short of memory: each runs as a process of its own,
// in a control group that bounds its memory, page cache included, and begins with files that
// are not cached.
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
)

// Workloads, in the order in which they run.
const (
	Fill      = "fill"      // puts of new keys, in random order, into a database of their own
	Absent    = "absent"    // lookups of keys that are not there
	Present   = "present"   // lookups of keys that are
	Scan      = "scan"      // entries in order, from random keys on, 100,000 at a time
	Mixed     = "mixed"     // 95 lookups of keys that are there for 5 overwrites
	Overwrite = "overwrite" // puts of keys that are there
	All       = "all"       // at once: overwrites, scans, lookups, and one full compaction after the other
)

// Workloads lists them all.
var Workloads = []string{Fill, Absent, Present, Scan, Mixed, Overwrite, All}

// errNoGroups reports that there are no control groups to run in.
var errNoGroups = errors.New("memory cannot be bounded here: that takes Linux, its control groups, and root")

// Case is what one process does.
type Case struct {
	Engine   string        `json:"engine"` // with settings: see Open
	Workload string        `json:"workload"`
	Limit    int64         `json:"limit"` // bytes
	Keys     int           `json:"keys"`  // that the database holds, or that Fill writes
	Value    int           `json:"value"` // bytes a value
	Threads  int           `json:"threads"`
	Time     time.Duration `json:"time"`    // how long it runs; Fill ends with its keys
	Warm     time.Duration `json:"warm"`    // before that
	Preread  bool          `json:"preread"` // the files are read once before that
	Sorted   bool          `json:"sorted"`  // keys are those that Fill writes in ascending order, in bulk where the engine can
	Dir      string        `json:"dir"`
}

// Result is what came of it.
type Result struct {
	Case
	OpenMS    float64 `json:"open_ms"`
	Ops       int64   `json:"ops"`
	Seconds   float64 `json:"seconds"`
	CPU       float64 `json:"cpu_us"`     // an operation
	P99       float64 `json:"p99_us"`     // of an operation, of a whole range for scans
	Reads     float64 `json:"reads"`      // from the disk, an operation; -1 if not known
	ReadBytes float64 `json:"read_bytes"` // an operation
	Resident  int64   `json:"resident"`   // bytes, at the end
	Anonymous int64   `json:"anonymous"`
	Peak      int64   `json:"peak"`   // of the control group, page cache included
	Faults    int64   `json:"faults"` // that waited for the disk
	Killed    bool    `json:"killed"` // for lack of memory
}

// PerSecond returns the operations a second.
func (r *Result) PerSecond() float64 { return float64(r.Ops) / r.Seconds }

// Settings of sift that can follow its name, as in "sift/nomap".
var siftSettings = map[string]func(c *engine.Config){
	"nomap":  func(c *engine.Config) { c.MapBytes = -1 },
	"map":    func(c *engine.Config) { c.MapBytes = 1 << 50 },
	"cache":  func(c *engine.Config) { c.CacheBytes = c.Memory / 4 },
	"memory": func(c *engine.Config) { c.UseMemory = true },
}

// config returns how to open the engine of a case.
func (c *Case) config() (*engine.Engine, engine.Config, error) {
	name, setting, _ := strings.Cut(c.Engine, "/")
	o := engine.Config{
		Dir: c.Dir, BloomBits: 10, Keys: c.Keys, BlockBytes: 4 << 10, TxnBatch: 100, Memory: c.Limit,
	}
	if setting != "" {
		set := siftSettings[setting]
		if name != "sift" || set == nil {
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

// Known returns an error if there is no such engine, or no such setting of it.
func Known(name string) error {
	_, _, err := (&Case{Engine: name}).config()
	return err
}

// Check returns an error if the memory of a process cannot be bounded here.
func Check() error {
	g, err := newGroup(64 << 20)
	if err != nil {
		return err
	}
	return g.remove()
}

// ChildArg is the first argument of a process that runs a case, which it reads from its input.
const ChildArg = "memory-case"

// Run runs a case in a process of its own. With limit false its memory is not bounded.
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

// task is what the process reads: it joins nothing itself, but asks its group for reads.
type task struct {
	Case  Case
	Group *group
}

// Child runs a case that it reads from in, and writes the result to out.
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

// DirBytes returns the size of a directory in bytes.
func DirBytes(dir string) (sum int64) {
	_ = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// readFiles reads all files of a directory, so that as much of them is in the page cache as
// there is room for.
func readFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // the store has removed it meanwhile
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
