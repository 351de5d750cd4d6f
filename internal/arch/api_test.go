package arch

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/api.txt")

// TestAPI compares the exported declarations of every public package with
// docs/api.txt, so that growth shows in review.
func TestAPI(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{.Dir}}", module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var api bytes.Buffer
	var root string
	for line := range strings.Lines(string(out)) {
		pkg, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pkg == module {
			root = dir
		}
		if strings.Contains(pkg, "/internal") || strings.HasPrefix(pkg, module+"/cmd") {
			continue
		}
		api.WriteString("package " + pkg + "\n")
		for _, decl := range exported(t, dir) {
			api.WriteString("\t" + decl + "\n")
		}
	}
	golden := filepath.Join(root, "docs", "api.txt")
	if *update {
		if err := os.WriteFile(golden, api.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, api.Bytes()) {
		have := strings.Split(api.String(), "\n")
		for _, l := range have {
			if !slices.Contains(strings.Split(string(want), "\n"), l) {
				t.Errorf("not in docs/api.txt: %s", l)
			}
		}
		t.Error("the exported names are not those of docs/api.txt; go test ./internal/arch -update rewrites it")
	}
}

// exported returns a line for each exported declaration of a package.
func exported(t *testing.T, dir string) []string {
	t.Helper()
	fset := token.NewFileSet()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if !ast.FileExports(file) {
			continue
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				d.Body = nil
				lines = append(lines, oneLine(fset, d))
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						v.Values = nil
					}
					lines = append(lines, d.Tok.String()+" "+oneLine(fset, spec))
				}
			}
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

func oneLine(fset *token.FileSet, node any) string {
	var b bytes.Buffer
	if err := (&printer.Config{Mode: printer.RawFormat}).Fprint(&b, fset, node); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
