package arch

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestExamples checks that every public package, goleveldb's included, has an example that go test
// runs, for its page on pkg.go.dev.
func TestExamples(t *testing.T) {
	root := filepath.Join("..", "..")
	for _, mod := range []string{root, filepath.Join(root, "goleveldb")} {
		list := exec.Command("go", "list", "-f", "{{.Name}} {{.ImportPath}} {{.Dir}}", "./...")
		list.Dir = mod
		out, err := list.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		public := 0
		for line := range strings.Lines(string(out)) {
			name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			pkg, dir, _ := strings.Cut(rest, " ")
			if name == "main" || strings.Contains(pkg, "/internal") {
				continue
			}
			public++
			if !hasExample(t, dir) {
				t.Errorf("package %s has no example with an output", pkg)
			}
		}
		if public < 10 {
			t.Errorf("only %d public packages in %s", public, mod)
		}
	}
}

// hasExample reports whether the tests of a package have an example with an output.
func hasExample(t *testing.T, dir string) bool {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return slices.ContainsFunc(doc.Examples(files...), func(e *doc.Example) bool { return e.Output != "" || e.EmptyOutput })
}
