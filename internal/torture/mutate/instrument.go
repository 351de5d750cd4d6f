package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// instrument writes changed copies of the store's files and the overlay that
// names them. same reports whether an earlier run left identical ones.
func instrument(root, work string, o options) (mutants []mutant, same bool, err error) {
	overlay := map[string]string{}
	in := &instrumenter{fset: token.NewFileSet(), named: map[string]int{}, bounds: o.bounds, locks: o.locks}
	if o.constants {
		if err := in.loadConstants(root, o.dirs); err != nil {
			return nil, false, err
		}
	}
	same = true
	write := func(name string, b []byte) (path string, err error) {
		path = filepath.Join(work, name)
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, b) {
			return path, nil
		}
		same = false
		return path, os.WriteFile(path, b, 0o644)
	}
	for _, dir := range o.dirs {
		pattern := filepath.Join(root, dir)
		if in.dir = dir; strings.HasSuffix(dir, ".go") {
			in.dir = filepath.Dir(dir)
		} else {
			pattern = filepath.Join(pattern, "*.go")
		}
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, false, err
		}
		for _, path := range files {
			if ok, err := build.Default.MatchFile(filepath.Dir(path), filepath.Base(path)); err != nil || !ok || strings.HasSuffix(path, "_test.go") {
				if err != nil {
					return nil, false, err
				}
				continue
			}
			src, err := os.ReadFile(path)
			if err != nil {
				return nil, false, err
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return nil, false, err
			}
			changed, err := in.file(path, rel, src)
			if err != nil {
				return nil, false, err
			}
			if changed == nil {
				continue
			}
			if overlay[path], err = write("overlay_"+strings.ReplaceAll(rel, string(filepath.Separator), "_"), changed); err != nil {
				return nil, false, err
			}
		}
	}
	switched, err := write("mutant_switch.go", []byte(switchSource))
	if err != nil {
		return nil, false, err
	}
	overlay[filepath.Join(root, "internal", "mutant", "mutant.go")] = switched
	sum, err := sourceSum(root)
	if err != nil {
		return nil, false, err
	}
	if _, err := write("source.sum", sum); err != nil {
		return nil, false, err
	}
	b, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return nil, false, err
	}
	_, err = write("overlay.json", b)
	return in.mutants, same, err
}

// sourceSum returns a checksum of all Go files below root, tests included.
func sourceSum(root string) ([]byte, error) {
	h := sha256.New()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		src, err := os.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(src), src)
		return err
	})
	return h.Sum(nil), err
}

// switchSource is the package in which the changed files look up which mutant is on.
const switchSource = `package mutant

import (
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
)

var (
	on, _ = strconv.Atoi(os.Getenv("SIFT_MUTANT"))
	seen  [1 << 14]atomic.Bool
)

// On reports whether a mutant is on.
func On(id int) bool {
	if on == -1 {
		note(id)
	}
	return id == on
}

func note(id int) {
	if !seen[id].Swap(true) {
		os.WriteFile(filepath.Join(os.Getenv("SIFT_MUTANT_REACHED"), strconv.Itoa(id)), nil, 0o644)
	}
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

// Never returns ch, or a nil channel when the mutant is on.
func Never[T any](id int, ch chan T) chan T {
	if On(id) {
		return nil
	}
	return ch
}

// PlusOne and MinusOne leave the 1 out when the mutant is on.
type number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float64
}

func PlusOne[T number](id int, a T) T {
	if On(id) {
		return a
	}
	return a + 1
}

func MinusOne[T number](id int, a T) T {
	if On(id) {
		return a
	}
	return a - 1
}

// Const returns changed when the mutant is on.
func Const[T number](id int, changed, a T) T {
	if On(id) {
		return changed
	}
	return a
}
`

