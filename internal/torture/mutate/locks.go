package main

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// lockDirs are the packages whose unlocks are moved.
var lockDirs = []string{".", "internal/epoch", "internal/filecache", "internal/filtermem", "internal/gap", "internal/groupcommit", "internal/wal", "memtable", "sstable"}

// concurrent are the tests of torture that run calls against each other, and rootConcurrent matches
// those of the root package, which has many others.
var (
	concurrent     = []string{"TestStress", "TestLinear", "TestTxn", "TestClosing"}
	rootConcurrent = regexp.MustCompile("Concurrent|Joint|Jobs|During|UnderLoad|Beside")
)

// visitLocks moves each Unlock and RUnlock one statement up, and one down. A deferred one is
// executed at once, so that its lock protects nothing.
func (in *instrumenter) visitLocks(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		in.fn = n.Name.Name
	case *ast.BlockStmt:
		in.unlocks(n.List)
	case *ast.CaseClause:
		in.unlocks(n.Body)
	case *ast.CommClause:
		in.unlocks(n.Body)
	}
	return true
}

func (in *instrumenter) unlocks(list []ast.Stmt) {
	for i, s := range list {
		if d, ok := s.(*ast.DeferStmt); ok && isUnlock(d.Call) {
			in.add("early", d, "if mutant.On(%d) { "+in.textOf(d.Call)+" } else { ", " }")
			continue
		}
		x, ok := s.(*ast.ExprStmt)
		if !ok || !isUnlock(x.X) {
			continue
		}
		if i > 0 && !isCall(list[i-1], "Lock", "RLock") {
			in.move("early", s, list[i-1].Pos(), "if mutant.On(%d) { ", " }\n")
		}
		if i+1 == len(list) {
			continue
		}
		switch next := list[i+1]; next.(type) {
		case *ast.ReturnStmt:
			in.move("late", s, next.Pos(), "if mutant.On(%d) { defer ", " }\n")
		case *ast.BranchStmt:
		default:
			if !leavesBlock(next) {
				in.move("late", s, next.End(), "\nif mutant.On(%d) { ", " }")
			}
		}
	}
}

// move makes a mutant that executes a statement at another place, where before and after enclose
// it.
func (in *instrumenter) move(kind string, s ast.Stmt, to token.Pos, before, after string) {
	in.add(kind, s, "if !mutant.On(%d) { ", " }")
	id := len(in.mutants)
	in.insert(to, id, strings.ReplaceAll(before, "%d", strconv.Itoa(id))+in.textOf(s)+after)
}

func isUnlock(x ast.Expr) bool { return calls(x, "Unlock", "RUnlock") }

func isCall(s ast.Stmt, names ...string) bool {
	x, ok := s.(*ast.ExprStmt)
	return ok && calls(x.X, names...)
}

// calls reports whether an expression calls a method with one of the names, without arguments.
func calls(x ast.Expr, names ...string) bool {
	c, ok := x.(*ast.CallExpr)
	if !ok || len(c.Args) > 0 {
		return false
	}
	f, ok := c.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains(names, f.Sel.Name)
}

// leavesBlock reports whether a statement may end other than by reaching its end.
func leavesBlock(s ast.Stmt) bool {
	leaves := false
	ast.Inspect(s, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt, *ast.BranchStmt:
			leaves = true
		}
		return !leaves
	})
	return leaves
}
