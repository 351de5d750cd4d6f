// Command mutate removes, one at a time, each Sync, each SyncDir and each check
// of an error from the store, and runs the short form of the regime to see
// whether it notices. It changes no file: all changes are compiled into one test
// binary, of which each run switches one on.
//
//	go run ./internal/torture/mutate            all of them; exits with 1 if one survives
//	go run ./internal/torture/mutate -list      what there is
//	go run ./internal/torture/mutate -only 7,9  some of them
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// dirs are the packages that promise durability.
var dirs = []string{".", "internal/manifest", "internal/record", "internal/compact"}

const module = "github.com/siftdb/sift"

// tests are those of the short form, quick ones first.
var tests = []string{
	"TestRegress", "TestLinear", "TestPoison", "TestSpace", "TestHostile", "TestClosing",
	"TestKill", "TestMetamorphic", "TestErrors", "TestDamage", "TestCut",
}

func main() {
	list := flag.Bool("list", false, "list the mutants and stop")
	only := flag.String("only", "", "the numbers of the mutants to run, with commas; default: all")
	flag.Parse()
	if err := run(*list, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// mutant is one removal.
type mutant struct {
	id   int
	kind string // "sync" or "check"
	at   string // file and line
	text string
}

func run(list bool, only string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	mutants, err := instrument(root, tmp)
	if err != nil {
		return err
	}
	if list {
		for _, m := range mutants {
			fmt.Println(m)
		}
		return nil
	}
	if mutants, err = choose(mutants, only); err != nil {
		return err
	}
	bin := filepath.Join(tmp, "torture.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", filepath.Join(tmp, "overlay.json"), "-o", bin, "./internal/torture")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the mutants: %w\n%s", err, out)
	}
	r := &runner{bin: bin, dir: filepath.Join(root, "internal/torture"), tmp: tmp}
	if err := r.findReached(); err != nil {
		return err
	}
	return r.all(mutants)
}

func (m mutant) String() string { return fmt.Sprintf("%4d %-5s %-28s %s", m.id, m.kind, m.at, m.text) }

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(out)), err
}

func choose(mutants []mutant, only string) ([]mutant, error) {
	if only == "" {
		return mutants, nil
	}
	var some []mutant
	for _, s := range strings.Split(only, ",") {
		id, err := strconv.Atoi(s)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(mutants, func(m mutant) bool { return m.id == id })
		if i < 0 {
			return nil, fmt.Errorf("there is no mutant %d", id)
		}
		some = append(some, mutants[i])
	}
	return some, nil
}

// runner runs the test binary.
type runner struct {
	bin, dir, tmp string
	reached       map[string]map[int]bool  // by test: the mutants whose place it comes to
	timeout       map[string]time.Duration // by test: a mutant that takes longer hangs
}

// test runs one test with a mutant switched on, 0 for none and -1 to note those
// whose place is reached.
func (r *runner) test(name string, id int, mark string) ([]byte, error) {
	cmd := exec.Command(r.bin, "-test.run", "^"+name+"$", "-test.failfast", "-test.timeout", cmp.Or(r.timeout[name], time.Hour).String())
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "SIFT_MUTANT="+strconv.Itoa(id), "SIFT_MUTANT_REACHED="+mark, "GOMAXPROCS=1", "GOTRACEBACK=single")
	return cmd.CombinedOutput()
}

// findReached runs each test once, unharmed, and notes which mutants it could
// notice: the check of an error is reached when there is an error.
func (r *runner) findReached() error {
	r.reached, r.timeout = map[string]map[int]bool{}, map[string]time.Duration{}
	for _, name := range tests {
		mark := filepath.Join(r.tmp, name)
		if err := os.Mkdir(mark, 0o755); err != nil {
			return err
		}
		start := time.Now()
		if out, err := r.test(name, -1, mark); err != nil {
			return fmt.Errorf("%s fails without any mutant: %w\n%s", name, err, out)
		}
		r.timeout[name] = 20*time.Second + 4*time.Since(start)
		marks, err := os.ReadDir(mark)
		if err != nil {
			return err
		}
		r.reached[name] = map[int]bool{}
		for _, m := range marks {
			id, err := strconv.Atoi(m.Name())
			if err != nil {
				return err
			}
			r.reached[name][id] = true
		}
		fmt.Printf("%s reaches %d\n", name, len(marks))
	}
	return nil
}

