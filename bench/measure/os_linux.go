package measure

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func procIO() ProcIO {
	content, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return ProcIO{}
	}
	f := fields(content)
	return ProcIO{
		Known:      true,
		ReadBytes:  f["rchar"],
		ReadCalls:  f["syscr"],
		WriteBytes: f["wchar"],
		DirtyBytes: f["write_bytes"],
	}
}

// fields parses lines of the form "name: number ...".
func fields(content []byte) map[string]int64 {
	m := map[string]int64{}
	for line := range strings.Lines(string(content)) {
		name, rest, ok := strings.Cut(line, ":")
		if words := strings.Fields(rest); ok && len(words) > 0 {
			if n, err := strconv.ParseInt(words[0], 10, 64); err == nil {
				m[name] = n
			}
		}
	}
	return m
}

// userHz is the number of ticks of /proc/stat per second: 100 on every port of Go.
const userHz = 100

func readMachineTime() machineTime {
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machineTime{}
	}
	line, _, _ := bytes.Cut(content, []byte("\n"))
	// cpu user nice system idle iowait irq softirq steal ...; guest time is in user.
	words := strings.Fields(string(line))
	if len(words) < 9 {
		return machineTime{}
	}
	t := machineTime{known: true, tick: 1.0 / userHz}
	for i, w := range words[1:9] {
		n, err := strconv.ParseFloat(w, 64)
		if err != nil {
			return machineTime{}
		}
		t.total += n
		if i != 3 && i != 4 {
			t.used += n
		}
	}
	return t
}

// RSS returns the resident memory of the process and its peak since ResetPeak, in
// bytes; 0 if unknown.
func RSS() (now, peak int64) {
	content, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	f := fields(content)
	return f["VmRSS"] << 10, f["VmHWM"] << 10
}

// ResetPeak resets the peak to the current resident memory. It reports whether that
// was possible.
func ResetPeak() bool { return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) == nil }

// hardware returns the CPU model and the sizes of its last-level cache and of the
// memory in bytes.
func hardware() (cpu string, cache, memory int64) {
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ":")
			if strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
		f.Close()
	}
	for i := range 5 {
		content, err := os.ReadFile("/sys/devices/system/cpu/cpu0/cache/index" + strconv.Itoa(i) + "/size")
		if err != nil {
			break
		}
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(content)), "K"), 10, 64)
		if err == nil {
			cache = max(cache, kb<<10)
		}
	}
	if content, err := os.ReadFile("/proc/meminfo"); err == nil {
		memory = fields(content)["MemTotal"] << 10
	}
	return cpu, cache, memory
}

// system returns the name and the kernel version of the operating system.
func system() string {
	var name string
	if content, err := os.ReadFile("/etc/os-release"); err == nil {
		for line := range strings.Lines(string(content)) {
			if v, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
				name = strings.Trim(strings.TrimSpace(v), `"`)
			}
		}
	}
	if content, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		name += ", Linux " + strings.TrimSpace(string(content))
	}
	return strings.TrimPrefix(name, ", ")
}

// FileSystem returns the type of the file system that holds dir; "" if unknown.
func FileSystem(dir string) string {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return ""
	}
	switch uint32(s.Type) {
	case 0xef53:
		return "ext4"
	case 0x58465342:
		return "xfs"
	case 0x9123683e:
		return "btrfs"
	case 0x01021994:
		return "tmpfs"
	case 0x794c7630:
		return "overlayfs"
	case 0x2fc12fc1:
		return "zfs"
	}
	return "file system 0x" + strconv.FormatUint(uint64(uint32(s.Type)), 16)
}
