package main

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/base"
	"golang.org/x/term"
)

// maxListed is the maximum number of completions that Tab lists.
const maxListed = 20

// tab completes the last word of the line when key is Tab. If there are several completions, it
// adds what they have in common, and lists them if that is nothing.
func (s *shell) tab(t *term.Terminal, line string, pos int, key rune) (newLine string, newPos int, ok bool) {
	if key != '\t' {
		return "", 0, false
	}
	begin := strings.LastIndexAny(line, " \t") + 1
	words, err := splitWords(line[:begin])
	last := line[begin:]
	if err != nil || pos != len(line) || strings.ContainsAny(last, `'"`) {
		return line, pos, true // no completion in the middle of a line or in quotes
	}
	c := s.complete(words, last)
	if c.common == last && len(c.words) > 1 {
		_, _ = t.Write([]byte(strings.Join(c.words, "  ") + "\n")) // on an error the next read fails, too
	}
	if len(c.common) < len(last) {
		return line, pos, true
	}
	if len(c.words) == 1 {
		c.common += " "
	}
	line = line[:begin] + c.common
	return line, len(line), true
}

// completion holds the possible completions of a word.
type completion struct {
	words  []string // some of them
	common string   // the common prefix of all
}

// complete returns the completions of the last word of a line.
func (s *shell) complete(words []string, last string) completion {
	var c completion
	c.words = completions(s.grammar, append(slices.Clone(words), last))
	if len(words) == 0 {
		c.words = slices.DeleteFunc(c.words, func(w string) bool { return slices.Contains(notInShell, w) })
		for _, w := range []string{"help", "exit"} {
			if strings.HasPrefix(w, last) {
				c.words = append(c.words, w)
			}
		}
	}
	if len(c.words) > 0 {
		c.common = c.words[0]
		for _, w := range c.words {
			c.common = c.common[:base.CommonPrefix([]byte(c.common), []byte(w))]
		}
		return c
	}
	if strings.HasPrefix(last, "-") || !s.keyComesNext(words) {
		return c
	}
	return s.completeKey(form{Hex: slices.Contains(words, "--hex")}, last)
}

// keyComesNext reports whether a key may follow the words.
func (s *shell) keyComesNext(words []string) bool {
	if len(words) == 0 {
		return false
	}
	switch words[len(words)-1] {
	case "--from", "--to", "--prefix":
		return true
	}
	node, _ := s.command(words)
	return len(node.Positional) > 1 && node.Positional[1].Name == "key"
}

// completeKey completes a word to keys of the database.
func (s *shell) completeKey(f form, last string) (c completion) {
	prefix, err := f.parse(last)
	if err != nil {
		return c
	}
	// Errors are not reported here: the command will report them.
	db, err := sift.Open(s.dir, &sift.Options{ReadOnly: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return c
	}
	defer db.Close()
	it, err := db.NewIter(&sift.IterOptions{Prefix: prefix, DontFillCache: true})
	if err != nil {
		return c
	}
	defer it.Close()
	if !it.Last() {
		return c
	}
	greatest := bytes.Clone(it.Key())
	for ok := it.First(); ok; ok = it.Next() {
		if len(c.words) == 0 {
			c.common = wordOf(f, greatest[:base.CommonPrefix(it.Key(), greatest)])
		}
		if len(c.words) == maxListed {
			c.words = append(c.words, "...")
			break
		}
		c.words = append(c.words, wordOf(f, it.Key()))
	}
	return c
}

// wordOf formats a key as one word of a line, with blanks and quotes escaped.
func wordOf(f form, key []byte) string {
	return strings.NewReplacer(" ", `\x20`, `"`, `\x22`, "'", `\x27`).Replace(string(f.append(nil, key)))
}
