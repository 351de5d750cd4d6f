package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (completionCmd) Help() string {
	return `Prints a script that makes a shell complete commands, flags and file names.

Put the example's line for bash into ~/.bashrc, and the one for zsh into ~/.zshrc, after compinit.

Examples:

    source <(sift completion bash)
    source <(sift completion zsh)
    sift completion fish > ~/.config/fish/completions/sift.fish`
}

// completionScripts get the words that may come next from "sift complete", and complete file
// names if there are none.
var completionScripts = map[string]string{
	"bash": `_sift() {
	local IFS=$'\n'
	COMPREPLY=($(compgen -W "$(sift complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _sift sift
`,
	"zsh": `_sift() {
	local -a next
	next=("${(@f)$(sift complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	next=(${next:#})
	if (( ${#next} )); then
		compadd -- $next
	else
		_files
	fi
}
compdef _sift sift
`,
	"fish": `function __sift_next
	sift complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null
end
complete -c sift -f -a '(__sift_next)'
complete -c sift -F -n 'test -z "$(__sift_next)"'
`,
}

func (c *completionCmd) Run(e *env) error {
	_, err := e.out.WriteString(completionScripts[c.Shell])
	return err
}

type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words after sift, the last one unfinished."`
}

func (c *completeCmd) Run(e *env, k *kong.Kong) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, word := range completions(k.Model.Node, words) {
		if _, err := fmt.Fprintln(e.out, word); err != nil {
			return err
		}
	}
	return nil
}

// completions returns the completions of the last word: commands, flags, or values of flags and
// arguments.
func completions(node *kong.Node, words []string) (next []string) {
	last := ""
	if len(words) > 0 {
		last = words[len(words)-1]
		words = words[:len(words)-1]
	}
	var value *kong.Flag // the flag whose value comes next
	args := 0            // how many arguments there are
	for _, word := range words {
		switch {
		case value != nil:
			value = nil
		case word == "--":
			return nil
		case strings.HasPrefix(word, "-"):
			if f := flagNamed(node, word); f != nil && !f.IsBool() {
				value = f
			}
		default:
			if child := childNamed(node, word); child != nil {
				node = child
			} else {
				args++
			}
		}
	}
	add := func(word string) {
		if strings.HasPrefix(word, last) {
			next = append(next, word)
		}
	}
	switch {
	case value != nil:
		for _, v := range value.EnumSlice() {
			add(v)
		}
	case strings.HasPrefix(last, "-"):
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				add("--" + f.Name)
			}
		}
	default:
		for _, child := range node.Children {
			if !child.Hidden {
				add(child.Name)
			}
		}
		if len(node.Positional) > args {
			for _, v := range node.Positional[args].EnumSlice() {
				add(v)
			}
		}
	}
	return next
}

// flagNamed returns the flag of a word such as --from or -q. It returns nil if the flag is
// unknown or the word includes its value.
func flagNamed(node *kong.Node, word string) *kong.Flag {
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

// childNamed returns the command with a name, nil if there is none.
func childNamed(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}
