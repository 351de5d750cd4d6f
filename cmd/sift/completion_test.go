package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompletionInShells sources the script of each shell that is installed, and checks the
// completions that the shell offers.
func TestCompletionInShells(t *testing.T) {
	dir := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(dir, "sift")); err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "stray"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, shell := range []struct {
		name, test string
		args       []string
	}{
		{"bash", `COMP_WORDS=($LINE "$LAST"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _sift; printf '%s\n' "${COMPREPLY[@]}"`, []string{"--norc", "-c"}},
		{"zsh", `words=(${=LINE} "$LAST"); CURRENT=${#words}; _files() { print -l stray }; compadd() { print -l -- ${(M)@[2,-1]:#$LAST*} }; _sift`, []string{"-f", "-c"}},
		{"fish", `complete -C "$LINE $LAST"`, []string{"--no-config", "-c"}},
	} {
		t.Run(shell.name, func(t *testing.T) {
			path, err := exec.LookPath(shell.name)
			if err != nil {
				t.Skip("not installed")
			}
			script := mustSift(t, "", "completion", shell.name) + shell.test
			if shell.name == "zsh" {
				script = "compdef() { }\n" + script
			}
			for _, c := range []struct{ line, last, want string }{
				{"sift", "sc", "scan"},
				{"sift filter", "s", "stats size"},
				{"sift completion", "", "bash zsh fish"},
				{"sift scan", "--rev", "--reverse"},
				{"sift dump --as", "t", "table"},
				{"sift dump", "str", "stray"},
			} {
				if shell.name == "bash" && c.want == "stray" {
					continue // files come from complete -o default
				}
				cmd := exec.Command(path, append(shell.args, script)...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "SIFT_TEST_AS_PROGRAM=1", "LINE="+c.line, "LAST="+c.last)
				out, err := cmd.CombinedOutput()
				got := strings.Fields(string(out))
				want := strings.Fields(c.want)
				if err != nil || !sameWords(got, want) {
					t.Errorf("%s %s: %q, %v; want %q", c.line, c.last, got, err, want)
				}
			}
		})
	}
}

// sameWords compares words in any order.
func sameWords(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for _, w := range a {
		if !strings.Contains(" "+strings.Join(b, " ")+" ", " "+w+" ") {
			return false
		}
	}
	return true
}
