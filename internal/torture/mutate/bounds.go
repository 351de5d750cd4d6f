package main

import (
	"go/ast"
	"go/token"
)

// boundDirs are the packages whose conditions and bounds are changed.
var boundDirs = []string{"internal/manifest", "internal/record", "internal/compact", "internal/merge", "sstable", "memtable", "filter"}

// visitBounds changes < to <=, > to >=, && to ||, and each of them back, and leaves out a 1 that is
// added or subtracted. Constant expressions are left alone.
func (in *instrumenter) visitBounds(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		in.fn = n.Name.Name
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.ArrayType:
		return false
	case *ast.BinaryExpr:
		in.operator(n)
	}
	return true
}

// operator adds the mutant of an operator, if it has one. It repeats the source of the
// operands, so that the compiler infers their types.
func (in *instrumenter) operator(b *ast.BinaryExpr) {
	x, y := in.textOf(b.X), in.textOf(b.Y)
	switch b.Op {
	case token.LSS, token.GTR:
		in.add("bound", b, "(", " || mutant.On(%d) && "+x+" == "+y+")")
	case token.LEQ, token.GEQ:
		in.add("bound", b, "(", " && (!mutant.On(%d) || "+x+" != "+y+"))")
	case token.LAND:
		in.add("logic", b, "(", " || mutant.On(%d) && ("+x+" || "+y+"))")
	case token.LOR:
		in.add("logic", b, "((", ") && (!mutant.On(%d) || ("+x+") && ("+y+")))")
	case token.ADD, token.SUB:
		if !isOne(b.Y) || isShift(b.X) {
			return
		}
		name := "PlusOne"
		if b.Op == token.SUB {
			name = "MinusOne"
		}
		in.add("bound", b, "mutant."+name+"(%d, ", ")")
		in.cut(b.X.End(), b.Y.End())
	}
}

// textOf returns the source of a node.
func (in *instrumenter) textOf(n ast.Node) string {
	return string(in.src[in.fset.Position(n.Pos()).Offset:in.fset.Position(n.End()).Offset])
}

// cut removes the source between two positions.
func (in *instrumenter) cut(from, to token.Pos) {
	at := in.fset.Position(from).Offset
	in.edits = append(in.edits, edit{at: at, cut: in.fset.Position(to).Offset - at})
}

func isOne(x ast.Expr) bool {
	lit, ok := x.(*ast.BasicLit)
	return ok && lit.Kind == token.INT && lit.Value == "1"
}

// isShift reports whether an expression is a shifted literal such as 1 << n, whose type depends on
// its context.
func isShift(x ast.Expr) bool {
	b, ok := x.(*ast.BinaryExpr)
	if !ok || b.Op != token.SHL {
		return false
	}
	_, ok = b.X.(*ast.BasicLit)
	return ok
}
