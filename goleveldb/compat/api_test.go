package compat

import (
	"path"
	"slices"
	"strings"
	"testing"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/packages"
)

// leftOut lists the packages that the module omits: testutil, which only goleveldb's tests import.
var leftOut = []string{"github.com/syndtr/goleveldb/leveldb/testutil"}

// load returns the packages of goleveldb that a program can import.
func load(t *testing.T, version string, replaced bool) map[string]*packages.Package {
	t.Helper()
	dir := newModule(t, version, replaced)
	// This also resolves its requirements.
	if out, err := goCommand(dir, "list", "-deps", "github.com/syndtr/goleveldb/leveldb").CombinedOutput(); err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	pkgs, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedFiles | packages.NeedCompiledGoFiles,
		Dir:  dir,
		Env:  goCommand(dir).Env,
	}, "github.com/syndtr/goleveldb/leveldb/...")
	if err != nil {
		t.Fatal(err)
	}
	byPath := map[string]*packages.Package{}
	for _, p := range pkgs {
		if slices.Contains(leftOut, p.PkgPath) {
			continue
		}
		for _, err := range p.Errors {
			t.Fatalf("%s: %v", p.PkgPath, err)
		}
		byPath[p.PkgPath] = p
	}
	return byPath
}

// incompatible returns the names of old that new does not have, or has changed incompatibly, and
// the number of names in old.
func incompatible(t *testing.T, old, new map[string]*packages.Package) (list []string, names int) {
	t.Helper()
	for pkgPath, o := range old {
		n := new[pkgPath]
		if n == nil {
			list = append(list, "package "+pkgPath)
			continue
		}
		names += len(o.Types.Scope().Names())
		for _, c := range apidiff.Changes(o.Types, n.Types).Changes {
			if !c.Compatible {
				list = append(list, path.Base(pkgPath)+"."+c.Message)
			}
		}
	}
	slices.Sort(list)
	return list, names
}

// TestAPI checks that a program that compiles with goleveldb compiles with the module. Compared
// with the last version, nothing may be missing or incompatible; compared with the first version,
// only what the last one changed as well.
func TestAPI(t *testing.T) {
	proxy(t)
	last, ours := load(t, lastVersion, false), load(t, lastVersion, true)
	list, names := incompatible(t, last, ours)
	if len(list) > 0 {
		t.Errorf("%s: %d missing or incompatible\n%s", lastVersion, len(list), strings.Join(list, "\n"))
	}
	t.Logf("%s: %d packages, %d names, %d missing or incompatible", lastVersion, len(last), names, len(list))

	first := load(t, firstVersion, false)
	changed, _ := incompatible(t, first, last)
	list, names = incompatible(t, first, ours)
	list = slices.DeleteFunc(list, func(s string) bool { return slices.Contains(changed, s) })
	if len(list) > 0 {
		t.Errorf("%s: %d missing or incompatible, but not in %s\n%s", firstVersion, len(list), lastVersion, strings.Join(list, "\n"))
	}
	t.Logf("%s: %d packages, %d names; %s itself changed %d, and the module %d more:\n%s", firstVersion, len(first), names, lastVersion, len(changed), len(list), strings.Join(changed, "\n"))
}
