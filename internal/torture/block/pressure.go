//go:build linux

package block

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// pressure makes the kernel reclaim the page cache of this process all the time, as when memory is
// short: it writes back dirty pages and drops clean ones, mapped ones included. The process is in a
// memory cgroup of its own meanwhile.
type pressure struct {
	home    string // the cgroup that the process comes from
	own     string
	trigger string // the file that starts a reclaim
	amount  string // what is written to it
	end     chan struct{}
	wg      sync.WaitGroup
	times   int
}

// startPressure starts it. It needs root, and version 1 of cgroups or Linux 5.19.
func startPressure() (*pressure, error) {
	all, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	p := &pressure{end: make(chan struct{})}
	for line := range strings.Lines(string(all)) {
		const root = "/sys/fs/cgroup"
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(fields) != 3:
		case fields[1] == "memory":
			p.home, p.trigger, p.amount = filepath.Join(root, "memory", fields[2]), "memory.force_empty", "0"
		case fields[1] == "" && p.home == "":
			p.home, p.trigger, p.amount = filepath.Join(root, fields[2]), "memory.reclaim", "64M"
		}
	}
	p.own = filepath.Join(p.home, fmt.Sprint("sift-block-", os.Getpid()))
	if err := os.Mkdir(p.own, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if _, err = os.Stat(filepath.Join(p.own, p.trigger)); err == nil {
		err = enter(p.own)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(p.own))
	}
	p.wg.Go(func() {
		for {
			select {
			case <-p.end:
				return
			case <-time.After(time.Millisecond):
			}
			// This fails if something could not be reclaimed, such as the heap.
			_ = os.WriteFile(filepath.Join(p.own, p.trigger), []byte(p.amount), 0)
			p.times++
		}
	})
	return p, nil
}

// enter moves the process into a cgroup.
func enter(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
}

// stop returns how many times the kernel was made to reclaim.
func (p *pressure) stop() (times int, err error) {
	close(p.end)
	p.wg.Wait()
	err = enter(p.home)
	_ = os.Remove(p.own) // if it is still busy, the next run uses it
	return p.times, err
}
