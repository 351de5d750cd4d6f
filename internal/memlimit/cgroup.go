package memlimit

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// cgroupLimit returns the lowest memory limit of the control groups of the process, or 0 if
// none can be read. root is the root directory of the host.
//
// /proc/self/cgroup names the group in each hierarchy; /proc/self/mountinfo has the mount point
// of a hierarchy and the group that its top directory represents (man 7 cgroups, man 5 proc).
// The limits of a group's ancestors also apply, as far as they are visible.
//
// In version 2, memory.high is a limit like memory.max: above it, the kernel reclaims the group's
// memory and slows its processes down. The soft limit of version 1 slows nothing down, and only
// matters while the whole machine is short of memory, so it is not one.
func cgroupLimit(root fs.FS) int64 {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	mounts, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return 0
	}
	var limit int64
	for line := range strings.Lines(string(groups)) {
		// hierarchy:controllers:group; version 2 is hierarchy 0, without controllers
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		var fsType string
		var files []string
		switch {
		case fields[0] == "0" && fields[1] == "":
			fsType, files = "cgroup2", []string{"memory.max", "memory.high"}
		case hasWord(fields[1], "memory"):
			fsType, files = "cgroup", []string{"memory.limit_in_bytes"}
		default:
			continue
		}
		if top, dir, ok := groupDir(string(mounts), fsType, fields[2]); ok {
			limit = lesser(limit, leastUpTo(root, top, dir, files))
		}
	}
	return limit
}

// groupDir returns the mount point of a hierarchy, and the directory of a group in it.
func groupDir(mounts, fsType, group string) (top, dir string, ok bool) {
	for line := range strings.Lines(mounts) {
		// id parent device root mountpoint options [tags] - type source options
		before, after, found := strings.Cut(strings.TrimSpace(line), " - ")
		at, of := strings.Fields(before), strings.Fields(after)
		if !found || len(at) < 5 || len(of) < 3 || of[0] != fsType {
			continue
		}
		if fsType == "cgroup" && !hasWord(of[2], "memory") {
			continue
		}
		top = at[4]
		inside, below := strings.CutPrefix(group, strings.TrimSuffix(at[3], "/"))
		if !below {
			inside = "" // the name is the one outside the container
		}
		return top, path.Join(top, inside), true
	}
	return "", "", false
}

// leastUpTo returns the lowest limit in the files with the given names in dir and its parents, up
// to top.
func leastUpTo(root fs.FS, top, dir string, files []string) int64 {
	var limit int64
	for {
		for _, file := range files {
			limit = lesser(limit, readLimit(root, path.Join(dir, file)))
		}
		if dir == top || len(dir) <= len(top) {
			return limit
		}
		dir = path.Dir(dir)
	}
}

// readLimit returns the limit in a file, or 0 if there is none.
func readLimit(root fs.FS, name string) int64 {
	data, err := fs.ReadFile(root, strings.TrimPrefix(name, "/"))
	if err != nil {
		return 0
	}
	// "max" in version 2, or nearly 1<<63 in version 1, is no limit.
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil || n >= 1<<60 {
		return 0
	}
	return n
}

func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}