// all runs two mutants at a time and reports.
func (r *runner) all(mutants []mutant) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan mutant)
	caught, unreached := 0, 0
	var survivors []string
	for range 2 {
		wg.Go(func() {
			for m := range next {
				by, reached := r.try(m)
				mu.Lock()
				what := "caught by " + by
				switch {
				case by != "":
					caught++
				case !reached:
					unreached++
					what = "NEVER REACHED"
				default:
					what = "SURVIVED"
				}
				fmt.Printf("%v: %s\n", m, what)
				if by == "" {
					survivors = append(survivors, m.String()+": "+what)
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range mutants {
		next <- m
	}
	close(next)
	wg.Wait()
	fmt.Printf("%d mutants, %d caught, %d survived, %d of those never reached\n", len(mutants), caught, len(survivors), unreached)
	slices.Sort(survivors)
	if len(survivors) > 0 {
		return fmt.Errorf("survivors:\n%s", strings.Join(survivors, "\n"))
	}
	return nil
}

// try runs one mutant through the tests that reach it and returns what caught
// it.
func (r *runner) try(m mutant) (by string, reached bool) {
	for _, name := range tests {
		if !r.reached[name][m.id] {
			continue
		}
		reached = true
		if out, err := r.test(name, m.id, ""); err != nil {
			return catcher(name, out, err), true
		}
	}
	return "", reached
}

// catcher says in a few words how a test failed.
func catcher(test string, out []byte, err error) string {
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return test + ", " + strings.TrimSpace(line)
		}
	}
	if !bytes.Contains(out, []byte("--- FAIL: ")) {
		return test + ", " + err.Error()
	}
	return test
}

// instrument writes changed copies of the store's files and the overlay that
// names them.
func instrument(root, tmp string) ([]mutant, error) {
	overlay := map[string]string{}
	in := &instrumenter{fset: token.NewFileSet()}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			src, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return nil, err
			}
			changed, err := in.file(rel, src)
			if err != nil {
				return nil, err
			}
			if changed == nil {
				continue
			}
			copied := filepath.Join(tmp, strings.ReplaceAll(rel, string(filepath.Separator), "_"))
			if err := os.WriteFile(copied, changed, 0o644); err != nil {
				return nil, err
			}
			overlay[path] = copied
		}
	}
	copied := filepath.Join(tmp, "mutant_switch.go")
	if err := os.WriteFile(copied, []byte(switchSource), 0o644); err != nil {
		return nil, err
	}
	overlay[filepath.Join(root, "internal", "mutant", "mutant.go")] = copied
	b, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return nil, err
	}
	return in.mutants, os.WriteFile(filepath.Join(tmp, "overlay.json"), b, 0o644)
}

// switchSource is the package that the changed files ask which mutant is on.
const switchSource = `package mutant

import (
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
)

var (
	on, _ = strconv.Atoi(os.Getenv("SIFT_MUTANT"))
	seen  [1 << 12]atomic.Bool
)

// On reports whether a mutant is on.
func On(id int) bool {
	if on == -1 && !seen[id].Swap(true) {
		os.WriteFile(filepath.Join(os.Getenv("SIFT_MUTANT_REACHED"), strconv.Itoa(id)), nil, 0o644)
	}
	return id == on
}

// Skip calls fn unless the mutant is on.
func Skip(id int, fn func() error) error {
	if On(id) {
		return nil
	}
	return fn()
}

// Forget returns err unless the mutant is on.
func Forget(id int, err error) error {
	if On(id) {
		return nil
	}
	return err
}
`

type instrumenter struct {
	fset    *token.FileSet
	mutants []mutant

	src   []byte
	rel   string
	edits []edit
}

// edit inserts text at an offset. Of several at one offset, order decides: what
// was opened last is closed first.
type edit struct {
	at    int
	order int
	text  string
}

