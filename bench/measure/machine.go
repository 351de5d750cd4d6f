package measure

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
)

// Machine describes the machine that produced a result.
type Machine struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	CacheBytes  int64  `json:"cache_bytes,omitempty"` // of the last level
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
	System      string `json:"system"`
	Arch        string `json:"arch"`
	Go          string `json:"go"`
	FileSystem  string `json:"file_system,omitempty"`
}

// ThisMachine describes this machine; dir is the directory of the databases.
func ThisMachine(dir string) Machine {
	cpu, cache, memory := hardware()
	return Machine{
		CPU: cpu, Cores: runtime.NumCPU(), CacheBytes: cache, MemoryBytes: memory,
		System: system(), Arch: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), FileSystem: FileSystem(dir),
	}
}

// Commit returns the checked-out commit of the repository that holds the working
// directory, with "+" appended if files outside bench/results have changed since, or "" outside a
// repository.
func Commit() string {
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", args...).Output()
		return strings.TrimSpace(string(out)), err
	}
	head, err := git("rev-parse", "--short=12", "HEAD")
	if err != nil {
		return ""
	}
	// The results of earlier parts may have changed: they do not affect the measurement.
	if changed, err := git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)bench/results"); err == nil && changed != "" {
		head += "+"
	}
	return head
}

// ModuleVersion returns the version of a linked module, or "" if it is not linked, or
// is replaced with a directory.
func ModuleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == path {
			if m.Replace != nil && m.Replace.Version == "" {
				return ""
			}
			return m.Version
		}
	}
	return ""
}

// Command returns the command line as a user would type it.
func Command() string {
	words := []string{"go", "run", "-C", "bench"}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-tags" && s.Value != "" {
				words = append(words, "-tags", s.Value)
			}
		}
	}
	words = append(words, ".")
	for _, arg := range os.Args[1:] {
		if strings.ContainsAny(arg, " ()*?$'\"\\&;|<>") {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}
