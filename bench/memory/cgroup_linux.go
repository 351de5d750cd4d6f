package memory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// group is a control group with a memory limit, in version 1 or 2 of the interface. Version 1 has
// one directory per controller.
type group struct {
	Memory, IO string // directories; IO is "" if there is no such controller
	V2         bool
}

const cgroupRoot = "/sys/fs/cgroup"

// newGroup creates a group with a limit in bytes. The error wraps errNoGroups if that is not
// possible here.
func newGroup(limit int64) (*group, error) {
	name := fmt.Sprintf("sift-bench-%d-%d", os.Getpid(), time.Now().UnixNano())
	g := &group{Memory: filepath.Join(cgroupRoot, "memory", name), IO: filepath.Join(cgroupRoot, "blkio", name)}
	file := "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(cgroupRoot, "memory", file)); err != nil {
		g.Memory, g.V2, file = filepath.Join(cgroupRoot, name), true, "memory.max"
		g.IO = g.Memory
		// The root must enable the controllers for the groups below it.
		for _, c := range []string{"+memory", "+io"} {
			_ = os.WriteFile(filepath.Join(cgroupRoot, "cgroup.subtree_control"), []byte(c), 0)
		}
	}
	if err := os.Mkdir(g.Memory, 0o755); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoGroups, err)
	}
	if !g.V2 {
		if os.Mkdir(g.IO, 0o755) != nil {
			g.IO = ""
		}
		g.count()
	}
	if err := os.WriteFile(filepath.Join(g.Memory, file), strconv.AppendInt(nil, limit, 10), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", errNoGroups, err), g.remove())
	}
	return g, nil
}

// count makes the kernel count disk requests: version 1 does so only for disks with a limit, so
// each gets one that it never reaches.
func (g *group) count() {
	disks, _ := filepath.Glob("/sys/block/*/dev")
	for _, path := range disks {
		if dev, err := os.ReadFile(path); err == nil && g.IO != "" {
			rule := strings.TrimSpace(string(dev)) + " 4000000000"
			_ = os.WriteFile(filepath.Join(g.IO, "blkio.throttle.read_iops_device"), []byte(rule), 0)
		}
	}
}

// join moves the process into the group.
func (g *group) join(pid int) error {
	var errs []error
	for _, dir := range []string{g.Memory, g.IO} {
		if dir != "" {
			errs = append(errs, os.WriteFile(filepath.Join(dir, "cgroup.procs"), strconv.AppendInt(nil, int64(pid), 10), 0))
		}
	}
	return errors.Join(errs...)
}

// remove removes the group after its processes have ended.
func (g *group) remove() error {
	var err error
	for range 100 { // the kernel may need a moment to notice their end
		if err = os.Remove(g.Memory); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if g.IO != "" && g.IO != g.Memory {
		err = errors.Join(err, os.Remove(g.IO))
	}
	return err
}

// reads returns the number of read requests of the group's processes to disks, -1 if unknown.
func (g *group) reads() int64 {
	if g == nil {
		return -1
	}
	if g.IO == "" {
		return -1
	}
	name := "blkio.throttle.io_serviced"
	if g.V2 {
		name = "io.stat"
	}
	content, err := os.ReadFile(filepath.Join(g.IO, name))
	if err != nil {
		return -1
	}
	var sum int64
	for line := range strings.Lines(string(content)) {
		words := strings.Fields(line)
		if !g.V2 && len(words) == 3 && words[1] == "Read" {
			n, _ := strconv.ParseInt(words[2], 10, 64)
			sum += n
		}
		for _, w := range words {
			if n, ok := strings.CutPrefix(w, "rios="); ok && g.V2 {
				n, _ := strconv.ParseInt(n, 10, 64)
				sum += n
			}
		}
	}
	return sum
}

// peak returns the peak memory of the group in bytes, page cache included; -1 if unknown.
func (g *group) peak() int64 {
	if g == nil {
		return -1
	}
	name := "memory.max_usage_in_bytes"
	if g.V2 {
		name = "memory.peak"
	}
	return number(filepath.Join(g.Memory, name))
}

func number(path string) int64 {
	content, err := os.ReadFile(path)
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
