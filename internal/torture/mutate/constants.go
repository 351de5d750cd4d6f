package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/build"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// constantDirs are the packages whose constants are changed.
var constantDirs = []string{"internal/base", "internal/manifest", "internal/record", "internal/merge", "internal/compact", "sstable", ".", "memtable", "filter"}

// constants holds the types and the declared constants of the packages that are changed.
type constants struct {
	info     *types.Info
	declared map[token.Position]declared
	files    map[string]*ast.File // by path
	ids      map[change]int
}

// declared is the declaration of a constant.
type declared struct {
	name  *ast.Ident
	value ast.Expr
	iota  int64
	rel   string
	dir   string
}

// change adds by to the literal, or to the constant declared, at a position.
type change struct {
	at token.Position
	by int64
}

// loadConstants type-checks the packages of dirs together: a changed constant changes in
// all of them.
func (in *instrumenter) loadConstants(root string, dirs []string) error {
	build.Default.CgoEnabled = false
	if build.Default.GOROOT == "" { // built with -trimpath
		out, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return err
		}
		build.Default.GOROOT = strings.TrimSpace(string(out))
	}
	c := &constants{
		info:     &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}},
		declared: map[token.Position]declared{},
		files:    map[string]*ast.File{},
		ids:      map[change]int{},
	}
	in.constants = c
	conf := types.Config{Importer: importer.ForCompiler(in.fset, "source", nil)}
	for _, dir := range dirs {
		if filepath.Ext(dir) == ".go" {
			dir = filepath.Dir(dir)
		}
		p, err := build.ImportDir(filepath.Join(root, dir), 0)
		if err != nil {
			return err
		}
		if c.files[filepath.Join(p.Dir, p.GoFiles[0])] != nil {
			continue
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			f, err := parser.ParseFile(in.fset, path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			files = append(files, f)
			c.files[path] = f
			ast.Inspect(f, func(n ast.Node) bool {
				if g, ok := n.(*ast.GenDecl); ok && g.Tok == token.CONST {
					in.declare(g, filepath.Join(dir, name), dir)
				}
				return true
			})
		}
		if _, err := conf.Check(filepath.Join(module, dir), in.fset, files, c.info); err != nil {
			return err
		}
	}
	return nil
}

// declare records the constants of a declaration. One without an expression repeats that
// of the constant before it.
func (in *instrumenter) declare(g *ast.GenDecl, rel, dir string) {
	var values []ast.Expr
	for i, s := range g.Specs {
		s := s.(*ast.ValueSpec)
		if s.Values != nil {
			values = s.Values
		}
		for j, name := range s.Names {
			in.constants.declared[in.fset.Position(name.Pos())] = declared{name, values[j], int64(i), rel, dir}
		}
	}
}

// visitConstants adds the mutants of each constant expression.
func (in *instrumenter) visitConstants(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		in.fn = n.Name.Name
	case *ast.GenDecl:
		return n.Tok != token.CONST
	case *ast.ArrayType:
		return false
	case *ast.CompositeLit:
		t := in.constants.info.TypeOf(n)
		if t == nil {
			return true
		}
		switch t.Underlying().(type) {
		case *types.Array, *types.Slice:
			for _, x := range n.Elts {
				if p, ok := x.(*ast.KeyValueExpr); ok {
					x = p.Value // the key has to be constant
				}
				if in.constants.info.Types[x].Value == nil {
					ast.Inspect(x, in.visit)
				}
			}
			return false
		}
	case ast.Expr:
		tv := in.constants.info.Types[n]
		if tv.Value == nil {
			return true
		}
		in.constant(n, tv)
		return false
	}
	return true
}

// constant adds the mutants of a constant expression: one for each change of what it
// depends on that gives it another value.
func (in *instrumenter) constant(x ast.Expr, tv types.TypeAndValue) {
	t, ok := types.Default(tv.Type).(*types.Basic)
	name := ""
	if ok {
		name = t.Name()
	} else if t, ok = tv.Type.Underlying().(*types.Basic); ok {
		name = types.TypeString(tv.Type, func(p *types.Package) string {
			if p.Path() == filepath.Join(module, in.dir) {
				return ""
			}
			return p.Name()
		})
	}
	if name == "" || t.Info()&(types.IsInteger|types.IsFloat) == 0 || name == "time.Duration" {
		return
	}
	v := evaluation{in: in, used: map[token.Position]bool{}}
	v.of(x, 0)
	used := slices.SortedFunc(maps.Keys(v.used), func(a, b token.Position) int {
		return cmp.Or(cmp.Compare(a.Filename, b.Filename), cmp.Compare(a.Offset, b.Offset))
	})
	for _, at := range used {
		for _, by := range []int64{1, -1} {
			changed := evaluation{in: in, change: change{at, by}, used: map[token.Position]bool{}}
			value := changed.of(x, 0)
			if value == nil || constant.Compare(value, token.EQL, tv.Value) || !fits(value, t) {
				continue
			}
			text := value.ExactString()
			if value.Kind() == constant.Float {
				text = fmt.Sprint(value)
			}
			in.addConstant(changed.change, x, "mutant.Const["+name+"](%d, "+text+", ", ")")
		}
	}
}

