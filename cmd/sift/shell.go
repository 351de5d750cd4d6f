package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"golang.org/x/term"
)

type shellCmd struct {
	Dir string `arg:"" help:"The database."`
}

func (shellCmd) Help() string {
	return `Reads lines and executes them. Each is a command with its arguments, without "sift" and
without the database:

    sift> put user:17 'Ada Lovelace'
    sift> scan --prefix user: --limit 10
    sift> filter stats

Words that contain blanks must be in single or double quotes. On a terminal, the arrow keys edit the
line and recall earlier lines of this session, and Tab completes commands, flags and keys. Ctrl-C
interrupts a command, and a second one ends the shell if the command has not ended yet; at the
prompt Ctrl-C ends the shell, as "exit" and Ctrl-D do. Each command opens the database and closes it
again, so other processes can use it in between. Commands cannot read standard input: put needs its
value as an argument.

If standard input or output is not a terminal, the lines of standard input are a script. It ends at
the first line that is wrong or fails; a missing key does not end it. The exit status is the highest
of all lines.

Examples:

    sift shell db
    printf 'put a 1\nget a\n' | sift shell db`
}

func (c *shellCmd) Run(e *env, k *kong.Kong) error {
	s := &shell{env: e, dir: c.Dir, grammar: k.Model.Node}
	if strings.HasPrefix(s.dir, "-") {
		s.dir = "./" + s.dir // or it would be parsed as a flag
	}
	if in, ok := e.in.(*os.File); ok && term.IsTerminal(int(in.Fd())) && isTerminal(os.Stdout) {
		return s.interact(in)
	}
	return s.script()
}

// shell executes lines, each of which is a command with its arguments.
type shell struct {
	*env
	dir     string
	grammar *kong.Node
}

// notInShell are the commands that need standard input, that run until they are interrupted, or
// that do not use the database.
var notInShell = []string{"load", "batch", "shell", "browse", "serve", "demo", "completion"}

// script executes the lines of standard input.
func (s *shell) script() error {
	lines := newLineReader(s.input())
	worst := statusOK
	var gone error // the error of the output, if its reader has closed the pipe
	for worst <= statusNotFound {
		line, err := lines.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("%w after line %d", err, lines.line)
		}
		if words, err := splitWords(string(line)); gone != nil && (err != nil || len(words) > 0 && !ends(words)) {
			return fmt.Errorf("line %d was not executed: %v", lines.line, gone) // not %w: this is a failure
		}
		status, exit := s.line(s.ctx, string(line))
		if err := s.out.Flush(); isBrokenPipe(err) {
			gone = err
		} else if err != nil {
			return err
		}
		if status >= statusUsage {
			fmt.Fprintf(s.err, "sift: line %d has failed, and the script ends\n", lines.line)
		}
		worst = max(worst, status)
		if exit {
			break
		}
	}
	if worst != statusOK {
		return exitError(worst)
	}
	return gone
}

// interact executes lines from a terminal.
func (s *shell) interact(in *os.File) error {
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{s.input(), os.Stdout}, "sift> ") // SIGTERM ends a read
	t.AutoCompleteCallback = func(line string, pos int, key rune) (string, int, bool) {
		return s.tab(t, line, pos, key)
	}
	// An interrupt ends a command, not the shell.
	signal.Reset(os.Interrupt)
	for {
		line, err := readLine(t, in)
		if err == io.EOF || s.ctx.Err() != nil {
			_, err = fmt.Fprintln(s.out)
			return cmp.Or(s.ctx.Err(), err)
		}
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(s.ctx, os.Interrupt)
		// The first interrupt cancels the command; a second one ends the process.
		context.AfterFunc(ctx, stop)
		_, exit := s.line(ctx, line)
		stop()
		if err := s.out.Flush(); err != nil {
			return err
		}
		if exit || s.ctx.Err() != nil {
			return s.ctx.Err()
		}
	}
}

// readLine reads a line. The terminal is in raw mode until it returns.
func readLine(t *term.Terminal, in *os.File) (line string, err error) {
	fd := int(in.Fd())
	state, err := term.MakeRaw(fd)
	if err != nil {
		return "", err
	}
	defer func() { err = cmp.Or(err, term.Restore(fd, state)) }()
	if width, height, err := term.GetSize(fd); err == nil && width > 0 && height > 0 {
		_ = t.SetSize(width, height) // on an error the line is drawn for another width
	}
	line, err = t.ReadLine()
	if errors.Is(err, term.ErrPasteIndicator) {
		err = nil
	}
	return line, err
}

// line executes one line and returns the exit status of its command. exit is true if the line
// ends the shell.
func (s *shell) line(ctx context.Context, line string) (status int, exit bool) {
	words, err := splitWords(line)
	if err != nil {
		return s.fail(usage(err)), false
	}
	if len(words) > 1 && words[0] == "sift" { // as in the hints of error messages
		words = words[1:]
	}
	switch {
	case len(words) == 0:
		return statusOK, false
	case ends(words):
		return statusOK, true
	case slices.Contains(notInShell, words[0]):
		return s.fail(usage(fmt.Errorf("%s cannot be used in the shell", words[0]))), false
	}
	return run(ctx, s.withDir(words), noInput{}, s.out, s.err), false
}

// ends reports whether a line, which is not empty, ends the shell.
func ends(words []string) bool { return words[0] == "exit" || words[0] == "quit" }

// withDir adds the database to a command line, after the command.
func (s *shell) withDir(words []string) []string {
	node, n := s.command(words)
	if len(node.Positional) == 0 || node.Positional[0].Name != "dir" {
		return words
	}
	return slices.Insert(slices.Clone(words), n, s.dir)
}

// command returns the command that a command line begins with, and how many words name it.
func (s *shell) command(words []string) (node *kong.Node, n int) {
	node = s.grammar
	for n < len(words) {
		child := childNamed(node, words[n])
		if child == nil {
			break
		}
		node = child
		n++
	}
	return node, n
}

// noInput is the standard input of commands in the shell.
type noInput struct{}

func (noInput) Read([]byte) (int, error) {
	return 0, usage(errors.New("commands in the shell have no standard input"))
}

// exitError ends a command with an exit status. The failure has been reported.
type exitError int

func (exitError) Error() string { return errReported.Error() }

func (exitError) Unwrap() error { return errReported }

// splitWords splits a line at blanks that are not in quotes. It keeps backslashes: they begin
// the escapes in keys and values. Bytes that are not UTF-8 stand for themselves there.
func splitWords(line string) ([]string, error) {
	var words []string
	var word []byte
	var quote byte
	inWord := false
	for _, c := range []byte(line) {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word = append(word, c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == ' ' || c == '\t':
			if inWord {
				words = append(words, string(word))
				word, inWord = word[:0], false
			}
		default:
			word = append(word, c)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("unterminated quote %c", quote)
	}
	if inWord {
		words = append(words, string(word))
	}
	return words, nil
}
