package memory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// usage holds the resources that the process has used so far.
type usage struct {
	cpu       int64 // nanoseconds
	readBytes int64 // from disks
	faults    int64 // major page faults
}

func used() usage {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return usage{}
	}
	return usage{
		cpu:       r.Utime.Nano() + r.Stime.Nano(),
		readBytes: field("/proc/self/io", "read_bytes"),
		faults:    int64(r.Majflt),
	}
}

// footprint returns the resident and the anonymous memory of the process in bytes.
func footprint() (resident, anonymous int64) {
	return field("/proc/self/smaps_rollup", "Rss") << 10, field("/proc/self/smaps_rollup", "Anonymous") << 10
}

// field returns the number of the line "name: number" in a file; 0 if there is
// none.
func field(path, name string) int64 {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(content)) {
		key, rest, ok := strings.Cut(line, ":")
		if words := strings.Fields(rest); ok && key == name && len(words) > 0 {
			n, _ := strconv.ParseInt(words[0], 10, 64)
			return n
		}
	}
	return 0
}

// dropPages drops the files of a directory from the page cache.
func dropPages(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		// Dirty pages cannot be dropped.
		return errors.Join(unix.Fsync(int(f.Fd())), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
	})
}