// fits reports whether an integer type can hold a value.
func fits(value constant.Value, t *types.Basic) bool {
	if t.Info()&types.IsInteger == 0 {
		return true
	}
	value = constant.ToInt(value)
	if value.Kind() != constant.Int {
		return false
	}
	bits := 64
	switch t.Kind() {
	case types.Int8, types.Uint8:
		bits = 8
	case types.Int16, types.Uint16:
		bits = 16
	case types.Int32, types.Uint32:
		bits = 32
	}
	if t.Info()&types.IsUnsigned != 0 {
		return constant.Sign(value) >= 0 && constant.BitLen(value) <= bits
	}
	return constant.BitLen(value) < bits
}

// addConstant adds a place to the mutant of a change, and creates the mutant at its first
// place.
func (in *instrumenter) addConstant(c change, x ast.Expr, before, after string) {
	if id := in.constants.ids[c]; id > 0 {
		in.wrap(id, x, before, after)
		return
	}
	kind := map[int64]string{1: "plus1", -1: "minus1"}[c.by]
	in.add(kind, x, before, after)
	m := &in.mutants[len(in.mutants)-1]
	in.constants.ids[c] = m.id
	if d, ok := in.constants.declared[c.at]; ok {
		m.dir = d.dir
		m.at = fmt.Sprintf("%s:%d", d.rel, c.at.Line)
		m.text = "const " + d.name.Name
		m.name = fmt.Sprintf("%s const %s %s", d.rel, d.name.Name, kind)
	} else {
		m.text += fmt.Sprintf(" (column %d)", c.at.Column)
	}
}

// evaluation computes constant expressions with one change, and records what could be
// changed in them.
type evaluation struct {
	in       *instrumenter
	change   change
	used     map[token.Position]bool
	declared bool // within a declaration: its literals stay, the constant itself changes
}

// of returns the value of x with the change, or nil if it then has none.
func (v evaluation) of(x ast.Expr, iota int64) constant.Value {
	c := v.in.constants
	switch x := x.(type) {
	case *ast.ParenExpr:
		return v.of(x.X, iota)
	case *ast.BasicLit:
		value := constant.MakeFromLiteral(x.Value, x.Kind, 0)
		if !v.declared && x.Kind == token.INT && constant.Compare(value, token.GEQ, constant.MakeInt64(2)) {
			return v.changed(value, v.in.fset.Position(x.Pos()))
		}
		return value
	case *ast.Ident:
		return v.named(x, iota)
	case *ast.SelectorExpr:
		return v.named(x.Sel, iota)
	case *ast.UnaryExpr:
		if value := v.of(x.X, iota); value != nil && x.Op == token.SUB {
			return constant.UnaryOp(x.Op, value, 0)
		}
	case *ast.BinaryExpr:
		a, b := v.of(x.X, iota), v.of(x.Y, iota)
		if a == nil || b == nil {
			return nil
		}
		op := x.Op
		switch op {
		case token.SHL, token.SHR:
			n, ok := constant.Uint64Val(b)
			if !ok || n > 256 {
				return nil
			}
			return constant.Shift(a, op, uint(n))
		case token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
			return nil
		case token.QUO, token.REM:
			if constant.Sign(b) == 0 {
				return nil
			}
			if op == token.QUO && a.Kind() == constant.Int && b.Kind() == constant.Int {
				op = token.QUO_ASSIGN
			}
		}
		return constant.BinaryOp(a, op, b)
	case *ast.CallExpr:
		if c.info.Types[x.Fun].IsType() {
			return v.of(x.Args[0], iota)
		}
	}
	return c.info.Types[x].Value
}

// named returns the value of a constant, evaluated from its declaration if that is in a package
// that is changed.
func (v evaluation) named(x *ast.Ident, iota int64) constant.Value {
	obj, ok := v.in.constants.info.Uses[x].(*types.Const)
	if !ok {
		return nil
	}
	if obj.Pkg() == nil && obj.Name() == "iota" {
		return constant.MakeInt64(iota)
	}
	at := v.in.fset.Position(obj.Pos())
	d, ok := v.in.constants.declared[at]
	if !ok || obj.Val().Kind() != constant.Int || obj.Type().String() == "time.Duration" {
		return obj.Val()
	}
	v.declared = true
	value := v.of(d.value, d.iota)
	if value == nil {
		return nil
	}
	return v.changed(value, at)
}

// changed records a place, and changes the value if the place is the one to change.
func (v evaluation) changed(value constant.Value, at token.Position) constant.Value {
	v.used[at] = true
	if at != v.change.at {
		return value
	}
	return constant.BinaryOp(value, token.ADD, constant.MakeInt64(v.change.by))
}