// file returns the changed source of a file, or nil if there is nothing to
// change.
func (in *instrumenter) file(rel string, src []byte) ([]byte, error) {
	f, err := parser.ParseFile(in.fset, rel, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	in.src, in.rel, in.edits = src, rel, nil
	ast.Inspect(f, in.visit)
	if len(in.edits) == 0 {
		return nil, nil
	}
	in.insert(f.Name.End(), 0, "\n\nimport "+strconv.Quote(module+"/internal/mutant"))
	slices.SortStableFunc(in.edits, func(a, b edit) int { return cmp.Or(a.at-b.at, a.order-b.order) })
	var out bytes.Buffer
	at := 0
	for _, e := range in.edits {
		out.Write(src[at:e.at])
		out.WriteString(e.text)
		at = e.at
	}
	out.Write(src[at:])
	return out.Bytes(), nil
}

func (in *instrumenter) insert(pos token.Pos, order int, text string) {
	in.edits = append(in.edits, edit{in.fset.Position(pos).Offset, order, text})
}

// add makes a mutant that puts text before and after a node; %d is its number.
func (in *instrumenter) add(kind string, n ast.Node, before, after string) {
	id := len(in.mutants) + 1
	p := in.fset.Position(n.Pos())
	text := string(in.src[p.Offset:in.fset.Position(n.End()).Offset])
	in.mutants = append(in.mutants, mutant{id, kind, fmt.Sprintf("%s:%d", in.rel, p.Line), strings.Join(strings.Fields(text), " ")})
	number := func(s string) string { return strings.ReplaceAll(s, "%d", strconv.Itoa(id)) }
	in.insert(n.Pos(), id, number(before))
	in.insert(n.End(), -id, number(after))
}

func (in *instrumenter) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		in.call(n)
	case *ast.IfStmt:
		in.condition(n.Cond, n.Body.List)
	case *ast.CaseClause:
		for _, e := range n.List {
			in.condition(e, n.Body)
		}
	}
	return true
}

// call removes syncs, and errors from those that are joined.
func (in *instrumenter) call(c *ast.CallExpr) {
	name := ""
	switch f := c.Fun.(type) {
	case *ast.SelectorExpr:
		name = f.Sel.Name
		if x, ok := f.X.(*ast.Ident); ok && x.Name == "errors" && name == "Join" {
			for _, arg := range c.Args {
				if _, ok := arg.(*ast.CallExpr); ok {
					in.add("check", arg, "mutant.Forget(%d, ", ")")
				}
			}
			return
		}
	case *ast.Ident:
		name = f.Name
	}
	switch name {
	case "Sync", "SyncDir", "sync", "syncParents":
		in.add("sync", c, "mutant.Skip(%d, func() error { return ", " })")
	}
}

// condition removes the check of an error, unless all that comes of it is a
// line in a log.
func (in *instrumenter) condition(cond ast.Expr, body []ast.Stmt) {
	b, ok := cond.(*ast.BinaryExpr)
	if !ok {
		return
	}
	switch {
	case isErrorCheck(b, token.EQL):
		in.add("check", cond, "(", ") || mutant.On(%d)")
	case leaves(body) && containsCheck(cond):
		in.add("check", cond, "(", ") && !mutant.On(%d)")
	}
}

// containsCheck reports whether a condition has err != nil in it.
func containsCheck(cond ast.Expr) bool {
	found := false
	ast.Inspect(cond, func(n ast.Node) bool {
		if b, ok := n.(*ast.BinaryExpr); ok && isErrorCheck(b, token.NEQ) {
			found = true
		}
		return !found
	})
	return found
}

func isErrorCheck(b *ast.BinaryExpr, op token.Token) bool {
	nilIdent, ok := b.Y.(*ast.Ident)
	if !ok || nilIdent.Name != "nil" || b.Op != op {
		return false
	}
	name := ""
	switch x := b.X.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	}
	return strings.HasSuffix(strings.ToLower(name), "err") || name == "poison" || name == "torn" || name == "missing"
}

// leaves reports whether statements do anything but write to the log.
func leaves(body []ast.Stmt) bool {
	for _, s := range body {
		x, ok := s.(*ast.ExprStmt)
		if !ok {
			return true
		}
		call, ok := x.X.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if l, ok := sel.X.(*ast.SelectorExpr); !ok || l.Sel.Name != "Logger" {
			return true
		}
	}
	return false
}
