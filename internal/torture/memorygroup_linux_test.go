package torture

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// memoryGroup is a control group, of version 1 or 2, with a memory limit.
type memoryGroup struct{ dir string }

func newMemoryGroup(limit int64) (*memoryGroup, error) {
	root, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		root, file = "/sys/fs/cgroup", "memory.max"
		_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0)
	}
	g := &memoryGroup{dir: filepath.Join(root, fmt.Sprintf("sift-torture-%d", os.Getpid()))}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(g.dir, file), strconv.AppendInt(nil, limit, 10), 0); err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

// join moves a process into the group.
func (g *memoryGroup) join(pid int) error {
	return os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), strconv.AppendInt(nil, int64(pid), 10), 0)
}

// remove removes the group, whose processes have ended.
func (g *memoryGroup) remove() {
	for range 100 { // the kernel may notice late that they have ended
		if os.Remove(g.dir) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