type instrumenter struct {
	fset    *token.FileSet
	mutants []mutant
	dir     string // of the current file
	bounds  bool   // change conditions and bounds
	locks   bool   // move unlocks
	named   map[string]int

	constants *constants // not nil: change constants

	src   []byte
	rel   string
	fn    string // the current function
	edits []edit
}

// edit inserts text at an offset. Several at one offset are sorted by order: what
// was opened last is closed first.
type edit struct {
	at    int
	order int
	text  string
	cut   int // number of bytes that the text replaces
}

// file returns the changed source of a file, or nil if there is nothing to
// change.
func (in *instrumenter) file(path, rel string, src []byte) ([]byte, error) {
	var f *ast.File
	if in.constants != nil {
		f = in.constants.files[path]
	} else {
		var err error
		if f, err = parser.ParseFile(in.fset, rel, src, parser.ParseComments); err != nil {
			return nil, err
		}
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
		at = e.at + e.cut
	}
	out.Write(src[at:])
	return out.Bytes(), nil
}

func (in *instrumenter) insert(pos token.Pos, order int, text string) {
	in.edits = append(in.edits, edit{at: in.fset.Position(pos).Offset, order: order, text: text})
}

// add makes a mutant that puts text before and after a node; %d is its number.
func (in *instrumenter) add(kind string, n ast.Node, before, after string) {
	id := len(in.mutants) + 1
	p := in.fset.Position(n.Pos())
	text := strings.Join(strings.Fields(string(in.src[p.Offset:in.fset.Position(n.End()).Offset])), " ")
	name := fmt.Sprintf("%s %s %s %s", in.rel, in.fn, kind, text)
	if in.named[name]++; in.named[name] > 1 {
		name += " " + strconv.Itoa(in.named[name])
	}
	in.mutants = append(in.mutants, mutant{id, name, in.dir, kind, fmt.Sprintf("%s:%d", in.rel, p.Line), text})
	in.wrap(id, n, before, after)
}

// wrap puts text before and after a node; %d is the number of its mutant.
func (in *instrumenter) wrap(id int, n ast.Node, before, after string) {
	number := func(s string) string { return strings.ReplaceAll(s, "%d", strconv.Itoa(id)) }
	in.insert(n.Pos(), id, number(before))
	in.insert(n.End(), -id, number(after))
}

func (in *instrumenter) visit(n ast.Node) bool {
	switch {
	case in.bounds:
		return in.visitBounds(n)
	case in.locks:
		return in.visitLocks(n)
	case in.constants != nil:
		return in.visitConstants(n)
	}
	switch n := n.(type) {
	case *ast.FuncDecl:
		in.fn = n.Name.Name
	case *ast.CommClause:
		// Receives are left alone, because they decide which case of a select is chosen. A send to
		// a nil channel is never chosen.
		if send, ok := n.Comm.(*ast.SendStmt); ok {
			in.add("wake", send.Chan, "mutant.Never(%d, ", ")")
		}
		for _, s := range n.Body {
			ast.Inspect(s, in.visit)
		}
		return false
	case *ast.ExprStmt:
		if wakes(n.X) {
			in.add("wake", n, "if !mutant.On(%d) { ", " }")
		}
	case *ast.DeferStmt:
		if wakes(n.Call) {
			in.add("wake", n, "if !mutant.On(%d) { ", " }")
		}
	case *ast.SendStmt:
		in.add("wake", n, "if !mutant.On(%d) { ", " }")
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

// wakes reports whether a statement's call wakes a waiting goroutine.
func wakes(x ast.Expr) bool {
	c, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	switch f := c.Fun.(type) {
	case *ast.SelectorExpr:
		return (f.Sel.Name == "Broadcast" || f.Sel.Name == "Signal") && len(c.Args) == 0
	case *ast.Ident:
		return f.Name == "close" && len(c.Args) == 1
	}
	return false
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

// condition removes the check of an error, unless the check only logs it.
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
	return strings.HasSuffix(strings.ToLower(name), "err") || name == "torn" || name == "missing"
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
