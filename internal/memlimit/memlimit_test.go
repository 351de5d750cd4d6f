package memlimit

import (
	"runtime"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

func file(data string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(data)} }

// TestCgroupLimit reads control groups as found on hosts and in containers.
func TestCgroupLimit(t *testing.T) {
	const (
		v2Mount   = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		v1Mount   = "32 25 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n36 25 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
		v1Inside  = "36 25 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
		unlimited = "9223372036854771712\n"
	)
	for _, c := range []struct {
		desc string
		fs   fstest.MapFS
		want int64
	}{
		{"nothing is mounted", fstest.MapFS{}, 0},
		{"no group has a limit", fstest.MapFS{
			"proc/self/cgroup":                    file("0::/user.slice\n"),
			"proc/self/mountinfo":                 file(v2Mount),
			"sys/fs/cgroup/user.slice/memory.max": file("max\n"),
		}, 0},
		{"version 2: the limit of a group above is lower", fstest.MapFS{
			"proc/self/cgroup":                 file("0::/a/b/c\n"),
			"proc/self/mountinfo":              file(v2Mount),
			"sys/fs/cgroup/a/memory.max":       file("1073741824\n"),
			"sys/fs/cgroup/a/b/memory.max":     file("536870912\n"),
			"sys/fs/cgroup/a/b/c/memory.max":   file("max\n"),
			"sys/fs/cgroup/a/b/c/d/memory.max": file("1\n"),
			"sys/fs/cgroup/memory.max":         file("2147483648\n"),
		}, 512 << 20},
		{"version 2 in a container", fstest.MapFS{
			"proc/self/cgroup":         file("0::/\n"),
			"proc/self/mountinfo":      file(v2Mount),
			"sys/fs/cgroup/memory.max": file("268435456\n"),
		}, 256 << 20},
		{"version 2: memory.high is lower than memory.max", fstest.MapFS{
			"proc/self/cgroup":              file("0::/a/b\n"),
			"proc/self/mountinfo":           file(v2Mount),
			"sys/fs/cgroup/a/b/memory.max":  file("1073741824\n"),
			"sys/fs/cgroup/a/b/memory.high": file("805306368\n"),
		}, 768 << 20},
		{"version 2: memory.high of a group above is the lowest", fstest.MapFS{
			"proc/self/cgroup":              file("0::/a/b\n"),
			"proc/self/mountinfo":           file(v2Mount),
			"sys/fs/cgroup/a/memory.max":    file("max\n"),
			"sys/fs/cgroup/a/memory.high":   file("268435456\n"),
			"sys/fs/cgroup/a/b/memory.max":  file("1073741824\n"),
			"sys/fs/cgroup/a/b/memory.high": file("max\n"),
		}, 256 << 20},
		{"version 2: memory.high is higher than memory.max", fstest.MapFS{
			"proc/self/cgroup":            file("0::/a\n"),
			"proc/self/mountinfo":         file(v2Mount),
			"sys/fs/cgroup/a/memory.max":  file("268435456\n"),
			"sys/fs/cgroup/a/memory.high": file("805306368\n"),
		}, 256 << 20},
		{"version 1", fstest.MapFS{
			"proc/self/cgroup":                               file("5:cpu,cpuacct:/x\n4:memory:/x/y\n"),
			"proc/self/mountinfo":                            file(v1Mount),
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     file(unlimited),
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes":   file("134217728\n"),
			"sys/fs/cgroup/memory/x/y/memory.limit_in_bytes": file(unlimited),
		}, 128 << 20},
		{"version 1: the soft limit is no limit", fstest.MapFS{
			"proc/self/cgroup":                                  file("4:memory:/x\n"),
			"proc/self/mountinfo":                               file(v1Mount),
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes":      file("134217728\n"),
			"sys/fs/cgroup/memory/x/memory.soft_limit_in_bytes": file("67108864\n"),
		}, 128 << 20},
		{"version 1 in a container whose group is named from outside", fstest.MapFS{
			"proc/self/cgroup":                           file("4:memory:/docker/abc\n"),
			"proc/self/mountinfo":                        file(v1Inside),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("67108864\n"),
		}, 64 << 20},
		{"both versions, memory in version 1", fstest.MapFS{
			"proc/self/cgroup":                             file("4:memory:/x\n0::/\n"),
			"proc/self/mountinfo":                          file(v2Mount + v1Mount),
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": file("1048576\n"),
		}, 1 << 20},
		{"garbage", fstest.MapFS{
			"proc/self/cgroup":         file("\n:\n0::\n4:memory\nx"),
			"proc/self/mountinfo":      file("\n - \n1 2 3 - cgroup2 x y\n" + v2Mount),
			"sys/fs/cgroup/memory.max": file("12 apples"),
		}, 0},
	} {
		if got := cgroupLimit(c.fs); got != c.want {
			t.Errorf("%s: %d, want %d", c.desc, got, c.want)
		}
	}
}

// TestBytes checks that the machine has memory, and that GOMEMLIMIT bounds it.
func TestBytes(t *testing.T) {
	if n := Bytes(); (runtime.GOOS == "linux" || runtime.GOOS == "darwin") && n < 16<<20 {
		t.Errorf("%d bytes of memory", n)
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(10 << 20))
	if n := Bytes(); n > 10<<20 || n <= 0 {
		t.Errorf("%d bytes under a limit of 10 MiB", n)
	}
}
