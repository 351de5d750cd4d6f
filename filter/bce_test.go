package filter_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"testing"
)

// TestNoBoundsChecks checks that the compiler has eliminated all bounds checks from
// the functions of every probe.
func TestNoBoundsChecks(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("the compiler eliminates fewer checks on 32-bit machines")
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command")
	}
	if testing.CoverMode() != "" {
		t.Skip("coverage rewrites the code")
	}
	probes := map[string][]string{
		"internal/bloom/bloom.go":  {"MayContain", "MayContainIn", "has", "unset", "mayContainBatch", "setBatch", "set"},
		"internal/bloom/legacy.go": {"MayContain", "LegacyMayContainIn", "legacyHas", "mayContainBatch"},
		"internal/fuse/fuse.go":    {"MayContain", "MayContainIn", "mayContainBatch", "mix", "slots", "fingerprint", "at"},
	}
	out, err := exec.Command(tool, "build", "-o", os.DevNull, "-gcflags=-d=ssa/check_bce",
		"./internal/bloom", "./internal/fuse").CombinedOutput()
	if err != nil {
		t.Skipf("go build: %v\n%s", err, out)
	}
	checks := regexp.MustCompile(`(?m)^(\S+\.go):(\d+):\d+: Found Is(Slice)?InBounds`).FindAllSubmatch(out, -1)
	if len(checks) == 0 {
		t.Fatalf("no bounds check anywhere: has the format of the compiler's output changed?\n%s", out)
	}
	for file, names := range probes {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, filepath.FromSlash(file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !slices.Contains(names, fn.Name.Name) {
				continue
			}
			seen++
			from, to := set.Position(fn.Pos()).Line, set.Position(fn.End()).Line
			for _, c := range checks {
				line, _ := strconv.Atoi(string(c[2]))
				if filepath.ToSlash(filepath.Clean(string(c[1]))) == file && line >= from && line <= to {
					t.Errorf("%s: %s", fn.Name.Name, c[0])
				}
			}
		}
		if seen < len(names) {
			t.Errorf("%s: found only %d of the functions %v", file, seen, names)
		}
	}
}
