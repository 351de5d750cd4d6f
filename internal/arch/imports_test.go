// Package arch enforces the rules of docs/architecture.md as tests.
package arch

import (
	"os/exec"
	"path"
	"strings"
	"testing"
)

const module = "github.com/siftdb/sift"

// allowed lists which of our packages each package may import besides those in its own internal
// directory. A name that ends in /... stands for a package and all packages below it; the first
// rule that matches applies. Every package needs a rule.
var allowed = []struct {
	pkg     string
	imports []string
}{
	{"internal/base", nil},
	{"internal/epoch", nil},
	{"internal/memlimit", nil},
	{"internal/offheap", nil},
	{"internal/bytesize", nil},
	{"internal/fence", []string{"internal/base"}},
	{"internal/fixtures", nil},
	{"internal/gap", nil},
	{"internal/groupcommit", nil},
	{"internal/vfs", []string{"internal/epoch"}},
	{"internal/plan", nil},
	{"internal/filecache", []string{"internal/vfs"}},
	{"internal/vfs/vfstest", []string{"internal/vfs"}},
	{"internal/testhook", []string{"internal/vfs"}},
	{"filter/internal/adapt", []string{"filter"}},
	{"filter/internal/...", []string{"filter/internal/..."}},
	{"filter", []string{"filter/internal/..."}},
	{"filter/filtertest", []string{"filter"}},
	{"filter/pebblefilter", []string{"filter", "filter/internal/..."}},
	{"filter/pebblefilterv1", []string{"filter", "filter/internal/..."}},
	{"filter/live/livestore", []string{"", "filter/live", "filter/live/internal/..."}},
	{"filter/live/...", []string{"filter", "filter/live/...", "filter/internal/...", "internal/vfs"}},
	{"internal/record", []string{"internal/base"}},
	{"memtable", []string{"internal/base"}},
	{"sstable", []string{"filter", "internal/base", "internal/epoch", "internal/fence", "internal/offheap"}},
	{"internal/merge", []string{"internal/base"}},
	{"internal/manifest", []string{"internal/base", "internal/fence", "internal/record", "internal/vfs"}},
	{"internal/wal", []string{"internal/base", "internal/manifest", "internal/record", "internal/vfs"}},
	{"internal/filtermem", []string{"filter", "internal/plan", "sstable"}},
	{"internal/compact", []string{"internal/base", "internal/manifest", "internal/vfs", "sstable"}},
	{"internal/arch", nil},
	{"internal/redisbloom", nil},
	{"internal/goredis", nil},
	{"internal/serve", []string{"", "internal/bytesize", "internal/memlimit", "internal/redisbloom", "internal/serve/...", "internal/vfs"}},
	{"internal/serve/resp", nil},
	{"internal/serve/servebench", nil},
	{"", []string{"filter", "memtable", "sstable", "internal/..."}},
	{"cmd/...", []string{"", "filter", "filter/live", "sstable", "internal/..."}},
	{"internal/torture/...", []string{"", "filter", "sstable", "memtable", "internal/..."}},
}

// onlyIn names modules that only the given packages may import, so that a program that embeds sift
// does not link what it does not use.
var onlyIn = map[string][]string{
	"github.com/cockroachdb/pebble":               {"filter/pebblefilter", "filter/pebblefilterv1"},
	"github.com/alecthomas/kong":                  {"cmd/..."},
	"github.com/siftdb/sift/internal/vfs/vfstest": {"internal/torture/..."},
	"github.com/schollz/progressbar":              {"cmd/..."},
	"golang.org/x/term":                           {"cmd/..."},
	"github.com/redis/go-redis":                   {"filter/live/redisfilter"},
	"github.com/minio/highwayhash":                {"filter/live/redisfilter"},
	"github.com/twmb/murmur3":                     {"filter/live/internal/funnel"},
	"golang.org/x/sys":                            {"internal/vfs", "internal/memlimit", "internal/offheap", "filter/internal/...", "cmd/..."},
	"github.com/golang/snappy":                    {"sstable"},
	"github.com/prometheus/client_golang":         {"internal/serve", "cmd/..."},
}

func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}:{{join .Imports ","}}`, module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		pkg, imports, _ := strings.Cut(strings.TrimSpace(line), ":")
		pkg = relative(pkg)
		rule, known := ruleOf(pkg)
		if !known {
			t.Errorf("package %s has no rule in this test", pkg)
			continue
		}
		for imp := range strings.SplitSeq(imports, ",") {
			if imp == module || strings.HasPrefix(imp, module+"/") {
				if imp := relative(imp); !matchAny(rule, imp) {
					t.Errorf("%q imports %q, which its rule does not allow", pkg, imp)
				}
			}
			for mod, pkgs := range onlyIn {
				if (imp == mod || strings.HasPrefix(imp, mod+"/")) && !matchAny(pkgs, pkg) {
					t.Errorf("%q imports %q, which belongs in %v", pkg, imp, pkgs)
				}
			}
		}
	}
}

// TestEmbedderLinksNoPebble checks that neither the store nor the filters for applications import
// pebble or a Redis client, directly or indirectly.
func TestEmbedderLinksNoPebble(t *testing.T) {
	for _, pkg := range []string{module, module + "/filter/live"} {
		out, err := exec.Command("go", "list", "-deps", pkg).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for dep := range strings.Lines(string(out)) {
			if dep = strings.TrimSpace(dep); strings.Contains(dep, "cockroachdb") || strings.Contains(dep, "redis") {
				t.Errorf("a program that embeds %s links %s", pkg, dep)
			}
		}
	}
}

func relative(pkg string) string {
	return strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
}

func ruleOf(pkg string) (imports []string, ok bool) {
	for _, r := range allowed {
		if match(r.pkg, pkg) {
			return append(r.imports, path.Join(pkg, "internal")+"/..."), true
		}
	}
	return nil, false
}

func matchAny(patterns []string, pkg string) bool {
	for _, p := range patterns {
		if match(p, pkg) {
			return true
		}
	}
	return false
}

func match(pattern, pkg string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == prefix || strings.HasPrefix(pkg, prefix+"/")
	}
	return pattern == pkg
}
