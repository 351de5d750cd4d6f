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

// maxListed is how many words Tab lists when the one to complete is ambiguous.
const maxListed = 20

// tab completes the word at the end of the line when key is Tab. If the word is ambiguous, it is
// completed as far as all agree; if that is no further, the words are listed.
func (s *shell) tab(t *term.Terminal, line string, pos int, key rune) (newLine string, newPos int, ok bool) {
	if key != '\t' {
		return "", 0, false
	}
	begin := strings.LastIndexAny(line, " \t") + 1
	words, err := splitWords(line[:begin])
	last := line[begin:]
	if err != nil || pos != len(line) || strings.ContainsAny(last, `'"`) {
		return line, pos, true // within a line or a quotation there is no completion
	}
	c := s.complete(words, last)
	if c.common == last && len(c.words) > 1 {
		_, _ = t.Write([]byte(strings.Join(c.words, "  ") + "\n")) // the next read fails, too
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

// completion is what a word can become.
type completion struct {
	words  []string // some of the words
	common string   // what all of them begin with
}

// complete returns what the last word of a line can become.
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
	node, _ := s.verb(words)
	return len(node.Positional) > 1 && node.Positional[1].Name == "key"
}

// completeKey returns the keys of the database that begin with a word.
func (s *shell) completeKey(f form, last string) (c completion) {
	prefix, err := f.parse(last)
	if err != nil {
		return c
	}
	// What goes wrong here will be reported by the verb.
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

// wordOf writes a key as one word of a line: what separates or quotes words is escaped.
func wordOf(f form, key []byte) string {
	return strings.NewReplacer(" ", `\x20`, `"`, `\x22`, "'", `\x27`).Replace(string(f.append(nil, key)))
}
